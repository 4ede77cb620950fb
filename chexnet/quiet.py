"""Importing TensorFlow without its greetings.

Knows where they come from. Leaves the log level, which covers the rest, to the package's
``__init__``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_import() -> Iterator[None]:
    """Hold back what TensorFlow writes to stderr while it is imported.

    Its first notes come from C++ before any log level is read. They are shown after all
    if the import fails, since they then say why.
    """
    with tempfile.TemporaryFile() as held:
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
            os.dup2(stderr, 2)
            os.close(stderr)
