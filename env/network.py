"""Which networks the hosts of a job can use together. Pure arithmetic over addresses.

Knows names that never lead to another host (``docker0``), and how MPI and NCCL want to be
told. Leaves reading interfaces to ``env.probes.network``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Made by container engines, virtual machines and tunnels for traffic within one host: each
# host has the same ones, and whoever connects to their addresses reaches itself.
HOST_ONLY = re.compile(
    r"(docker|podman|cni|cbr|virbr|vboxnet|vmnet|lxcbr|lxdbr|incusbr|flannel|cali|cilium|weave|nerdctl"
    r"|tunl|veth|vnet|tap|kube|nodelocal|ovs-|dummy|ifb)"
    r"|br-[0-9a-f]{12}$"
)

Interfaces = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Route:
    """How the hosts reach each other.

    Attributes:
        networks: IPv4 networks, as Open MPI's ``…_if_include`` takes them.
        names: the interfaces of all hosts that lie in these networks, as NCCL wants them.
    """

    networks: tuple[str, ...]
    names: tuple[str, ...]


def reachable(interfaces: Interfaces) -> dict[str, list[ipaddress.IPv4Interface]]:
    """Return the IPv4 addresses by which other hosts might reach this one, by interface."""
    found: dict[str, list[ipaddress.IPv4Interface]] = {}
    for entry in interfaces:
        if not entry["up"] or entry["loopback"] or is_host_only(entry["name"]):
            continue
        addresses = [ipaddress.ip_interface(text) for text in entry["addresses"]]
        usable = [a for a in addresses if a.version == 4 and not a.ip.is_link_local]
        if usable:
            found[entry["name"]] = usable
    return found


def is_host_only(name: str) -> bool:
    """Return whether an interface of this name leads to nothing outside its host."""
    return HOST_ONLY.match(name) is not None


def shared_route(hosts: Mapping[str, Interfaces]) -> Route | None:
    """Return the networks that every host has an address of its own in; None without one.

    None is no error: hosts may reach each other through routers, and then nobody but the
    site knows by which interfaces.

    Args:
        hosts: the interfaces of each host, as ``network.interfaces`` has them.
    """
    of_hosts = {host: reachable(interfaces) for host, interfaces in hosts.items()}
    places: dict[ipaddress.IPv4Network, dict[str, list[tuple[str, str]]]] = {}
    for host, found in of_hosts.items():
        for name, addresses in found.items():
            for address in addresses:
                seen = places.setdefault(address.network, {}).setdefault(host, [])
                seen.append((name, str(address.ip)))
    networks, names = [], []
    for network, seen in sorted(places.items()):
        addresses = [ip for entries in seen.values() for _, ip in entries]
        if len(seen) == len(hosts) and len(set(addresses)) == len(addresses):
            networks.append(str(network))
            names += [name for entries in seen.values() for name, _ in entries]
    return Route(tuple(networks), tuple(dict.fromkeys(names))) if networks else None


def packet_sizes(hosts: Mapping[str, Interfaces]) -> dict[str, dict[int, list[str]]]:
    """Return the MTUs with which hosts send into each network that all share, and who does.

    Who is a host with its interface: ``"node1 eth0"``.
    """
    route = shared_route(hosts)
    shared = route.networks if route else ()
    found: dict[str, dict[int, list[str]]] = {network: {} for network in shared}
    for host, interfaces in hosts.items():
        usable = reachable(interfaces)
        for entry in interfaces:
            for network in {str(a.network) for a in usable.get(entry["name"], ())} & found.keys():
                if entry.get("mtu"):
                    place = f"{host} {entry['name']}"
                    found[network].setdefault(entry["mtu"], []).append(place)
    return found


def twins(hosts: Mapping[str, Interfaces]) -> dict[str, tuple[str, ...]]:
    """Return the addresses that several hosts call their own, with those hosts."""
    owners: dict[str, list[str]] = {}
    for host, interfaces in hosts.items():
        for addresses in reachable(interfaces).values():
            for address in addresses:
                owners.setdefault(str(address.ip), []).append(host)
    return {ip: tuple(names) for ip, names in owners.items() if len(set(names)) > 1}
