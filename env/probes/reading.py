"""Reading one file into one fact, and asking what is there. Knows nothing of what files mean."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from env.facts import Fact


def is_file(path: Path | str) -> bool:
    """Return whether this is a file; a path too long, or a loop of links, is none."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for such paths


def is_folder(path: Path | str) -> bool:
    """Return whether this is a folder; a path too long, or a loop of links, is none."""
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises for such paths


def read_fact(path: Path, *, parse: Callable[[str], Any] = str.strip) -> Fact:
    """Return a fact read from a file, with the reason where it cannot be read.

    Args:
        path: the file.
        parse: turns its text into the value; may raise ValueError, KeyError or IndexError.
    """
    try:
        return Fact(parse(path.read_text(encoding="utf-8", errors="replace")), str(path))
    except OSError as error:
        return Fact(None, str(path), problem=error.strerror or repr(error))
    except (ValueError, KeyError, IndexError) as error:
        return Fact(None, str(path), problem=f"not understood: {error!r}")
