"""Drift: the distribution's archive has other packages than a lock names.

Knows how the two are compared, told, and built with all the same. An archive keeps only
the newest of each package, so every lock drifts in the end; a saved folder of packages does
not. Leaves asking the archive to ``containers.archive``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from containers.archive import resolve_system
from env.errors import EXIT_FAILED, UserError
from env.lock import Lock, SystemPackage
from env.stack import Stack

NOTHING = "nothing"
UNKNOWN = "not known"


def find_drift(
    locked: Iterable[SystemPackage], *, offered: Iterable[SystemPackage]
) -> tuple[str, ...]:
    """Return where an archive differs from a lock: a line for each package, sorted.

    A line reads ``libc6: locked 2.36-9, offered 2.36-10``; a package that only one of them
    has is ``nothing`` in the other.
    """
    before = {package.name: package.version for package in locked}
    now = {package.name: package.version for package in offered}
    return tuple(
        f"{name}: locked {before.get(name, NOTHING)}, offered {now.get(name, NOTHING)}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    )


def follow_archive(lock: Lock, *, stack: Stack) -> tuple[Lock, tuple[str, ...]]:
    """Return a lock of what the archive has now, and how it differs from the given one.

    Raises:
        UserError: the archive cannot be asked.
    """
    offered = resolve_system(stack)
    drift = find_drift(lock.system_packages, offered=offered.packages)
    if not drift:
        return lock, ()
    gap = {"drift": f"{len(drift)} packages are others than in the committed lock"}
    followed = replace(
        lock, system_packages=offered.packages, archive_date=offered.date, gaps={**lock.gaps, **gap}
    )
    return followed, drift


def refuse_drift(lock: Lock, *, stack: Stack, gone: Iterable[str]) -> UserError:
    """Return the error for packages that the archive has not got any more.

    Args:
        lock: the lock that names them.
        stack: its stack.
        gone: their names.
    """
    try:
        now = {p.name: p.version for p in resolve_system(stack).packages}
        absent = NOTHING
    except UserError:  # the archive's files are there, its index is not: tell what is known
        now, absent = {}, UNKNOWN
    locked = {p.name: p.version for p in lock.system_packages}
    # Also one that is offered as locked: a mirror may lack a file that its index names.
    lines = [
        f"{name}: locked {locked[name]}, offered {now.get(name, absent)}" for name in sorted(gone)
    ]
    return UserError(
        f"every package of the lock of {stack.name} in the distribution's archive",
        found="these are gone:\n          " + "\n          ".join(lines),
        fix=f"renew the lock: invoke lock --stack {stack.name}; or build from a folder saved "
        "before: --packages DIR; or build with what the archive has, which the image's labels "
        "then say: --allow-drift",
        exit_code=EXIT_FAILED,
    )
