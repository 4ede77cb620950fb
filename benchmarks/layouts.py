"""What each layout of the same decoded films costs: images/s, bytes, and how far it shuffles.

    python -m benchmarks.layouts --data FAST --output FILE.json

Knows the layouts that ADR 0003 chose from: a film a TFRecord, blocks of 32 films a TFRecord,
fixed-length records, and arrays mapped into memory and read by number, alone or with their files
read in order beside. Films are read whole, so that layouts are compared and not crops. Rounds
alternate, each in this process; `cold` empties the page cache of the files first and reads one
epoch, `slow` does so from storage that gives few reads a second. Shuffle quality is how far films
move from their place in the file in the order of reading, on average, as a share of a uniform
shuffle's third of the length.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.record import write_record
from benchmarks.storage import few_reads, make_cold
from chexnet.input.fast import FastPipeline
from chexnet.input.order import Order
from chexnet.records import Dataset, load_dataset

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy")
BLOCK, BUFFER, BATCH = 32, 500, 32
Batches = Iterator[object]
CACHED, COLD, SLOW = STATES = ("cached", "cold", "slow")
SLOW_READS = 200  # a second; about what a disk with a moving head gives


@dataclass(frozen=True, eq=False)
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


Rates = dict[tuple[Layout, str], list[float]]


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
        *(Layout(name, shards, partial(_mapped, dataset, fill_memory=fill),
                 lambda n: Order(n, seed=0, margin_px=0, flip=False).take(0, count=n).films)
          for name, fill in (("mapped, by number alone", False), ("mapped, by number", True))),
    ]  # fmt: skip


def _mapped(dataset: Dataset, *, fill_memory: bool) -> Batches:
    return iter(
        FastPipeline(dataset, "train", batch_size=BATCH, crop_px=dataset.image_size, flip=False,
                     fill_memory=fill_memory)
    )  # fmt: skip


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


def measure(layout: Layout, *, seconds: float, count: int, state: str) -> float:
    """Return images/s of a layout: for some seconds from memory, or of the first epoch.

    Args:
        layout: what to read.
        seconds: of a measurement from memory.
        count: films of an epoch.
        state: one of `STATES`.
    """
    cached = state == CACHED
    if not cached:
        make_cold(layout.files)
    batches = layout.read()
    if cached:
        for _ in range(20):
            next(batches)
    begun, images = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds if cached else images < count:
        next(batches)
        images += BATCH
    return images / (time.perf_counter() - begun)


def measure_all(
    layouts: Sequence[Layout], *, rounds: int, seconds: float, count: int, slow_reads: int
) -> Rates:
    """Return images/s of every layout and state, by round."""
    rates: Rates = {}
    for nth in range(rounds):
        for layout in layouts:
            for state in STATES if slow_reads else STATES[:-1]:
                slow = few_reads(layout.files[0].parent, each_second=slow_reads)
                with slow if state == SLOW else nullcontext():
                    rate = measure(layout, seconds=seconds, count=count, state=state)
                rates.setdefault((layout, state), []).append(rate)
                print(f"round {nth + 1}/{rounds}  {layout.name}, {state}: {rate:,.0f} images/s",
                      file=sys.stderr, flush=True)  # fmt: skip
    return rates


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
    add("--slow-reads", type=int, default=SLOW_READS,
        help="reads a second of slow storage (as root); 0 leaves it out")  # fmt: skip
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    count = dataset.splits["train"].num_examples
    with tempfile.TemporaryDirectory(dir=options.output.parent) as name:
        layouts = write_layouts(dataset, folder=Path(name))
        rates = measure_all(layouts, rounds=options.rounds, seconds=options.seconds, count=count,
                            slow_reads=options.slow_reads)  # fmt: skip
        results = _describe(rates, count=count)
    medians = {str(one["name"]): float(one["value"]) for one in results}
    base = layouts[0].name
    write_record(
        options.output, packages=PACKAGES,
        results=[*results, {"name": "slow storage", "value": options.slow_reads, "unit": "reads/s"},
                 {"name": "films", "value": count, "unit": "films"}],
        command=["python", "-m", "benchmarks.layouts", "--data", options.data.name,
                 "--rounds", str(options.rounds), "--seconds", str(options.seconds),
                 "--slow-reads", str(options.slow_reads)],
        ratios={f"{layout.name} / {base}, {state}": round(
                    medians[f"{layout.name}, {state}"] / medians[f"{base}, {state}"], 3)
                for layout, state in rates},
    )  # fmt: skip


def _describe(rates: Rates, *, count: int) -> list[dict[str, object]]:
    return [
        {
            "name": f"{layout.name}, {state}",
            "value": round(statistics.median(values), 1),
            "unit": "images/s",
            "slowest": round(min(values), 1),
            "fastest": round(max(values), 1),
            "bytes_per_film": round(sum(p.stat().st_size for p in layout.files) / count),
            "shuffle_quality": round(shuffle_quality(layout.order(count - count % BLOCK)), 3),
        }
        for (layout, state), values in rates.items()
    ]  # fmt: skip


if __name__ == "__main__":
    main()
