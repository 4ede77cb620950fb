"""The ranks as a group: whether all of them reported, and whether they are alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from env.checks.evidence import Evidence
from env.checks.gpu_ranks import choose_gpu
from env.checks.gpus import READS, devices, visible, wanted
from env.checks.registry import LAUNCHED, check
from env.facts import CannotTellError
from env.result import Finding, Status

# What has to be the same in every rank, and what it is called.
_ALIKE = {
    "packages.python": "Python",
    "packages.executable": "the interpreter",
    "packages.installed": "the packages",
    "rank.lock": "the lock",
    "rank.mapped": "the libraries in the process",
}
# What had better be.
_RATHER = {
    "launch.settings": "settings",
    "host.uid": "the user",
    "host.open_files": "the limit of open files",
    "host.processes": "the limit of processes",
    "host.limits": "limits",
    "host.priority": "the priority",
    "host.cpu_flags": "the CPU's features",
}
# Of a process's limits those that hosts do not derive from their memory, and that a rank may reach.
_LIMITS = ("address space", "data size", "resident set", "file size", "cpu time", "stack size",
           "locked memory", "file locks")  # fmt: skip
_CLOCKS_APART_S = 60.0
_MAX_NAMED = 16


@check(
    "ranks.reported",
    title="every expected rank reported",
    phase=LAUNCHED,
    reads=("host.name", "rank.record"),
    fix="read the launcher's own output: a rank that cannot start says why there; "
    "records in a folder need one that every host sees, new for each launch",
)
def check_reported(evidence: Evidence) -> Finding:
    """FAIL if ranks are missing, or the records hold ranks that nobody expected."""
    wanted = range(evidence.num_ranks)
    missing = [rank for rank in wanted if rank not in evidence.reported]
    strange = [rank for rank in evidence.ranks if rank not in wanted]
    expected = f"{evidence.num_ranks} ranks"
    texts = [f"{ranks} on {host} did not report" for host, ranks in _by_host(evidence, missing)]
    texts += [f"{ranks} on {host} was not expected" for host, ranks in _by_host(evidence, strange)]
    broken = [evidence.ranks[rank]["rank.record"] for rank in missing if rank in evidence.ranks]
    texts += [f"a bad record: {fact.problem}" for fact in broken[:_MAX_NAMED]]
    if texts:
        hosts = {evidence.host_of(rank) for rank in (*missing, *strange)} - {"an unknown host"}
        return Finding(Status.FAIL, expected, "; ".join(texts), ranks=(*missing, *strange),
                       hosts=tuple(sorted(hosts)))  # fmt: skip
    return Finding(Status.PASS, expected, "all of them")


def _by_host(evidence: Evidence, ranks: list[int]) -> Iterator[tuple[str, str]]:
    hosts: dict[str, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(evidence.host_of(rank), []).append(rank)
    for host, mine in hosts.items():
        yield host, f"rank{'s' if len(mine) > 1 else ''} {_list(mine)}"


@check(
    "ranks.alike",
    title="all ranks run the same software with the same settings",
    phase=LAUNCHED,
    covers=("MPI-12",),
    reads=(*_ALIKE, *_RATHER, "launch.surroundings", "launch.local_rank", "rank.time",
           "host.boot_id", *READS),
    fix="start every rank from the same image or environment, and hand settings on with mpirun -x",
)  # fmt: skip
def check_alike(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if Python, packages, libraries or lock differ, or two hosts share a name.

    WARN if settings such as NCCL_* or HOROVOD_*, the user, limits, the priority, the CPU's features
    or the clocks differ, or driver, model or memory of the GPUs that ranks take. INFO if ranks of
    one host have another HOME, TMPDIR or language. One result for each thing that does, which
    names the odd ones out.
    """
    expected = "the same on all ranks"
    for table, status in ((_ALIKE, Status.FAIL), (_RATHER, Status.WARN)):
        for key, name in table.items():
            values = evidence.known_of_ranks(key)
            if key == "host.limits":
                values = {rank: _soft(limits) for rank, limits in values.items()}
            yield from _apart(evidence, values, name, status)
    if wanted(evidence):
        yield from _apart(evidence, _gpus(evidence), "the GPU", Status.WARN)
    hosts: dict[str, dict[int, Any]] = {}
    for rank, value in evidence.known_of_ranks("launch.surroundings").items():
        hosts.setdefault(evidence.host_of(rank), {})[rank] = value
    for values in hosts.values():
        yield from _apart(evidence, values, "surroundings", Status.INFO)
    yield from _namesakes(evidence)
    times = evidence.known_of_ranks("rank.time")
    if times and max(times.values()) - min(times.values()) > _CLOCKS_APART_S:
        late, early = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
        text = f"the clock of {evidence.host_of(late)} is {times[late] - times[early]:.0f} s before"
        yield Finding(Status.WARN, expected, f"{text} that of {evidence.host_of(early)}",
                      ranks=(early, late), fix="let the hosts keep time (chrony, NTP)")  # fmt: skip
    for key in ("packages.python", "packages.installed", "rank.lock", "host.name"):
        evidence.of_ranks(key)  # says which rank could not tell


def _gpus(evidence: Evidence) -> dict[int, dict[str, str]]:
    """Return model, memory and driver of the GPU of each rank that has one and could tell."""
    found = {}
    for rank, facts in evidence.reported.items():
        try:
            shown = visible(facts).indices
            index = shown[choose_gpu(evidence, rank, facts, len(shown))]
            device = next(d for d in devices(facts) if d["index"] == index)
            memory, driver = device.get("memory") or {}, facts.value("gpu.nvml").get("driver")
        except (CannotTellError, IndexError, StopIteration):
            continue  # gpu.one-per-rank speaks of those
        if device.get("name") and memory.get("total"):  # a GPU that says nothing is gpu.lost
            size = f"{memory['total'] / 2**30:.0f} GiB"
            found[rank] = {"driver": driver, "model": device["name"], "memory": size}
    return found


def _soft(limits: dict[str, dict[str, int | None]]) -> dict[str, int]:
    soft = {name: limits.get(name, {}).get("soft") for name in _LIMITS}
    return {name: number for name, number in soft.items() if number is not None}


def _apart(
    evidence: Evidence, values: dict[int, Any], name: str, status: Status
) -> Iterator[Finding]:
    odd = _odd_ones(values)
    if odd:
        text = f"{name} of rank {_list(odd)} ({_difference(values, odd)})"
        hosts = tuple(dict.fromkeys(evidence.host_of(rank) for rank in odd))
        yield Finding(status, "the same on all ranks", text, ranks=odd, hosts=hosts)


def _namesakes(evidence: Evidence) -> Iterator[Finding]:
    names, boots = evidence.known_of_ranks("host.name"), evidence.known_of_ranks("host.boot_id")
    machines: dict[str, dict[str, list[int]]] = {}
    for rank, name in names.items():
        if rank in boots:
            machines.setdefault(name, {}).setdefault(boots[rank], []).append(rank)
    for name, found in machines.items():
        if len(found) > 1:
            ranks = tuple(sorted(rank for mine in found.values() for rank in mine))
            text = f"{len(found)} machines are called {name}"
            yield Finding(Status.FAIL, "a name for each host", text, ranks=ranks, hosts=(name,),
                          fix="give each host a name of its own")  # fmt: skip


def _odd_ones(values: dict[int, Any]) -> tuple[int, ...]:
    """Return the ranks whose value is not that of most (of the lowest rank in a tie)."""
    groups: dict[str, list[int]] = {}
    first = next(iter(values.values()), None)
    alike = []
    for rank, value in values.items():
        # Comparing is cheap and nearly always enough: thousands of ranks have one value.
        if value is first or value == first:
            alike.append(rank)
        else:
            groups.setdefault(repr(sorted(value.items()) if isinstance(value, dict) else value),
                              []).append(rank)  # fmt: skip
    usual = max((alike, *groups.values()), key=len)
    return tuple(sorted(set(values) - set(usual))) if groups else ()


def _difference(values: dict[int, Any], odd: tuple[int, ...]) -> str:
    """Say in what the first of the odd ranks differs from the others, at most three things."""
    usual = next(value for rank, value in values.items() if rank not in odd)
    mine = values[odd[0]]
    if isinstance(mine, list) and isinstance(usual, list):
        mine, usual = ({str(item): "there" for item in items} for items in (mine, usual))
    if not isinstance(mine, dict) or not isinstance(usual, dict):
        return f"{mine}, elsewhere {usual}"
    keys = [k for k in sorted({*mine, *usual}) if mine.get(k) != usual.get(k)]
    texts = [f"{k}: {_short(mine.get(k))}, elsewhere {_short(usual.get(k))}" for k in keys[:3]]
    return "; ".join(texts) + (f"; and {len(keys) - 3} more" if len(keys) > 3 else "")


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(str(part) for part in value.values())
    return "none" if value is None else str(value)


def _list(ranks: tuple[int, ...] | list[int]) -> str:
    text = ", ".join(map(str, ranks[:_MAX_NAMED]))
    return text if len(ranks) <= _MAX_NAMED else f"{text} and {len(ranks) - _MAX_NAMED} more"


@check(
    "ranks.paths",
    title="every rank sees the files and folders that the run needs",
    phase=LAUNCHED,
    covers=("CON-14", "MPI-12"),
    reads=("rank.paths",),
    fix="put it at the same path on every host (a shared file system), and bind it into the image",
)
def check_paths(evidence: Evidence) -> Iterator[Finding]:
    """FAIL for each path that a rank does not see."""
    missing: dict[str, list[int]] = {}
    for rank, paths in evidence.of_ranks("rank.paths").items():
        for path, there in paths.items():
            if not there:
                missing.setdefault(path, []).append(rank)
    for path, ranks in missing.items():
        hosts = tuple(dict.fromkeys(evidence.host_of(rank) for rank in ranks))
        text = f"rank {_list(ranks)} on {', '.join(hosts)} does not see it"
        yield Finding(Status.FAIL, f"{path} on every host", text, where=path,
                      ranks=tuple(ranks), hosts=hosts)  # fmt: skip


@check(
    "ranks.allreduce",
    title="one allreduce over the ranks is right, and as fast as the site expects",
    phase=LAUNCHED,
    covers=("NET-11",),
    reads=("rank.allreduce",),
    required=False,
    fix="see the network results; NCCL_DEBUG=INFO shows which path NCCL takes",
)
def check_allreduce(evidence: Evidence) -> Finding:
    """FAIL if a sum is wrong or the bandwidth below the site's ``allreduce_gb_s``.

    Else PASS with the bandwidth: bytes x 2 (n - 1) / n / seconds. SKIP where none was asked for.
    """
    threshold = (evidence.site.thresholds if evidence.site else {}).get("allreduce_gb_s")
    expected = "right sums" + (f" at {threshold:g} GB/s or more" if threshold else "")
    if evidence.ranks and not any("rank.allreduce" in facts for facts in evidence.ranks.values()):
        return Finding(Status.SKIP, expected, "not asked for: --allreduce MIB")
    told = evidence.of_ranks("rank.allreduce")
    failed = {rank: one["error"] for rank, one in told.items() if "error" in one}
    failed |= {rank: f"{one['wrong']} wrong sums" for rank, one in told.items() if one.get("wrong")}
    if failed:
        text = "; ".join(f"rank {rank}: {text}" for rank, text in list(failed.items())[:3])
        return Finding(Status.FAIL, expected, text, ranks=tuple(failed))
    slowest = min(told, key=lambda rank: told[rank]["gb_s"])
    gb_s = told[slowest]["gb_s"]
    found = f"{gb_s:.2f} GB/s (rank {slowest}; {told[slowest]['mib']} MiB, {len(told)} ranks)"
    slow = threshold is not None and gb_s < threshold and len(told) > 1
    return Finding(Status.FAIL if slow else Status.PASS, expected, found)
