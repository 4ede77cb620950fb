"""The errors a user can cause, in the one form every command prints.

Knows the exit codes of the project and how an error reads: what was expected,
what was found and where, what to do. Leaves deciding what is an error to the
modules that raise.
"""

from __future__ import annotations

from collections.abc import Iterable

EXIT_GOOD = 0
EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_CANNOT_TELL = 3
EXIT_REQUEUE = 75
"""Stopped by a signal, its steps in a checkpoint: go on with --resume (sysexits.h: TEMPFAIL)."""


class UserError(Exception):
    """Wrong use, an unknown name or a bad file: printed without a traceback.

    Attributes:
        exit_code: 2 for wrong use (the default), 1 where the work itself failed,
            3 where something required could not be determined.
    """

    def __init__(
        self, expected: str, *, found: str, fix: str, exit_code: int = EXIT_WRONG_USE
    ) -> None:
        super().__init__(f"expected: {expected}\nfound:    {found}\nfix:      {fix}")
        self.expected = expected
        self.found = found
        self.fix = fix
        self.exit_code = exit_code


def unknown_name(kind: str, name: str, *, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not in a list of known ones.

    Args:
        kind: what the name stands for, e.g. ``"stack"``.
        name: what the user gave.
        known: the names that would have been accepted.
    """
    listed = ", ".join(sorted(known)) or "none"
    return UserError(f"a known {kind}", found=f"{name!r}", fix=f"use one of: {listed}")
