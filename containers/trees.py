"""The file tree of an image: each path with its type, mode, owner, target and content's hash.

Knows what an entry is and how to read a root folder. Leaves .sif files to
``containers.squashfs`` and archives to ``containers.layers``. Contents are hashed as they
stream by and never kept, save a few small files that tell what the image is.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from env.errors import UserError

FILE, FOLDER, LINK, DEVICE, PIPE, SOCKET = "file", "folder", "link", "device", "pipe", "socket"
LABELS = ".singularity.d/labels.json"
SBOM = "opt/chexnet/sbom.cdx.json"
STATUS = "var/lib/dpkg/status"
KEPT = frozenset({LABELS, SBOM, STATUS})
CHUNK = 2**20
_KEPT_BYTES = 64 * 2**20
_WORKERS = 4
_TYPES: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISREG, FILE), (stat.S_ISDIR, FOLDER), (stat.S_ISLNK, LINK), (stat.S_ISFIFO, PIPE),
    (stat.S_ISSOCK, SOCKET),
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """What is at one path.

    Attributes:
        type: ``file``, ``folder``, ``link``, ``device``, ``pipe`` or ``socket``.
        mode: permission bits, in octal, e.g. ``"755"``.
        owner: ``uid:gid``.
        target: where a link points to; a device's kind and numbers.
        sha256: the hash of a file's content.
    """

    type: str
    mode: str
    owner: str
    target: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Tree:
    """All entries of an image by path (no leading slash), the kept files, the labels."""

    entries: Mapping[str, Entry]
    kept: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def read_folder(root: Path) -> Tree:
    """Return the tree of a root folder.

    Raises:
        UserError: a file in it cannot be read.
    """
    paths = [""] + [
        os.path.relpath(f"{where}/{name}", root)
        for where, folders, files in os.walk(root)
        for name in (*folders, *files)
    ]
    kept: dict[str, bytes] = {}
    try:
        with ThreadPoolExecutor(_WORKERS) as pool:
            entries = dict(pool.map(lambda path: (path, _entry(root, path, kept)), sorted(paths)))
    except OSError as error:
        raise UserError("a root folder that can be read whole", found=str(error),
                        fix="run it as the folder's owner") from error  # fmt: skip
    return Tree(entries, kept, parse_labels(kept))


def hash_stream(
    source: BinaryIO, *, size: int, path: str, kept: dict[str, bytes]
) -> str:  # fmt: skip
    """Return the SHA-256 of the next bytes of a stream; keep them too where they are wanted.

    Args:
        source: positioned at the content.
        size: its length in bytes.
        path: of the file in the image.
        kept: takes the content of the few files of ``KEPT``.

    Raises:
        EOFError: the stream ends before.
    """
    digest, parts, left = hashlib.sha256(), [], size
    wanted = path in KEPT and size <= _KEPT_BYTES
    while left:
        chunk = source.read(min(CHUNK, left))
        if not chunk:
            raise EOFError(f"{path}: {left} bytes are missing")
        digest.update(chunk)
        left -= len(chunk)
        if wanted:
            parts.append(chunk)
    if wanted:
        kept[path] = b"".join(parts)
    return digest.hexdigest()


def parse_labels(kept: Mapping[str, bytes]) -> dict[str, str]:
    """Return the labels that Singularity wrote into an image, none where there are none."""
    try:
        labels = json.loads(kept.get(LABELS, b"{}"))
        return {str(name): str(value) for name, value in labels.items()}
    except (ValueError, AttributeError):
        return {}


def _entry(root: Path, path: str, kept: dict[str, bytes]) -> Entry:
    file = root / path
    seen = file.lstat()
    kind = next((name for test, name in _TYPES if test(seen.st_mode)), DEVICE)
    target = sha256 = ""
    if kind == LINK:
        target = str(file.readlink())
    elif kind == FILE:
        with file.open("rb") as source:
            sha256 = hash_stream(source, size=seen.st_size, path=path, kept=kept)
    elif kind == DEVICE:
        letter = "b" if stat.S_ISBLK(seen.st_mode) else "c"
        target = f"{letter} {os.major(seen.st_rdev)},{os.minor(seen.st_rdev)}"
    mode = f"{stat.S_IMODE(seen.st_mode):o}"
    return Entry(kind, mode, f"{seen.st_uid}:{seen.st_gid}", target, sha256)
