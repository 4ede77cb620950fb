"""The floor: the same bytes read in order and cropped, a block at once, by plain processes.

No shuffle, no place of its own for each image's crop, no labels, nothing handed to a
framework: what the memory of this machine gives to a loop of numpy.
"""

from __future__ import annotations

import json
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

import numpy as np

from benchmarks.peers.common import BYTES, Job, peak_mb, read_job


def copy_blocks(job: Job, seconds: float, barrier: Barrier) -> float:
    """Copy for a time and return images/s; all processes begin together."""
    films = job.array()
    margin = (job.size - job.crop) // 2
    part = films[:, margin : margin + job.crop, margin : margin + job.crop]
    out = np.empty((job.batch_size, job.crop, job.crop), np.uint8)
    barrier.wait()
    begun = now = time.perf_counter()
    images = 0
    while now - begun < seconds:
        for first in range(0, len(part) - job.batch_size + 1, job.batch_size):
            out[...] = part[first : first + job.batch_size]
            images += job.batch_size
        now = time.perf_counter()
    return images / (now - begun)


def main() -> None:
    """Measure all processes at once and print the sum of their rates."""
    _, job, seconds = read_job([BYTES])
    context = get_context("fork")
    barrier = context.Barrier(job.workers)
    rates = context.SimpleQueue()

    def work() -> None:
        rates.put((copy_blocks(job, seconds, barrier), peak_mb()[0]))

    processes = [context.Process(target=work) for _ in range(job.workers)]
    for process in processes:
        process.start()
    found = [rates.get() for _ in processes]
    for process in processes:
        process.join()
    total, worker = sum(rate for rate, _ in found), max(peak for _, peak in found)
    answer = {"images": total, "seconds": 1.0, "peak_mb": peak_mb()[0], "worker_peak_mb": worker}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
