"""InfiniBand and RoCE devices as the kernel shows them, and whether this process may use them.

Knows /sys/class/infiniband, /dev/infiniband, the user-space side (libibverbs and its
drivers) and the kernel modules that let a network card reach GPU memory. Asks no tool.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.libraries import read_cache
from env.probes.reading import is_file
from env.probes.search_path import library_folders

_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "nvidia_p2p_dma_buf")
# What the open kernel driver calls itself; the closed one is "NVIDIA UNIX x86_64 Kernel Module".
_OPEN_DRIVER = "Open Kernel Module"
_MAX_GIDS = 256


def probe_rdma(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the facts ``rdma.*``.

    ``rdma.ports``: ``{device, port, state, physical, link, rate, gids: {index: {gid, kind}}}``,
    none where the kernel has no such devices. ``rdma.files``: ``{name: usable}`` of
    /dev/infiniband. ``rdma.library``: where libibverbs is, None without one;
    ``rdma.drivers``: names of its drivers. ``rdma.peer_memory``: what gives network cards GPU
    memory: kernel modules, clients of them, the dma-buf of the open driver.

    Args:
        root: the folder in which /sys, /dev, /proc and /etc lie.
        environ: the process's environment.
    """
    return {
        "rdma.ports": _ports(root / "sys/class/infiniband"),
        "rdma.files": _files(root / "dev/infiniband"),
        "rdma.library": _library(root, environ),
        "rdma.drivers": _drivers(root),
        "rdma.peer_memory": _peer_memory(root),
    }


def _ports(folder: Path) -> Fact:
    ports: list[dict[str, Any]] = []
    try:
        devices = sorted(folder.iterdir()) if folder.is_dir() else []
        for device in devices:
            for port in sorted((device / "ports").glob("[0-9]*")):
                ports.append(
                    {
                        "device": device.name,
                        "port": int(port.name),
                        "state": _word(port / "state"),
                        "physical": _word(port / "phys_state"),
                        "link": _text(port / "link_layer"),
                        "rate": _text(port / "rate"),
                        "gids": _gids(port),
                    }
                )
    except (OSError, ValueError) as error:
        return Fact(None, str(folder), problem=str(error))
    return Fact(ports, str(folder))


def _gids(port: Path) -> dict[str, dict[str, str]]:
    found = {}
    for file in sorted((port / "gids").glob("[0-9]*"))[:_MAX_GIDS]:
        gid = _text(file)
        if gid and gid != _NO_GID:
            found[file.name] = {"gid": gid, "kind": _text(port / "gid_attrs/types" / file.name)}
    return found


def _word(path: Path) -> str:
    """Return the name of a state that the kernel writes as ``4: ACTIVE``."""
    return _text(path).partition(":")[2].strip() or _text(path)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _files(folder: Path) -> Fact:
    try:
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        return Fact(None, str(folder), problem=error.strerror or repr(error))
    usable = {name: os.access(folder / name, os.R_OK | os.W_OK) for name in names}
    return Fact(usable, str(folder))


def _library(root: Path, environ: Mapping[str, str]) -> Fact:
    name = "libibverbs.so.1"
    for folder in library_folders(environ):
        if is_file(folder / name):
            return Fact(str(folder / name), "LD_LIBRARY_PATH")
    cache = root / "etc/ld.so.cache"
    try:
        return Fact(next(iter(read_cache(cache).get(name, ())), None), str(cache))
    except (OSError, ValueError) as error:
        return Fact(None, str(cache), problem=getattr(error, "strerror", None) or str(error))


def _drivers(root: Path) -> Fact:
    folder = root / "etc/libibverbs.d"
    return Fact(sorted(file.stem for file in folder.glob("*.driver")), str(folder))


def _peer_memory(root: Path) -> Fact:
    modules = root / "proc/modules"
    try:
        text = modules.read_text(encoding="utf-8", errors="replace")
        loaded = re.findall(r"^(\w+) ", text, re.MULTILINE)
    except OSError as error:
        return Fact(None, str(modules), problem=error.strerror or repr(error))
    clients = (root / "sys/kernel/mm/memory_peers").glob("*")
    found = [name for name in _PEER_MODULES if name in loaded] + [file.name for file in clients]
    if _OPEN_DRIVER in _text(root / "proc/driver/nvidia/version"):
        found.append("dma-buf of the open kernel driver")
    return Fact(sorted(set(found)), str(modules))
