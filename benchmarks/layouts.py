"""What each layout of the same decoded films costs: images/s, bytes, and how far it shuffles.

    python -m benchmarks.layouts --data FAST --output FILE.json

Knows the layouts that ADR 0003 chose from: a film a TFRecord, blocks of 32 films a TFRecord,
fixed-length records, and arrays mapped into memory and read by number. Films are read whole, so
that layouts are compared and not crops. Rounds alternate, each in this process; `cold` empties
the page cache of the files first and reads one epoch. Shuffle quality is how far films move from
their place in the file in the order of reading, on average, as a share of a uniform shuffle's
third of the length.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.record import write_record
from chexnet.input.fast import FastPipeline
from chexnet.input.order import Order
from chexnet.records import Dataset, load_dataset

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy")
BLOCK, BUFFER, BATCH = 32, 500, 32
Batches = Iterator[object]


@dataclass(frozen=True)
class Layout:
    """One way to store films.

    Attributes:
        name: as the record calls it.
        files: what holds the films.
        read: returns endless batches of [B, size, size] films.
        order: returns the films' numbers in the order of one epoch of ``count`` films.
    """

    name: str
    files: Sequence[Path]
    read: Callable[[], Batches]
    order: Callable[[int], np.ndarray]


def write_layouts(dataset: Dataset, *, folder: Path) -> list[Layout]:
    """Write the training films in every layout and return how each is read."""
    split = dataset.splits["train"]
    size = dataset.image_size
    shards = [dataset.root / shard.name for shard in split.shards]
    films = np.concatenate([np.fromfile(p, np.uint8).reshape(-1, size, size) for p in shards])
    single, block, fixed = (folder / name for name in ("single.tfrecord", "block.tfrecord", "raw"))
    _write_records(single, films=films, each=1)
    _write_records(block, films=films, each=BLOCK)
    fixed.write_bytes(films.tobytes())
    singles, blocks = (tf.data.TFRecordDataset(str(path)) for path in (single, block))
    raw = tf.data.FixedLengthRecordDataset(str(fixed), size * size)
    return [
        Layout("TFRecord, a film each", [single],
               lambda: _batches(singles, size=size, each=1), lambda n: _order(n, each=1)),
        Layout("TFRecord, blocks of 32", [block],
               lambda: _batches(blocks, size=size, each=BLOCK), lambda n: _order(n, each=BLOCK)),
        Layout("fixed-length records", [fixed],
               lambda: _batches(raw, size=size, each=1), lambda n: _order(n, each=1)),
        Layout("mapped, by number", shards,
               lambda: iter(FastPipeline(dataset, "train", batch_size=BATCH, crop_px=size,
                                         flip=False)),
               lambda n: Order(n, seed=0, margin_px=0, flip=False).take(0, count=n).films),
    ]  # fmt: skip


def _write_records(path: Path, *, films: np.ndarray, each: int) -> None:
    """Write so many films a record; the last may have fewer."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for start in range(0, len(films), each):
            writer.write(films[start : start + each].tobytes())


def _shuffle(records: tf.data.Dataset, *, each: int) -> tf.data.Dataset:
    return records.shuffle(max(1, BUFFER // each), seed=0)


def _batches(records: tf.data.Dataset, *, size: int, each: int) -> Batches:
    """Return endless batches, each decoded at once, of records of so many films."""
    cores = len(os.sched_getaffinity(0))
    shuffled = _shuffle(records, each=each).repeat()
    if each < BATCH:
        shuffled = shuffled.batch(BATCH // each, drop_remainder=True)
    films = shuffled.map(
        lambda r: tf.reshape(tf.io.decode_raw(r, tf.uint8), [-1, size, size]),
        num_parallel_calls=cores,
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = cores
    return iter(films.prefetch(2).with_options(options))


def _order(count: int, *, each: int) -> np.ndarray:
    """Return the order in which that shuffle gives films that are read in blocks of ``each``."""
    blocks = _shuffle(tf.data.Dataset.range(count // each), each=each)
    first = np.fromiter(blocks.as_numpy_iterator(), np.int64)
    return (first[:, None] * each + np.arange(each)).ravel()


def shuffle_quality(order: np.ndarray) -> float:
    """Return the mean distance that films move, as a share of a uniform shuffle's, n/3."""
    return float(np.abs(order - np.arange(len(order))).mean() / (len(order) / 3))


def measure(layout: Layout, *, seconds: float, count: int, cold: bool) -> float:
    """Return images/s of a layout: for some seconds, or cold, of the first epoch.

    Args:
        layout: what to read.
        seconds: of a measurement from memory.
        count: films of an epoch.
        cold: from storage instead of from memory.
    """
    if cold:
        for path in layout.files:
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    batches = layout.read()
    if not cold:
        for _ in range(20):
            next(batches)
    begun, images = time.perf_counter(), 0
    while images < count if cold else time.perf_counter() - begun < seconds:
        next(batches)
        images += BATCH
    return images / (time.perf_counter() - begun)


def main() -> None:
    """Measure every layout, cached and cold, and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layouts")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--data", type=Path, required=True, help="prepared data of format fast")
    add("--output", type=Path, required=True, help="the record, a JSON file")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=2.0, help="of one measurement")
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    split = dataset.splits["train"]
    with tempfile.TemporaryDirectory(dir=options.output.parent) as name:
        layouts = write_layouts(dataset, folder=Path(name))
        rates: dict[tuple[str, bool], list[float]] = {}
        for nth in range(options.rounds):
            for layout in layouts:
                for cold in (False, True):
                    rate = measure(layout, seconds=options.seconds, count=split.num_examples,
                                   cold=cold)  # fmt: skip
                    rates.setdefault((layout.name, cold), []).append(rate)
                    print(f"round {nth + 1}/{options.rounds}  {layout.name}, "
                          f"{'cold' if cold else 'cached'}: {rate:,.0f} images/s",
                          file=sys.stderr, flush=True)  # fmt: skip
        results = _describe(layouts, rates=rates, count=split.num_examples)
    medians = {str(one["name"]): float(one["value"]) for one in results}
    base = medians["TFRecord, a film each, cached"]
    write_record(
        options.output, packages=PACKAGES, results=results,
        command=["python", "-m", "benchmarks.layouts", "--data", options.data.name,
                 "--rounds", str(options.rounds), "--seconds", str(options.seconds)],
        ratios={f"{name} / TFRecord, a film each, cached": round(value / base, 3)
                for name, value in medians.items()},
    )  # fmt: skip


def _describe(
    layouts: Sequence[Layout], *, rates: dict[tuple[str, bool], list[float]], count: int
) -> list[dict[str, object]]:
    return [
        {
            "name": f"{layout.name}, {'cold' if cold else 'cached'}",
            "value": round(statistics.median(rates[layout.name, cold]), 1),
            "unit": "images/s",
            "slowest": round(min(rates[layout.name, cold]), 1),
            "fastest": round(max(rates[layout.name, cold]), 1),
            "bytes_per_film": round(sum(p.stat().st_size for p in layout.files) / count),
            "shuffle_quality": round(shuffle_quality(layout.order(count - count % BLOCK)), 3),
        }
        for layout in layouts
        for cold in (False, True)
    ]  # fmt: skip


if __name__ == "__main__":
    main()
