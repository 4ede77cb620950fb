"""Text files that are written whole or not at all.

Knows how a file is put in its place. Leaves what it holds to the modules that own it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


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
