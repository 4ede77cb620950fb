"""The network of one host: its name, and the interfaces and devices that settings choose.

Leaves RDMA to ``env.checks.rdma``, and whether hosts can meet to ``env.checks.hosts``.
"""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.checks.settings import effective
from env.network import is_host_only
from env.result import Finding, Status

# Which settings name interfaces, and how their tool matches: by the beginning of a name, by
# the whole name, or by the whole name or a network.
_CHOOSERS = {
    "NCCL_SOCKET_IFNAME": "beginning", "NCCL_OOB_NET_IFNAME": "beginning",
    "HOROVOD_GLOO_IFACE": "whole", "GLOO_SOCKET_IFNAME": "whole",
    "OMPI_MCA_btl_tcp_if_include": "network", "OMPI_MCA_oob_tcp_if_include": "network",
    "PRTE_MCA_oob_tcp_if_include": "network", "PRTE_MCA_prte_if_include": "network",
    "OMPI_MCA_ptl_tcp_if_include": "network", "PMIX_MCA_ptl_tcp_if_include": "network",
    "UCX_NET_DEVICES": "ucx", "NCCL_IB_HCA": "rdma",
}  # fmt: skip
_RESTRICTIONS = ("NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude")
_EVERYTHING = ("all", "any")


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
    title="interfaces and devices that settings name are there",
    covers=("NET-02",),
    reads=("settings.assigned", "network.interfaces", "rdma.ports"),
    fix="name interfaces or networks that every host has, or take the setting out",
    required=False,
)
def check_chosen(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a setting names no interface, network or device of this host that is up.

    WARN if it names one that leads to no other host, such as docker0 or a loopback.
    """
    interfaces = evidence.facts.value("network.interfaces")
    for setting in effective(evidence):
        rule, value = _CHOOSERS.get(setting["name"]), setting["value"].strip()
        if rule is None or not value or value.lower() in _EVERYTHING or value.startswith("^"):
            continue
        ports = evidence.facts.value("rdma.ports") if rule in ("ucx", "rdma") else []
        dead, chosen = choose(value, rule, interfaces, ports)
        shown = f"{setting['name']}={value}"
        there = ", ".join(_usable(interfaces, ports, rule)) or "none"
        if not chosen or (dead and rule == "network"):
            # One more word that matches nothing harms nobody where the rest is found, except
            # to Open MPI, which then refuses.
            text = f"{shown}: {', '.join(dead)} matches nothing that is up here"
            yield Finding(Status.FAIL, f"one of {there}", text, where=setting["origin"])
        elif all(_is_local(entry) for entry in chosen) and rule != "rdma":
            text = f"{shown} leads to no other host"
            yield Finding(Status.WARN, f"one of {there}", text, where=setting["origin"])


def choose(
    value: str, rule: str, interfaces: Sequence[Mapping[str, Any]], ports: Sequence[Mapping]
) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return the words of a setting that match nothing, and what the others match."""
    exact = value.startswith("=") or rule not in ("beginning", "rdma")
    words = [word.strip() for word in value.lstrip("=").split(",") if word.strip()]
    up = [entry for entry in interfaces if entry["up"]]
    devices = [{"name": p["device"], "port": p["port"], "loopback": False} for p in ports]
    dead, chosen = [], []
    for word in words:
        if rule == "network" and "/" in word:
            found = [entry for entry in up if _in_network(entry, word)]
        elif rule in ("ucx", "rdma"):
            found = [d for d in devices if _is_device(d, word, exact)]
            found += [e for e in up if rule == "ucx" and fnmatch.fnmatch(e["name"], word)]
        else:
            found = [
                e for e in up if e["name"] == word or (not exact and e["name"].startswith(word))
            ]
        chosen += found
        dead += [] if found else [word]
    return dead, chosen


def _in_network(entry: Mapping[str, Any], word: str) -> bool:
    try:
        network = ipaddress.ip_network(word, strict=False)
        return any(ipaddress.ip_interface(text).ip in network for text in entry["addresses"])
    except ValueError:
        return False


def _is_device(device: Mapping[str, Any], word: str, exact: bool) -> bool:
    name, _, port = word.partition(":")
    same = device["name"] == name if exact else device["name"].startswith(name)
    return same and port in ("", str(device["port"]))


def _is_local(entry: Mapping[str, Any]) -> bool:
    return entry["loopback"] or is_host_only(entry["name"])


def _usable(
    interfaces: Sequence[Mapping[str, Any]], ports: Sequence[Mapping[str, Any]], rule: str
) -> list[str]:
    names = [] if rule == "rdma" else [e["name"] for e in interfaces if e["up"]]
    return names + [f"{p['device']}:{p['port']}" for p in ports]


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

    PASS where settings choose the interfaces, or none such is up. The launcher of this project
    names the networks that the hosts share by itself.
    """
    interfaces = evidence.facts.value("network.interfaces")
    local = [
        e["name"] for e in interfaces if e["up"] and is_host_only(e["name"]) and e["addresses"]
    ]
    expected = "interfaces that lead to other hosts, or a choice among them"
    chosen = [s["name"] for s in effective(evidence) if s["name"] in _RESTRICTIONS]
    if not local:
        return Finding(Status.PASS, expected, "no others")
    if chosen:
        return Finding(Status.PASS, expected, f"{', '.join(local)}; {', '.join(chosen)} chooses")
    return Finding(Status.INFO, expected, f"{', '.join(local)} lead nowhere outside this host")
