"""The binding plan: which GPU, cores, memory node and threads each rank gets. Pure arithmetic.

Knows how to deal out the cores of hosts to ranks, near their GPUs, and the plan's file format.
Leaves reading a machine's topology to the probes and turning a plan into launcher flags to
``containers.launch``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from env.cpulist import render_cpu_list
from env.dealing import Seat, deal_cores
from env.errors import UserError
from env.topology import HostTopology

SCHEMA_VERSION = 2

# How a launcher has to be told. SLOT: `--map-by slot:PE=k` gives exactly this plan. CORES: the
# cores of each rank must be named. THREADS: its hardware threads must be named, since the job
# may use a part of some core only. NONE: nothing is bound.
SLOT, CORES, THREADS, NONE = "slot", "cores", "threads", "none"


@dataclass(frozen=True)
class RankBinding:
    """What one rank gets.

    Attributes:
        rank: 0 .. ranks - 1.
        local_rank: its number on its host.
        host: the host's name.
        cores: ids of the logical CPUs it may run on, ascending; empty where nothing is bound.
        gpu: index among the GPUs that the host's job sees, None on a CPU run.
        threads: how many threads it should compute with, at least 1.
        gpu_pci: the GPU's address, None without GPU.
        gpu_uuid: the GPU's own name, None without GPU or where no driver told it.
        memory_node: the node all its cores belong to, None where they belong to several or
            the kernel shows none.
        note: why its cores are not near its GPU; empty where they are.
        slots: its cores once more, as a launcher counts them: their places among the host's
            cores that the control group allows, from 0; where the plan's mapping is
            ``THREADS`` those of its logical CPUs. Open MPI 5 takes no other numbers.
    """

    rank: int
    local_rank: int
    host: str
    cores: tuple[int, ...]
    gpu: int | None
    threads: int
    gpu_pci: str | None = None
    gpu_uuid: str | None = None
    memory_node: int | None = None
    note: str = ""
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class BindingPlan:
    """Every rank's share of the machines, in the order of the ranks: host after host.

    Attributes:
        ranks: one binding for each rank.
        cores_per_rank: physical cores each rank is bound to; 0 where nothing is bound.
        mapping: how a launcher has to be told: ``SLOT``, ``CORES``, ``THREADS``
            or ``NONE``.
    """

    ranks: tuple[RankBinding, ...]
    cores_per_rank: int
    mapping: str = SLOT

    @cached_property
    def hosts(self) -> dict[str, tuple[RankBinding, ...]]:
        """The ranks of each host, in the order of the hosts."""
        hosts: dict[str, list[RankBinding]] = {}
        for rank in self.ranks:
            hosts.setdefault(rank.host, []).append(rank)
        return {host: tuple(ranks) for host, ranks in hosts.items()}

    @cached_property
    def by_rank(self) -> dict[int, RankBinding]:
        """The bindings by their rank."""
        return {rank.rank: rank for rank in self.ranks}


@dataclass(frozen=True)
class HostShare:
    """A host and how many ranks of the job it takes."""

    topology: HostTopology
    ranks: int


def plan_job(
    hosts: Sequence[HostShare], *, use_gpus: bool = True, share_cores: bool = False
) -> BindingPlan:
    """Deal the cores and GPUs of the hosts out to the ranks.

    Every rank gets the same number of whole cores, on every host: ranks go in step, and a
    wider one would wait for the others. What the division leaves over stays free.

    Args:
        hosts: the hosts in the order in which the launcher fills them.
        use_gpus: give each rank a GPU of its host, where the hosts have any.
        share_cores: bind nothing, so that there may be more ranks than cores.

    Raises:
        UserError: a host with fewer than one rank, more ranks than cores or than GPUs, or
            no GPU where another host has some.
    """
    with_gpus = use_gpus and any(share.topology.gpus for share in hosts)
    for share in hosts:
        _refuse_impossible(share, with_gpus=with_gpus, share_cores=share_cores)
    seats = [(Seat(()),) * share.ranks for share in hosts]
    if not share_cores:
        seats = _deal_alike(hosts, with_gpus=with_gpus)
    parts = any(_in_parts(share.topology) for share in hosts)
    bindings: list[RankBinding] = []
    for share, taken in zip(hosts, seats, strict=True):
        bindings += _bind(share, taken, first=len(bindings), with_gpus=with_gpus, parts=parts)
    width = len(seats[0][0].cores) if seats else 0
    in_a_row = all(
        binding.slots == tuple(range(binding.local_rank * width, (binding.local_rank + 1) * width))
        for binding in bindings
    )
    mapping = THREADS if parts else SLOT if in_a_row else CORES
    return BindingPlan(tuple(bindings), width, mapping=mapping if width else NONE)


def _refuse_impossible(share: HostShare, *, with_gpus: bool, share_cores: bool) -> None:
    host, ranks = share.topology.host, share.ranks
    found = f"{ranks} ranks"
    cores, gpus = len(share.topology.usable), len(share.topology.gpus)
    if ranks < 1:
        raise UserError(f"at least 1 rank on {host}", found=found, fix="give --ranks 1 or more")
    if ranks > cores and not share_cores:
        raise UserError(
            f"at most {cores} ranks, one for each core this job may use on {host}",
            found=found,
            fix=f"give --ranks {cores} or fewer, or --oversubscribe to share cores",
        )
    if with_gpus and ranks > gpus:
        raise UserError(
            f"at most {gpus} ranks, one for each GPU of {host}",
            found=found,
            fix=f"give --ranks {gpus} or fewer" if gpus else f"take {host} out of --hosts",
        )


def _deal_alike(hosts: Sequence[HostShare], *, with_gpus: bool) -> list[tuple[Seat, ...]]:
    """Return every host's seats, all of one width: the widest that each of them can give."""
    width = min(len(share.topology.usable) // share.ranks for share in hosts)
    while True:
        seats = [
            deal_cores(share.topology, ranks=share.ranks, most=width, use_gpus=with_gpus)
            for share in hosts
        ]
        least = min(len(taken[0].cores) for taken in seats)
        if least == width:
            return seats
        width = least  # a host gives fewer near its GPUs than the division would


def _bind(
    share: HostShare, seats: Sequence[Seat], *, first: int, with_gpus: bool, parts: bool
) -> list[RankBinding]:
    topology, bindings = share.topology, []
    slots = _slots(topology, parts=parts)
    for local, seat in enumerate(seats):
        nodes = {core.node for core in seat.cores}
        cpus = tuple(sorted(cpu for core in seat.cores for cpu in core.cpus))
        gpu = topology.gpus[local] if with_gpus else None
        binding = RankBinding(
            rank=first + local,
            local_rank=local,
            host=topology.host,
            cores=cpus,
            gpu=local if gpu else None,
            threads=_threads(share, len(seat.cores)),
            gpu_pci=gpu.pci if gpu else None,
            gpu_uuid=gpu.uuid if gpu else None,
            memory_node=nodes.pop() if len(nodes) == 1 else None,
            note=seat.note,
            slots=tuple(sorted({slots[cpu] for cpu in cpus if cpu in slots})),
        )
        bindings.append(binding)
    return bindings


def _threads(share: HostShare, width: int) -> int:
    """Return how many threads a rank keeps busy: its cores' number, or its share of a quota.

    More threads than the quota gives time for would use it up at once and stall together.
    """
    topology = share.topology
    cores = width or len(topology.usable) // share.ranks
    quota = cores if topology.quota is None else int(topology.quota / share.ranks)
    return max(1, min(cores, quota))


def _slots(topology: HostTopology, *, parts: bool) -> dict[int, int]:
    """Return each logical CPU's place in a launcher's count of cores, or of CPUs for parts."""
    units = [(cpu,) for core in topology.dealt for cpu in core.cpus] if parts else [
        core.cpus for core in topology.dealt
    ]  # fmt: skip
    return {cpu: n for n, unit in enumerate(units) for cpu in unit}


def _in_parts(topology: HostTopology) -> bool:
    """Return whether this job may use a part of some core only."""
    whole = {core.cpus for core in topology.cores}
    return any(core.cpus not in whole for core in (*topology.usable, *topology.dealt))


def render_rankfile(plan: BindingPlan) -> str:
    """Return an Open MPI rankfile that names every rank's host and cores.

    The numbers are a launcher's count (``RankBinding.slots``), which Open MPI 4 and 5 both
    read by default, and both bind by them whatever mask a ``taskset`` has set around them.
    Open MPI 4 takes the file as ``--rankfile FILE``, 5 as ``--map-by rankfile:FILE=FILE``. A plan
    mapped by ``THREADS`` numbers hardware threads: ``--use-hwthread-cpus`` beside it in 4,
    ``--map-by rankfile:FILE=FILE:HWTCPUS`` in 5.
    """
    lines = (
        f"rank {rank.rank}={rank.host} slot={render_cpu_list(rank.slots)}"
        for rank in plan.ranks
        if rank.slots
    )
    return "".join(f"{line}\n" for line in lines)


def render_plan(plan: BindingPlan) -> str:
    """Return the plan as JSON text."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(plan), indent=1) + "\n"


def load_plan(path: Path) -> BindingPlan:
    """Read a plan written by ``render_plan``.

    Raises:
        UserError: the file is missing or is not a plan of this schema.
    """
    fix = "write it anew: run the command that launched this again"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise UserError(f"a plan of schema_version {SCHEMA_VERSION}", found=str(path), fix=fix)
        ranks = tuple(
            RankBinding(**{**rank, "cores": tuple(rank["cores"]), "slots": tuple(rank["slots"])})
            for rank in data["ranks"]
        )
        return BindingPlan(ranks, data["cores_per_rank"], mapping=data["mapping"])
    except OSError as error:
        raise UserError("a plan file", found=f"{path}: {error.strerror}", fix=fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("a binding plan", found=f"{path}: {error!r}", fix=fix) from error
