"""Reads a host's topology from /proc and /sys: cores, memory nodes, caches, GPUs, masks.

Knows the kernel's files. Needs no tool and no GPU driver. Leaves dealing the cores out to
``env.binding`` and recorded machines to ``env.lstopo``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from env.cpulist import parse_cpu_list
from env.probes.cgroup import probe_cgroup
from env.topology import Core, Gpu, HostTopology, launcher_order
from env.visible import resolve_visible

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # PCI class of display controllers, 3D ones without a plug included


def probe_topology(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> HostTopology:
    """Return what this process finds of its host.

    What cannot be read is not guessed: a CPU without topology counts as a core of its own,
    and a GPU whose memory node the kernel gives as -1 has none.

    Args:
        root: the folder in which /proc and /sys lie.
        environ: the process's environment: it may name the GPUs that the job gets.
    """
    mask = parse_cpu_list(_field(root / "proc/self/status", "Cpus_allowed_list:"))
    online = parse_cpu_list(_read(root / "sys/devices/system/cpu/online")) or mask
    cpuset = tuple(cpu for cpu in probe_cpuset(root=root) or online if cpu in online)
    return HostTopology(
        host=_read(root / "proc/sys/kernel/hostname") or os.uname().nodename,
        cores=launcher_order(_cores(root, online)),
        # The mask may name CPUs that are not there; without one, all that the group allows.
        allowed=tuple(cpu for cpu in mask or cpuset if cpu in online),
        cpuset=cpuset,
        gpus=probe_gpus(root, environ=environ),
        quota=probe_cgroup(root)["host.cpu_quota"].value,
    )


def probe_cpuset(*, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the logical CPUs that the control group allows; all that are online without one.

    What Open MPI deals out: it looks at the control group and not at the affinity mask that
    a ``taskset`` around it has set.

    Args:
        root: prefix of ``/proc`` and ``/sys``, for tests.
    """
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0":
            folder, name = groups / path.lstrip("/"), "cpuset.cpus.effective"
        elif "cpuset" in controllers.split(","):
            folder, name = groups / "cpuset" / path.lstrip("/"), "cpuset.cpus"
        else:
            continue
        # Inside a container the group's own folder may lie at the top of what is mounted.
        for place in (folder, *folder.parents):
            if place == groups.parent:
                break
            text = _read(place / name)
            if text:
                return parse_cpu_list(text)
    return parse_cpu_list(_read(root / "sys/devices/system/cpu/online"))


def probe_gpus(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use, in the order in which it numbers them.

    Args:
        root: the folder in which /proc and /sys lie.
        environ: the process's environment: it may name the GPUs that the job gets.
    """
    return _chosen(_gpus(root), environ.get("CUDA_VISIBLE_DEVICES"))


def _cores(root: Path, online: tuple[int, ...]) -> list[Core]:
    nodes = {
        cpu: int(path.parent.name[4:])
        for path in (root / "sys/devices/system/node").glob("node[0-9]*/cpulist")
        for cpu in parse_cpu_list(_read(path))
    }
    cores: dict[tuple[int, ...], Core] = {}
    for cpu in online:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        siblings = parse_cpu_list(_read(folder / "topology/thread_siblings_list"))
        cpus = tuple(sibling for sibling in siblings if sibling in online) or (cpu,)
        shared = parse_cpu_list(_read(folder / "cache/index3/shared_cpu_list"))
        cores.setdefault(
            cpus,
            Core(
                cpus,
                socket=int(_read(folder / "topology/physical_package_id") or 0),
                node=nodes.get(cpu),
                cache=min(shared, default=None),
            ),
        )
    return list(cores.values())


def _gpus(root: Path) -> list[Gpu]:
    """Return NVIDIA's GPUs by PCI address: those the driver shows here, else all on the bus.

    In a container the driver's folder holds those that were given to it, the bus all.
    """
    driver, bus = root / "proc/driver/nvidia/gpus", root / "sys/bus/pci/devices"
    found = sorted(path.name for path in driver.glob("*")) if driver.is_dir() else [
        path.name
        for path in sorted(bus.glob("*"))
        if _read(path / "vendor") == _NVIDIA and _read(path / "class").startswith(_DISPLAY)
    ]  # fmt: skip
    gpus = []
    for pci in found:
        node = _read(bus / pci / "numa_node")
        uuid = _field(driver / pci / "information", "GPU UUID:")
        gpus.append(
            Gpu(
                pci,
                node=int(node) if node.isdecimal() else None,  # -1 says that nobody knows
                uuid=uuid if uuid and "?" not in uuid else None,
                model=_field(driver / pci / "information", "Model:") or None,
            )
        )
    return gpus


def _chosen(gpus: list[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves, in its order.

    A slice of a GPU (MIG) has a name that the kernel does not know; a process has one at most.
    It is where its GPU is, if the name tells that (drivers before 470 had it so).
    """
    name = (visible or "").split(",")[0].strip()
    if name.startswith("MIG-"):
        whole = next((gpu for gpu in gpus if gpu.uuid and gpu.uuid in name), Gpu(name))
        return (replace(whole, uuid=name),)
    devices = [{"index": n, "uuid": gpu.uuid or gpu.pci} for n, gpu in enumerate(gpus)]
    return tuple(gpus[n] for n in resolve_visible(visible, devices).indices)


def _field(path: Path, name: str) -> str:
    lines = (line for line in _read(path).splitlines() if line.startswith(name))
    return next(lines, name)[len(name) :].strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
