"""What an ELF file says of itself: the libraries it needs, where it looks, which versions.

Reads the file by its own tables, with no tool, so that a node without binutils can be
judged. 64-bit little-endian only, which is what this project runs on. Leaves finding the
libraries to ``env.probes.libraries``.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_DYNAMIC, _LOAD = 2, 1
_NEEDED, _STRTAB, _SONAME, _RPATH, _RUNPATH = 1, 5, 14, 15, 29
_VERNEED, _VERNEEDNUM, _VERDEF, _VERDEFNUM = 0x6FFFFFFE, 0x6FFFFFFF, 0x6FFFFFFC, 0x6FFFFFFD
_MAX_ENTRIES = 10_000
_MAX_NAME = 4096


@dataclass(frozen=True)
class Elf:
    """The dynamic section of a shared library or program.

    Attributes:
        soname: the name others know it by, None without one.
        needed: sonames of the libraries it needs.
        rpath: folders searched before LD_LIBRARY_PATH; for all it loads, too.
        runpath: folders searched after LD_LIBRARY_PATH.
        requires: the symbol versions it needs, by the soname that must offer them.
        offers: the symbol versions it defines.
    """

    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    requires: dict[str, tuple[str, ...]] = field(default_factory=dict)
    offers: tuple[str, ...] = ()


def read_elf(path: Path) -> Elf:
    """Read a file's dynamic section.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no 64-bit little-endian ELF file, or a damaged one.
    """
    with path.open("rb") as stream:
        if not path.stat().st_size:
            raise ValueError("an empty file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parse_elf(data)


def parse_elf(data: bytes | mmap.mmap) -> Elf:
    """Read the dynamic section from the bytes of a file.

    Raises:
        ValueError: they are no 64-bit little-endian ELF file, or a damaged one.
    """
    try:
        return _Reader(data).elf()
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"a damaged ELF file: {error}") from error


def find_words(path: Path, pattern: bytes) -> set[str]:
    """Return the words of a file's read-only data that match a pattern.

    Only the section of constants is looked at: a library with debugging symbols is many
    times larger.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no ELF file.
    """
    with path.open("rb") as stream:
        if not path.stat().st_size:
            raise ValueError("an empty file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                first, last = _Reader(data).section(b".rodata")
            except (struct.error, IndexError, OverflowError) as error:
                raise ValueError(f"a damaged ELF file: {error}") from error
            return {word.decode() for word in re.findall(pattern, data[first:last])}


class _Reader:
    """Walks the tables of one file; every offset is checked by reading inside the bytes."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        self._data = data
        self._segments = list(self._table(offset=0x20, size=0x36, count=0x38, form="<IIQQQQQQ"))

    def elf(self) -> Elf:
        tags: dict[int, list[int]] = {}
        for kind, _, offset, _, _, size, _, _ in self._segments:
            if kind == _DYNAMIC:
                for place in range(offset, offset + size, 16):
                    tag, value = struct.unpack_from("<QQ", self._data, place)
                    if tag == 0:
                        break
                    tags.setdefault(tag, []).append(value)
        if _STRTAB not in tags:
            return Elf()  # linked statically
        strings = self._offset(tags[_STRTAB][0])

        def texts(tag: int) -> tuple[str, ...]:
            return tuple(self._text(strings + value) for value in tags.get(tag, ()))

        def folders(tag: int) -> tuple[str, ...]:
            return tuple(part for text in texts(tag) for part in text.split(":") if part)

        return Elf(
            next(iter(texts(_SONAME)), None), texts(_NEEDED), folders(_RPATH), folders(_RUNPATH),
            dict(self._requires(tags, strings)), tuple(self._offers(tags, strings)),
        )  # fmt: skip

    def section(self, wanted: bytes) -> tuple[int, int]:
        """Return where a section begins and ends in the file."""
        rows = list(self._table(offset=0x28, size=0x3A, count=0x3C, form="<IIQQQQIIQQ"))
        (names,) = struct.unpack_from("<H", self._data, 0x3E)
        for name, _, _, _, offset, size, *_ in rows:
            if self._text(rows[names][4] + name).encode() == wanted:
                return offset, offset + size
        raise ValueError(f"no section {wanted.decode()}")

    def _table(self, *, offset: int, size: int, count: int, form: str) -> Iterator[tuple]:
        (start,) = struct.unpack_from("<Q", self._data, offset)
        (step,) = struct.unpack_from("<H", self._data, size)
        (number,) = struct.unpack_from("<H", self._data, count)
        for index in range(min(number, _MAX_ENTRIES)):
            yield struct.unpack_from(form, self._data, start + index * step)

    def _offset(self, address: int) -> int:
        """Return where in the file a virtual address lies."""
        for kind, _, offset, begin, _, size, _, _ in self._segments:
            if kind == _LOAD and begin <= address < begin + size:
                return offset + address - begin
        raise ValueError(f"address {address:#x} is in no segment")

    def _text(self, place: int) -> str:
        end = self._data.find(b"\0", place, place + _MAX_NAME)
        if not 0 <= place < end:
            if 0 <= place == end:
                return ""
            raise ValueError("a name without an end")
        return self._data[place:end].decode(errors="replace")

    def _requires(
        self, tags: dict[int, list[int]], strings: int
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        if _VERNEED not in tags:
            return
        place = self._offset(tags[_VERNEED][0])
        for _ in range(min(tags.get(_VERNEEDNUM, [0])[0], _MAX_ENTRIES)):
            _, count, file, first, following = struct.unpack_from("<HHIII", self._data, place)
            versions, entry = [], place + first
            for _ in range(min(count, _MAX_ENTRIES)):
                _, _, _, name, step = struct.unpack_from("<IHHII", self._data, entry)
                versions.append(self._text(strings + name))
                entry += step
            yield self._text(strings + file), tuple(versions)
            place += following

    def _offers(self, tags: dict[int, list[int]], strings: int) -> Iterator[str]:
        if _VERDEF not in tags:
            return
        place = self._offset(tags[_VERDEF][0])
        for _ in range(min(tags.get(_VERDEFNUM, [0])[0], _MAX_ENTRIES)):
            *_, first, following = struct.unpack_from("<HHHHIII", self._data, place)
            name, _ = struct.unpack_from("<II", self._data, place + first)
            yield self._text(strings + name)
            place += following
