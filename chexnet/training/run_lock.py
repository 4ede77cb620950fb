"""One writer for a run folder at a time.

Knows the lock: an advisory one of the kernel's (flock) on a file in the folder, which ends with
the process that holds it, however it ends. So a lock that a dead process left never blocks.
Leaves the folder's files to ``run``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from chexnet.errors import UserError

LOCK = ".lock"
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class RunLock:
    """The lock on a run folder; use as a context, on rank 0.

    Args:
        folder: the run folder; it must exist.
        say: told where the file system knows no locks.
    """

    def __init__(self, folder: Path, *, say: Callable[[str], None]) -> None:
        self._path = folder / LOCK
        self._say = say
        self._handle: int | None = None

    def __enter__(self) -> RunLock:
        """Take the lock.

        Raises:
            UserError: another process has it, whose host and number are named; or the
                folder cannot be written.
        """
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UserError(
                f"a run folder that can be written at {self._path.parent}",
                found=f"{self._path.name}: {error.strerror}",
                fix="choose another --run",
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = self._path.read_text(encoding="utf-8", errors="replace").strip()
            self.release()
            if error.errno in _HELD:
                raise UserError(
                    f"nobody else to write to {self._path.parent}",
                    found=f"a training there, {holder or 'by another process'}",
                    fix="wait for it, stop it (kill -USR1 keeps its work), or choose another --run",
                ) from error
            self._say(f"note: two trainings in {self._path.parent} would not notice each other: "
                      f"no locks on this file system ({error.strerror})")  # fmt: skip
            return self
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        """Let go of the lock; the file stays, since another may be waiting at it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
