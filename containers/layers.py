"""Reads the file tree of an OCI or Docker archive: its layers, one laid over the other.

Knows the archives' own index and the names by which a layer takes away what lies below
(``.wh.``). Layers stream by; nothing is unpacked.
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from containers.trees import DEVICE, FILE, FOLDER, LINK, PIPE, Entry, Tree, hash_stream
from env.errors import UserError

_GONE = ".wh."
_EMPTIED = ".wh..wh..opq"
_DAMAGE = (tarfile.TarError, EOFError, KeyError, ValueError, IndexError, TypeError, zlib.error)


def read_archive(image: Path) -> Tree:
    """Return the tree of an archive's image, with the labels of its configuration.

    Raises:
        UserError: it is damaged, holds no image, or compresses layers in an unknown way.
    """
    try:
        with tarfile.open(image) as outer:
            names = {name.removeprefix("./"): name for name in outer.getnames()}
            config, layers = _index(outer, names)
            entries: dict[str, Entry] = {}
            kept: dict[str, bytes] = {}
            for layer in layers:
                with tarfile.open(fileobj=_member(outer, names, layer), mode="r|*") as inner:
                    _lay(inner, entries, kept)
    except _DAMAGE as error:
        raise _damaged(image, error) from error
    return Tree(entries, kept, _labels(config))


def read_labels(image: Path) -> dict[str, str]:
    """Return the labels of an archive's image; no layer is read.

    Raises:
        UserError: it is damaged or holds no image.
    """
    try:
        with tarfile.open(image) as outer:
            config, _ = _index(outer, {name.removeprefix("./"): name for name in outer.getnames()})
    except _DAMAGE as error:
        raise _damaged(image, error) from error
    return _labels(config)


def _labels(config: Mapping[str, Any]) -> dict[str, str]:
    return dict((config.get("config") or {}).get("Labels") or {})


def _damaged(image: Path, error: Exception) -> UserError:
    fix = "get or build it again"
    return UserError("a whole OCI archive", found=f"{image}: {error!r}", fix=fix)


def _index(outer: tarfile.TarFile, names: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return an archive's configuration and the names of its layers, lowest first."""

    def load(name: str) -> Any:  # noqa: ANN401 - any JSON value
        return json.load(_member(outer, names, name))

    def blob(described: Mapping[str, str]) -> str:
        return "blobs/" + described["digest"].replace(":", "/")

    if "index.json" in names:
        manifest = load(blob(load("index.json")["manifests"][0]))
        return load(blob(manifest["config"])), [blob(layer) for layer in manifest["layers"]]
    manifest = load("manifest.json")[0]
    return load(manifest["Config"]), list(manifest["Layers"])


def _member(outer: tarfile.TarFile, names: Mapping[str, str], name: str) -> BinaryIO:
    member = outer.extractfile(names[name])
    if member is None:
        raise KeyError(f"{name} is no file")
    return member


def _lay(layer: tarfile.TarFile, entries: dict[str, Entry], kept: dict[str, bytes]) -> None:
    """Lay one layer over what is there."""
    fresh: set[str] = set()
    for member in layer:
        path = member.name.removeprefix("./").strip("/")
        path = "" if path == "." else path
        folder, _, name = path.rpartition("/")
        if name == _EMPTIED:
            _remove(entries, folder, fresh, itself=False)
        elif name.startswith(_GONE):
            _remove(entries, f"{folder}/{name[len(_GONE) :]}".lstrip("/"), fresh, itself=True)
        else:
            fresh.add(path)
            entry = _entry(layer, member, path, entries, kept)
            if path in entries and entries[path].type == FOLDER != entry.type:
                _remove(entries, path, fresh, itself=False)
            entries[path] = entry


def _remove(entries: dict[str, Entry], path: str, fresh: set[str], *, itself: bool) -> None:
    """Take away what a lower layer had at a path; what this layer brought stays."""
    below = f"{path}/" if path else ""
    for name in [n for n in entries if n.startswith(below) or (itself and n == path)]:
        if name not in fresh and (itself or name != path):
            del entries[name]


def _entry(
    layer: tarfile.TarFile, member: tarfile.TarInfo, path: str, entries: dict[str, Entry],
    kept: dict[str, bytes],
) -> Entry:  # fmt: skip
    mode, owner = f"{member.mode & 0o7777:o}", f"{member.uid}:{member.gid}"
    if member.islnk():
        return entries[member.linkname.removeprefix("./").strip("/")]
    if member.issym():
        return Entry(LINK, mode, owner, member.linkname)
    if member.isdir():
        return Entry(FOLDER, mode, owner)
    if member.isfifo():
        return Entry(PIPE, mode, owner)
    if member.isdev():
        letter = "b" if member.isblk() else "c"
        return Entry(DEVICE, mode, owner, f"{letter} {member.devmajor},{member.devminor}")
    source = layer.extractfile(member)
    digest = hash_stream(source, size=member.size, path=path, kept=kept)
    return Entry(FILE, mode, owner, sha256=digest)
