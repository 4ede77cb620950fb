"""LD_LIBRARY_PATH and LD_PRELOAD as the loader takes them: which folders, in which order.

Knows that the loader looks into folders of a folder first: those of builds for a better processor,
and on older systems those of its platform. Which ones it takes here it tells itself (ld.so(8),
``--help``). Leaves what lies in them to ``env.probes.libraries`` and ``env.probes.loader``.
"""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from env.probes.child import run_child
from env.probes.reading import is_folder

_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
_HWCAPS = "glibc-hwcaps"
_TIMEOUT_S = 5.0


def entries_of(value: str) -> list[str]:
    """Return the entries of a library path; an empty one is the current folder."""
    return re.split("[:;]", value) if value else []


def library_folders(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the folders in which LD_LIBRARY_PATH makes the loader look, in its order."""
    for entry in entries_of(environ.get("LD_LIBRARY_PATH", "")):
        yield from folders_within(Path(entry or "."))


def folders_within(folder: Path) -> Iterator[Path]:
    """Yield those folders of a folder that the loader searches before it, and the folder last."""
    try:
        with os.scandir(folder) as items:
            names = {item.name for item in items if item.is_dir()}
    except (OSError, ValueError):  # ValueError: a null byte in a name
        names = set()
    for place in preferred_folders() if names else ():
        if place.partition("/")[0] in names and is_folder(folder / place):
            yield folder / place
    yield folder


@functools.cache
def preferred_folders() -> tuple[str, ...]:
    """Return the folders within folders that this loader and processor take, the best first.

    None where the loader cannot be asked, as one before glibc 2.33.
    """
    loader = _LOADERS.get(platform.machine())
    if loader is None:
        return ()
    outcome = run_child([loader, "--help"], environ={}, timeout_s=_TIMEOUT_S)
    return tuple(dict.fromkeys(parse_help(outcome.stdout)))


def parse_help(text: str) -> Iterator[str]:
    """Yield the folders that the loader's help calls searched, first those of processors."""
    kind = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            kind = line
        match = re.fullmatch(r"\s+([\w.-]+) \((?:.*; )?supported, searched\)", line)
        if match and "HWCAP" in kind.upper():
            yield f"{_HWCAPS}/{match[1]}" if _HWCAPS in kind else match[1]
