"""Validation: from observing to a report, in the two steps that callers need.

``collect_static`` observes this process's host; ``judge`` turns evidence into a report.
Between the two a caller may start the ranks and read their records. Knows which probe
gives which facts, and where the lock lies. Leaves printing to ``env.report``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from env.checks.evidence import Evidence
from env.checks.registry import (
    LAUNCHED,
    STATIC,
    Check,
    find_check,
    known_checks,
    run_check,
    skip_consequences,
)
from env.errors import UserError
from env.facts import CannotTellError, Fact, Facts
from env.launched import run_everywhere
from env.lock import Lock, load_lock, lock_path
from env.observe import run_probes
from env.probes.container import probe_container
from env.probes.driver import probe_driver
from env.probes.frameworks import probe_frameworks
from env.probes.gpu import probe_gpu
from env.probes.host import parse_os_release, probe_host
from env.probes.known import probe_known
from env.probes.leftover import probe_leftover
from env.probes.libraries import probe_libraries
from env.probes.mpi import probe_mpi
from env.probes.network import probe_network
from env.probes.packages import probe_packages
from env.probes.placement import probe_placement, probe_places
from env.probes.python import probe_python
from env.probes.rdma import probe_rdma
from env.probes.recipe import probe_recipe
from env.probes.settings import probe_settings
from env.probes.storage import probe_storage
from env.probes.versions import probe_versions
from env.report import Report
from env.result import Finding, Result, Status, exit_code
from env.stack import load_stacks

IMAGE_LOCK = Path("opt/chexnet/stack.lock.json")

# The first part of a fact's key names the probe that gives it.
PROBES: dict[str, Callable[[Path, Mapping[str, str]], Mapping[str, Fact]]] = {
    "host": lambda root, environ: probe_host(root, environ=environ),
    "packages": lambda root, environ: probe_packages(environ=environ),
    "versions": lambda root, environ: probe_versions(environ=environ),
    "mpi": lambda root, environ: probe_mpi(root, environ=environ),
    "python": lambda root, environ: probe_python(environ=environ),
    "settings": lambda root, environ: probe_settings(root, environ=environ),
    "known": lambda root, environ: probe_known(root, environ=environ),
    "leftover": lambda root, environ: probe_leftover(environ=environ),
    "libraries": lambda root, environ: probe_libraries(root, environ=environ),
    "storage": lambda root, environ: probe_storage(root, environ=environ),
    "container": lambda root, environ: probe_container(root, environ=environ),
    "recipe": lambda root, environ: probe_recipe(root, environ=environ),
    "rdma": lambda root, environ: probe_rdma(root, environ=environ),
    "network": lambda root, environ: probe_network(root, environ=environ),
    "topology": lambda root, environ: probe_placement(root, environ=environ),
    "places": lambda root, environ: probe_places(root, environ=environ),
    "gpu": lambda root, environ: probe_gpu(root, environ=environ),
    "driver": lambda root, environ: probe_driver(root, environ=environ),
    "frameworks": lambda root, environ: probe_frameworks(environ=environ),
}

# Probes of what an image brings; a bare node is judged without them.
_INSTALLED = ("packages", "versions", "mpi", "known", "python", "recipe", "libraries", "frameworks")


def collect_static(
    checks: Iterable[Check] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> Facts:
    """Observe what the given checks read, and no more (an import of TensorFlow costs seconds).

    Args:
        checks: the checks that will judge; every one if None.
        environ: the environment to observe in.
        root: the folder in which /proc, /sys, /etc and /dev lie.
    """
    chosen = known_checks().values() if checks is None else checks
    needed = {key.split(".")[0] for one in chosen if one.phase == STATIC for key in one.reads}
    wanted = {name: probe for name, probe in PROBES.items() if name in needed | {"host"}}
    return run_probes(wanted, root=root, environ=environ)


def select_checks(
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    launched: bool = False,
    later: bool = False,
    node: bool = False,
) -> tuple[list[Check], list[Check]]:
    """Return the checks to run and those the user skips, in the order of the registry.

    Args:
        only: ids to keep; all of the phase if empty.
        skip: ids to leave out; the report names them.
        launched: whether ranks have reported or should have.
        later: whether ranks will report: checks of the launched phase are then left for it.
        node: keep the checks of the bare node alone, which read nothing that is installed.

    Raises:
        UserError: an unknown id, or a check of the launched phase without ranks.
    """
    only, skip = list(only), list(skip)
    for name in (*only, *skip):
        find_check(name)
    phases = (STATIC, LAUNCHED) if launched else (STATIC,)
    for name in only:
        if not later and find_check(name).phase not in phases:
            fix = "let each rank write one: mpirun … python -m env rank --records DIR"
            expected = f"records of ranks, which {name} judges"
            raise UserError(expected, found="no --records DIR", fix=fix)
    wanted = [
        c
        for c in known_checks().values()
        if c.phase in phases and (not only or c.id in only) and not (node and _reads_installed(c))
    ]
    return [c for c in wanted if c.id not in skip], [c for c in wanted if c.id in skip]


def _reads_installed(one: Check) -> bool:
    return any(key.split(".")[0] in _INSTALLED for key in one.reads)


def judge(
    evidence: Evidence,
    *,
    checks: Iterable[Check],
    skipped: Iterable[Check] = (),
    silenced: Mapping[str, str] | None = None,
    fail_fast: bool = False,
    now: datetime | None = None,
) -> Report:
    """Run checks over evidence.

    Args:
        evidence: what was observed.
        checks: those to run, in this order.
        skipped: those the user left out, which the report names as SKIP.
        silenced: the reason by id of each check whose bad verdict is known and accepted:
            it is told as INFO and stops nothing.
        fail_fast: stop after the first FAIL.
        now: when the judging began; this moment if None.
    """
    checks = list(checks)
    started = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    results = []
    for one in checks:
        mine = [_silence(result, silenced or {}) for result in run_everywhere(one, evidence)]
        results += mine
        if fail_fast and any(result.status is Status.FAIL for result in mine):
            break
    results = skip_consequences(results, checks=checks)
    code = exit_code(results, required=[one.id for one in checks if one.required])
    results += [run_check(_left_out(one), evidence) for one in skipped]
    results = [replace(r, hosts=_by_plan(r.hosts, evidence)) for r in results]
    names = [facts["host.name"].value for facts in (evidence.facts, *evidence.ranks.values())]
    hosts = tuple(sorted(_by_plan((str(name) for name in names if name), evidence)))
    stack = evidence.lock.stack if evidence.lock else None
    return Report(stack, started, hosts, tuple(results), code)


def _by_plan(hosts: Iterable[str], evidence: Evidence) -> tuple[str, ...]:
    """Return hosts by the plan's names, each once."""
    known = evidence.plan_names
    return tuple(dict.fromkeys(name for host in hosts for name in known.get(host) or [host]))


def find_lock(
    *, lock: Path | None, stack: str | None,
    environ: Mapping[str, str] = os.environ, root: Path = Path("/"),
) -> tuple[Path | None, Lock | None]:  # fmt: skip
    """Return the lock to hold the machine against and its path, None where there is none.

    The file given, else ``$CHEXNET_LOCK``, else the image's, else the committed lock of
    the stack given, or of the stack made for this host's distribution.

    Raises:
        UserError: the file is missing or bad, the stack unknown, or they do not agree.
    """
    stacks = load_stacks()
    if stack is not None and stack not in stacks:
        raise UserError("a known stack", found=repr(stack), fix=f"use one of: {', '.join(stacks)}")
    named = lock or (Path(environ["CHEXNET_LOCK"]) if environ.get("CHEXNET_LOCK") else None)
    if named is None and (root / IMAGE_LOCK).exists():
        named = root / IMAGE_LOCK
    if named is not None:
        loaded = load_lock(named)
        if stack not in (None, loaded.stack):
            raise UserError(f"a lock of stack {stack}", found=f"{named} is of {loaded.stack}",
                            fix="give the other --lock, or leave --stack out")  # fmt: skip
        return named, loaded
    name = stack or host_stack(root)
    path = lock_path(name) if name else None
    if path is None or not path.exists():
        return None, None
    return path, load_lock(path)


def host_stack(root: Path = Path("/")) -> str | None:
    """Return the first stack made for this host's distribution and release, None without one."""
    try:
        system = parse_os_release((root / "etc/os-release").read_text(encoding="utf-8"))
    except OSError:
        return None
    wanted = (system["id"], system["version_id"])
    stacks = load_stacks().values()
    return next((s.name for s in stacks if (s.base.distribution, s.base.release) == wanted), None)


def device_of(lock: Lock | None) -> str | None:
    """Return what a lock's stack was made for, None where that is not known."""
    stack = load_stacks().get(lock.stack) if lock else None
    return stack.device if stack else None


def _left_out(one: Check) -> Check:
    left_out = Finding(Status.SKIP, one.title, "left out with --skip")
    return replace(one, judge=lambda evidence: left_out)


def _silence(result: Result, silenced: Mapping[str, str]) -> Result:
    bad = result.status in (Status.FAIL, Status.UNKNOWN, Status.WARN)
    if not bad or result.id not in silenced:
        return result
    found = f"{result.status}, silenced ({silenced[result.id]}): {result.found}"
    return replace(result, status=Status.INFO, found=found, fix="")


def count_ranks(ranks: Mapping[int, Facts]) -> int:
    """Return how many ranks there should be by the ranks' own word, at least 1."""
    sizes = [1]
    for facts in ranks.values():
        try:
            sizes.append(facts.value("launch.size") or 1)
        except CannotTellError:
            continue
    return max(*sizes, len(ranks))
