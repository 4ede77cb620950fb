"""Writing a file so that a reader finds the whole of it or none. Nothing else."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text to a file beside, then put it in place; folders are made.

    A link stays a link: what it leads to is replaced. A terminal, a pipe or a device is
    written to, and never replaced: root would otherwise take away ``/dev/stdout``.

    Raises:
        OSError: the folder cannot be written to.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
