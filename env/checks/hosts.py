"""The network between the hosts of a job: names, addresses and interfaces, held side by side.

Judges what only several hosts together show. Leaves one host's own network to the
checks of the static phase, and arithmetic over addresses to ``env.network``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.interfaces import DAEMONS, EXCLUDE, INCLUDE, MPI, NCCL, choose
from env.network import is_host_only, packet_sizes, reachable, shared_route, twins
from env.result import Finding, Status

_OF_MPI = (MPI + INCLUDE, MPI + EXCLUDE)
_LISTS = (NCCL, *_OF_MPI, DAEMONS + INCLUDE, DAEMONS + EXCLUDE)
_READS = ("network.interfaces", "launch.settings", "settings.assigned", "host.name", "host.boot_id")


@check(
    "hosts.network",
    title="the hosts share a network, and MPI and NCCL are told to use it",
    phase=LAUNCHED,
    covers=("NET-01", "NET-02", "NET-04", "NET-05"),
    reads=_READS,
    fix="name the interfaces that lead from host to host: NCCL_SOCKET_IFNAME, and "
    "OMPI_MCA_btl_tcp_if_include as a network (10.0.0.0/24); --hosts does so by itself",
)
def check_network(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if an address is on two hosts, or a setting leaves a host no way to the others.

    FAIL too if hosts have interfaces that lead nowhere (docker0) and MPI is not told which to
    use, or told to use them. WARN if NCCL is, if the hosts share no network, or if they send
    packets of another size (MTU) into the one they share. PASS for one host.
    """
    hosts = _first_of_hosts(evidence, "network.interfaces")
    expected = "one network that every host has an address of its own in"
    if len(hosts) < 2:
        yield Finding(Status.PASS, expected, "one host")
        return
    settings = _told(evidence)
    for address, owners in twins(hosts).items():
        yield Finding(
            Status.FAIL, "addresses of their own", f"{address} is on {' and on '.join(owners)}",
            hosts=owners,
            fix="give the hosts or containers addresses that lead to one of them each: the host's "
            "own network (--network host), or an overlay",
        )  # fmt: skip
    yield from _misled(hosts, settings)
    yield from _packets(hosts)
    told = any(name in s for s in settings.values() for name in (*_OF_MPI, DAEMONS + INCLUDE))
    route = shared_route(hosts)
    nowhere = sorted(
        {
            entry["name"]
            for interfaces in hosts.values()
            for entry in interfaces
            if entry["up"] and entry["addresses"] and is_host_only(entry["name"])
        }
    )
    if nowhere and not told:
        found = f"MPI is not told which interfaces to use, and {', '.join(nowhere)} lead nowhere"
        yield Finding(Status.FAIL, expected, found, where=MPI + INCLUDE)
    elif route is None and not told and not twins(hosts):
        lists = (f"{host}: {', '.join(reachable(i)) or 'none'}" for host, i in hosts.items())
        yield Finding(Status.WARN, expected, f"no network is on all of them ({'; '.join(lists)})")


def _packets(hosts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each network into which the hosts send packets of several sizes."""
    for network, sizes in packet_sizes(hosts).items():
        if len(sizes) > 1:
            texts = (f"{size} bytes on {' and '.join(places)}" for size, places in sizes.items())
            few = min(sizes.values(), key=len)
            yield Finding(
                Status.WARN, f"one MTU in {network}", "; ".join(texts), where="MTU",
                hosts=tuple(place.partition(" ")[0] for place in few),
                fix="give the interfaces, and the switch between them, one size (ip link set dev "
                "NAME mtu 9000): large messages get lost where it is smaller than the sender's",
            )  # fmt: skip


def _told(evidence: Evidence) -> dict[str, dict[str, str]]:
    """Return what is set on each host; files of this host's stand for those of the others."""
    rows = reversed(evidence.facts["settings.assigned"].value or ())
    of_files = {row["name"]: row["value"] for row in rows if row["origin"] != "environment"}
    settings = _first_of_hosts(evidence, "launch.settings")
    return {host: {**of_files, **own} for host, own in settings.items()}


def _misled(
    hosts: Mapping[str, Any], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """Yield a finding for each setting that leaves some host no interface, or a wrong one."""
    for name in _LISTS:
        without, wrong, value = {}, {}, ""
        for host, interfaces in hosts.items():
            own = settings.get(host, {}).get(name, "")
            choice = choose(name, own, interfaces)
            if choice and (not choice.left or choice.is_local):
                without[host] = f"{host} has {', '.join(entry['name'] for entry in interfaces)}"
            elif choice and choice.local and choice.is_of_data:
                wrong[host] = f"{', '.join(choice.local)} of {host}"
            value = own if host in without or host in wrong else value
        if without:
            yield Finding(
                Status.FAIL, "an interface of that name on every host, that leads to the others",
                f"{name}={value}: {'; '.join(without.values())}", where=name, hosts=tuple(without),
            )  # fmt: skip
        if wrong:
            yield Finding(
                Status.WARN if name == NCCL else Status.FAIL,
                "no interface that leads to no other host",
                f"{name}={value} lets in {'; '.join(wrong.values())}", where=name,
                hosts=tuple(wrong),
            )  # fmt: skip


@check(
    "hosts.names",
    title="each host's own name leads to an address that the others can use",
    phase=LAUNCHED,
    covers=("NET-07",),
    reads=("network.own_name", "host.name", "host.boot_id"),
    fix="give the host's name its real address in /etc/hosts or DNS, on the host and in the image",
)
def check_names(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if, with several hosts, a host's name leads to itself alone (127.0.1.1) or nowhere."""
    own = _first_of_hosts(evidence, "network.own_name")
    if len(own) < 2:
        return
    for host, addresses in own.items():
        usable = [a for a in addresses if not ipaddress.ip_address(a.partition("%")[0]).is_loopback]
        if not usable:
            found = f"{host} calls itself {', '.join(addresses) or 'a name without address'}"
            yield Finding(Status.FAIL, "an address of the host's own", found, hosts=(host,),
                          where="/etc/hosts and DNS")  # fmt: skip


def _first_of_hosts(evidence: Evidence, key: str) -> dict[str, Any]:
    """Return a fact of the first rank on each host.

    Hosts of one name count as several where their boot ids say so.

    Raises:
        CannotTellError: a host's first rank could not read it.
    """
    names, boots = evidence.of_ranks("host.name"), evidence.known_of_ranks("host.boot_id")
    values = evidence.of_ranks(key)
    found: dict[str, Any] = {}
    machines: set[tuple[str, str]] = set()
    for rank, name in names.items():
        machine = (name, boots.get(rank, ""))
        if machine not in machines:
            machines.add(machine)
            found[name if name not in found else f"{name} ({machine[1][:8]})"] = values[rank]
    return found
