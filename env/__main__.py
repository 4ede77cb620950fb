"""``python -m env``: refuses an old Python in plain words, then hands over to ``env.cli``.

Every Python since 3.0 can parse this file; nothing newer is imported before the check.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - this is the place that says so
    found = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write("expected: Python 3.11 or later\n")
    sys.stderr.write("found:    Python " + found + " in " + sys.executable + "\n")
    sys.stderr.write("fix:      env/bootstrap.sh python -m env, or python3.11 -m env\n")
    sys.exit(2)

# A json.py in the current folder or on PYTHONPATH must not break what is there to find it:
# Python's own folders come first, and the order of the others stays.
library = (sys.base_prefix + "/lib/python", sys.base_prefix + "/lib64/python")
own = [entry for entry in sys.path if entry.startswith(library) and "-packages" not in entry]
sys.path[:] = own + [entry for entry in sys.path if entry not in own]

from env.cli import main  # noqa: E402 - after the two steps above

sys.exit(main())
