"""The ranks as a group: whether all of them reported, and whether they are alike."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.result import Finding, Status

_ALIKE = {
    "packages.python": "Python",
    "packages.executable": "the interpreter",
    "packages.installed": "the packages",
    "rank.lock": "the lock",
}


@check(
    "ranks.reported",
    title="every expected rank reported",
    phase=LAUNCHED,
    reads=("host.name",),
    fix="read the launcher's own output: a rank that cannot start says why there; "
    "the records must lie in a folder that every host sees, new for each launch",
)
def check_reported(evidence: Evidence) -> Finding:
    """FAIL if ranks are missing, or the records hold ranks that nobody expected."""
    wanted = range(evidence.num_ranks)
    missing = [rank for rank in wanted if rank not in evidence.ranks]
    strange = [rank for rank in evidence.ranks if rank not in wanted]
    expected = f"{evidence.num_ranks} ranks"
    texts = [f"rank {rank} on {evidence.host_of(rank)} did not report" for rank in missing]
    texts += [f"rank {rank} on {evidence.host_of(rank)} was not expected" for rank in strange]
    if texts:
        hosts = {evidence.host_of(rank) for rank in (*missing, *strange)} - {"an unknown host"}
        return Finding(Status.FAIL, expected, "; ".join(texts), ranks=(*missing, *strange),
                       hosts=tuple(sorted(hosts)))  # fmt: skip
    return Finding(Status.PASS, expected, "all of them")


@check(
    "ranks.alike",
    title="all ranks run the same software with the same settings",
    phase=LAUNCHED,
    covers=("MPI-12",),
    reads=("packages.python", "packages.executable", "packages.installed", "rank.lock",
           "launch.settings", "host.name", "host.boot_id"),
    fix="start every rank from the same image or environment, and hand settings on with mpirun -x",
)  # fmt: skip
def check_alike(evidence: Evidence) -> Finding:
    """FAIL if Python, packages or lock differ between ranks, or two hosts share a name.

    WARN if settings such as NCCL_* or HOROVOD_* differ.
    """
    expected = "the same on all ranks"
    differing: dict[str, tuple[int, ...]] = {}
    for key, name in _ALIKE.items():
        odd = _odd_ones(evidence.of_ranks(key))
        if odd:
            differing[f"{name} of rank {_list(odd)} ({_difference(evidence, key, odd[0])})"] = odd
    names, boots = evidence.of_ranks("host.name"), evidence.of_ranks("host.boot_id")
    for host in sorted(set(names.values())):
        here = {rank: boots[rank] for rank in names if names[rank] == host}
        if len(set(here.values())) > 1:
            differing[f"{len(set(here.values()))} machines are called {host}"] = tuple(here)
    status = Status.FAIL
    if not differing:
        status = Status.WARN
        odd = _odd_ones(evidence.of_ranks("launch.settings"))
        if odd:
            text = _difference(evidence, "launch.settings", odd[0])
            differing[f"settings of rank {_list(odd)} ({text})"] = odd
    if not differing:
        return Finding(Status.PASS, expected, f"{len(evidence.ranks)} alike")
    ranks = tuple(sorted({rank for odd in differing.values() for rank in odd}))
    hosts = tuple(sorted({names[rank] for rank in ranks}))
    return Finding(status, expected, "; ".join(differing), ranks=ranks, hosts=hosts)


def _odd_ones(values: dict[int, Any]) -> tuple[int, ...]:
    """Return the ranks whose value is not that of most (of the lowest rank in a tie)."""
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, value in values.items():
        groups[repr(sorted(value.items()) if isinstance(value, dict) else value)].append(rank)
    usual = max(groups.values(), key=lambda ranks: (len(ranks), -ranks[0]))
    return tuple(rank for rank in values if rank not in usual)


def _difference(evidence: Evidence, key: str, rank: int) -> str:
    """Say in what a rank differs from the most usual one, at most three things of it."""
    values = evidence.of_ranks(key)
    odd = _odd_ones(values)
    usual = next(value for other, value in values.items() if other not in odd)
    mine = values[rank]
    if not isinstance(mine, dict):
        return f"{mine}, elsewhere {usual}"
    keys = [k for k in sorted({*mine, *usual}) if mine.get(k) != usual.get(k)]
    texts = [f"{k}: {_short(mine.get(k))}, elsewhere {_short(usual.get(k))}" for k in keys[:3]]
    return "; ".join(texts) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return "none" if value is None else str(value)


def _list(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks))
