"""Files read into memory in the order of their bytes, while films are read from them by number.

Knows whether files fit into memory and what of them is there. Storage that is slow to find a place
gives what lies side by side many times faster than films at random; once read, films come from
memory whatever their order. Leaves films to `mapped`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

CHUNK = 8 * 2**20  # bytes
# At once: as many requests as the films that are read by number make, and these are larger.
THREADS = 4
# The file that bounds memory, by the controller's name: none in version 2 of control groups.
LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}
MOST = 0.5  # of the memory that is free; the rest is for the training


@contextmanager
def filled_in_order(paths: Sequence[Path], *, first: int = 0) -> Iterator[Callable[[], bool]]:
    """Read files into the kernel's page cache by threads of its own, at most while this lasts.

    What is there already is left out; files that are too large together are left to be read
    when they are needed. The value tells whether the files are being read yet.

    Args:
        paths: the files.
        first: index of the file to begin with; the files before it come last. Ranks of one
            host that begin at different files do the work together.
    """
    ended, threads = Event(), []
    if sum(path.stat().st_size for path in paths) <= MOST * available_memory():
        turned = [*paths[first:], *paths[:first]]
        for nth in range(THREADS):
            share = (turned[nth::THREADS], ended)
            threads.append(Thread(target=_fill, args=share, name="files in order", daemon=True))
            threads[-1].start()
    try:
        yield lambda: any(thread.is_alive() for thread in threads)
    finally:
        ended.set()


def available_memory(root: Path = Path("/")) -> float:
    """Return how many bytes this process may still fill, page cache included.

    That is what the host can give, or less where a control group (a job's or a container's bound
    on memory) allows less in all; 0 where that cannot be read.

    Args:
        root: of the file system that ``/proc`` and ``/sys`` are read from.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        [kib] = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        return min(1024 * kib, *_limits(root))
    except (OSError, ValueError):
        return 0


def _limits(root: Path) -> Iterator[float]:
    """Yield the bounds that the control groups of this process and those above them set, bytes."""
    groups = root / "sys/fs/cgroup"
    yield math.inf
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controller, path = line.split(":", 2)
        if controller not in LIMITS:
            continue
        group = groups / controller / path.lstrip("/")
        for folder in (group, *group.parents):
            file = folder / LIMITS[controller]
            if folder.is_relative_to(groups) and file.is_file():
                text = file.read_text().strip()
                yield math.inf if text == "max" else int(text)


def _fill(paths: Sequence[Path], ended: Event) -> None:
    chunk = bytearray(CHUNK)
    for path in paths:
        try:
            with path.open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
                for start in range(0, path.stat().st_size, CHUNK):
                    if ended.is_set():
                        return
                    if not _is_there(file.fileno(), start, start + CHUNK - 1):
                        os.preadv(file.fileno(), [chunk], start)
        except OSError:
            return  # whoever needs the films meets it, and says so


def _is_there(file: int, *places: int) -> bool:
    """Return whether the bytes at some places of an open file can be read without its storage.

    The kernel may begin to read those that cannot.
    """
    byte = bytearray(1)
    try:
        for place in places:
            os.preadv(file, [byte], place, os.RWF_NOWAIT)
    except OSError:  # not there, or a file system that does not tell
        return False
    return True
