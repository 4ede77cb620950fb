"""The launched side of validation: what ranks look at, and the static checks on every host.

A rank that comes first on a host nobody has looked at observes what the static phase does, so
that no host is trusted for looking like another; and what a launcher may give its ranks that this
process has not is judged as they have it. Knows which facts that takes, and how verdicts of
several hosts become one report. Leaves observing to ``env.probes`` and judging to the checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, STATIC, Check, run_all
from env.facts import Fact, Facts
from env.observe import run_probe
from env.probes.frameworks import IMPORT_TIMEOUT_S
from env.probes.rank import Look, Probe
from env.result import Result, Status

JOINED = "frameworks.horovod_init"
# What a launcher, its daemon or a wrapper may give ranks otherwise than this process has it: probes
# of what is alike for the ranks of a host, and the facts of which each rank has its own.
_OF_LAUNCH = frozenset({"settings", "storage"})
_LIMITS = frozenset({"host.limits", "host.open_files", "host.processes"})
Probes = Mapping[str, Callable[[Path, Mapping[str, str]], Mapping[str, Fact]]]


def plan_look(
    checks: Iterable[Check],
    *,
    probes: Probes,
    only: Iterable[str] | None = None,
    except_boot: str | None = None,
    of_host: bool = True,
    paths: Iterable[Path] = (),
    allreduce_mib: int = 0,
    timeout_s: float = IMPORT_TIMEOUT_S,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Look:
    """Return what a rank has to look at for these checks, and no more.

    Args:
        checks: those that will judge.
        probes: by the first part of their facts' keys.
        only: names of probes, instead of what the checks read; nobody is joined then.
        except_boot: the boot id of a host at which somebody has looked.
        of_host: whether hosts are looked at, rather than ranks alone.
        paths: what every rank should see.
        allreduce_mib: sum so many MiB over the ranks; 0 for not.
        timeout_s: seconds to wait for the other ranks.
        environ: the rank's environment.
        root: the folder in which /proc, /sys, /etc and /dev lie.
    """
    checks = list(checks)
    joins = any(JOINED in one.reads for one in checks) or allreduce_mib > 0
    every = _prefixes(one for one in checks if one.phase == LAUNCHED) - {"frameworks"} | {"host"}
    first = _prefixes(one for one in checks if one.phase == STATIC) - every
    if only is not None:
        every, first, of_host, joins = {*only, "host"}, set(), False, False

    def bound(names: set[str]) -> tuple[Probe, ...]:
        return tuple(
            partial(run_probe, name, p, root, environ)
            for name, p in probes.items()
            if name in names
        )

    return Look(
        bound(every), bound(first or {"host"}) if of_host else (), bound(first & _OF_LAUNCH),
        except_boot, tuple(paths),
        join=joins, allreduce_mib=allreduce_mib, timeout_s=timeout_s, environ=environ,
    )  # fmt: skip


def _prefixes(checks: Iterable[Check]) -> set[str]:
    return {key.split(".")[0] for one in checks for key in one.reads}


def run_everywhere(one: Check, evidence: Evidence) -> list[Result]:
    """Run a check, and a static one on each other host and in the ranks as well.

    What passes there is not told again; what is wrong on several hosts in the same way is one
    result that names them all.
    """
    results = run_all(one, evidence)
    if one.phase != STATIC:
        return results
    if evidence.other_hosts:
        results = _on_hosts(one, evidence, results)
    return results + _in_ranks(one, evidence, results)


def _on_hosts(one: Check, evidence: Evidence, results: list[Result]) -> list[Result]:
    here = evidence.facts["host.name"].value
    results = [replace(r, hosts=r.hosts or ((str(here),) if here else ())) for r in results]
    together: dict[Result, list[str]] = {replace(r, hosts=()): list(r.hosts) for r in results}
    seen: dict[tuple[int, ...], list[Result]] = {}
    for host, rank in evidence.other_hosts.items():
        # Hosts that look the same to a check are judged once: most of a cluster does.
        look = tuple(map(evidence.looks[rank].__getitem__, one.reads))
        if look not in seen:
            results = _bad(run_all(one, evidence.at(evidence.ranks[rank])))
            seen[look] = [replace(result, hosts=()) for result in results]
        for result in seen[look]:
            together.setdefault(result, []).append(host)
    return [replace(result, hosts=tuple(hosts)) for result, hosts in together.items()]


def _in_ranks(one: Check, evidence: Evidence, told: list[Result]) -> list[Result]:
    """Return what is wrong in ranks and was not told of their hosts, a result with all its ranks.

    Judged are limits in every rank, settings and folders in the ranks that looked at them; what
    else a check reads is this host's.
    """
    own = _own(one)
    if not own:
        return []
    here = str(evidence.facts["host.name"].value)
    known = {(_gist(result), host) for result in told for host in result.hosts or (here,)}
    first: dict[Result, Result] = {}
    ranks: dict[Result, list[int]] = {}
    seen: dict[tuple[int, ...], list[Result]] = {}
    for rank, facts in evidence.reported.items():
        if not _judged_in(one, own, facts, evidence):
            continue
        host = here if _is_here(facts, evidence) else evidence.host_of(rank)
        look = tuple(map(evidence.looks[rank].__getitem__, one.reads))
        if look not in seen:
            seen[look] = _bad(run_all(one, evidence.at(evidence.facts | facts)))
        for result in seen[look]:
            gist = _gist(result)
            if (gist, host) not in known:
                first.setdefault(gist, result)
                ranks.setdefault(gist, []).append(rank)
    return [
        replace(result, ranks=tuple(ranks[gist]),
                hosts=tuple(dict.fromkeys(map(evidence.host_of, ranks[gist]))))
        for gist, result in first.items()
    ]  # fmt: skip


def _own(one: Check) -> list[str]:
    """Return which of the facts that a check reads a rank may have otherwise than its host."""
    return [k for k in one.reads if k in _LIMITS or k.partition(".")[0] in _OF_LAUNCH]


def _judged_in(one: Check, own: Iterable[str], facts: Facts, evidence: Evidence) -> bool:
    """Return whether a rank is judged by itself: it has the facts, and may differ from its host."""
    looked = all(key in facts for key in own)
    # The first rank of another host has been judged as that host.
    return looked and not facts["rank.of_host"].value and (
        _is_here(facts, evidence) or all(key in facts for key in one.reads)
    )  # fmt: skip


def _is_here(facts: Facts, evidence: Evidence) -> bool:
    boot = facts["host.boot_id"].value
    return boot is not None and boot == evidence.facts["host.boot_id"].value


def _bad(results: Iterable[Result]) -> list[Result]:
    return [result for result in results if result.status.severity <= Status.WARN.severity]


def _gist(result: Result) -> Result:
    """Return a result without its numbers, which change from one look to the next."""
    return replace(result, found=re.sub(r"[\d.]+", "0", result.found), ranks=(), hosts=())
