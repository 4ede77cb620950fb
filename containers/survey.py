"""Looks at the hosts of a job before planning: what each is made of, and how they are joined.

One process on each host, started by the launcher that will start the ranks: a host that cannot
be reached is found here, before anything else. Leaves the plan to ``env.binding``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from containers.hosts import HostSlots
from containers.launch import Site, launch_command, project_environ
from containers.launchers import Launch, Launcher, forwarded
from containers.ranks import start_ranks
from env.binding import NONE, BindingPlan, HostShare, RankBinding
from env.facts import CannotTellError, Facts
from env.network import Route, shared_route
from env.topology import HostTopology, topology_from_json

PROBES = "host,network,topology"


def survey_launch(hosts: Sequence[HostSlots], *, launcher: Launcher, folder: Path) -> Launch:
    """Return the launch of one process on each host, bound to nothing."""
    ranks = tuple(RankBinding(rank, 0, host.name, (), None, 1) for rank, host in enumerate(hosts))
    plan = BindingPlan(ranks, 0, mapping=NONE)
    one_each = tuple(HostSlots(host.name, 1) for host in hosts)
    names = forwarded(project_environ())
    return Launch(plan, launcher, hosts=one_each, forward=names, folder=folder, label=True)


def survey_command(launch: Launch, *, site: Site) -> list[str]:
    """Return the command line of a survey."""
    look = ["python", "-m", "env", "rank", "--probes", PROBES]
    return launch_command(launch, command=look, site=site)


def survey_hosts(launch: Launch, *, site: Site, folder: Path, timeout_s: float) -> dict[int, Facts]:
    """Return what each host that answered says of itself, by its place among the hosts."""
    return start_ranks(survey_command(launch, site=site), folder=folder, timeout_s=timeout_s)


def share_hosts(hosts: Sequence[HostSlots], told: Mapping[int, Facts]) -> list[HostShare] | None:
    """Return the hosts with their topology; None where one did not tell its own.

    They keep the names that lead to them, which need not be what they call themselves.
    """
    shares = []
    for number, host in enumerate(hosts):
        topology = _topology(told.get(number, Facts()))
        if topology is None:
            return None
        shares.append(HostShare(replace(topology, host=host.name), host.ranks))
    return shares


def _topology(facts: Facts) -> HostTopology | None:
    try:
        return topology_from_json(facts.value("topology.host"))
    except (CannotTellError, KeyError, ValueError, TypeError):
        return None


def route_between(told: Mapping[int, Facts]) -> Route | None:
    """Return the networks that the hosts share; None for one host, or where nobody knows."""
    try:
        interfaces = {str(n): facts.value("network.interfaces") for n, facts in told.items()}
    except CannotTellError:
        return None
    return shared_route(interfaces) if len(interfaces) > 1 else None
