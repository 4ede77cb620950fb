"""Results: a check's status, what was expected, what was found, what to do.

Knows the six statuses, their order, and the exit code they add up to. Leaves
printing to ``env.report``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from env.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_GOOD


class Status(StrEnum):
    """How a check came out; the worst first."""

    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    WARN = "WARN"
    INFO = "INFO"
    SKIP = "SKIP"
    PASS = "PASS"

    @property
    def severity(self) -> int:
        """0 for the worst."""
        return _ORDER[self]


_ORDER = {status: number for number, status in enumerate(Status)}


@dataclass(frozen=True)
class Finding:
    """What the function of a check returns.

    Attributes:
        status: how it came out.
        expected: what a good machine shows.
        found: what this one shows.
        where: the file, variable or library concerned.
        fix: what to do; empty for the fix of the check itself.
        ranks: the ranks concerned.
        hosts: the hosts concerned.
    """

    status: Status
    expected: str
    found: str
    where: str = ""
    fix: str = ""
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A finding with the check it belongs to, as a report holds it."""

    id: str
    status: Status
    phase: str
    expected: str
    found: str
    where: str
    fix: str
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]


def exit_code(results: Iterable[Result], *, required: Iterable[str]) -> int:
    """Return 1 if a check failed, else 3 if a required one could not tell, else 0.

    Args:
        results: of all checks that ran.
        required: ids of the checks that must be able to tell.
    """
    results, required = list(results), set(required)
    if any(result.status is Status.FAIL for result in results):
        return EXIT_FAILED
    if any(r.status is Status.UNKNOWN and r.id in required for r in results):
        return EXIT_CANNOT_TELL
    return EXIT_GOOD
