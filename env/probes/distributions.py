"""The Python distributions of an environment, and whether their files are as installed.

Knows RECORD files: each distribution's list of its own files with their hashes. Leaves
which versions there should be to the lock, and judging to its callers.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from env.names import normal_name
from env.probes.dpkg import WrongFile, hash_files

_LICENCE_CLASSIFIER = "License :: "


@dataclass(frozen=True)
class Distribution:
    """One installed distribution.

    Attributes:
        name: in PyPI's normal form.
        version: as its metadata says.
        location: the folder it lies in.
        licence: an SPDX expression or a name; empty where its metadata tells none.
        files: path and SHA-256 (hex; empty where none is recorded) of each file it
            brought; None where it has no RECORD.
    """

    name: str
    version: str
    location: str
    licence: str
    files: tuple[tuple[str, str], ...] | None

    @property
    def owner(self) -> str:
        """Its name and version, as the owner of a file."""
        return f"{self.name} {self.version}"


def read_distributions(path: Sequence[str]) -> list[Distribution]:
    """Return the distributions that an import path leads to, sorted by name.

    Of several copies the first one found counts, as for an import.

    Args:
        path: folders, as in ``sys.path``.
    """
    found: dict[str, Distribution] = {}
    for one in importlib.metadata.distributions(path=list(path)):
        name = one.metadata.get("Name")
        if name and normal_name(name) not in found:  # a half-removed one has no metadata
            location = str(one.locate_file(""))
            found[normal_name(name)] = Distribution(
                normal_name(name), one.version, location, _licence(one.metadata), _record(one)
            )
    return [found[name] for name in sorted(found)]


def check_files(distributions: Iterable[Distribution]) -> tuple[int, list[WrongFile]]:
    """Hash every file that a distribution recorded with a hash.

    Returns:
        How many files were held against their hash, and those that differ.
    """
    listed = [
        (path, digest, one.owner)
        for one in distributions
        for path, digest in one.files or ()
        if digest
    ]
    return len(listed), hash_files(listed, algorithm="sha256")


def find_unowned(distributions: Iterable[Distribution], *, folders: Iterable[Path]) -> list[str]:
    """Return files of site-packages folders that no distribution recorded.

    A ``.pth`` file or a module that somebody laid there changes what an import gives.
    Byte code is left out: Python writes it by itself.

    Args:
        distributions: all that are installed there.
        folders: the folders to look through.
    """
    recorded = {path for one in distributions for path, _ in one.files or ()}
    return sorted(
        path
        for folder in folders
        for path in _walk(folder)
        if path not in recorded and not path.endswith(".pyc")
    )


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hex.

    Raises:
        OSError: it cannot be read.
    """
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(folder: Path) -> Iterator[str]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield f"{where}/{name}"


def _record(one: importlib.metadata.Distribution) -> tuple[tuple[str, str], ...] | None:
    text = one.read_text("RECORD")
    if text is None:
        return None
    root = str(one.locate_file(""))
    rows = []
    for row in csv.reader(text.splitlines()):
        if len(row) < 2:
            continue
        algorithm, _, digest = row[1].partition("=")
        known = _hex(digest) if algorithm == "sha256" else ""
        rows.append((os.path.normpath(f"{root}/{row[0]}"), known))
    return tuple(rows)


def _hex(digest: str) -> str:
    """Return a RECORD's digest (base64 for URLs, its padding left off) in hex."""
    padded = digest + "=" * (-len(digest) % 4)
    try:
        return base64.b64decode(padded, altchars=b"-_", validate=True).hex() or "not a hash"
    except ValueError:
        return "not a hash"


def _licence(metadata: importlib.metadata.PackageMetadata) -> str:
    expression = metadata.get("License-Expression") or ""
    if expression:
        return expression
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier") or ()
        if text.startswith(_LICENCE_CLASSIFIER) and text.count(" :: ") > 1
    ]
    if classifiers:
        return "; ".join(sorted(classifiers))
    text = (metadata.get("License") or "").strip()
    return text if "\n" not in text and len(text) < 80 else ""
