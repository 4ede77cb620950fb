"""Reads the file tree of a .sif file without mounting or unpacking it.

Knows where a .sif file holds its root file system, and the stream that ``unsquashfs -pf``
writes: a line for each path, then all contents one after the other. So nothing needs root,
space on a disk, or memory.
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from containers.trees import (
    CHUNK,
    DEVICE,
    FILE,
    FOLDER,
    LINK,
    PIPE,
    SOCKET,
    Entry,
    Tree,
    hash_stream,
    parse_labels,
)
from env.errors import UserError

# github.com/apptainer/sif, docs/specification: the header, then descriptors of fixed size.
_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
_PARTITION = 0x4004
_SQUASHFS = 1
_SYSTEM = 2  # the partition that holds the root file system
_MAGIC = b"hsqs"
_DATA = b"# START OF DATA - DO NOT MODIFY\n"
_LINE = re.compile(rb"((?:[^\\ ]|\\.)+) ([A-Za-z]) (.*)", re.DOTALL)
_NUMBERS = {b"D": 4, b"R": 6, b"S": 4, b"B": 6, b"C": 6, b"I": 4}
_IPC = {b"f": PIPE, b"s": SOCKET}


def read_sif(image: Path) -> Tree:
    """Return the tree of a .sif file, or of a bare squashfs file.

    Raises:
        UserError: it is damaged, or ``unsquashfs`` is not here.
    """
    offset = find_root(image)
    command = ["unsquashfs", "-quiet", "-no-progress", "-offset", str(offset)]
    # By the kernel's own name: /dev/stdout is a link that may be missing in a container.
    command += ["-pf", "/proc/self/fd/1", str(image)]
    try:
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        fix = "run env/bootstrap.sh, or install squashfs-tools"
        raise UserError("unsquashfs, to read .sif files", found=str(error), fix=fix) from error
    with child:
        try:
            tree = _read(child.stdout)
        except (EOFError, ValueError) as error:
            child.kill()
            said = child.stderr.read().decode(errors="replace").strip().splitlines()
            raise _damaged(image, said[-1] if said else str(error)) from error
    return tree


def find_root(image: Path) -> int:
    """Return the offset in bytes of the root file system in a .sif file.

    Raises:
        UserError: there is none.
    """
    with image.open("rb") as file:
        head = file.read(_HEADER.size)
        if head[:4] == _MAGIC:
            return 0
        try:
            *_, total, at, _, _, _ = _HEADER.unpack(head)
            file.seek(at)
            for _ in range(min(total, 1024)):
                kind, used, _, _, _, begin, *_, extra = _DESCRIPTOR.unpack(
                    file.read(_DESCRIPTOR.size)
                )
                system = struct.unpack_from("<ii", extra) == (_SQUASHFS, _SYSTEM)
                if used and kind == _PARTITION and system:
                    return begin
        except (struct.error, ValueError, OSError) as error:
            raise _damaged(image, str(error)) from error
    raise _damaged(image, "no root file system in it")


def _damaged(image: Path, reason: str) -> UserError:
    return UserError("a whole .sif file", found=f"{image}: {reason}",
                     fix="get or build it again")  # fmt: skip


def _read(stream: BinaryIO) -> Tree:
    """Read unsquashfs' stream: lines, then contents in the order of their offsets."""
    entries: dict[str, Entry] = {}
    files: list[tuple[int, int, str, str, str]] = []
    hard: list[tuple[str, str]] = []
    for name, kind, rest in _lines(stream):
        if kind == b"L":
            hard.append((name, _plain(rest)))
            continue
        if kind not in _NUMBERS:
            continue  # extended attributes, in later releases
        _, mode, uid, gid, *more = rest.split(b" ", _NUMBERS[kind] if kind != b"R" else -1)
        mode, owner = mode.decode(), f"{uid.decode()}:{gid.decode()}"
        if kind == b"R":
            files.append((int(more[1]), int(more[0]), name, mode, owner))
        else:
            entries[name] = _special(kind, mode, owner, more)
    kept: dict[str, bytes] = {}
    at = 0
    for offset, size, name, mode, owner in sorted(files):
        _skip(stream, offset - at)
        digest = hash_stream(stream, size=size, path=name, kept=kept)
        entries[name] = Entry(FILE, mode, owner, sha256=digest)
        at = offset + size
    entries |= {name: entries[target] for name, target in hard}
    return Tree(entries, kept, parse_labels(kept))


def _lines(stream: BinaryIO) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield path, letter and the rest of each entry, up to where the contents begin.

    A name may hold a line break: what is no entry by itself is the beginning of the next.
    """
    begun = b""
    for line in stream:
        if line == _DATA:
            if stream.readline() != b"#\n":
                raise ValueError("no contents after the list")
            return
        told = _LINE.fullmatch(begun + line.rstrip(b"\n"))
        if told is None:
            begun = b"" if line.startswith(b"#") else begun + line
            continue
        begun = b""
        path = _plain(told[1])
        yield "" if path == "/" else path, told[2], told[3]
    raise EOFError("the list of files ends early")


def _plain(name: bytes) -> str:
    """Return a name without the escapes, bytes that are no UTF-8 kept apart."""
    return re.sub(rb"\\(.)", rb"\1", name, flags=re.DOTALL).decode(errors="surrogateescape")


def _special(kind: bytes, mode: str, owner: str, more: list[bytes]) -> Entry:
    if kind == b"D":
        return Entry(FOLDER, mode, owner)
    if kind == b"S":
        return Entry(LINK, mode, owner, b" ".join(more).decode(errors="surrogateescape"))
    if kind == b"I":
        return Entry(_IPC.get(more[0], PIPE), mode, owner)
    return Entry(DEVICE, mode, owner, f"{kind.decode().lower()} {b','.join(more).decode()}")


def _skip(stream: BinaryIO, size: int) -> None:
    while size > 0:
        chunk = stream.read(min(CHUNK, size))
        if not chunk:
            raise EOFError("the contents end early")
        size -= len(chunk)
