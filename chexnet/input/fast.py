"""The pipeline `fast`: films read by number from mapped files, in the exact order.

Knows how a rank's batches follow from the order of all films, and one pass for evaluation.
Leaves the order to `order`, the bytes to `mapped`, threads and memory to `stream`. The
films go to the device as bytes; grey to colour and normalisation are part of the step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf

from chexnet.data.films import FilmTable, load_films
from chexnet.input.mapped import FilmArrays
from chexnet.input.memory import filled_in_order
from chexnet.input.order import Order, Turns
from chexnet.input.stream import Buffers, make_ahead
from chexnet.records import Dataset

# One copies 40,000 films/s and more: further threads are for storage that is slow to answer.
MOST_THREADS = 4
BATCHES_AHEAD = 2  # beside those in the works
# Films that the kernel reads meanwhile: storage that answers slowly answers many at once.
BATCHES_ASKED_FOR = 8

T = TypeVar("T")


@dataclass(frozen=True)
class FastPipeline:
    """The batches of one rank; iterate over it.

    Attributes:
        dataset: prepared data of format ``fast``.
        split: ``train``, ``validation`` or ``test``.
        batch_size: films in a batch of this rank.
        crop_px: height and width of what is cut out of a film.
        rank: 0 to size - 1.
        size: number of ranks that share the films.
        seed: of the order, the crops and the flips; the same on every rank.
        training: an endless stream of full batches; otherwise one pass in order over this
            rank's share, each film's middle, with a smaller last batch.
        flip: mirror each film with probability 0.5 while training.
        first_film: where in the order of all films the first batch of all ranks begins; the
            n-th after it takes the films first_film + n*B*size …
        fill_memory: while training, read the files from end to end beside, where memory holds
            them: storage that is slow at random places is so in the first steps alone.
    """

    dataset: Dataset
    split: str
    batch_size: int
    crop_px: int
    rank: int = 0
    size: int = 1
    seed: int = 0
    training: bool = True
    flip: bool = True
    first_film: int = 0
    fill_memory: bool = True

    def __iter__(self) -> Iterator[tuple[tf.Tensor, ...]]:
        """Yield images uint8 [B, crop, crop, 1] and labels float32 [B, 14].

        When not training, the films' names, string [B], are the third.
        """
        split = self.dataset.splits[self.split]
        table = _load_films(
            self.dataset.root / split.films.name, split.num_examples, split.films.sha256
        )
        arrays = FilmArrays(
            [self.dataset.root / shard.name for shard in split.shards],
            counts=[shard.num_examples for shard in split.shards],
            size_px=self.dataset.image_size,
        )
        if self.training:
            return self._train(arrays, table)
        return _make(self._one_pass(arrays, table))

    def _train(self, arrays: FilmArrays, table: FilmTable) -> Iterator[tuple[tf.Tensor, ...]]:
        files = arrays.paths if self.fill_memory else ()
        # Ranks of one host begin at different files.
        with filled_in_order(files, first=self.rank * len(files) // self.size) as filling:
            yield from _make(self._training(arrays, table, filling=filling))

    def _training(  # noqa: ANN202 - a Make
        self, arrays: FilmArrays, table: FilmTable, *, filling: Callable[[], bool]
    ):
        margin = self.dataset.image_size - self.crop_px
        order = Order(len(arrays), seed=self.seed, margin_px=margin, flip=self.flip)
        buffers = Buffers((self.batch_size, self.crop_px, self.crop_px))

        # Each is wanted twice: when the kernel is asked for its films, and when they are copied.
        @lru_cache(maxsize=2 * BATCHES_ASKED_FOR)
        def turns(step: int) -> Turns:
            first = self.first_film + (step * self.size + self.rank) * self.batch_size
            return order.take(first, count=self.batch_size)

        def make(step: int) -> tuple[tf.Tensor, ...]:
            if not filling():  # else the many small reads would hold the large ones up
                arrays.ask_for(turns(step + BATCHES_ASKED_FOR))
            return _fill(arrays, table, turns=turns(step), buffers=buffers)

        return make

    def _one_pass(self, arrays: FilmArrays, table: FilmTable):  # noqa: ANN202 - a Make
        mine = np.arange(self.rank, len(arrays), self.size)
        middle = (self.dataset.image_size - self.crop_px) // 2

        def make(number: int) -> tuple[tf.Tensor, ...]:
            films = mine[number * self.batch_size : (number + 1) * self.batch_size]
            if not len(films):
                raise IndexError("the pass is over")
            places = np.full(len(films), middle)
            turns = Turns(films, tops=places, lefts=places, flips=np.zeros(len(films), bool))
            buffers = Buffers((len(films), self.crop_px, self.crop_px))
            names = [table.names[film] for film in films.tolist()]
            return *_fill(arrays, table, turns=turns, buffers=buffers), tf.constant(names)

        return make


def _make(source: Callable[[int], T]) -> Iterator[T]:
    threads = min(len(os.sched_getaffinity(0)), MOST_THREADS)
    return make_ahead(source, first=0, threads=threads, ahead=threads + BATCHES_AHEAD)


def name_films(dataset: Dataset, *, split: str, seed: int, first: int, count: int) -> list[str]:
    """Return the names of the films at some places of the training's order.

    Args:
        dataset: prepared data of format ``fast``.
        split: which side is trained on.
        seed: of the order.
        first: place in the order, 0 or more.
        count: how many.
    """
    about = dataset.splits[split]
    table = _load_films(dataset.root / about.films.name, about.num_examples, about.films.sha256)
    films = Order(about.num_examples, seed=seed).take(first, count=count).films
    return [table.names[film] for film in films.tolist()]


@lru_cache(maxsize=4)
def _load_films(path: Path, num_films: int, sha256: str) -> FilmTable:
    """Read a table once for all epochs; the hash tells one data set from another there."""
    return load_films(path, num_films=num_films)


def _fill(
    arrays: FilmArrays, table: FilmTable, *, turns: Turns, buffers: Buffers
) -> tuple[tf.Tensor, tf.Tensor]:
    buffer = buffers.take()
    arrays.copy(buffer, turns=turns)
    images = buffers.hand_over(buffer, shape=(*buffer.shape, 1))
    return images, tf.constant(table.labels[turns.films])
