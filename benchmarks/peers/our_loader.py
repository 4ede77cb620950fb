"""The project's own pipelines as loaders: `old`, `new` and `fast`, from each input they read.

`old` and `new` decode the films at the size they are shipped in and cut out the same share of
each; resizing that to the model's size is the training step's work, and not in their rate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.inputs import DESCRIPTION, FAST, JPEG_RECORDS, PNG_RECORDS
from benchmarks.peers.common import BYTES, JPEG, PNG, Job, Make, run_loader
from chexnet.pipeline import make_pipeline
from chexnet.records import Dataset, load_dataset


def _records(job: Job, what: str) -> Dataset:
    """Return records as if they had been prepared: they lie as the fast films do."""
    described = json.loads((job.folder / DESCRIPTION).read_text())
    name, side = {
        PNG: (PNG_RECORDS, described["shipped_px"]),
        JPEG: (JPEG_RECORDS, job.size),
    }[what]
    fast = load_dataset(job.folder / FAST)
    split = fast.splits["train"]
    shards = tuple(
        replace(shard, name=shard.name.replace(".u8", ".tfrecord")) for shard in split.shards
    )
    return replace(fast, root=job.folder / name, format="encoded", image_size=side,
                   splits={**fast.splits, "train": replace(split, shards=shards)})  # fmt: skip


def _pipeline(name: str, what: str) -> Make:
    def make(job: Job) -> Iterator[object]:
        dataset = load_dataset(job.folder / FAST) if what == BYTES else _records(job, what)
        crop = dataset.image_size * job.crop // job.size
        return iter(make_pipeline(dataset, split="train", name=name, batch_size=job.batch_size,
                                  crop_px=crop))  # fmt: skip

    return make


def _whole(job: Job) -> Iterator[object]:
    dataset = load_dataset(job.folder / FAST)
    return iter(make_pipeline(dataset, split="train", name="fast", batch_size=job.batch_size,
                              flip=False))  # fmt: skip


def _cut_in_step(job: Job) -> Iterator[object]:
    """Yield batches that a compiled step has cropped and mirrored, each film by itself."""
    import tensorflow as tf

    margin = job.size - job.crop

    @tf.function
    def cut(images: tf.Tensor) -> tf.Tensor:
        number = tf.shape(images)[:1]
        first = tf.random.uniform([2, job.batch_size, 1], maxval=margin + 1, dtype=tf.int32)
        inner = tf.range(job.crop)[None]
        flips = tf.random.uniform(number) < 0.5
        columns = first[1] + tf.where(flips[:, None], inner[:, ::-1], inner)
        rows = tf.gather(images[..., 0], first[0] + inner, batch_dims=1)
        # The last axis is the fastest to copy along: columns are gathered as rows.
        turned = tf.gather(tf.transpose(rows, [0, 2, 1]), columns, batch_dims=1)
        return tf.transpose(turned, [0, 2, 1])[..., None]

    return ((cut(images), labels) for images, labels in _whole(job))


if __name__ == "__main__":
    run_loader({
        "old-png": _pipeline("old", PNG),
        "new-png": _pipeline("new", PNG),
        "old-jpeg": _pipeline("old", JPEG),
        "new-jpeg": _pipeline("new", JPEG),
        "fast": _pipeline("fast", BYTES),
        "fast-whole": _whole,
        "fast-step": _cut_in_step,
    })  # fmt: skip
