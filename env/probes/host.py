"""The host: name, system, cores, memory, limits of this process.

Knows the files of /proc, /sys and /etc. Leaves control groups to ``env.probes.cgroup``,
physical cores to ``env.probes.topology`` and judging to the checks.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from env.cpulist import parse_cpu_list
from env.facts import Fact
from env.probes.cgroup import probe_cgroup
from env.probes.reading import read_fact

_POLICIES = {0: "other", 1: "fifo", 2: "rr", 3: "batch", 5: "idle", 6: "deadline"}
SYSTEM_LIMITS = (
    "kernel/pid_max", "kernel/threads-max", "vm/max_map_count", "vm/overcommit_memory",
    "fs/file-nr", "fs/nr_open", "net/ipv4/ip_local_port_range",
)  # fmt: skip


def probe_host(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    statvfs: Callable[[str], Any] = os.statvfs,
) -> dict[str, Fact]:
    """Return the facts ``host.*``.

    Args:
        root: the folder in which /proc, /sys, /etc and /dev lie.
        environ: the process's environment.
        statvfs: asks a file system for its size (a parameter, since a test cannot
            mount one everywhere).
    """
    status = root / "proc/self/status"
    limits = root / "proc/self/limits"
    meminfo = root / "proc/meminfo"
    return {
        "host.name": read_fact(root / "proc/sys/kernel/hostname"),
        "host.boot_id": read_fact(root / "proc/sys/kernel/random/boot_id"),
        "host.os": read_fact(root / "etc/os-release", parse=parse_os_release),
        "host.uid": read_fact(status, parse=lambda text: int(_field(text, "Uid:").split()[1])),
        "host.machine": Fact(platform.machine(), "uname"),
        "host.container": _container(root, environ),
        "host.cpu_flags": read_fact(root / "proc/cpuinfo", parse=_cpu_flags),
        "host.numa_nodes": _numa_nodes(root),
        "host.affinity": read_fact(
            status, parse=lambda text: list(parse_cpu_list(_field(text, "Cpus_allowed_list:")))
        ),
        "host.memory_total": read_fact(meminfo, parse=lambda text: _kib(text, "MemTotal:")),
        "host.memory_available": read_fact(meminfo, parse=lambda text: _kib(text, "MemAvailable:")),
        "host.memory_promised": _promised(environ),
        "host.open_files": read_fact(limits, parse=lambda text: _limit(text, "Max open files")),
        "host.processes": read_fact(limits, parse=lambda text: _limit(text, "Max processes")),
        "host.system_limits": _system_limits(root / "proc/sys"),
        "host.limits": read_fact(limits, parse=parse_limits),
        "host.spaces": _spaces(root),
        "host.shm": _shared_memory(root / "dev/shm", statvfs),
        "host.priority": read_fact(root / "proc/self/stat", parse=parse_priority),
    } | probe_cgroup(root)


def parse_os_release(text: str) -> dict[str, str]:
    """Return ``ID`` and ``VERSION_ID`` of an os-release file, in small letters as keys."""
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key.lower(): pairs.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID")}


def _promised(environ: Mapping[str, str]) -> Fact:
    """Return the memory that Slurm gave this job on a node in bytes, None where it says nothing.

    Slurm writes MiB; 0 is all of the node's.
    """
    factors = {"SLURM_MEM_PER_NODE": None, "SLURM_MEM_PER_CPU": "SLURM_CPUS_ON_NODE",
               "SLURM_MEM_PER_GPU": "SLURM_GPUS_ON_NODE"}  # fmt: skip
    for name, factor in factors.items():
        text, times = environ.get(name, ""), environ.get(factor or "", "1")
        if text.isdecimal() and times.isdecimal() and int(text) > 0:
            return Fact(int(text) * int(times) * 2**20, name)
    return Fact(None, "environment")


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        if line.startswith(name):
            return line[len(name) :].strip()
    raise KeyError(name)


def _kib(text: str, name: str) -> int:
    return int(_field(text, name).split()[0]) * 1024


def _system_limits(folder: Path) -> Fact:
    """Return the numbers of kernel settings that bound all processes together, as far as shown."""
    found = {}
    for name in SYSTEM_LIMITS:
        try:
            text = (folder / name).read_text(encoding="utf-8", errors="replace")
            found[name] = [int(word) for word in text.split()]
        except (OSError, ValueError):
            continue
    if not found:
        return Fact(None, str(folder), problem="shows no limits")
    return Fact(found, str(folder))


def parse_limits(text: str) -> dict[str, dict[str, int | None]]:
    """Return ``{name: {soft, hard}}`` of /proc/self/limits; None where there is no limit.

    Raises:
        ValueError: no line of it is a limit.
    """
    found = {}
    for line in text.splitlines():
        match = re.match(r"Max (.+?)\s+(\d+|unlimited)\s+(\d+|unlimited)(\s|$)", line)
        if match:
            soft, hard = (None if word == "unlimited" else int(word) for word in match.group(2, 3))
            found[match[1]] = {"soft": soft, "hard": hard}
    if not found:
        raise ValueError("no limits in it")
    return found


def parse_priority(text: str) -> dict[str, Any]:
    """Return ``{nice, policy}`` of /proc/self/stat: fields 19 and 41 (proc(5)).

    Raises:
        ValueError, IndexError: it is not of that form.
    """
    fields = text.rpartition(")")[2].split()  # a program's name may hold anything but this
    policy = int(fields[38])
    return {"nice": int(fields[16]), "policy": _POLICIES.get(policy, f"policy {policy}")}


def _limit(text: str, name: str) -> int | None:
    """Return a soft limit, None where it is unlimited."""
    soft = _field(text, name).split()[0]
    return None if soft == "unlimited" else int(soft)


def _cpu_flags(text: str) -> list[str]:
    # x86 says "flags", Arm "Features".
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return sorted(value.split())
    raise KeyError("flags")


def _container(root: Path, environ: Mapping[str, str]) -> Fact:
    for mark, kind in ((".singularity.d", "apptainer"), (".dockerenv", "docker"),
                       ("run/.containerenv", "podman")):  # fmt: skip
        if (root / mark).exists():
            return Fact(kind, str(root / mark))
    for variable in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if environ.get(variable):
            return Fact("apptainer", variable)
    return Fact(None, str(root / ".singularity.d"))


def _numa_nodes(root: Path) -> Fact:
    """Return the CPU ids of each memory node; none where the kernel shows no nodes."""
    folder = root / "sys/devices/system/node"
    try:
        nodes = {
            path.parent.name[4:]: list(parse_cpu_list(path.read_text(encoding="utf-8")))
            for path in folder.glob("node[0-9]*/cpulist")
        }
    except (OSError, ValueError) as error:
        return Fact(None, str(folder), problem=str(error))
    return Fact(nodes, str(folder))


def _spaces(root: Path) -> Fact:
    """Return what ranks of one host must have in common to meet in memory: ``{ipc, shm}``.

    The namespace of System V's objects, and the device that /dev/shm lies on.
    """
    link, folder = root / "proc/self/ns/ipc", root / "dev/shm"
    try:
        return Fact({"ipc": str(link.readlink()), "shm": folder.stat().st_dev}, str(link))
    except OSError as error:
        return Fact(None, str(link), problem=error.strerror or repr(error))


def _shared_memory(path: Path, statvfs: Callable[[str], Any]) -> Fact:
    try:
        size = statvfs(str(path))
    except OSError as error:
        return Fact(None, str(path), problem=error.strerror or repr(error))
    sizes = {"total": size.f_blocks * size.f_frsize, "free": size.f_bavail * size.f_frsize}
    return Fact({**sizes, "refused": _refusal(path)}, str(path))


def _refusal(folder: Path) -> str | None:
    """Return why no file can be made in a folder, None if one can: one without a name is tried."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or repr(error)
