"""Deals one host's cores out to its ranks: equal shares, each near its rank's GPU.

Knows how near is near: the GPU's own memory node, else its socket, else anywhere, and then
why. Leaves the job's other hosts and the plan's form to ``env.binding``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from env.topology import Core, Gpu, HostTopology

Cores = tuple[Core, ...]


@dataclass(frozen=True)
class Seat:
    """A rank's cores, and why they are not near its GPU (empty where they are)."""

    cores: Cores
    note: str = ""


def deal_cores(
    topology: HostTopology, *, ranks: int, most: int, use_gpus: bool
) -> tuple[Seat, ...]:
    """Return a seat for each rank, all of the same number of cores.

    Near comes before many: a rank keeps to its GPU's node even where cores elsewhere stay
    free, since those would move every image through the other socket's memory.

    Args:
        topology: the host; it has at least ``most * ranks`` usable cores.
        ranks: how many processes; with ``use_gpus`` rank n has GPU n.
        most: cores a rank gets at most, at least 1.
        use_gpus: whether the ranks compute on the host's GPUs.
    """
    gpus: Sequence[Gpu | None] = topology.gpus[:ranks] if use_gpus else [None] * ranks
    homes = [topology.home_of(gpu) if gpu else None for gpu in gpus]
    if all(home is None for home in homes):
        seats = _deal_evenly(topology.usable, ranks=ranks, width=most)
    else:
        seats = _deal_near(topology, homes=homes, width=_width(topology, homes=homes, most=most))
    return tuple(
        Seat(cores, _why_far(topology, gpu, home, cores))
        for gpu, home, cores in zip(gpus, homes, seats, strict=True)
    )


def _at_node(topology: HostTopology, cores: Iterable[Core], home: int | None) -> Cores:
    return tuple(core for core in cores if home is not None and core.node == home)


def _at_socket(topology: HostTopology, cores: Iterable[Core], home: int | None) -> Cores:
    sockets = {core.socket for core in _at_node(topology, topology.cores, home)}
    return tuple(core for core in cores if core.socket in sockets)


def _width(topology: HostTopology, *, homes: Sequence[int | None], most: int) -> int:
    """Return the most cores a rank can have such that the nodes and sockets hold theirs.

    A node or socket with fewer usable cores than ranks does not count: not all of its
    ranks can be near, whatever the width.
    """
    width = most
    for near in (_at_node, _at_socket):
        regions = [near(topology, topology.usable, home) for home in homes]
        for region in set(regions):
            guests = regions.count(region)
            if len(region) >= guests:
                width = min(width, len(region) // guests)
    return width


def _deal_near(
    topology: HostTopology, *, homes: Sequence[int | None], width: int
) -> tuple[Cores, ...]:
    """Seat every rank at its node while there is room, then at its socket, then anywhere."""
    free = list(topology.usable)
    seats: dict[int, Cores] = {}
    anywhere: Callable[..., Cores] = lambda topology, cores, home: tuple(cores)  # noqa: E731
    for near in (_at_node, _at_socket, anywhere):
        for rank, home in enumerate(homes):
            region = near(topology, free, home)
            if rank not in seats and len(region) >= width:
                seats[rank] = _from_one_place(region, width)
                free = [core for core in free if core not in seats[rank]]
    return tuple(seats[rank] for rank in range(len(homes)))


def _deal_evenly(cores: Cores, *, ranks: int, width: int) -> tuple[Cores, ...]:
    """Seat ranks that are near nothing: within a node each if all fit so, else in a row.

    Cores left over are spread over the nodes too, so that each has the same share of the
    memory's bandwidth.
    """
    places = list(_places(cores).values())
    guests = [0] * len(places)
    for _ in range(ranks):
        room = [n for n, place in enumerate(places) if len(place) >= (guests[n] + 1) * width]
        if not room:
            return tuple(cores[n * width : (n + 1) * width] for n in range(ranks))
        guests[min(room, key=lambda n: guests[n] * width / len(places[n]))] += 1
    return tuple(
        place[n * width : (n + 1) * width]
        for place, number in zip(places, guests, strict=True)
        for n in range(number)
    )


def _from_one_place(cores: Cores, width: int) -> Cores:
    """Take so many cores, of a single node where one has them all."""
    places = [place for place in _places(cores).values() if len(place) >= width]
    return max(places, key=len, default=cores)[:width]


def _places(cores: Iterable[Core]) -> dict[tuple[int, int | None], Cores]:
    """Return the cores by node, or by socket where the kernel shows no nodes."""
    places: dict[tuple[int, int | None], Cores] = {}
    for core in cores:
        place = (core.socket, core.node)
        places[place] = (*places.get(place, ()), core)
    return places


def _why_far(topology: HostTopology, gpu: Gpu | None, home: int | None, cores: Cores) -> str:
    """Return why cores are not at a GPU's node; empty where they are, or without GPU."""
    if gpu is None or len(topology.known_nodes) < 2:
        return ""
    if home is None:
        told = "no memory node" if gpu.node is None else f"node {gpu.node}, which has no cores"
        return f"where GPU {gpu.pci} is attached is unknown: the kernel tells {told}"
    if len(_at_node(topology, cores, home)) == len(cores):
        return ""
    usable = len(_at_node(topology, topology.usable, home))
    lack = f"node {home} of GPU {gpu.pci} has too few cores left ({usable} usable)"
    if len(_at_socket(topology, cores, home)) == len(cores):
        return f"{lack}: on other cores of its socket"
    return f"{lack}, and so has its socket"
