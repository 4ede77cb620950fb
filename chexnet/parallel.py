"""Work shared out over processes, in order and with progress.

Knows how many processes the machine allows, how they start, and how progress is
shown. Leaves what is done to the function it is given. Processes are spawned and
not forked, since a fork of a process that has loaded TensorFlow may hang.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from chexnet.errors import EXIT_FAILED, UserError

SECONDS_BETWEEN_LINES = 10.0

T = TypeVar("T")
R = TypeVar("R")


def map_in_order(
    function: Callable[[T], R], *, items: Sequence[T], workers: int | None, chunk: int, label: str
) -> Iterator[R]:
    """Yield ``function(item)`` for every item, in order, computed by several processes.

    Args:
        function: a function of a module that is quick to import.
        items: what to work on.
        workers: number of processes; None for one a core that this process may
            use. One works here, without another process.
        chunk: items handed to a process at a time.
        label: what the progress line calls the work, e.g. ``"films prepared"``.

    Raises:
        UserError: fewer than one worker, or one was killed.
    """
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if workers < 1:
        raise UserError("at least one worker", found=str(workers), fix="use --workers 1 or more")
    if workers == 1 or len(items) <= chunk:
        yield from with_progress(map(function, items), total=len(items), label=label)
        return
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_ignore_stop)
    try:
        results = pool.map(function, items, chunksize=chunk)
        yield from with_progress(results, total=len(items), label=label)
    except BrokenProcessPool as error:
        raise UserError(
            f"{workers} workers that finish",
            found="one was ended from outside (out of memory, perhaps)",
            fix="use fewer with --workers, or give the job more memory",
            exit_code=EXIT_FAILED,
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ignore_stop() -> None:
    # Ctrl-C reaches every process of the terminal; the parent alone ends the work.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def with_progress(results: Iterable[R], *, total: int, label: str) -> Iterator[R]:
    """Yield the results, and show on stderr how many have come: a bar, or a line now and then.

    Args:
        results: what is worked on.
        total: how many there will be.
        label: what the line calls them, e.g. ``"films prepared"``.
    """
    show = _bar(results, total, label) if sys.stderr.isatty() else _lines(results, total, label)
    yield from show


def _bar(results: Iterable[R], total: int, label: str) -> Iterator[R]:
    from rich.console import Console
    from rich.progress import track

    yield from track(results, description=label, total=total, console=Console(stderr=True))


def _lines(results: Iterable[R], total: int, label: str) -> Iterator[R]:
    started = said = time.monotonic()
    for done, result in enumerate(results, start=1):
        yield result
        now = time.monotonic()
        if done == total or now - said > SECONDS_BETWEEN_LINES:
            said = now
            rate = done / max(now - started, 1e-9)
            print(f"{done}/{total} {label}, {rate:.0f}/s", file=sys.stderr, flush=True)
