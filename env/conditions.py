"""Conditions on versions, as the rules write them: ``">=2.16,<2.22"``, or the same as another's.

Knows the six comparisons and three answers: it holds, it does not, it cannot be told.
Leaves the order of versions to ``env.versions`` and what a condition means to ``env.rules``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from env.errors import UserError
from env.versions import Version, parse_version

_COMPARISON = re.compile(r"(>=|<=|==|!=|>|<) *([^ ,<>=!]+)")


@dataclass(frozen=True)
class Range:
    """Comparisons that must all hold.

    ``==`` and ``!=`` look at the numbers written only: 12.5.82 is ``==12.5``. The others
    order: 13.2 is not ``<=13``, so upper limits are best written ``<14``.

    Attributes:
        text: as the rule writes it.
        comparisons: operator and version, in the order written.
    """

    text: str
    comparisons: tuple[tuple[str, Version], ...]

    def holds(self, found: str, versions: Mapping[str, str | None]) -> bool | None:
        """Whether a version satisfies every comparison; ``versions`` is not looked at.

        Raises:
            UserError: ``found`` is no version.
        """
        version = parse_version(found)
        return all(_compare(version, operator, limit) for operator, limit in self.comparisons)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class SameAs:
    """The first ``numbers`` of a version are those of another component's version."""

    component: str
    numbers: int

    def holds(self, found: str, versions: Mapping[str, str | None]) -> bool | None:
        """Whether the numbers agree; None where the other version is not known.

        Raises:
            UserError: one of the two is no version.
        """
        other = versions.get(self.component)
        if other is None:
            return None
        return self._numbers(found) == self._numbers(other)

    def _numbers(self, text: str) -> tuple[int, ...]:
        padded = parse_version(text).release + (0,) * self.numbers
        return padded[: self.numbers]

    def __str__(self) -> str:
        return f"first {self.numbers} of {self.component}"


Condition = Range | SameAs


def parse_range(text: str) -> Range:
    """Read comparisons joined by commas.

    Raises:
        UserError: the text is not such a list.
    """
    comparisons = []
    for part in text.split(","):
        match = _COMPARISON.fullmatch(part.strip())
        if match is None:
            raise UserError("comparisons joined by commas, such as >=2.16,<2.22",
                            found=repr(text), fix="use >=, >, <, <=, == or !=")  # fmt: skip
        comparisons.append((match[1], parse_version(match[2])))
    return Range(text, tuple(comparisons))


def _compare(version: Version, operator: str, limit: Version) -> bool:
    if operator in {"==", "!="}:
        return version.has_prefix(str(limit)) == (operator == "==")
    if operator in {">=", "<="} and version == limit:
        return True
    return version > limit if operator.startswith(">") else version < limit
