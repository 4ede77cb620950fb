"""What each layout of the same decoded films costs: images/s, bytes, and how far it shuffles.

    python -m benchmarks.layouts --data FAST --output FILE.json

Knows the layouts that ADR 0003 chose from: a film a TFRecord, blocks of 32 films a TFRecord,
fixed-length records, and arrays mapped into memory and read by number. Each film is cropped at
a place of its own and mirrored or not. Rounds alternate, each in this process; `cold` empties
the page cache of the files first. Shuffle quality is how far films of one place in the file move
in the order of reading, on average, as a share of a uniform shuffle's third of the length.
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
        read: returns endless batches of [B, crop, crop] films.
        order: returns the films' numbers in the order of one epoch, of ``count`` films.
    """

    name: str
    files: Sequence[Path]
    read: Callable[[], Batches]
    order: Callable[[int], np.ndarray]


def write_layouts(dataset: Dataset, *, folder: Path, crop: int) -> list[Layout]:
    """Write the training films in every layout and return how each is read."""
    split = dataset.splits["train"]
    size, count = dataset.image_size, split.num_examples
    shards = [dataset.root / shard.name for shard in split.shards]
    films = np.concatenate([np.fromfile(p, np.uint8).reshape(-1, size, size) for p in shards])
    single, block, fixed = (folder / name for name in ("single.tfrecord", "block.tfrecord", "raw"))
    with tf.io.TFRecordWriter(str(single)) as writer:
        for film in films:
            writer.write(film.tobytes())
    with tf.io.TFRecordWriter(str(block)) as writer:
        for start in range(0, count - count % BLOCK, BLOCK):
            writer.write(films[start : start + BLOCK].tobytes())
    fixed.write_bytes(films.tobytes())

    def by_record(records: tf.data.Dataset) -> tf.data.Dataset:
        shuffled = records.shuffle(BUFFER).repeat()
        films = shuffled.map(lambda r: tf.reshape(tf.io.decode_raw(r, tf.uint8), [size, size]))
        return _crop(films, size=size, crop=crop)

    def by_block() -> Batches:
        records = tf.data.TFRecordDataset(str(block)).shuffle(max(1, BUFFER // BLOCK)).repeat()
        films = records.map(
            lambda r: tf.reshape(tf.io.decode_raw(r, tf.uint8), [BLOCK, size, size])
        )
        return iter(_crop(films.unbatch(), size=size, crop=crop))

    return [
        Layout("TFRecord, a film each", [single],
               lambda: iter(by_record(tf.data.TFRecordDataset(str(single)))),
               lambda n: _buffered(n, each=1)),
        Layout("TFRecord, blocks of 32", [block], by_block, lambda n: _buffered(n, each=BLOCK)),
        Layout("fixed-length records", [fixed],
               lambda: iter(by_record(tf.data.FixedLengthRecordDataset(str(fixed), size * size))),
               lambda n: _buffered(n, each=1)),
        Layout("mapped, by number", shards,
               lambda: iter(FastPipeline(dataset, "train", batch_size=BATCH, crop_px=crop)),
               lambda n: Order(n, seed=0, margin_px=size - crop, flip=True).take(0, count=n).films),
    ]  # fmt: skip


def _crop(films: tf.data.Dataset, *, size: int, crop: int) -> tf.data.Dataset:
    """Return batches of films, each cropped at a place of its own and mirrored or not."""
    numbers = tf.data.Dataset.random(seed=0)

    def cut(film: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        choices = size - crop + 1
        top, left = (number // 2) % choices, (number // 2) // choices % choices
        film = tf.ensure_shape(film[top : top + crop, left : left + crop], [crop, crop])
        return tf.where(number % 2 == 0, film[:, ::-1], film)

    cores = len(os.sched_getaffinity(0))
    mapped = tf.data.Dataset.zip(films, numbers).map(cut, num_parallel_calls=cores)
    options = tf.data.Options()
    options.threading.private_threadpool_size = cores
    return mapped.batch(BATCH, drop_remainder=True).prefetch(2).with_options(options)


def _buffered(count: int, *, each: int) -> np.ndarray:
    """Return the order a shuffle buffer gives films that are read in blocks of ``each``."""
    chance = np.random.default_rng(0)
    size = max(1, BUFFER // each)
    waiting, order = [], []
    for block in range(count // each):
        waiting.append(block)
        if len(waiting) > size:
            order.append(waiting.pop(int(chance.integers(len(waiting)))))
    chance.shuffle(waiting)
    blocks = np.array([*order, *waiting])
    return (blocks[:, None] * each + np.arange(each)).ravel()


def shuffle_quality(order: np.ndarray) -> float:
    """Return the mean distance that films move, as a share of a uniform shuffle's, n/3."""
    return float(np.abs(order - np.arange(len(order))).mean() / (len(order) / 3))


def measure(layout: Layout, *, seconds: float, cold: bool) -> float:
    """Return images/s of a layout."""
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
    while time.perf_counter() - begun < seconds:
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
    add("--crop", type=int, default=224, help="px cut out of each film")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=2.0, help="of one measurement")
    options = parser.parse_args()
    dataset = load_dataset(options.data)
    split = dataset.splits["train"]
    with tempfile.TemporaryDirectory(dir=options.output.parent) as name:
        layouts = write_layouts(dataset, folder=Path(name), crop=options.crop)
        rates: dict[tuple[str, bool], list[float]] = {}
        for nth in range(options.rounds):
            for layout in layouts:
                for cold in (False, True):
                    rate = measure(layout, seconds=options.seconds, cold=cold)
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
                 "--crop", str(options.crop), "--rounds", str(options.rounds),
                 "--seconds", str(options.seconds)],
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
