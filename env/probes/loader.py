"""Where the loader would find a library by its name, first place first; loads nothing.

Knows LD_LIBRARY_PATH, the loader's cache (or, without one, the file it is made from) and the
default folders: ld.so(8). Leaves what a library is to whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from env.probes.libraries import read_cache
from env.probes.search_path import entries_of, folders_within

_DEFAULT = ("/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
            "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib")  # fmt: skip
_MAX_CONF_FILES = 200


def find_libraries(
    names: Iterable[str], *, root: Path, environ: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (name, path, file behind all links) of every copy, in the loader's order, once.

    Args:
        names: such as ``"libcuda.so.1"``.
        root: the folder that stands for ``/``; the paths are those inside it.
        environ: the process's environment.
    """
    names, top, seen = list(names), root.resolve(), set()
    for place in _places(names, root, environ):
        path = root / place.lstrip("/")
        try:
            real = path.resolve()
            if real in seen or not path.is_file():
                continue
        except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL in a name
            continue
        seen.add(real)
        behind = f"/{real.relative_to(top)}" if real.is_relative_to(top) else str(real)
        yield path.name, place, behind


def _places(names: list[str], root: Path, environ: Mapping[str, str]) -> Iterator[str]:
    for entry in filter(None, entries_of(environ.get("LD_LIBRARY_PATH", ""))):
        top = root / entry.lstrip("/")
        for folder in folders_within(top):
            inside = Path(entry) / folder.relative_to(top)
            yield from (f"{inside}/{name}" for name in names)
    try:
        cache = read_cache(root / "etc/ld.so.cache")
    except (OSError, ValueError):
        cache = None
    if cache is not None:
        yield from (place for name in names for place in cache.get(name, ()))
    for folder in (*(_configured(root) if cache is None else ()), *_DEFAULT):
        yield from (f"{folder.rstrip('/')}/{name}" for name in names)


def _configured(root: Path) -> Iterator[str]:
    """Yield the folders that /etc/ld.so.conf and what it includes name, in their order."""
    yield from _folders(root / "etc/ld.so.conf", root, set())


def _folders(file: Path, root: Path, read: set[Path]) -> Iterator[str]:
    if file in read or len(read) > _MAX_CONF_FILES:
        return
    read.add(file)
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except (OSError, RuntimeError):
        return
    for line in (line.split("#")[0].strip() for line in lines):
        word, _, pattern = line.partition(" ")
        if word == "include" and pattern.strip("/ "):
            base = root if pattern.startswith("/") else file.parent
            for included in sorted(base.glob(pattern.strip().lstrip("/"))):
                yield from _folders(included, root, read)
        elif line.startswith("/"):
            yield line
