"""Text files that are written whole or not at all.

Knows how a file is put in its place, and which errors say that a disk takes no more. Leaves
what it holds to the modules that own it.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from chexnet.errors import UserError

# A full disk, a quota, a limit on the length of a file: no path or permission is wrong.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make_folder_of(path: Path) -> None:
    """Make the folder of a file that long work will write at its end.

    Raises:
        UserError: there is a folder in the file's place, or the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = "a folder" if path.is_dir() else ""
        if not os.access(path.parent, os.W_OK | os.X_OK):
            found = f"no permission to write in {path.parent}"
    except OSError as error:
        found = f"{error.strerror}: {error.filename}"
    if found:
        raise UserError(f"a file that can be written at {path}", found=found,
                        fix="give another path, or make that folder writable")  # fmt: skip


def write_text(path: Path, *, text: str) -> None:
    """Write a file whole or not at all, also where the power fails in between.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old file is left as it
            was, and nothing beside it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def append_line(path: Path, *, line: str) -> None:
    """Add a line to a file, whole or not at all.

    Raises:
        OSError: the disk is full or the file cannot be written; it is left as it was.
    """
    with path.open("ab", buffering=0) as file:
        before, data = file.tell(), f"{line}\n".encode()
        try:
            done = file.write(data)
            while done < len(data):  # a full disk takes a part, and refuses the next
                done += file.write(data[done:])
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder last: the entry belongs to the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
