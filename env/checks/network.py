"""The network: names, interfaces that settings choose, and RDMA devices.

Judges one host's view, and in the launched phase whether the hosts can meet. Leaves which
networks hosts share to ``env.network``.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
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
        dead, chosen = _choose(value, rule, interfaces, ports)
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


def _choose(
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
    reads=("rdma.ports", "rdma.files", "rdma.library", "host.container"),
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
    chosen = _choose(wanted, "rdma", [], ports)[1] if named else []
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
    """WARN if there are GPUs and active RDMA ports, and no module that joins them."""
    expected = "nvidia-peermem where GPUs and RDMA meet"
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
