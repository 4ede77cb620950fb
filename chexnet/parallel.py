"""Work shared out over processes, in order and with progress.

Knows how many processes the machine allows, how they start and end, and how far they may be
ahead. Leaves what is done to the function it is given, and showing progress to `counter`.
Processes are spawned and not forked, since a fork of a process that has loaded TensorFlow
may hang.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate, repeat
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import TypeVar

from chexnet.counter import Counter
from chexnet.errors import EXIT_FAILED, UserError

# Chunks a worker: enough that none waits while the results of one are written.
CHUNKS_AHEAD = 4

T = TypeVar("T")
R = TypeVar("R")


def _one(item: object) -> int:
    return 1


def map_in_order(
    function: Callable[[T], R],
    *,
    items: Sequence[T],
    workers: int | None,
    chunk: int,
    label: str,
    weigh: Callable[[T], int] = _one,
) -> Iterator[R]:
    """Yield ``function(item)`` for every item, in order, computed by several processes.

    They work no further ahead than `CHUNKS_AHEAD` chunks each, however slowly the results are
    taken. They end with this process, however it ends, and when the results are given up.

    Args:
        function: a function of a module that is quick to import.
        items: what to work on.
        workers: number of processes; None for one a core that this process may
            use. One works here, without another process.
        chunk: items handed to a process at a time.
        label: what the progress line calls the work, e.g. ``"films prepared"``.
        weigh: how many of what that line counts an item is.

    Raises:
        UserError: fewer than one worker, or one was killed.
    """
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    if workers < 1:
        raise UserError("at least one worker", found=str(workers), fix="use --workers 1 or more")
    weights = [weigh(item) for item in items]
    if workers == 1 or len(items) <= chunk:
        yield from with_progress(map(function, items), total=sum(weights), label=label,
                                 weights=weights)  # fmt: skip
        return
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_serve, initargs=(theirs,))
    try:
        results = _map_ahead(pool, function, items, chunk=chunk, ahead=CHUNKS_AHEAD * workers)
        yield from with_progress(results, total=sum(weights), label=label, weights=weights)
        pool.shutdown()
    except BrokenProcessPool as error:
        raise UserError(
            f"{workers} workers that finish",
            found="one was ended from outside (out of memory, perhaps)",
            fix="use fewer with --workers, or give the job more memory",
            exit_code=EXIT_FAILED,
        ) from error
    finally:
        ours.close()  # ends those that are still at work
        theirs.close()
        pool.shutdown(cancel_futures=True)


def _map_ahead(
    pool: Executor, function: Callable[[T], R], items: Sequence[T], *, chunk: int, ahead: int
) -> Iterator[R]:
    """Yield the results in order, with at most ``ahead`` chunks given out and not yet taken."""
    given: deque[Future[list[R]]] = deque()
    for first in range(0, len(items), chunk):
        if len(given) == ahead:
            yield from given.popleft().result()
        given.append(pool.submit(_work, function, items[first : first + chunk]))
    while given:
        yield from given.popleft().result()


def _work(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    return [function(item) for item in items]


def _serve(lifeline: Connection) -> None:
    """Make this process one that only its parent ends: it closes its end of the line, or dies."""
    # Ctrl-C reaches every process of the terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    # A parent that was killed closes no queue: its workers would wait for work for ever.
    lifeline.poll(None)
    os._exit(1)


def with_progress(
    results: Iterable[R], *, total: int, label: str, weights: Iterable[int] = repeat(1)
) -> Iterator[R]:
    """Yield the results, and show on stderr how many have come: a bar, or a line now and then.

    Args:
        results: what is worked on.
        total: how many there will be.
        label: what the line calls them, e.g. ``"films prepared"``.
        weights: how many each result counts for; they add up to ``total``.
    """
    with Counter(label, total=total, bar=sys.stderr.isatty()) as count:
        for result, done in zip(results, accumulate(weights), strict=False):
            yield result
            count(done)
