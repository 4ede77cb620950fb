"""The network as this process has it: interfaces with their addresses, and its own name's address.

Asks the kernel through the C library (``getifaddrs``) and /sys/class/net, so that it works where
no ``ip`` is installed. Leaves which of the interfaces a job should use to ``env.network``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import run_child

RESOLVE_TIMEOUT_S = 5.0
_UP, _LOOPBACK = 0x1, 0x8
_GET_MTU = 0x8921  # SIOCGIFMTU, netdevice(7)


class _SockAddr(ctypes.Structure):
    _fields_ = (("family", ctypes.c_uint16), ("data", ctypes.c_ubyte * 26))


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = (
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SockAddr)),
    ("netmask", ctypes.POINTER(_SockAddr)),
    ("other", ctypes.c_void_p),
    ("data", ctypes.c_void_p),
)

# Name, flags and address with prefix length (``"10.0.0.1/24"``); None for a row without one.
Row = tuple[str, int, str | None]


def probe_network(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    rows: Callable[[], list[Row]] | None = None,
) -> dict[str, Fact]:
    """Return the facts ``network.*``.

    ``network.interfaces``: one object for each interface: ``name, up, loopback, addresses,
    speed_mbit, mtu, kind``, where kind is ``"device"`` for one with hardware behind it (a virtual
    machine's included), else ``"bridge"`` or ``"virtual"``. ``network.own_name``: the
    addresses that this host's own name leads to, none where it leads nowhere.

    Args:
        root: the folder in which /sys and /proc lie.
        environ: the environment in which the name is looked up.
        rows: asks the kernel for its interfaces (a parameter, since only namespaces have
            others than the machine's).
    """
    try:
        found = (rows or read_rows)()
    except OSError as error:
        problem = error.strerror or repr(error)
        interfaces = Fact(None, "getifaddrs", problem=problem)
    else:
        entries = _interfaces(found, root / "sys/class/net")
        if rows is None:
            _add_sizes(entries)
        interfaces = Fact(entries, "getifaddrs")
    return {"network.interfaces": interfaces, "network.own_name": _own_name(root, environ)}


def read_rows() -> list[Row]:
    """Return the kernel's interfaces and addresses, one row for each pair.

    Raises:
        OSError: the C library could not list them.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_IfAddrs)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        return list(_walk(first))
    finally:
        libc.freeifaddrs(first)


def _walk(row: Any) -> Iterator[Row]:  # noqa: ANN401 - a ctypes pointer
    while row:
        entry = row.contents
        name = os.fsdecode(entry.name)
        address = _raw(entry.address) if entry.address else None
        if address is None:
            yield name, entry.flags, None
        else:
            mask = _raw(entry.netmask) if entry.netmask else None
            length = bin(int.from_bytes(mask or b"", "big")).count("1")
            yield name, entry.flags, f"{ipaddress.ip_address(address)}/{length}"
        row = entry.next


def _raw(pointer: Any) -> bytes | None:  # noqa: ANN401 - a ctypes pointer
    """Return the bytes of an address; None for one of another family than IP's."""
    where = {socket.AF_INET: slice(2, 6), socket.AF_INET6: slice(6, 22)}
    part = where.get(pointer.contents.family)
    return bytes(pointer.contents.data[part]) if part else None


def _interfaces(rows: list[Row], folder: Path) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, flags, address in rows:
        entry = found.setdefault(
            name,
            {
                "name": name,
                "up": bool(flags & _UP) and _read(folder / name / "operstate") != "down",
                "loopback": bool(flags & _LOOPBACK),
                "addresses": [],
                "speed_mbit": _number(folder / name / "speed"),
                "mtu": _number(folder / name / "mtu"),
                "kind": _kind(folder / name),
            },
        )
        if address:
            entry["addresses"].append(address)
    return list(found.values())


def _add_sizes(entries: list[dict[str, Any]]) -> None:
    """Ask the kernel for each MTU: /sys may be that of another network namespace."""
    for entry in entries:
        with contextlib.suppress(OSError):  # it may be gone by now
            entry["mtu"] = _ask_size(entry["name"])


def _ask_size(name: str) -> int:
    """Return an interface's MTU.

    Raises:
        OSError: there is no such interface, or no socket to ask by.
    """
    request = struct.pack("16sI12x", os.fsencode(name)[:15], 0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        answer = fcntl.ioctl(asked, _GET_MTU, request)
    return int(struct.unpack_from("I", answer, 16)[0])


def _kind(folder: Path) -> str:
    if (folder / "device").exists():
        return "device"
    return "bridge" if (folder / "bridge").exists() else "virtual"


def _number(path: Path) -> int | None:
    text = _read(path)
    # The kernel says -1 where a link has no speed of its own.
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _own_name(root: Path, environ: Mapping[str, str]) -> Fact:
    """Return the addresses of this host's name, by the resolver that every program uses."""
    name = _read(root / "proc/sys/kernel/hostname")
    argv = ["getent", "ahosts", name]
    outcome = run_child(argv, environ=environ, timeout_s=RESOLVE_TIMEOUT_S)
    if outcome.problem or outcome.exit_code not in (0, 2):  # 2: there is no such name
        return Fact(None, outcome.origin, problem=outcome.end)
    addresses = [line.split()[0] for line in outcome.stdout.splitlines() if line.split()]
    return Fact(list(dict.fromkeys(addresses)), outcome.origin)
