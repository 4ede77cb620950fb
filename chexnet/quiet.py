"""Importing TensorFlow without its greetings, and without what Keras only might use.

Knows where they come from. Leaves the log level, which covers the rest, to the package's
``__init__``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# Keras imports these where they are installed, for wrappers and pictures that nothing here
# asks for; that takes more than a third of the time. Ours are imported where they draw, after this.
_NOT_FOR_KERAS = ("sklearn", "matplotlib")


@contextmanager
def quiet_import() -> Iterator[None]:
    """Hold back what TensorFlow writes to stderr while it is imported.

    Keras is told meanwhile that scikit-learn and matplotlib are not there. TensorFlow's first
    notes come from C++ before any log level is read. They are shown after all
    if the import fails, since they then say why.
    """
    hidden = [name for name in _NOT_FOR_KERAS if name not in sys.modules]
    with tempfile.TemporaryFile() as held:
        sys.modules.update(dict.fromkeys(hidden))  # None makes an import of it fail
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(stderr, held.read())
            raise
        finally:
            for name in hidden:
                sys.modules.pop(name, None)
            os.dup2(stderr, 2)
            os.close(stderr)
