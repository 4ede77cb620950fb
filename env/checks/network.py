"""The network of one host: its name, and the interfaces and devices that settings choose.

Leaves RDMA to ``env.checks.rdma``, and whether hosts can meet to ``env.checks.hosts``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.checks.settings import effective
from env.interfaces import EXCLUDE, INCLUDE, MPI, NCCL, Choice, both_ways, choose, names_devices
from env.network import is_host_only
from env.result import Finding, Status


@check(
    "network.name",
    title="this host's name leads to an address that other hosts can use",
    covers=("NET-07",),
    reads=("network.own_name", "host.name"),
    fix="give the name an address of the cluster's network in /etc/hosts or DNS; "
    "on one host alone it only has to be known at all",
    required=False,
)
def check_name(evidence: Evidence) -> Finding:
    """FAIL for several hosts if the name leads nowhere, or to a loopback address only.

    On one host a name that leads nowhere is INFO; a loopback address is all it needs: PASS.
    """
    addresses = evidence.facts.value("network.own_name")
    name, where = evidence.facts.value("host.name"), evidence.facts["network.own_name"].origin
    expected = f"an address for {name}"
    usable = [a for a in addresses if not _is_loopback(a)]
    several = evidence.num_hosts > 1
    if usable or (addresses and not several):
        return Finding(Status.PASS, expected, ", ".join(addresses), where=where)
    found = f"only {', '.join(addresses)}" if addresses else f"{name} leads to no address"
    status = Status.FAIL if several else Status.INFO
    return Finding(status, expected, found, where=where)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(
            address.split("%", maxsplit=1)[0].split("/", maxsplit=1)[0]
        ).is_loopback
    except ValueError:
        return False


@check(
    "network.chosen",
    title="interfaces and devices that settings choose are there, and lead to other hosts",
    covers=("NET-02",),
    reads=("settings.assigned", "network.interfaces", "rdma.ports"),
    fix="name interfaces or networks that every host has, or take the setting out",
    required=False,
)
def check_chosen(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a setting leaves no interface, network or device of this host that is up.

    FAIL too if it leaves several hosts only such as lead to no other (docker0, a loopback), or
    if Open MPI is told both what to use and what to leave out. WARN if it leaves one host only
    such, or lets one in beside others.
    """
    interfaces, settings = evidence.facts.value("network.interfaces"), effective(evidence)
    for setting in settings:
        devices = names_devices(setting["name"])
        ports = evidence.facts.value("rdma.ports") if devices else ()
        choice = choose(setting["name"], setting["value"], interfaces, ports=ports)
        if choice and (judged := _judge(choice, several=evidence.num_hosts > 1)):
            found = f"{setting['name']}={setting['value']}{judged[1]}"
            there = f"one of {', '.join(choice.usable) or 'none'}"
            yield Finding(judged[0], there, found, where=setting["origin"])
    for stem in both_ways(setting["name"] for setting in settings if setting["value"]):
        found = f"{stem}_include and {stem}_exclude are both set"
        yield Finding(Status.FAIL, "one of the two, or Open MPI stops", found, where=stem)


def _judge(choice: Choice, *, several: bool) -> tuple[Status, str] | None:
    if choice.is_refused:
        # One more word that matches nothing harms nobody where the rest is found, except
        # to Open MPI, which then refuses.
        dead = f": {', '.join(choice.dead)} matches nothing that is up here"
        return Status.FAIL, dead if choice.dead else " leaves no interface that is up here"
    if choice.is_local:
        status = Status.FAIL if several and choice.is_of_data else Status.WARN
        return status, f" leads to no other host: it leaves {', '.join(choice.local)}"
    if choice.local and choice.is_of_data:
        return Status.WARN, f" lets in {', '.join(choice.local)}, which leads to no other host"
    return None


@check(
    "network.host-only",
    title="no interface of container engines misleads MPI and NCCL",
    covers=("NET-01",),
    reads=("network.interfaces", "settings.assigned"),
    fix="name the network that the hosts share: NCCL_SOCKET_IFNAME, and for Open MPI "
    "OMPI_MCA_btl_tcp_if_include with its address, e.g. 10.1.0.0/16",
    required=False,
)
def check_host_only(evidence: Evidence) -> Finding:
    """INFO if interfaces such as docker0 are up: a launch on several hosts must leave them out.

    PASS where a setting leaves them out, or none such is up. The launcher of this project
    names the networks that the hosts share by itself.
    """
    interfaces = evidence.facts.value("network.interfaces")
    local = [
        e["name"] for e in interfaces if e["up"] and is_host_only(e["name"]) and e["addresses"]
    ]
    expected = "interfaces that lead to other hosts, or a choice among them"
    choices = [choose(s["name"], s["value"], interfaces) for s in effective(evidence)]
    chosen = [
        c.name for c in choices
        if c and c.name in (NCCL, MPI + INCLUDE, MPI + EXCLUDE) and not set(local) & set(c.local)
    ]  # fmt: skip
    if not local:
        return Finding(Status.PASS, expected, "no others")
    if chosen:
        return Finding(Status.PASS, expected, f"{', '.join(local)}; {', '.join(chosen)} chooses")
    return Finding(Status.INFO, expected, f"{', '.join(local)} lead nowhere outside this host")
