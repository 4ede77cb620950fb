"""What dpkg has installed: packages, their licences, and whether their files are as shipped.

Knows dpkg's own files below a root folder (status, info/*.md5sums, info/*.list,
diversions, path-exclude) and needs no dpkg program. Leaves judging to its callers.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

DATABASE = Path("var/lib/dpkg")
_CONFIGURATION = ("etc/dpkg/dpkg.cfg", "etc/dpkg/dpkg.cfg.d/*")
# DEP-5 copyright files name licences in stanzas; other copyright files are prose.
_LICENCE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
_WORKERS = 4


@dataclass(frozen=True)
class SystemPackage:
    """One installed package; ``licences`` is empty where its copyright file is prose."""

    name: str
    version: str
    architecture: str
    source: str
    licences: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrongFile:
    """A file that is not as its package shipped it.

    Attributes:
        path: where it lies, from the root folder.
        owner: the package, with its version.
        problem: ``"edited"``, ``"missing"`` or ``"unreadable"``.
        expected: the hash that was recorded, in hex.
        found: the hash of what is there; empty where nothing could be read.
    """

    path: str
    owner: str
    problem: str
    expected: str
    found: str = ""


def read_packages(root: Path = Path("/"), *, licences: bool = False) -> list[SystemPackage]:
    """Return the installed packages, sorted by name and architecture.

    Args:
        root: the folder in which /var lies.
        licences: also read the copyright files.

    Raises:
        OSError: there is no dpkg database.
    """
    packages = []
    for fields in _installed(root):
        name = fields["Package"]
        found = _licences(root, name) if licences else ()
        source = fields.get("Source", name).split()[0]
        package = SystemPackage(name, fields["Version"], fields["Architecture"], source, found)
        packages.append(package)
    return sorted(packages, key=lambda package: (package.name, package.architecture))


def check_files(root: Path = Path("/")) -> tuple[int, list[WrongFile]]:
    """Hash every file that a package shipped with a hash, configuration files included.

    A file that dpkg was told to leave out (path-exclude) may be missing.

    Returns:
        How many files were held against their hash, and those that differ.

    Raises:
        OSError: there is no dpkg database.
    """
    left_out, diverted = _exclusions(root), _diversions(root)
    expected = [
        (diverted.get((path, owner), path), digest, owner) for path, digest, owner in _shipped(root)
    ]
    wrong = hash_files(expected, algorithm="md5", root=root)
    kept = [one for one in wrong if not (one.problem == "missing" and left_out(one.path))]
    return len(expected), kept


def hash_files(
    expected: Sequence[tuple[str, str, str]], *, algorithm: str, root: Path = Path("/")
) -> list[WrongFile]:
    """Hash files and return those that are not as expected, sorted by path.

    Args:
        expected: path, hash in hex and owner of each.
        algorithm: a name that ``hashlib`` knows.
        root: the folder that paths start from.
    """
    with ThreadPoolExecutor(_WORKERS) as pool:
        hashes = list(pool.map(lambda file: _hash(root / file[0].lstrip("/"), algorithm), expected))
    wrong = []
    for (path, digest, owner), (found, problem) in zip(expected, hashes, strict=True):
        if found != digest:
            wrong.append(WrongFile(path, owner, problem or "edited", digest, found))
    return sorted(wrong, key=lambda file: file.path)


def find_owners(paths: Iterable[str], *, root: Path = Path("/")) -> dict[str, str]:
    """Return the package, as ``name version``, of each path that a package brought.

    A path is looked for with and without a leading ``/usr``: those folders are one.

    Raises:
        OSError: there is no dpkg database.
    """
    wanted: dict[str, str] = {}
    for path in paths:
        wanted[path] = path
        wanted[path.removeprefix("/usr") if path.startswith("/usr/") else f"/usr{path}"] = path
    owners = {}
    versions = {(p.name, p.architecture): p.version for p in read_packages(root)}
    for (name, architecture), version in versions.items():
        for line in _info(root, name, architecture, "list").splitlines():
            if line in wanted:
                owners[wanted[line]] = f"{name} {version}"
    return owners


def parse_status(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each installed package of a status file.

    Args:
        text: the content of ``/var/lib/dpkg/status``.
    """
    for stanza in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line[:1] in " \t":
                fields[name] = f"{fields.get(name, '')}\n{line.strip()}"
                continue
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        whole = {"Package", "Version", "Architecture"} <= fields.keys()
        if whole and fields.get("Status", "").endswith(" installed"):
            yield fields


def _installed(root: Path) -> Iterator[dict[str, str]]:
    path = root / DATABASE / "status"
    return parse_status(path.read_text(encoding="utf-8", errors="replace"))


def _info(root: Path, name: str, architecture: str, kind: str) -> str:
    """Return a file of the info folder; packages of several architectures carry theirs."""
    folder = root / DATABASE / "info"
    for stem in (f"{name}:{architecture}", name):
        path = folder / f"{stem}.{kind}"
        if path.exists():
            return path.read_text(encoding="utf-8", errors="replace")
    return ""


def _shipped(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield path, MD5 in hex and owner of every file that came with a hash."""
    for fields in _installed(root):
        owner = f"{fields['Package']} {fields['Version']}"
        for line in _info(root, fields["Package"], fields["Architecture"], "md5sums").splitlines():
            digest, _, path = line.partition("  ")
            if path:
                yield f"/{path}", digest, owner
        for line in fields.get("Conffiles", "").splitlines():
            words = line.rsplit(None, 2 if line.endswith(" obsolete") else 1)
            # "newconffile" stands where a hash would while dpkg has not unpacked it.
            if len(words) == 2 and len(words[1]) == 32:
                yield words[0], words[1], owner


def _hash(path: Path, algorithm: str) -> tuple[str, str]:
    """Return the hash of a file in hex and why there is none; one of the two is empty."""
    try:
        with path.open("rb") as file:
            # Told apart from security's use, which a FIPS machine refuses for MD5.
            made = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    except FileNotFoundError:
        return "", "missing"
    except OSError:
        return "", "unreadable"
    return made.hexdigest(), ""


def _exclusions(root: Path) -> Callable[[str], bool]:
    """Return the test whether dpkg was told to leave a path out; the last word counts."""
    words = []
    for pattern in _CONFIGURATION:
        for file in sorted(root.glob(pattern)):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                key, _, value = line.strip().replace("=", " ", 1).partition(" ")
                if key in ("path-exclude", "path-include"):
                    words.append((value.strip(), key == "path-exclude"))

    def left_out(path: str) -> bool:
        verdicts = [excluded for glob, excluded in words if fnmatch.fnmatchcase(path, glob)]
        return bool(verdicts) and verdicts[-1]

    return left_out


def _diversions(root: Path) -> dict[tuple[str, str], str]:
    """Return where a package's file lies instead, for files diverted away from a package."""
    try:
        text = (root / DATABASE / "diversions").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    lines = text.splitlines()
    moved = {}
    owners = [f"{f['Package']} {f['Version']}" for f in _installed(root)] if lines else []
    for source, target, diverter in zip(*[iter(lines)] * 3, strict=False):
        for owner in owners:
            if owner.split()[0] != diverter:
                moved[source, owner] = target
    return moved


def _licences(root: Path, name: str) -> tuple[str, ...]:
    path = root / "usr/share/doc" / name / "copyright"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    if not text.startswith("Format:"):
        return ()
    return tuple(sorted({match.strip() for match in _LICENCE.findall(text)}))
