"""A host's topology: sockets, memory nodes, caches, cores, GPUs. Data and its JSON form.

Knows how the parts lie to each other, and the order in which a launcher deals out cores.
Leaves reading a running kernel to ``env.probes.topology`` and recorded ``lstopo`` XML to
``env.lstopo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from env.cpulist import parse_cpu_list, render_cpu_list

_PARTS = ("socket", "node", "cache")


@dataclass(frozen=True)
class Core:
    """A physical core.

    Attributes:
        cpus: ids of its logical CPUs (hardware threads), ascending.
        socket: number of its socket as the kernel gives it.
        node: its memory (NUMA) node, None where the kernel shows no nodes.
        cache: a number for the group of cores that share its last-level cache, None if unknown.
    """

    cpus: tuple[int, ...]
    socket: int = 0
    node: int | None = None
    cache: int | None = None


@dataclass(frozen=True)
class Gpu:
    """A GPU that this job may use.

    Attributes:
        pci: its address as the kernel writes it, e.g. ``"0000:07:00.0"``.
        node: the memory node it is attached to, None where firmware or the virtual machine
            does not tell (the kernel then says -1, which is not node 0).
        uuid: NVIDIA's name for this very card, None where no driver told it.
        model: what it is, None if unknown.
    """

    pci: str
    node: int | None = None
    uuid: str | None = None
    model: str | None = None


@dataclass(frozen=True)
class HostTopology:
    """One host as a job finds it.

    Attributes:
        host: its name.
        cores: every core that is online, in the order of ``launcher_order``.
        allowed: logical CPUs that the ranks may run on: this process's affinity mask.
        cpuset: logical CPUs that the control group allows. A launcher deals these out,
            whatever mask a ``taskset`` around it has set.
        gpus: the GPUs this job may use, in the order in which its processes number them.
        quota: how many cores' time the control group gives to all of the job's processes here
            together, None without limit. It may be less than the cores it shows.
    """

    host: str
    cores: tuple[Core, ...]
    allowed: tuple[int, ...]
    cpuset: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()
    quota: float | None = None

    @cached_property
    def usable(self) -> tuple[Core, ...]:
        """The cores this job may run on, each with the logical CPUs it may use of it."""
        return restrict(self.cores, self.allowed)

    @cached_property
    def dealt(self) -> tuple[Core, ...]:
        """The cores as a launcher counts them: all that the control group allows."""
        return restrict(self.cores, self.cpuset)

    @cached_property
    def known_nodes(self) -> frozenset[int]:
        """The memory nodes that have cores, whether or not this job may use them."""
        return frozenset(core.node for core in self.cores if core.node is not None)

    def home_of(self, gpu: Gpu) -> int | None:
        """Return the node whose cores are near a GPU; None where none is known to be."""
        known = self.known_nodes
        if gpu.node is None and len(known) == 1:
            return next(iter(known))  # there is only one place to be at
        return gpu.node if gpu.node in known else None

    @cached_property
    def nodes(self) -> dict[int, tuple[Core, ...]]:
        """The usable cores of each memory node, where the kernel shows nodes."""
        nodes: dict[int, tuple[Core, ...]] = {}
        for core in self.usable:
            if core.node is not None:
                nodes[core.node] = (*nodes.get(core.node, ()), core)
        return nodes


def restrict(cores: Iterable[Core], cpus: Iterable[int]) -> tuple[Core, ...]:
    """Return the cores with only these logical CPUs of each; without those that lose all."""
    wanted = set(cpus)
    kept = (
        core
        if wanted.issuperset(core.cpus)
        else replace(core, cpus=tuple(cpu for cpu in core.cpus if cpu in wanted))
        for core in cores
    )
    return tuple(core for core in kept if core.cpus)


def launcher_order(cores: Iterable[Core]) -> tuple[Core, ...]:
    """Return cores in the order in which Open MPI fills slots.

    Its topology library (hwloc) walks sockets, then memory nodes, then caches, then cores, and
    orders each of them by the lowest logical CPU inside, not by the number it bears.
    """
    cores = tuple(cores)
    lowest: dict[tuple[str, int | None], int] = {}
    for core in cores:
        for part in _PARTS:
            key = (part, getattr(core, part))
            lowest[key] = min(core.cpus[0], lowest.get(key, core.cpus[0]))

    def place(core: Core) -> tuple[int, ...]:
        return (*(lowest[part, getattr(core, part)] for part in _PARTS), core.cpus[0])

    return tuple(sorted(cores, key=place))


def topology_to_json(topology: HostTopology) -> dict[str, Any]:
    """Return a topology as JSON values; ``topology_from_json`` reads them."""
    return {
        "host": topology.host,
        "cores": [
            [render_cpu_list(core.cpus), core.socket, core.node, core.cache]
            for core in topology.cores
        ],
        "allowed": render_cpu_list(topology.allowed),
        "cpuset": render_cpu_list(topology.cpuset),
        "gpus": [[gpu.pci, gpu.node, gpu.uuid, gpu.model] for gpu in topology.gpus],
        "quota": topology.quota,
    }


def topology_from_json(data: Mapping[str, Any]) -> HostTopology:
    """Return the topology that ``topology_to_json`` wrote.

    Raises:
        KeyError, ValueError, TypeError: the data is not of that form.
    """
    return HostTopology(
        host=data["host"],
        cores=tuple(Core(parse_cpu_list(cpus), *rest) for cpus, *rest in data["cores"]),
        allowed=parse_cpu_list(data["allowed"]),
        cpuset=parse_cpu_list(data["cpuset"]),
        gpus=tuple(Gpu(*gpu) for gpu in data["gpus"]),
        quota=data["quota"],
    )
