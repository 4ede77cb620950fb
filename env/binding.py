"""The binding plan: which GPU, cores, memory node and threads each rank gets. Pure arithmetic.

Knows how to deal out the cores of hosts to ranks, near their GPUs, and the plan's file format.
Leaves reading a machine's topology to the probes and turning a plan into launcher flags to
``containers.launch``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from env.dealing import Seat, deal_cores
from env.errors import UserError
from env.topology import Core, Gpu, HostTopology

SCHEMA_VERSION = 2

# How a launcher has to be told. SLOT: `--map-by slot:PE=k` gives exactly this plan. EXPLICIT:
# the cores of each rank must be named (rankfile, CPU list). NONE: nothing is bound.
SLOT, EXPLICIT, NONE = "slot", "explicit", "none"


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


@dataclass(frozen=True)
class BindingPlan:
    """Every rank's share of the machines, in the order of the ranks: host after host.

    Attributes:
        ranks: one binding for each rank.
        cores_per_rank: physical cores each rank is bound to; 0 where nothing is bound.
        mapping: how a launcher has to be told: ``SLOT``, ``EXPLICIT`` or ``NONE``.
    """

    ranks: tuple[RankBinding, ...]
    cores_per_rank: int
    mapping: str = SLOT

    @property
    def hosts(self) -> dict[str, tuple[RankBinding, ...]]:
        """The ranks of each host, in the order of the hosts."""
        hosts: dict[str, tuple[RankBinding, ...]] = {}
        for rank in self.ranks:
            hosts[rank.host] = (*hosts.get(rank.host, ()), rank)
        return hosts


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
    seats = [] if share_cores else _deal_alike(hosts, with_gpus=with_gpus)
    bindings: list[RankBinding] = []
    for n, share in enumerate(hosts):
        taken = seats[n] if seats else (Seat(()),) * share.ranks
        bindings += _bind(share, taken, first=len(bindings), with_gpus=with_gpus)
    if not seats:
        return BindingPlan(tuple(bindings), cores_per_rank=0, mapping=NONE)
    width = len(seats[0][0].cores)
    in_a_row = all(
        tuple(core for seat in taken for core in seat.cores)
        == share.topology.dealt[: share.ranks * width]
        for share, taken in zip(hosts, seats, strict=True)
    )
    return BindingPlan(tuple(bindings), width, mapping=SLOT if in_a_row else EXPLICIT)


def plan_local(
    ranks: int,
    *,
    host: str,
    cores: Sequence[tuple[int, ...]],
    num_gpus: int = 0,
    share_cores: bool = False,
) -> BindingPlan:
    """Plan for one host of which no more is known than its cores, in a launcher's order.

    Raises:
        UserError: as ``plan_job``.
    """
    cpus = tuple(sorted(cpu for core in cores for cpu in core))
    gpus = tuple(Gpu(f"GPU {n}") for n in range(num_gpus))
    topology = HostTopology(host, tuple(Core(core) for core in cores), cpus, cpus, gpus)
    return plan_job([HostShare(topology, ranks)], share_cores=share_cores)


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
    share: HostShare, seats: Sequence[Seat], *, first: int, with_gpus: bool
) -> list[RankBinding]:
    topology, bindings = share.topology, []
    for local, seat in enumerate(seats):
        nodes = {core.node for core in seat.cores}
        gpu = topology.gpus[local] if with_gpus else None
        binding = RankBinding(
            rank=first + local,
            local_rank=local,
            host=topology.host,
            cores=tuple(sorted(cpu for core in seat.cores for cpu in core.cpus)),
            gpu=local if gpu else None,
            threads=len(seat.cores) or max(1, len(topology.usable) // share.ranks),
            gpu_pci=gpu.pci if gpu else None,
            gpu_uuid=gpu.uuid if gpu else None,
            memory_node=nodes.pop() if len(nodes) == 1 else None,
            note=seat.note,
        )
        bindings.append(binding)
    return bindings


def render_rankfile(plan: BindingPlan) -> str:
    """Return an Open MPI rankfile that names every rank's host and logical CPUs.

    The numbers are the kernel's own, not the launcher's count of cores.
    """
    lines = (
        f"rank {rank.rank}={rank.host} slot={','.join(map(str, rank.cores))}"
        for rank in plan.ranks
        if rank.cores
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
            RankBinding(**{**rank, "cores": tuple(rank["cores"])}) for rank in data["ranks"]
        )
        return BindingPlan(ranks, data["cores_per_rank"], mapping=data["mapping"])
    except OSError as error:
        raise UserError("a plan file", found=f"{path}: {error.strerror}", fix=fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("a binding plan", found=f"{path}: {error!r}", fix=fix) from error
