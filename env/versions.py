"""Version strings of the shapes this project meets, and their order.

Knows numbers with dots (``12.4``, ``535.104.05``, ``9.3.0.75``), Debian's epochs and
revisions (``1:4.5.1-1``, ``4.1.6-3+b1``) and Python's pre-releases (``2.16.0rc1``).
Neither ``packaging`` nor ``dpkg`` reads all of them: the first takes Debian's ``-1`` for
a post-release and rewrites ``05``, the second puts ``rc1`` after the release. Leaves
what a version must be to its callers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from env.errors import UserError

# [epoch:]numbers[rest][-revision]; rest may hold dashes, the revision begins at the last one.
_SHAPE = re.compile(
    r"(?:(?P<epoch>\d+):)?v?(?P<release>\d+(?:\.\d+)*)"
    r"(?P<rest>(?:(?:[A-Za-z+~_-]|\.(?=[A-Za-z]))[0-9A-Za-z.+~_-]*?)??)"
    r"(?:-(?P<revision>[0-9A-Za-z.+~_]+))?",
    re.ASCII,
)
_BEFORE_RELEASE = re.compile(r"[.-]?(?:rc|a|b|c|alpha|beta|dev|pre)\d*(?=\+|$)", re.IGNORECASE)

_Chunks = tuple[tuple[tuple[int, ...], int], ...]


@total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A version that remembers how it was written: ``str()`` gives that text back.

    Versions that differ in trailing zeros or leading zeros of a number only are equal
    (``12.4`` and ``12.4.0``, ``535.104.05`` and ``535.104.5``).

    Attributes:
        text: as it was written.
        epoch: Debian's epoch, 0 where there is none.
        release: the leading numbers, e.g. ``(4, 1, 4)``.
        rest: what follows the numbers, before a revision: ``"+ds1"``, ``"rc1"``.
        revision: Debian's revision, ``""`` where there is none.
    """

    text: str
    epoch: int
    release: tuple[int, ...]
    rest: str
    revision: str

    @property
    def is_before_release(self) -> bool:
        """Whether this precedes the version its numbers name, as ``2.16.0rc1`` does."""
        return any(
            part.startswith("~")
            for part in (self._ordered(self.rest), self._ordered(self.revision))
        )

    def has_prefix(self, prefix: str) -> bool:
        """Whether this is a version of ``prefix``: ``4.1.6-3+b1`` is one of ``4.1.6`` and ``4.1``.

        Raises:
            UserError: ``prefix`` is no version.
        """
        wanted = parse_version(prefix)
        if wanted.rest or wanted.revision:
            following = self.text.removeprefix(wanted.text)
            return self == wanted or (
                self.text.startswith(wanted.text) and not following[:1].isalnum()
            )
        if self.is_before_release or (":" in prefix and self.epoch != wanted.epoch):
            return False
        size = len(wanted.release)
        padded = self.release + (0,) * size
        return padded[:size] == wanted.release

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Version) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._key < other._key if isinstance(other, Version) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[int, tuple[int, ...], _Chunks, _Chunks]:
        numbers = list(self.release)
        while numbers and numbers[-1] == 0:
            numbers.pop()
        return (
            self.epoch,
            tuple(numbers),
            _chunks(self._ordered(self.rest)),
            _chunks(self._ordered(self.revision)),
        )

    @staticmethod
    def _ordered(part: str) -> str:
        """Mark a pre-release the way Debian would: ``~`` comes before nothing at all."""
        mark = _BEFORE_RELEASE.match(part)
        if mark is None:
            return part
        return "~~" + part if "dev" in mark[0].lower() else "~" + part.lstrip(".-")


def parse_version(text: str) -> Version:
    """Read a version.

    Raises:
        UserError: the text is no version.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise UserError("a version such as 4.1.6 or 4.1.6-3+b1", found=repr(text),
                        fix="write digits and dots first")  # fmt: skip
    return Version(
        text=text.strip(),
        epoch=int(match["epoch"] or 0),
        release=tuple(int(number) for number in match["release"].split(".")),
        rest=match["rest"],
        revision=match["revision"] or "",
    )


def _chunks(part: str) -> _Chunks:
    """Return a key that orders texts as Debian does (deb-version(7)).

    Letters come before other signs, ``~`` before the end, runs of digits count as numbers.
    """
    pairs = re.findall(r"([^\d]*)(\d*)", part)[:-1]
    keys = [((*(_weight(sign) for sign in signs), 0), int(digits or 0)) for signs, digits in pairs]
    return (*keys, ((0,), 0))


def _weight(sign: str) -> int:
    if sign == "~":
        return -1
    return ord(sign) if sign.isalpha() else ord(sign) + 256
