"""What a list of interfaces or devices in a setting leaves a tool, by that tool's own rules.

Knows which settings hold such lists and how each tool reads them. Pure: leaves reading
interfaces to ``env.probes.network``, and what is wrong with what is left to the checks.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env.network import is_host_only

NCCL = "NCCL_SOCKET_IFNAME"
MPI, DAEMONS = "OMPI_MCA_btl_tcp_if", "OMPI_MCA_oob_tcp_if"
INCLUDE, EXCLUDE = "_include", "_exclude"
# How a tool matches: by the beginning of a name, by the whole name, or by the whole name or a
# network; UCX and NCCL's RDMA half name devices, as others do by their whole names.
_BEGINNING, _WHOLE, _NETWORK, _UCX, _RDMA = "beginning", "whole", "network", "ucx", "rdma"
_DEVICE = "device"
_STEMS = (MPI, DAEMONS, "OMPI_MCA_ptl_tcp_if", "PRTE_MCA_oob_tcp_if", "PRTE_MCA_prte_if",
          "PMIX_MCA_ptl_tcp_if", "PMIX_MCA_ptl_base_if")  # fmt: skip
_RULES = {
    NCCL: _BEGINNING, "NCCL_OOB_NET_IFNAME": _BEGINNING,
    "HOROVOD_GLOO_IFACE": _WHOLE, "FI_TCP_IFACE": _WHOLE, "FI_SOCKETS_IFACE": _WHOLE,
    "FI_VERBS_IFACE": _BEGINNING, "HCOLL_MAIN_IB": _DEVICE, "MXM_RDMA_PORTS": _DEVICE,
    "OMPI_MCA_btl_openib_if_include": _DEVICE,
    **{stem + end: _NETWORK for stem in _STEMS for end in (INCLUDE, EXCLUDE)},
    "UCX_NET_DEVICES": _UCX, "NCCL_IB_HCA": _RDMA,
}  # fmt: skip
# Lists by which data goes: what they hold is used, all of it.
_OF_DATA = (NCCL, MPI + INCLUDE, MPI + EXCLUDE, "UCX_NET_DEVICES", "FI_TCP_IFACE")
_EVERYTHING = ("all", "any")


@dataclass(frozen=True)
class Choice:
    """What a setting leaves.

    Attributes:
        name: the setting.
        dead: words that match nothing; only of a list that names what to use.
        left: interfaces, and devices as ``{"name", "port"}``.
        usable: the names among which it could have chosen.
    """

    name: str
    dead: tuple[str, ...]
    left: tuple[Mapping[str, Any], ...]
    usable: tuple[str, ...]

    @property
    def is_of_data(self) -> bool:
        """Whether data goes by all that is left."""
        return self.name in _OF_DATA

    @property
    def is_refused(self) -> bool:
        """Whether the tool stops at it: nothing is left, or Open MPI misses one of several."""
        return not self.left or bool(self.dead and _RULES[self.name] == _NETWORK)

    @property
    def local(self) -> tuple[str, ...]:
        """The names among what is left that lead to no other host."""
        return tuple(e["name"] for e in self.left if e.get("loopback") or is_host_only(e["name"]))

    @property
    def is_local(self) -> bool:
        """Whether nothing that is left leads to another host."""
        return len(self.local) == len(self.left)


def choose(
    name: str,
    value: str,
    interfaces: Sequence[Mapping[str, Any]],
    *,
    ports: Iterable[Mapping[str, Any]] = (),
) -> Choice | None:
    """Return what a setting leaves; None for one that is no list, or leaves everything.

    NCCL takes beginnings of names, after ``=`` whole names, and after ``^`` what to leave out;
    a port after a colon does not count. Open MPI takes names, and networks in CIDR form.

    Args:
        name: the setting's name, e.g. ``"NCCL_SOCKET_IFNAME"``.
        value: the list.
        interfaces: as ``network.interfaces`` has them.
        ports: as ``rdma.ports`` has them.
    """
    rule, value = _RULES.get(name), value.strip()
    if rule is None or not value or value.lower() in _EVERYTHING:
        return None
    out = name.endswith(EXCLUDE) or (rule != _NETWORK and value.startswith("^"))
    if out and rule in (_UCX, _RDMA):
        return None  # it may name what only other hosts have, and nothing left is no fault
    up = [entry for entry in interfaces if entry["up"]]
    devices = [{"name": p["device"], "port": p["port"]} for p in ports]
    there = {_RDMA: devices, _DEVICE: devices, _UCX: devices + up}.get(rule, up)
    sign = "" if rule == _NETWORK else re.match(r"\^?=?", value)[0]
    words = [word.strip() for word in value[len(sign) :].split(",") if word.strip()]
    exact = "=" in sign or rule in (_WHOLE, _NETWORK, _UCX, _DEVICE)
    found = [[e for e in there if _matches(e, word, rule, exact=exact)] for word in words]
    usable = tuple(f"{e['name']}:{e['port']}" if "port" in e else e["name"] for e in there)
    named = [entry for entries in found for entry in entries]
    if out:
        left = [entry for entry in there if entry not in named and _is_used(entry)]
        return Choice(name, (), tuple(left), usable)
    dead = [word for word, entries in zip(words, found, strict=True) if not entries]
    return Choice(name, tuple(dead), tuple(named), usable)


def names_devices(name: str) -> bool:
    """Return whether a setting is a list of network cards, rather than of interfaces."""
    return _RULES.get(name) in (_UCX, _RDMA, _DEVICE)


def both_ways(names: Iterable[str]) -> list[str]:
    """Return the stems of lists of which both halves are set, which Open MPI refuses."""
    told = set(names)
    return [stem for stem in _STEMS if {stem + INCLUDE, stem + EXCLUDE} <= told]


def _matches(entry: Mapping[str, Any], word: str, rule: str, *, exact: bool) -> bool:
    if rule == _NETWORK and "/" in word:
        return _in_network(entry, word)
    if rule == _UCX and "port" not in entry:
        return fnmatch.fnmatch(entry["name"], word)
    name, _, port = word.partition(":")
    if "port" in entry and port not in ("", str(entry["port"])):
        return False
    # A port number is NCCL's alone: to others a colon is part of the name (eth0:1).
    name = word if rule in (_NETWORK, _WHOLE) else name
    return entry["name"] == name or (not exact and entry["name"].startswith(name))


def _in_network(entry: Mapping[str, Any], word: str) -> bool:
    try:
        network = ipaddress.ip_network(word, strict=False)
        return any(ipaddress.ip_interface(text).ip in network for text in entry["addresses"])
    except ValueError:
        return False


def _is_used(entry: Mapping[str, Any]) -> bool:
    """Whether an interface has an address to use; the kernel gives each a link-local one."""
    return any(not ipaddress.ip_interface(text).is_link_local for text in entry["addresses"])
