"""What is really inside an image, observed from within it.

Run by path with the image's Python, from a copy that need not be the image's own: an
image that was changed must not be asked with its own words. Prints one marked line of
JSON: facts, to be judged outside by ``containers.verify``. Knows which facts that needs.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # by path, so nothing has named the folder of `env` yet
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from env.checks.registry import Check, find_check
from env.facts import Fact, Facts, render_facts
from env.probes import distributions, dpkg
from env.probes.frameworks import probe_frameworks
from env.validate import collect_static

MARK = "@inventory "
LABELS = ".singularity.d/labels.json"
SCRIPTS = ".singularity.d/env"
"""What Singularity runs before every command."""
LINKER = "etc/ld.so.conf.d"
# What decides which library or module a process gets.
_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "PATH")
_KEPT_BYTES = 16 * 2**20


def probe_inventory(
    home: Path, *, root: Path = Path("/"), environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the facts ``inventory.*``, save for those about what an import loads.

    Args:
        home: the folder of ours in the image, ``/opt/chexnet``.
        root: the folder in which the system lies.
        environ: the environment a training would run in.
    """
    installed = distributions.read_distributions(sys.path)
    libraries = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    return {
        "inventory.lock": _text(home / "stack.lock.json"),
        "inventory.sbom": _text(home / "sbom.cdx.json"),
        "inventory.labels": _try(lambda: _labels(root / LABELS), root / LABELS),
        "inventory.system": _try(lambda: [asdict(p) for p in dpkg.read_packages(root)], "dpkg"),
        "inventory.system_files": _try(lambda: _files(*dpkg.check_files(root)), "dpkg's hashes"),
        "inventory.python": Fact(_versions(installed), "importlib.metadata"),
        "inventory.python_files": _try(
            lambda: _files(*distributions.check_files(installed)), "RECORD files"
        ),
        "inventory.unowned": _try(
            lambda: distributions.find_unowned(installed, folders=map(Path, libraries)),
            ", ".join(libraries),
        ),
        "inventory.programs": _try(lambda: _strays(installed, root, environ), "PATH"),
        "inventory.project": _try(lambda: _project(home / "project"), home / "project"),
        "inventory.environment": Fact(
            {name: environ[name] for name in _VARIABLES if environ.get(name)}, "environment"
        ),
        "inventory.preloaded": _text(root / "etc/ld.so.preload", absent=True),
        "inventory.invoke": _text(root / "etc/invoke.yaml", absent=True),
        "inventory.venv": _text(home / "venv/pyvenv.cfg", absent=True),
        "inventory.scripts": _try(
            lambda: sorted(path.name for path in (root / SCRIPTS).glob("*")), root / SCRIPTS
        ),
        "inventory.linker": _try(lambda: _linker(root), root / LINKER),
    }


def probe_loaded(mapped: Fact, *, root: Path = Path("/")) -> dict[str, Fact]:
    """Return the fact ``inventory.loaded``: each mapped library with who brought it, or None.

    Args:
        mapped: the paths of the libraries in a process, as that process told them.
        root: the folder in which the system lies.
    """
    if mapped.problem is not None or not isinstance(mapped.value, list):
        problem = mapped.problem or str(mapped.value)
        return {"inventory.loaded": Fact(None, mapped.origin, problem=problem)}
    brought = {
        path: one.owner
        for one in distributions.read_distributions(sys.path)
        for path, _ in one.files or ()
    }
    paths = sorted(set(mapped.value))
    owners = dpkg.find_owners(paths, root=root)
    loaded = [{"path": path, "owner": brought.get(path) or owners.get(path)} for path in paths]
    return {"inventory.loaded": Fact(loaded, mapped.origin)}


def observe(home: Path, checks: Iterable[str]) -> Facts:
    """Return everything that a verification judges.

    Args:
        home: the folder of ours in the image.
        checks: ids of the checks of ``env`` that will judge it too.
    """
    # Without what an import tells: one import of TensorFlow, which takes seconds, serves all.
    chosen = [_without_frameworks(find_check(name)) for name in checks]
    facts = collect_static(chosen) | probe_frameworks(mapped=True)
    facts |= probe_inventory(home)
    return facts | probe_loaded(facts["frameworks.mapped"])


def _without_frameworks(check: Check) -> Check:
    return replace(check, reads=tuple(k for k in check.reads if not k.startswith("frameworks.")))


def _strays(
    installed: Iterable[distributions.Distribution], root: Path, environ: Mapping[str, str]
) -> list[str]:
    """Return what is in the folders of PATH and leads to a file that nobody brought.

    A link counts by where it ends (Debian's alternatives are links); one that ends nowhere
    starts nothing.
    """
    base = root.resolve()
    ends: dict[Path, str] = {}
    for folder in filter(None, environ.get("PATH", "").split(":")):
        for path in sorted((root / folder.lstrip("/")).glob("*")):
            end = path.resolve()
            if end.is_file() and end.is_relative_to(base):
                ends[path] = f"/{end.relative_to(base)}"
    brought = {path for one in installed for path, _ in one.files or ()}
    owners = dpkg.find_owners(ends.values(), root=root)
    return [
        str(path)
        for path, end in ends.items()
        if end not in owners and str(path) not in brought and not _is_known(path)
    ]


def _linker(root: Path) -> dict[str, str]:
    """Return the text, by path, of each list of the linker's folders that no package brought."""
    files = {f"/{LINKER}/{path.name}": path for path in sorted((root / LINKER).glob("*.conf"))}
    owners = dpkg.find_owners(files, root=root) if files else {}
    return {
        path: file.read_text(encoding="utf-8", errors="replace")
        for path, file in files.items()
        if path not in owners
    }


def _is_known(path: Path) -> bool:
    """Return whether no package brings a file and it is right all the same.

    ``python -m venv`` makes scripts beside its Python; Debian's image in registries has a
    ``policy-rc.d``, which keeps packages from starting services.
    """
    script = path.name.lower().startswith("activate")
    return path.name == "policy-rc.d" or (script and (path.parents[1] / "pyvenv.cfg").exists())


def _versions(installed: Iterable[distributions.Distribution]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "version": one.version, "location": one.location,
         "recorded": one.files is not None}
        for one in installed
    ]  # fmt: skip


def _files(checked: int, wrong: Iterable[dpkg.WrongFile]) -> dict[str, Any]:
    return {"checked": checked, "wrong": [asdict(one) for one in wrong]}


def _project(folder: Path) -> dict[str, dict[str, str]]:
    """Return the hashes of every file of the project: its SHA-256, and git's own."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        found[path.relative_to(folder).as_posix()] = {
            "sha256": hashlib.sha256(content).hexdigest(), "git": blob.hexdigest(),
        }  # fmt: skip
    if not found:
        raise FileNotFoundError(2, "no such folder, or nothing in it", str(folder))
    return found


def _labels(path: Path) -> dict[str, str]:
    labels = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    if not isinstance(labels, dict):
        raise ValueError("no table of labels")
    return {str(name): str(value) for name, value in labels.items()}


def _text(path: Path, *, absent: bool = False) -> Fact:
    """Return a file's text; a file may be allowed to be absent."""
    try:
        with path.open("rb") as file:
            return Fact(file.read(_KEPT_BYTES).decode("utf-8", errors="replace"), str(path))
    except FileNotFoundError:
        return Fact(None, str(path), problem=None if absent else "no such file")
    except OSError as error:
        return Fact(None, str(path), problem=error.strerror or repr(error))


def _try(read: Callable[[], Any], origin: object) -> Fact:
    try:
        return Fact(read(), str(origin))
    except (OSError, ValueError, KeyError) as error:
        return Fact(None, str(origin), problem=str(error) or repr(error))


def main(argv: list[str]) -> int:
    """Observe and print; ``argv`` is our folder in the image, then ids of checks."""
    facts = observe(Path(argv[0]), argv[1:])
    print(MARK + json.dumps(json.loads(render_facts(facts))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
