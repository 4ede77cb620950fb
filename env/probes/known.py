"""The names of settings that the installed Horovod and NCCL know, asked of themselves.

A library holds the name of every variable that it looks up among its constants, so a
name that is not there is one that this release ignores. Asked only for the tools that some
setting names. Leaves Open MPI, which lists its parameters, to ``env.probes.mpi``.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from env.facts import Fact
from env.probes.elf import find_words
from env.probes.libraries import read_cache
from env.probes.reading import is_file
from env.probes.search_path import library_folders

_MAX_SCRIPT_BYTES = 2**20


def probe_known(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    path: Sequence[str] | None = None,
) -> dict[str, Fact]:
    """Return the fact ``known.names``: the names by their prefix.

    A prefix that no variable begins with, or whose tool is not installed, is left out.

    Args:
        root: the folder in which /etc lies.
        environ: the process's environment.
        path: where to look for packages; ``sys.path`` if None.
    """
    site = [entry for entry in (sys.path if path is None else path) if entry]
    names: dict[str, list[str]] = {}
    for prefix, files in (("HOROVOD_", _horovod(site)), ("NCCL_", _nccl(root, environ, site))):
        if any(name.startswith(prefix) for name in environ):
            found = sorted({word for file in files for word in _words(file, prefix)})
            if found:
                names[prefix] = found
    return {"known.names": Fact(names, "constants of the installed libraries")}


def _words(file: Path, prefix: str) -> set[str]:
    pattern = rb"\b" + prefix.encode() + rb"[A-Z0-9_]+"
    try:
        if file.suffix != ".py":
            return find_words(file, pattern)
        with file.open("rb") as stream:
            text = stream.read(_MAX_SCRIPT_BYTES)
        return {word.decode() for word in re.findall(pattern, text)}
    except (OSError, ValueError):
        return set()


def _horovod(site: Sequence[str]) -> Iterator[Path]:
    spec = importlib.machinery.PathFinder.find_spec("horovod", list(site))
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(place).glob("tensorflow/mpi_lib*.so")
        yield from Path(place).rglob("*.py")


def _nccl(root: Path, environ: Mapping[str, str], site: Sequence[str]) -> Iterator[Path]:
    """Yield the NCCL that would be loaded: of LD_LIBRARY_PATH, of a wheel, of the system."""
    for folder in library_folders(environ):
        if is_file(folder / "libnccl.so.2"):
            yield folder / "libnccl.so.2"
    for entry in site:
        if is_file(Path(entry) / "nvidia/nccl/lib/libnccl.so.2"):
            yield Path(entry) / "nvidia/nccl/lib/libnccl.so.2"
    try:
        yield from map(Path, read_cache(root / "etc/ld.so.cache").get("libnccl.so.2", ()))
    except (OSError, ValueError):
        return
