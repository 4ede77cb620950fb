"""Ending a process at once, and what is let finish before.

Knows that a checkpoint in the works is worth some seconds. Leaves why a process ends to those who
call this, and writing the checkpoint to ``saving``.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

CHECKPOINT_THREAD = "checkpoint"
PATIENCE_S = 15.0


def end_now(code: int) -> NoReturn:
    """End the process without waiting for other ranks, whoever else still runs in it.

    Python's own end would wait in Horovod for a rank that does not come. A checkpoint in the
    works is waited for, ``PATIENCE_S`` at most.

    Args:
        code: of the process.
    """
    for thread in threading.enumerate():
        if thread.name == CHECKPOINT_THREAD and thread is not threading.current_thread():
            thread.join(PATIENCE_S)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
