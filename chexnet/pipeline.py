"""From prepared data to batches: the two pipelines of the article, and `fast`.

Knows the steps of `old` and `new` in the article's order, as tf.data graphs, how ranks
share the films, and how many steps an epoch has. Leaves what a record holds to
`records`, mapped films to `fast`, and the conversion to float and normalisation to
the training step, so that a film crosses to the device as bytes.

The two differ in where the ranks part. `old` shards after the map: every rank
reads and decodes every film and throws most of them away. `new` shards the list
of files before reading, reads ten files at once, shuffles films still encoded,
and decodes while it batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import tensorflow as tf

from chexnet.errors import UserError, unknown_name
from chexnet.input.dali import DaliPipeline
from chexnet.input.fast import FastPipeline
from chexnet.input.fitting import FORMATS_READ, check_crop, check_pipeline
from chexnet.records import Dataset, parse_example

SHUFFLE_BUFFER = 500
CYCLE_LENGTH = 10
PARALLEL_BATCHES = 5

Parse = Callable[..., tuple[tf.Tensor, tf.Tensor]]
# There is nothing to convert, and a rank that ends at once would leave the generated source.
_as_it_is = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True)
class _Share:
    """What one rank asks for; the fields are arguments of `make_pipeline`."""

    dataset: Dataset
    split: str
    batch_size: int
    rank: int
    size: int
    seed: int
    flip: bool
    crop_px: int
    skip: int

    @property
    def paths(self) -> list[str]:
        return self.dataset.shard_paths(self.split)


def make_pipeline(
    dataset: Dataset,
    *,
    split: str,
    name: str,
    batch_size: int,
    rank: int = 0,
    size: int = 1,
    seed: int = 0,
    epoch: int = 0,
    first_film: int = 0,
    skip_batches: int = 0,
    training: bool = True,
    flip: bool = True,
    crop_px: int = 0,
) -> Iterable[tuple[tf.Tensor, ...]]:
    """Return the batches of one rank.

    Args:
        dataset: the prepared data.
        split: ``train``, ``validation`` or ``test``.
        name: which pipeline trains, out of `PIPELINES`.
        batch_size: films in a batch of this rank.
        rank: 0 to size - 1.
        size: number of ranks that share the films.
        seed: the same seed gives the same batches on the same rank.
        epoch: gives `old` and `new` another order, which starts with every epoch.
        first_film: where `fast` begins in its one order for the whole run, counted in films
            of all ranks together.
        skip_batches: how many batches `old` and `new` leave out at the beginning of an epoch.
            `new` reads the records of these again without decoding them; `old`, which decodes
            before it shuffles, does it all again.
        training: an endless, shuffled stream of full batches; otherwise one pass
            in order over this rank's share, with a smaller last batch. That pass
            is the same for every pipeline. A rank's share of it may be empty.
        flip: mirror each film left to right with probability 0.5 while training.
        crop_px: height and width of what is cut out of each film: anywhere in it while
            training, its middle otherwise; 0 for the whole film.

    Returns:
        Pairs of (image: uint8 [B, H, W, 1], 0..255; label: float32 [B, 14],
        0 or 1) and, when not training, (filename: string [B]).

    Raises:
        UserError: an unknown split or pipeline, one that does not read this format, an
            empty split, a crop larger than the films, or more ranks than `new` can give
            a file to.
    """
    check_pipeline(name, dataset=dataset)
    crop_px = check_crop(crop_px, dataset=dataset)
    _check_split(dataset, split)
    if FORMATS_READ[name] == "fast":
        return FastPipeline(
            dataset, split, batch_size=batch_size, crop_px=crop_px, rank=rank, size=size,
            seed=seed, training=training, flip=flip, first_film=first_film,
        )  # fmt: skip
    if name == "dali" and training:
        return DaliPipeline(
            dataset, split, batch_size=batch_size, crop_px=crop_px, rank=rank, size=size,
            seed=seed, flip=flip, first_film=first_film,
        )  # fmt: skip
    # A seed of its own for each epoch and rank, as long as there are fewer than 1,000 ranks.
    mixed = seed + 1000 * epoch + rank
    skip = skip_batches * batch_size
    share = _Share(dataset, split, batch_size, rank, size, mixed, flip, crop_px, skip)
    stream = _TRAINING[name](share) if training else _one_pass(share)
    return stream.with_options(_options())


def _check_split(dataset: Dataset, split: str) -> None:
    if split not in dataset.splits:
        raise unknown_name("split", split, known=dataset.splits)
    if not dataset.splits[split].num_examples:
        raise UserError(
            f"films in the split {split!r} of {dataset.root}",
            found="none",
            fix="prepare the data again from more patients, so that every side has some",
        )


def steps_per_epoch(dataset: Dataset, *, split: str, batch_size: int, size: int) -> int:
    """Return how many steps an epoch has: the same number on every rank, at least 1.

    Args:
        dataset: the prepared data.
        split: which side is trained on.
        batch_size: films in a batch of one rank.
        size: number of ranks.
    """
    return max(1, dataset.splits[split].num_examples // (batch_size * size))


def _old(share: _Share) -> tf.data.Dataset:
    records = tf.data.TFRecordDataset(_files(share))
    films = _with_random(records, share.seed).map(
        _training_parser(share), num_parallel_calls=tf.data.AUTOTUNE
    )
    films = films.shard(share.size, share.rank)
    films = films.shuffle(SHUFFLE_BUFFER, seed=share.seed)
    films = _leave_out(films.repeat(), share.skip)
    return films.batch(share.batch_size, drop_remainder=True).prefetch(1)


def _new(share: _Share) -> tf.data.Dataset:
    num_files = len(share.paths)
    if num_files < share.size:
        raise UserError(
            f"a record file of the split {share.split!r} for each of {share.size} ranks "
            f"in {share.dataset.root}",
            found=f"{num_files} record files",
            fix=f"train on at most {num_files} ranks, or set pipeline=old, which shares films "
            "and not files; preparing more films gives more files",
        )
    files = _files(share).shard(share.size, share.rank).shuffle(SHUFFLE_BUFFER, seed=share.seed)
    records = files.interleave(
        tf.data.TFRecordDataset,
        cycle_length=CYCLE_LENGTH,
        num_parallel_calls=CYCLE_LENGTH,
        deterministic=True,
    )
    records = records.prefetch(share.batch_size).shuffle(SHUFFLE_BUFFER, seed=share.seed).repeat()
    # map and batch stand side by side, so tf.data makes them one operation
    # (map_and_batch_fusion below); the article's five parallel batches are the
    # number of films in the works.
    films = _leave_out(_with_random(records, share.seed), share.skip).map(
        _training_parser(share), num_parallel_calls=PARALLEL_BATCHES * share.batch_size
    )
    return films.batch(share.batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def _leave_out(films: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """Return the stream from its count-th on; the article's own steps where that is all of it."""
    return films.skip(count) if count else films


_TRAINING: dict[str, Callable[[_Share], tf.data.Dataset]] = {"old": _old, "new": _new}


def _one_pass(share: _Share) -> tf.data.Dataset:
    # Whole files, so that a rank does not read what belongs to others.
    records = tf.data.TFRecordDataset(
        tf.constant(share.paths[share.rank :: share.size], dtype=tf.string)
    )
    margin = share.dataset.image_size - share.crop_px

    @_as_it_is
    def parse(record: tf.Tensor) -> tuple[tf.Tensor, ...]:
        image, label, name = parse_example(record, image_size=share.dataset.image_size)
        return _cut(image, margin // 2, margin // 2, size_px=share.crop_px), label, name

    films = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return films.batch(share.batch_size).prefetch(tf.data.AUTOTUNE)


def _files(share: _Share) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tf.constant(share.paths, dtype=tf.string))


def _with_random(records: tf.data.Dataset, seed: int) -> tf.data.Dataset:
    # A random number beside each record, instead of a stateful random op inside
    # the parallel map, where threads would draw in any order. A new row of
    # numbers on each repetition, or a film would be mirrored in every epoch alike.
    numbers = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(records, numbers)


def _training_parser(share: _Share) -> Parse:
    choices = share.dataset.image_size - share.crop_px + 1

    @_as_it_is
    def parse(record: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image, label, _ = parse_example(record, image_size=share.dataset.image_size)
        if choices > 1:
            top, left = (number // 2) % choices, (number // 2) // choices % choices
            image = _cut(image, top, left, size_px=share.crop_px)
        if share.flip:
            image = tf.where(number % 2 == 0, image[:, ::-1], image)
        return image, label

    return parse


def _cut(
    image: tf.Tensor, top: tf.Tensor | int, left: tf.Tensor | int, *, size_px: int
) -> tf.Tensor:
    cut = image[top : top + size_px, left : left + size_px]
    return tf.ensure_shape(cut, [size_px, size_px, 1])


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_optimization.map_and_batch_fusion = True
    # Cores this process may use, not cores of the machine: ranks share a node.
    options.threading.private_threadpool_size = len(os.sched_getaffinity(0))
    # The ranks are shared out above; tf.data must not do it a second time.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
