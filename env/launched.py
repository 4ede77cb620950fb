"""The launched side of validation: what ranks look at, and the static checks on every host.

A rank that comes first on a host nobody has looked at observes what the static phase does, so
that no host is trusted for looking like another. Knows which facts that takes, and how verdicts
of several hosts become one report. Leaves observing to ``env.probes`` and judging to the checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, STATIC, Check, run_all
from env.facts import Fact
from env.observe import run_probe
from env.probes.frameworks import IMPORT_TIMEOUT_S
from env.probes.rank import Look, Probe
from env.result import Result, Status

JOINED = "frameworks.horovod_init"
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
        every, of_host, joins = {*only, "host"}, False, False

    def bound(names: set[str]) -> tuple[Probe, ...]:
        return tuple(
            partial(run_probe, name, p, root, environ)
            for name, p in probes.items()
            if name in names
        )

    return Look(
        bound(every), bound(first or {"host"}) if of_host else (), except_boot, tuple(paths),
        join=joins, allreduce_mib=allreduce_mib, timeout_s=timeout_s, environ=environ,
    )  # fmt: skip


def _prefixes(checks: Iterable[Check]) -> set[str]:
    return {key.split(".")[0] for one in checks for key in one.reads}


def run_everywhere(one: Check, evidence: Evidence) -> list[Result]:
    """Run a check, and a static one on each other host that was looked at as well.

    What passes on another host is not told again; what is wrong on several in the same way is
    one result that names them all.
    """
    results = run_all(one, evidence)
    others = evidence.other_hosts
    if one.phase != STATIC or not others:
        return results
    here = evidence.facts["host.name"].value
    results = [replace(r, hosts=r.hosts or ((str(here),) if here else ())) for r in results]
    together: dict[Result, list[str]] = {replace(r, hosts=()): list(r.hosts) for r in results}
    seen: dict[tuple[int, ...], list[Result]] = {}
    for host, facts in others.items():
        # Hosts that look the same to a check are judged once: most of a cluster does.
        look = tuple(map(evidence.looks[host].__getitem__, one.reads))
        if look not in seen:
            results = run_all(one, evidence.at(facts))
            bad = (r for r in results if r.status.severity <= Status.WARN.severity)
            seen[look] = [replace(result, hosts=()) for result in bad]
        for result in seen[look]:
            together.setdefault(result, []).append(host)
    return [replace(result, hosts=tuple(hosts)) for result, hosts in together.items()]
