"""A folder of packages: every file that a stack is installed from, each held to its hash.

Knows what belongs in such a folder, where its files come from, and what apt and pip need
to install from it alone. Builds always install from one: kept by us, or saved by
``invoke fetch-packages`` for a site without a network. Leaves fetching a file to
``containers.download`` and the images to ``containers.build``.

    debs/     the distribution's packages, with the index that apt reads
    wheels/   the Python packages
    sources/  what is compiled
    sources.list, manifest.json
"""

from __future__ import annotations

import fcntl
import hashlib
import html
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urljoin

from containers.archive import find_mirror, mirror_url
from containers.blueprint import load_current_lock
from containers.context import find_host_ca
from containers.deb import render_index
from containers.download import (
    AT_ONCE,
    NO_ANSWER,
    Remote,
    fetch_all,
    open_url,
    same_host,
    sha256_of,
    split_login,
    tell_failure,
)
from containers.drift import refuse_drift
from env.atomic import write_text
from env.errors import EXIT_FAILED, UserError
from env.lock import GROUPS, Lock, SystemPackage
from env.stack import Stack
from recipes.layout import PACKAGES

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
IN_IMAGE = ("build", "run")
"""The groups of wheels that an image is made with."""
_LIST = "sources.list"
_INDEX_TYPES = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"


@dataclass(frozen=True)
class Wanted:
    """One file that a stack needs.

    Attributes:
        kind: the sub-folder: ``"debs"``, ``"wheels"`` or ``"sources"``.
        name: of the package.
        version: of the package.
        sha256: hashes of which the file must have one.
        file: its name, "" where only the index knows it (wheels).
        path: where a mirror of the distribution has it, "" for Python's.
        size_bytes: its size, 0 where it is not known.
    """

    kind: str
    name: str
    version: str
    sha256: tuple[str, ...]
    file: str = ""
    path: str = ""
    size_bytes: int = 0

    def __str__(self) -> str:
        """Return what a person calls it."""
        return f"{self.kind}/{self.file or f'{self.name}-{self.version}'}"


def list_wanted(lock: Lock, *, groups: Iterable[str] = IN_IMAGE) -> list[Wanted]:
    """Return every file that building a stack's image takes, apart from a registry's base.

    Args:
        lock: what names them.
        groups: whose wheels; more than an image's are for the machine that builds.
    """
    debs = [
        Wanted("debs", p.name, p.version, (p.sha256,), p.file_name, p.path, p.size_bytes)
        for p in lock.system_packages
    ]
    wheels = [
        Wanted("wheels", p.name, p.version, p.sha256)
        for p in lock.python
        if set(groups).intersection(p.groups)
    ]
    sources = []
    for archive, digest in lock.sources.items():
        name, _, version = archive.removesuffix(".tar.gz").rpartition("-")
        sources.append(Wanted("sources", name, version, (digest,), archive))
    return debs + wheels + sources


def fetch_packages(lock: Lock, *, stack: Stack, folder: Path) -> list[Path]:
    """Bring into a folder every file of an image that is not there.

    Args:
        lock: what is wanted.
        stack: what the lock was made from, to ask what the archive has instead.
        folder: is made; what else lies in it stays.

    Returns:
        The files, in the order of ``list_wanted``.

    Raises:
        UserError: the archive has not got some packages any more (the drift is listed),
            something cannot be reached or is another file than locked, or the disk is too
            small (exit code 1); what has come is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        return _fetch_missing(lock, list_wanted(lock), stack=stack, folder=folder)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a folder for oneself: two fetches would write into each other's files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another fetch is at work in {folder}; waiting for it", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fetch_missing(lock: Lock, wanted: list[Wanted], *, stack: Stack, folder: Path) -> list[Path]:
    there, ca = _find_all(wanted, folder=folder), find_host_ca()
    missing = [item for item, path in zip(wanted, there, strict=True) if path is None]
    if missing:
        mirror = find_mirror() if any(item.path for item in missing) else ""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            remotes = list(
                pool.map(lambda item: _locate(item, folder=folder, mirror=mirror, ca=ca), missing)
            )
        lost = fetch_all(remotes, ca=ca)
        gone = [pair for pair in zip(missing, remotes, strict=True) if pair[1] in lost]
        if any(not item.path for item, _ in gone):
            raise _refuse_lost(gone)
        if gone:
            raise refuse_drift(lock, stack=stack, gone=[item.name for item, _ in gone])
        there = _find_all(wanted, folder=folder)
    return [path for path in there if path is not None]


def _refuse_lost(gone: Iterable[tuple[Wanted, Remote]]) -> UserError:
    """Return the error for files that an index names and does not have: no drift explains it."""
    lines = [f"{item}: none at {remote.url}" for item, remote in gone]
    return UserError(
        "every file that the lock names, where the index or mirror says it is",
        found="\n          ".join(lines), exit_code=EXIT_FAILED,
        fix="use an index that has them (PIP_INDEX_URL), or build from a folder saved before: "
        "--packages DIR",
    )  # fmt: skip


def save_packages(stack: Stack, *, folder: Path) -> Path:
    """Fill a folder from which a stack's image builds without a network.

    With the wheels of the group ``develop``: what builds is written in Python too.

    Returns:
        The manifest: every file with its hash and size.

    Raises:
        UserError: see ``fetch_packages``; and the lock must name the distribution's packages.
    """
    lock = load_current_lock(stack)
    _refuse_gap(lock)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        wanted = list_wanted(lock, groups=GROUPS)
        files = _fetch_missing(lock, wanted, stack=stack, folder=folder)
        write_indexes(lock, folder=folder)
        entries = [
            {"path": path.relative_to(folder).as_posix(), "sha256": sha256_of(path),
             "size_bytes": path.stat().st_size}
            for path in files
        ]  # fmt: skip
        manifest = {"schema_version": SCHEMA_VERSION, "stack": lock.stack,
                    "lock_sha256": lock.sha256, "files": entries}  # fmt: skip
        write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    size_mib = sum(entry["size_bytes"] for entry in entries) / 2**20
    print(f"{folder}: {len(entries)} files, {size_mib:.0f} MiB, for the lock of {stack.name}")
    return folder / MANIFEST


def check_packages(lock: Lock, *, folder: Path) -> list[Path]:
    """Return an image's files of a saved folder, as ``list_wanted`` has them, once all are good.

    Raises:
        UserError: it is no such folder, or files are missing or are others than locked: each
            is named (exit code 2).
    """
    _refuse_gap(lock)
    again = f"invoke fetch-packages --stack {lock.stack} --output {folder} fetches what is missing"
    if not (folder / MANIFEST).is_file():
        raise UserError(f"a folder saved by fetch-packages, with its {MANIFEST}",
                        found=f"no {folder / MANIFEST}", fix=again)  # fmt: skip
    wanted = list_wanted(lock)
    there = _find_all(wanted, folder=folder)
    bad = [
        f"{item}: {'another content' if _candidates(item, folder=folder) else 'missing'}"
        for item, path in zip(wanted, there, strict=True)
        if path is None
    ]
    if not bad:
        bad = [
            f"{name}: not what belongs to these files"
            for name, text in _indexes(lock, folder=folder).items()
            if not (folder / name).is_file() or (folder / name).read_bytes() != text.encode()
        ]
    if bad:
        raise UserError(f"every file of the lock of {lock.stack} in {folder}",
                        found="\n          ".join(bad), fix=again)  # fmt: skip
    return [path for path in there if path is not None]


def stage_packages(lock: Lock, *, files: Iterable[Path], folder: Path) -> None:
    """Put a build's own files, and no others, into a new folder, with their indexes."""
    for item, path in zip(list_wanted(lock), files, strict=True):
        placed = folder / item.kind / path.name
        placed.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path, placed)
    write_indexes(lock, folder=folder)


def stage_base(lock: Lock, *, files: Iterable[Path], folder: Path) -> None:
    """Put the base's packages into a new folder, with their index beside them."""
    names = {package.file_name for package in lock.system_group("base")}
    folder.mkdir(parents=True)
    for path in files:
        if path.name in names:
            link_or_copy(path, folder / path.name)
    for name, text in _deb_indexes(lock, lock.system_group("base"), folder=folder).items():
        write_text(folder / name, text)


def write_indexes(lock: Lock, *, folder: Path) -> None:
    """Write what apt reads: an index of the packages and a list of sources that names it."""
    for name, text in _indexes(lock, folder=folder).items():
        write_text(folder / name, text)


def _indexes(lock: Lock, *, folder: Path) -> dict[str, str]:
    """Return by name the text of each file that apt reads in a folder of packages."""
    if not lock.system_packages:
        return {}
    debs = _deb_indexes(lock, lock.system_packages, folder=folder / "debs")
    # Trusted: every file in it was held to the lock's hash.
    return {_LIST: f"deb [trusted=yes] file:{PACKAGES}/debs ./\n"} | {
        f"debs/{name}": text for name, text in debs.items()
    }


def _deb_indexes(lock: Lock, packages: Iterable[SystemPackage], *, folder: Path) -> dict[str, str]:
    index = render_index(packages, folder=folder)
    digest, size = hashlib.sha256(index.encode()).hexdigest(), len(index.encode())
    codename = lock.base["codename"]
    # mmdebstrap looks for its packages in a release of this name.
    release = (
        f"Origin: chexnet\nSuite: {codename}\nCodename: {codename}\nArchitectures: amd64 all\n"
        f"SHA256:\n {digest} {size} Packages\n"
    )
    return {"Packages": index, "Release": release}


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second place, without a copy where the file system can."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


def _refuse_gap(lock: Lock) -> None:
    if not lock.system_packages:
        raise UserError(f"the distribution's packages in the lock of {lock.stack}",
                        found=lock.gaps.get("system_packages", "none"),
                        fix="use a stack on Debian: invoke stacks")  # fmt: skip


def _find_all(wanted: Iterable[Wanted], *, folder: Path) -> list[Path | None]:
    """Return for each wanted file where it lies with a right hash; None where it does not."""

    def find(item: Wanted) -> Path | None:
        for path in _candidates(item, folder=folder):
            if sha256_of(path) in item.sha256:
                return path
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(find, wanted))


def _candidates(item: Wanted, *, folder: Path) -> list[Path]:
    """Return the files that by their names could be a wanted one."""
    if item.file:
        path = folder / item.kind / item.file
        return [path] if path.is_file() else []
    spelt = re.sub(r"[-_.]+", "[-_.]", item.name)
    return [
        path
        for path in sorted((folder / item.kind).glob(f"*-{item.version}-*.whl"))
        if re.fullmatch(spelt, path.name.partition("-")[0], re.IGNORECASE)
    ]


def _locate(item: Wanted, *, folder: Path, mirror: str, ca: Path | None) -> Remote:
    """Return where a wanted file is to be had."""
    if item.path:
        url = mirror_url(mirror, item.path)
        return Remote(url, folder / item.kind / item.file, item.sha256, item.size_bytes)
    index, login = split_login(find_index())
    page, entries = _read_page(f"{index.rstrip('/')}/{item.name}/", item, ca=ca, login=login)
    for digest in item.sha256:
        if digest in entries:
            url, size = urljoin(page, entries[digest][0]), entries[digest][1]
            name = unquote(url.partition("#")[0]).rpartition("/")[2]
            return Remote(url, folder / item.kind / name, item.sha256, size,
                          login if same_host(url, index) else "")  # fmt: skip
    raise UserError(f"a file of {item.name} {item.version} with the locked sha256",
                    found=f"none in {page}", exit_code=EXIT_FAILED,
                    fix="use an index that has it (PIP_INDEX_URL), or invoke lock")  # fmt: skip


def _read_page(
    page: str, item: Wanted, *, ca: Path | None, login: str
) -> tuple[str, dict[str, tuple[str, int]]]:
    """Return where a project's page of an index lies in the end, and the files it names."""
    try:
        with open_url(page, ca=ca, headers={"Accept": _INDEX_TYPES}, login=login) as answer:
            text, kind = answer.read().decode("utf-8"), answer.headers.get_content_type()
            page = answer.url
        return page, read_json_page(text) if kind.endswith("json") else read_html_page(text)
    except NO_ANSWER as error:
        raise UserError(f"{item.name} {item.version} in a package index",
                        found=f"{page}: {tell_failure(error)}",
                        fix="set PIP_INDEX_URL to an index that has it, see to proxy and "
                        "certificates, and run the same again", exit_code=EXIT_FAILED,
                        ) from error  # fmt: skip


def find_index(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the package index: the user's, else pip's own default."""
    named = environ.get("PIP_INDEX_URL")
    if named:
        return named
    from pip._internal.models.index import PyPI  # pip tells it nowhere else

    return PyPI.simple_url


def read_json_page(text: str) -> dict[str, tuple[str, int]]:
    """Return address and size by sha256 of a project's page in JSON (PEP 691, 700).

    Raises:
        ValueError: it is no such page, a login's for example.
    """
    try:
        return {
            file["hashes"]["sha256"]: (str(file["url"]), int(file.get("size") or 0))
            for file in json.loads(text)["files"]
            if "sha256" in file["hashes"]
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("JSON, and not an index's page of files") from error


def read_html_page(text: str) -> dict[str, tuple[str, int]]:
    """Return address and size (not told: 0) by sha256 of a project's page (PEP 503)."""
    found = re.findall(r'href\s*=\s*"([^"#]+)#sha256=([0-9a-f]{64})', text)
    return {digest: (html.unescape(url), 0) for url, digest in found}
