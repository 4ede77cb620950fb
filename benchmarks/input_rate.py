"""How fast one process gets batches out of one pipeline, with nothing behind them.

Knows one measurement: cores, cache and time are set before TensorFlow is there, and its
memory is that of this process alone. Leaves which measurements make a picture to
`benchmarks.pipeline`, which starts this as a child. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.storage import drop_from_cache

SYNTHETIC = "synthetic"


def measure(batches: Iterator[object], *, batch_size: int, seconds: float, most: int) -> dict:
    """Draw batches for a time.

    Args:
        batches: endless.
        batch_size: images in each.
        seconds: how long.
        most: stop after so many images; 0 for no bound.
    """
    begun = now = time.perf_counter()
    images = 0
    while now - begun < seconds and not 0 < most <= images:
        next(batches)
        images += batch_size
        now = time.perf_counter()
    return {"images": images, "seconds": now - begun}


def _stream(options: argparse.Namespace) -> tuple[Iterable[object], int]:
    """Return the batches, and how many images there are."""
    import tensorflow as tf

    from chexnet.pipeline import make_pipeline
    from chexnet.records import load_dataset

    dataset = load_dataset(options.data)
    number = dataset.splits["train"].num_examples
    if options.pipeline == SYNTHETIC:
        size = options.crop or dataset.image_size
        images = tf.zeros([options.batch_size, size, size, 1], tf.uint8)
        return iter(lambda: images, None), number
    batches = make_pipeline(
        dataset, split="train", name=options.pipeline, batch_size=options.batch_size,
        crop_px=options.crop, rank=options.rank, size=options.ranks,
    )  # fmt: skip
    return batches, number


def main() -> None:
    """Measure once and print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.input_rate")
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a prepared data folder")
    add("--pipeline", required=True, help="old, new, fast or synthetic")
    add("--batch-size", type=int, default=32)
    add("--crop", type=int, default=0, help="px; 0 for whole films")
    add("--rank", type=int, default=0)
    add("--ranks", type=int, default=1, help="measure rank --rank of so many")
    add("--seconds", type=float, default=4.0)
    add("--warm-up", type=float, default=1.0, help="seconds that do not count")
    add("--cores", default="", help="the logical CPUs to use, e.g. 0,1")
    add("--cold", action="store_true", help="from storage, and at most one epoch")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, {int(core) for core in options.cores.split(",")})
    if options.cold:
        drop_from_cache(options.data.iterdir())
    stream, number = _stream(options)
    batches = iter(stream)
    if not options.cold:
        measure(batches, batch_size=options.batch_size, seconds=options.warm_up, most=0)
    found = measure(
        batches, batch_size=options.batch_size, seconds=options.seconds,
        most=number if options.cold else 0,
    )  # fmt: skip
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**found, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
