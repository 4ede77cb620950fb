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

from env.cli import main

sys.exit(main())
