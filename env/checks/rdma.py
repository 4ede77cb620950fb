"""RDMA: whether this process may use InfiniBand and RoCE, and whether ports and GPUs are fit.

Judges what the kernel shows. Leaves Ethernet and names to ``env.checks.network``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.checks.settings import effective
from env.interfaces import choose
from env.result import Finding, Status


@check(
    "network.locked-memory",
    title="a process may lock the memory that RDMA needs",
    covers=("NET-09",),
    reads=("host.limits", "rdma.ports"),
    fix="ulimit -l unlimited where ranks start: limits.d, slurmd's unit (LimitMEMLOCK=infinity), "
    "docker --ulimit memlock=-1",
    required=False,
)
def check_locked_memory(evidence: Evidence) -> Finding:
    """FAIL below 1 GiB and WARN below unlimited where an RDMA port is active; else PASS."""
    limit = evidence.facts.value("host.limits").get("locked memory", {"soft": None})["soft"]
    active = [p for p in evidence.facts.value("rdma.ports") if p["state"] == "ACTIVE"]
    where = evidence.facts["host.limits"].origin
    found = "unlimited" if limit is None else f"{limit / 2**20:g} MiB"
    if not active:
        return Finding(Status.PASS, "any limit: no RDMA port is active here", found, where=where)
    status = Status.PASS if limit is None else Status.WARN
    status = Status.FAIL if limit is not None and limit < 2**30 else status
    expected = f"unlimited, for {active[0]['device']}"
    return Finding(status, expected, found, where=where)


@check(
    "network.verbs",
    title="this process can use the RDMA devices that the kernel shows",
    covers=("NET-10",),
    reads=("rdma.ports", "rdma.files", "rdma.library"),
    fix="give the container /dev/infiniband (docker: --device=/dev/infiniband "
    "--cap-add=IPC_LOCK) and "
    "install rdma-core's libibverbs1 and ibverbs-providers in the image",
    required=False,
)
def check_verbs(evidence: Evidence) -> Finding:
    """FAIL for several hosts, WARN for one, if an active port cannot be used from here."""
    active = [p for p in evidence.facts.value("rdma.ports") if p["state"] == "ACTIVE"]
    if not active:
        return Finding(Status.PASS, "RDMA where there is any", "no active RDMA port here")
    files = evidence.facts.value("rdma.files")
    devices = [name for name in files if name.startswith("uverbs")]
    wrong = []
    if not devices:
        wrong.append("/dev/infiniband has no uverbs file")
    elif not any(files[name] for name in devices):
        wrong.append(f"no permission for /dev/infiniband/{devices[0]}")
    if evidence.facts.value("rdma.library") is None:
        wrong.append("there is no libibverbs.so.1")
    expected = f"{active[0]['device']} to be usable"
    where = evidence.facts["rdma.files"].origin
    if not wrong:
        return Finding(Status.PASS, expected, ", ".join(devices), where=where)
    found = "; ".join(wrong) + ": MPI and NCCL would use plain TCP"
    status = Status.FAIL if evidence.num_hosts > 1 else Status.WARN
    return Finding(status, expected, found, where=where)


@check(
    "network.ports",
    title="the RDMA ports that a job would use are up and have a usable address",
    covers=("NET-12", "NET-13"),
    reads=("rdma.ports", "settings.assigned"),
    fix="take the port out of NCCL_IB_HCA, or mend its link; for RoCE set NCCL_IB_GID_INDEX to the "
    "index of a RoCE v2 entry with an IPv4 address; on rail-only fabrics NCCL_CROSS_NIC=0",
    required=False,
)
def check_ports(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if NCCL_IB_HCA names a port that is not active, or a GID that is empty or link-local.

    WARN if the GID chosen, or the only one there is, is of RoCE v1.
    """
    ports = evidence.facts.value("rdma.ports")
    settings = {s["name"]: s["value"] for s in effective(evidence)}
    wanted = settings.get("NCCL_IB_HCA", "")
    index = settings.get("NCCL_IB_GID_INDEX", "")
    named = wanted and not wanted.startswith("^")
    choice = choose("NCCL_IB_HCA", wanted, (), ports=ports)
    chosen = choice.left if choice else ()
    for port in ports:
        place = f"{port['device']} port {port['port']}"
        is_named = any((c["name"], c["port"]) == (port["device"], port["port"]) for c in chosen)
        if is_named and port["state"] != "ACTIVE":
            text = f"{place} is {port['state']} ({port['physical']})"
            yield Finding(Status.FAIL, f"an active {place}", text, where=f"NCCL_IB_HCA={wanted}")
        if port["state"] == "ACTIVE" and port["link"] == "Ethernet" and (is_named or not named):
            yield from _judge_gid(place, port["gids"], index)


def _judge_gid(place: str, gids: Mapping[str, Mapping[str, str]], index: str) -> Iterator[Finding]:
    """Judge the entry a RoCE port would use; without an index NCCL finds a good one itself."""
    expected = f"a RoCE v2 address of {place}"
    good = [n for n, g in gids.items() if "v2" in g["kind"] and not g["gid"].startswith("fe80")]
    if re.fullmatch(r"\d+", index):
        entry = gids.get(index)
        if entry is None or entry["gid"].startswith("fe80"):
            text = f"index {index} is {'empty' if entry is None else 'link-local'}"
            yield Finding(Status.FAIL, expected, text, where="NCCL_IB_GID_INDEX", fix=_index(good))
        elif "v2" not in entry["kind"]:
            text = f"index {index} is {entry['kind'] or 'of an unknown kind'}"
            yield Finding(Status.WARN, expected, text, where="NCCL_IB_GID_INDEX", fix=_index(good))
    elif not good:
        yield Finding(Status.WARN, expected, f"{place} has none among {len(gids)} entries")


def _index(good: Sequence[str]) -> str:
    return f"NCCL_IB_GID_INDEX={good[0]}" if good else "give the interface an IPv4 address"


@check(
    "network.gpudirect",
    title="network cards reach GPU memory directly",
    covers=("NET-11",),
    reads=("rdma.ports", "rdma.peer_memory", "gpu.device_files"),
    fix="on the host: modprobe nvidia-peermem (nothing is needed in the container), or the open "
    "kernel driver, whose dma-buf a recent NCCL uses instead",
    required=False,
)
def check_gpudirect(evidence: Evidence) -> Finding:
    """WARN if there are GPUs and active RDMA ports, and nothing that joins them.

    That is a module for peer memory, or the open kernel driver, whose dma-buf needs none.
    """
    expected = "nvidia-peermem or the open kernel driver, where GPUs and RDMA meet"
    active = [p for p in evidence.facts.value("rdma.ports") if p["state"] == "ACTIVE"]
    gpus = evidence.facts.value("gpu.device_files")
    if not active or not gpus:
        found = "no active RDMA port here" if not active else "no GPU here"
        return Finding(Status.PASS, expected, found)
    modules = evidence.facts.value("rdma.peer_memory")
    where = evidence.facts["rdma.peer_memory"].origin
    if modules:
        return Finding(Status.PASS, expected, ", ".join(modules), where=where)
    found = "no such module is loaded: data goes through host memory between hosts"
    return Finding(Status.WARN, expected, found, where=where)


@check(
    "network.rails",
    title="every host has as many active RDMA ports",
    phase=LAUNCHED,
    covers=("NET-13",),
    reads=("rdma.ports", "host.name"),
    fix="mend the links that are down, or name the same ports for all in NCCL_IB_HCA; where "
    "each card "
    "reaches only its own rail, NCCL_CROSS_NIC=0",
    required=False,
)
def check_rails(evidence: Evidence) -> Finding:
    """WARN if the number of active ports differs between the hosts."""
    ports, names = evidence.of_ranks("rdma.ports"), evidence.of_ranks("host.name")
    active = {
        names[rank]: sum(port["state"] == "ACTIVE" for port in found)
        for rank, found in ports.items()
    }
    expected = "the same number on every host"
    if len(set(active.values())) <= 1:
        return Finding(Status.PASS, expected, f"{next(iter(active.values()), 0)} active each")
    most = max(active.values())
    fewer = tuple(sorted(host for host, number in active.items() if number < most))
    found = "; ".join(f"{host}: {active[host]}, elsewhere {most}" for host in fewer)
    return Finding(Status.WARN, expected, found, hosts=fewer)
