"""Files that no package owns and that decide what a run starts, held to what the build writes.

Knows what the definitions write of them, and which of the engine's scripts an engine writes.
Leaves reading them to ``env.probes.inventory``; a library that is brought in by any of these
ways and loaded is told by ``containers.differences`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from env.facts import Facts
from env.lock import Lock
from recipes.blocks.project import INVOKE_SETTINGS
from recipes.layout import MPI_PREFIXES

Line = tuple[str, str, str]
"""What was expected, what was found, and where."""

# Scripts that Singularity or Apptainer runs before every command: those they write themselves,
# by version and by what the image was made from. An OCI image has none.
_ENGINE_SCRIPTS = re.compile(
    r"01-base\.sh|10-docker(2singularity)?\.sh|9[01]-environment\.sh|94-appsbase\.sh|95-apps\.sh"
    r"|99-(base|runtimevars)\.sh"
)
# What our `python3 -m venv` says: the distribution's Python, and none of its packages. Without
# the second line Python takes those in.
_VENV = {"home": "/usr/bin", "include-system-site-packages": "false"}
# NVIDIA's container toolkit adds such a file to a running container, wherever its libraries are.
_TOOLKIT = re.compile(r"/etc/ld\.so\.conf\.d/(00-)?nvcr-[^/]*\.conf")


def find_redirects(facts: Facts, *, lock: Lock) -> tuple[int, list[Line]]:
    """Return how many things were compared, and those that are not as the build writes them.

    Args:
        facts: what ``env.probes.inventory`` observed in the image.
        lock: what it should have been built from.

    Raises:
        CannotTellError: one of the files could not be read.
    """
    lines = [*_settings(facts), *_venv(facts), *_scripts(facts), *_linker(facts, lock)]
    scripts, linker = facts.value("inventory.scripts"), facts.value("inventory.linker")
    return 1 + len(_VENV) + len(scripts) + len(linker), lines


def _settings(facts: Facts) -> Iterator[Line]:
    told = facts.value("inventory.invoke")
    if told != INVOKE_SETTINGS:
        yield _text(INVOKE_SETTINGS), _text(told), facts["inventory.invoke"].origin


def _venv(facts: Facts) -> Iterator[Line]:
    """Yield each setting that is other; of one that stands twice either may count."""
    told = facts.value("inventory.venv")
    where = facts["inventory.venv"].origin
    pairs = [line.partition("=") for line in (told or "").splitlines()]
    for name, value in _VENV.items():
        found = [v.strip() for key, _, v in pairs if key.strip().lower() == name]
        if set(found) != {value}:
            yield f"{name} = {value}", f"{name} = {', '.join(found)}" if found else "none", where


def _scripts(facts: Facts) -> Iterator[Line]:
    where = facts["inventory.scripts"].origin
    for name in facts.value("inventory.scripts"):
        if not _ENGINE_SCRIPTS.fullmatch(name):
            yield "scripts that the engine writes", f"another, {name}", f"{where}/{name}"


def _linker(facts: Facts, lock: Lock) -> Iterator[Line]:
    """Yield lists of folders that are nobody's, where the lock knows whose files are."""
    found = facts.value("inventory.linker")
    wanted = {}
    if lock.downloads:
        wanted["/etc/ld.so.conf.d/mpi.conf"] = "".join(f"{p}/lib\n" for p in MPI_PREFIXES)
    for path, text in wanted.items():
        if found.get(path) != text:
            yield _text(text), _text(found.get(path)), path
    if lock.system_packages:  # a base that is not locked may bring files of its own
        for path in sorted(found.keys() - wanted.keys()):
            if not _TOOLKIT.fullmatch(path):
                yield "a file that a package brought", f"of nobody: {_text(found[path])}", path


def _text(text: str | None) -> str:
    return "no such file" if text is None else repr(text[:120])
