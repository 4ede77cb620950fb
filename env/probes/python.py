"""What changes Python before the program begins: start-up hooks, modules that hide others.

Knows ``site``'s hooks and where a module of one folder hides that of another. Imports
nothing of what it finds. Leaves versions and places of packages to ``env.probes.packages``.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from env.facts import Fact
from env.probes.reading import is_file, is_folder

PROJECT = Path(__file__).resolve().parents[2]
# Whose declared needs are followed: what a training imports by name.
_ROOTS = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "numpy", "h5py")
_MAX_LISTED = 5000


def probe_python(
    *,
    environ: Mapping[str, str] = os.environ,
    path: Sequence[str] | None = None,
    program: Path = PROJECT / "chexnet",
) -> dict[str, Fact]:
    """Return the facts ``python.*``.

    ``python.requires``: ``{package: [requirement, …]}`` as their metadata declares them.
    ``python.wrappers``: places at which the training program calls Horovod's optimizer wrapper.
    ``python.hooks``: ``{kind, path}`` of code outside this Python's own folders that every
    program runs first. ``python.hiding``: ``{module, path, hides}``: modules in folders that
    come before the packages, of the name of one of Python's or of theirs.

    Args:
        environ: the process's environment.
        path: where Python looks for modules, in this order; ``sys.path`` if None.
        program: the folder of the training program.
    """
    entries = [entry for entry in (sys.path if path is None else path) if entry]
    user = site.getusersitepackages()
    named = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    outside = [e for e in dict.fromkeys([*named, *entries]) if _is_outside(e, user)]
    return {
        "python.requires": Fact(dict(_requires(entries)), "importlib.metadata"),
        "python.wrappers": Fact(list(_wrappers(program)), str(program)),
        "python.hooks": Fact(list(_hooks(outside, user)), "sys.path"),
        "python.hiding": Fact(list(_hiding(outside, user)), "sys.path"),
    }


def _is_outside(entry: str, user: str) -> bool:
    """Whether a folder is neither of this Python nor this project, which runs from its own."""
    place = os.path.realpath(entry)
    own = [os.path.realpath(sysconfig.get_path(key)) for key in ("stdlib", "purelib", "platlib")]
    if place == os.path.realpath(user):
        return True
    if Path(place) == PROJECT:
        return False
    inside = any(Path(place).is_relative_to(os.path.realpath(p)) for p in {sys.prefix, *own})
    return not inside and is_folder(place) and not re.search(r"/lib/python3[^/]*/", place + "/")


def _requires(entries: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for name in _ROOTS:
        # Of several copies the first counts, as when it is imported.
        found = importlib.metadata.distributions(name=name, path=list(entries))
        package = next(iter(found), None)
        if package is not None:
            yield name, list(package.requires or ())[:200]


def _wrappers(program: Path) -> Iterator[str]:
    for file in sorted(program.rglob("*.py"))[:_MAX_LISTED]:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
            tree = ast.parse(text if "DistributedOptimizer" in text else "")
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                if name == "DistributedOptimizer":
                    yield f"{file}:{node.lineno}"


def _hooks(outside: Sequence[str], user: str) -> Iterator[dict[str, str]]:
    for entry in outside:
        for name in ("sitecustomize", "usercustomize"):
            for file in (Path(entry) / f"{name}.py", Path(entry) / name / "__init__.py"):
                if is_file(file):
                    yield {"kind": name, "path": str(file)}
    folder = Path(user)
    try:
        files = sorted(folder.glob("*.pth"))[:_MAX_LISTED]
    except OSError:
        return
    for file in files if site.ENABLE_USER_SITE else ():
        try:
            text = file.read_bytes()[: 2**20].decode(errors="replace")
        except OSError:
            continue
        if re.search(r"^import[ \t]", text, re.MULTILINE):
            yield {"kind": "a .pth file that runs code", "path": str(file)}


def _hiding(outside: Sequence[str], user: str) -> Iterator[dict[str, str]]:
    packages = Path(sysconfig.get_path("purelib"))
    for entry in outside:
        for name in _modules(Path(entry)):
            place = str(Path(entry) / name)
            if name in sys.stdlib_module_names:
                # The user's site comes after Python's own folder, and hides nothing of it.
                if os.path.realpath(entry) != os.path.realpath(user):
                    yield {"module": name, "path": place, "hides": "Python's own"}
            elif is_folder(packages / name) or is_file(packages / f"{name}.py"):
                yield {"module": name, "path": place, "hides": f"that of {packages}"}


def _modules(folder: Path) -> list[str]:
    """Return the names that can be imported from a folder, at its top."""
    found = set()
    try:
        for item in list(os.scandir(folder))[:_MAX_LISTED]:
            name = item.name.partition(".")[0]
            is_module = item.name.endswith((".py", ".so", ".pyc")) and item.is_file()
            is_package = item.is_dir() and is_file(Path(item.path) / "__init__.py")
            if name.isidentifier() and (is_module or is_package):
                found.add(name)
    except OSError:
        return []
    return sorted(found)
