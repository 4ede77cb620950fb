"""Control groups, version 1 and 2: the CPU quota, the memory and the number of processes.

Knows where each version keeps a limit, and that a limit of any parent counts too.
Leaves judging the limits to the checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from env.facts import Fact

# Version 1 writes "no limit" as the largest page-aligned 64-bit number.
_NO_LIMIT_BYTES = 2**60


def probe_cgroup(root: Path = Path("/")) -> dict[str, Fact]:
    """Return the tightest limits on this process.

    Args:
        root: the folder in which /proc and /sys lie.

    Returns:
        ``host.cpu_quota`` (cores, None: no limit), ``host.memory_limit`` and
        ``host.memory_left`` (bytes below the limit, None: no limit), ``host.pids_left``, and
        ``host.oom_kills``: processes of this very group that were killed for memory.
    """
    source = root / "proc/self/cgroup"
    try:
        lines = source.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        lost = Fact(None, str(source), problem=error.strerror or repr(error))
        keys = ("cpu_quota", "memory_limit", "memory_left", "pids_left", "oom_kills")
        return {f"host.{key}": lost for key in keys}
    groups = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return {
        "host.cpu_quota": _tightest(root, groups, "cpu", _cpu_quota),
        "host.memory_limit": _tightest(root, groups, "memory", _memory_limit),
        "host.memory_left": _tightest(root, groups, "memory", _memory_left),
        "host.pids_left": _tightest(root, groups, "pids", _pids_left),
        "host.oom_kills": _oom_kills(root, groups),
    }


def _tightest(
    root: Path, groups: list[list[str]], controller: str, read: Callable[[Path], float | None]
) -> Fact:
    found: list[tuple[float, str]] = []
    try:
        for folder in _folders(root, groups, controller):
            limit = read(folder)
            if limit is not None:
                found.append((limit, str(folder)))
    except (OSError, ValueError, IndexError) as error:
        return Fact(None, str(root / "sys/fs/cgroup"), problem=f"{controller}: {error}")
    if not found:
        return Fact(None, str(root / "sys/fs/cgroup"))
    return Fact(*min(found))


def _folders(root: Path, groups: list[list[str]], controller: str) -> Iterator[Path]:
    """Yield this process's group and its parents, in each version that has the controller."""
    mount = root / "sys/fs/cgroup"
    for _, controllers, name in groups:
        if controllers and controller not in controllers.split(","):
            continue
        top = mount / controllers if controllers else mount
        if controllers and not top.is_dir():
            top = mount / controller  # "cpu,cpuacct" may be mounted under either name
        folder = top / name.strip("/")
        while True:
            if folder.is_dir():  # inside a container the named path may not be visible
                yield folder
            if folder == top or top not in folder.parents:
                break
            folder = folder.parent


def _oom_kills(root: Path, groups: list[list[str]]) -> Fact:
    """Return the count of the group itself: those of its parents are others' as well."""
    for folder in _folders(root, groups, "memory"):
        for name in ("memory.events", "memory.oom_control"):
            try:
                match = re.search(r"^oom_kill (\d+)$", _text(folder / name) or "", re.MULTILINE)
            except (OSError, ValueError) as error:
                return Fact(None, str(folder / name), problem=str(error))
            if match:
                return Fact(int(match[1]), str(folder / name))
    return Fact(0, str(root / "sys/fs/cgroup"))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else None


def _number(path: Path) -> int | None:
    text = _text(path)
    return None if text in (None, "max") else int(text)


def _cpu_quota(folder: Path) -> float | None:
    text = _text(folder / "cpu.max")
    if text is not None:
        quota, period = text.split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (
        _number(folder / "cpu.cfs_quota_us"),
        _number(folder / "cpu.cfs_period_us"),
    )
    return quota_us / period_us if quota_us and period_us and quota_us > 0 else None


def _memory_limit(folder: Path) -> float | None:
    """Return the smallest limit: beyond memory.high the kernel stops a process to reclaim."""
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    limits = [_number(folder / name) for name in names]
    return min((n for n in limits if n is not None and n < _NO_LIMIT_BYTES), default=None)


def _memory_left(folder: Path) -> float | None:
    """Return limit minus use, where file pages that can be dropped do not count as use."""
    limit = _memory_limit(folder)
    if limit is None:
        return None
    used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
    stat = dict(line.split() for line in (_text(folder / "memory.stat") or "").splitlines())
    droppable = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return limit - max(0, used - droppable)


def _pids_left(folder: Path) -> float | None:
    limit = _number(folder / "pids.max")
    return None if limit is None else limit - (_number(folder / "pids.current") or 0)
