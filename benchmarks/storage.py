"""Storage as benchmarks want it: cold, or slow at random reads.

Knows how files are dropped from the page cache, what of them is there, and the kernel's own bound
on how many reads a second a process gets, however large each is: the device below a folder, and
the two interfaces of control groups (version 1: `blkio`; version 2: `io.max`). That needs root.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chexnet.errors import EXIT_FAILED, UserError, name_some

GROUPS, DEVICES = Path("/sys/fs/cgroup"), Path("/sys/dev/block")
MINE = Path("/proc/self/cgroup")
READ_AHEAD_KB = "128"  # the kernel's VM_READAHEAD_PAGES


@dataclass(frozen=True)
class Interface:
    """One way in which a kernel takes the bound.

    Attributes:
        root: the group that holds every other.
        file: in a group, takes the bound.
        line: what to write there, of a device and a number of reads a second.
        controller: as `MINE` names the hierarchy.
    """

    root: str
    file: str
    line: str
    controller: str


INTERFACES = (
    Interface("blkio", "blkio.throttle.read_iops_device", "{device} {reads}", "blkio"),
    Interface(".", "io.max", "{device} riops={reads}", ""),
)


def drop_from_cache(paths: Iterable[Path]) -> None:
    """Ask the kernel to forget files, so that the next read is from storage.

    It keeps what a process has mapped at that moment.
    """
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def make_cold(paths: Iterable[Path], *, patience_s: float = 10) -> None:
    """Drop files from the page cache, and wait until they are gone: threads may yet end with them.

    Raises:
        UserError: they stay: something else maps them, or the folder is no disk's.
    """
    give_up = time.monotonic() + patience_s
    paths = [path for path in paths if path.stat().st_size]
    drop_from_cache(paths)
    while kept := [path for path in paths if pages_in_memory(path).any()]:
        if time.monotonic() > give_up:
            raise UserError(
                "files that the page cache can forget",
                found=f"in memory still: {name_some(map(str, kept))}",
                fix="put the data on a disk, and end what else reads it",
                exit_code=EXIT_FAILED,
            )
        time.sleep(0.01)
        drop_from_cache(kept)


def pages_in_memory(path: Path) -> np.ndarray:
    """Return which pages of a file of this user are in the page cache, bool [pages]."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = np.frombuffer(mapped, np.uint8)
    found = np.zeros(-(-len(content) // mmap.PAGESIZE), np.uint8)
    first, pages = (ctypes.c_void_p(array.ctypes.data) for array in (content, found))
    if ctypes.CDLL(None, use_errno=True).mincore(first, ctypes.c_size_t(len(content)), pages):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return (found & 1).astype(bool)


@contextmanager
def few_reads(folder: Path, *, each_second: int) -> Iterator[None]:
    """Bound the reads of this process, and of those it starts, from the device of a folder.

    Meanwhile the kernel reads ahead in files as far as it does unless told otherwise, since some
    hosts are told to read whole megabytes around each place.

    Raises:
        UserError: no control group bounds reads here, or the folder lies on no block device.
    """
    device, (interface, root) = find_device(folder), find_interface()
    group = root / f"slow-storage-{os.getpid()}"
    ahead = DEVICES / device / "queue" / "read_ahead_kb"
    ahead_before = ahead.read_text()
    before = root / find_group(MINE.read_text(), controller=interface.controller).lstrip("/")
    group.mkdir()
    try:
        (group / interface.file).write_text(interface.line.format(device=device, reads=each_second))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        ahead.write_text(READ_AHEAD_KB)
        yield
    finally:
        ahead.write_text(ahead_before)
        (before / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def find_interface(groups: Path = GROUPS) -> tuple[Interface, Path]:
    """Return how the kernel takes the bound, and the group that holds every other."""
    for interface in INTERFACES:
        root = groups / interface.root
        controllers = root / "cgroup.subtree_control"  # of version 2 alone
        if (root / interface.file).is_file() or (
            controllers.is_file() and "io" in controllers.read_text().split()
        ):
            return interface, root
    raise UserError(
        "a control group that bounds reads (blkio, or io of version 2)",
        found=f"none in {groups}",
        fix="measure on a host of your own, as root, or leave --slow-reads out",
        exit_code=EXIT_FAILED,
    )


def find_group(text: str, *, controller: str) -> str:
    """Return the group that this process is in, of lines like ``7:blkio:/jobs``."""
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def find_device(folder: Path, *, devices: Path = DEVICES) -> str:
    """Return the numbers of the disk below a folder, e.g. ``254:0``; of a partition, its disk's."""
    number = folder.stat().st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    place = devices / name
    if not place.exists():
        raise UserError(
            "a folder on a block device",
            found=f"{folder} is not on one (device {name})",
            fix="write the record to a folder on a local disk",
            exit_code=EXIT_FAILED,
        )
    if (place / "partition").is_file():
        return (place.resolve().parent / "dev").read_text().strip()
    return name
