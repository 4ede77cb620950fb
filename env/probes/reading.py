"""Reading one file into one fact. Knows nothing about what the files mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from env.facts import Fact


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
