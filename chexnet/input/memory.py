"""Files read into memory in the order of their bytes, while films are read from them by number.

Knows whether files fit into memory and what of them is there. Storage that is slow to find a place
gives what lies side by side many times faster than films at random; once read, films come from
memory whatever their order. Leaves films to `mapped`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

CHUNK = 8 * 2**20  # bytes
# At once: as many requests as the films that are read by number make, and these are larger.
THREADS = 4
MOST = 0.5  # of the memory that is free; the rest is for the training
MEMINFO = Path("/proc/meminfo")


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


def available_memory(meminfo: Path = MEMINFO) -> int:
    """Return how many bytes this host can still give, page cache included; 0 if it does not say."""
    lines = meminfo.read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")] or ["0"]
    return int(kib) * 1024


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
