"""Reads which physical cores this process may use, from /sys and its affinity mask.

Knows the kernel's topology files. Leaves dealing the cores out to ``env.binding``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from env.cpulist import parse_cpu_list


def probe_cores(
    *, root: Path = Path("/"), allowed: Iterable[int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the physical cores this process may use, each with its logical CPUs.

    Ordered by socket, then by first CPU id: the order in which Open MPI fills slots.

    Args:
        root: prefix of ``/sys``, for tests.
        allowed: ids of the logical CPUs in the affinity mask; this process's own by default.

    Returns:
        E.g. ``((0, 4), (1, 5))`` for two cores with two hardware threads each. CPUs
        whose topology cannot be read count as a core each.
    """
    usable = set(os.sched_getaffinity(0) if allowed is None else allowed)
    cores: dict[tuple[int, ...], int] = {}
    for cpu in sorted(usable):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _read(folder / "thread_siblings_list") or str(cpu)
        core = tuple(sibling for sibling in parse_cpu_list(siblings) if sibling in usable)
        cores.setdefault(core or (cpu,), int(_read(folder / "physical_package_id") or 0))
    return tuple(sorted(cores, key=lambda core: (cores[core], core)))


def probe_cpuset(*, root: Path = Path("/")) -> tuple[int, ...]:
    """Return the logical CPUs that the control group allows; all that are online without one.

    What Open MPI deals out: it looks at the control group and not at the affinity mask that
    a ``taskset`` around it has set.

    Args:
        root: prefix of ``/proc`` and ``/sys``, for tests.
    """
    groups = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
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
    online = _read(root / "sys/devices/system/cpu/online")
    return parse_cpu_list(online) if online else tuple(sorted(os.sched_getaffinity(0)))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
