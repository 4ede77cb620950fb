"""The pipeline `dali`: encoded films decoded by NVIDIA DALI, where it is installed.

Knows how records are read by number, so that the order, the crops and the flips are those of
`fast`, and DALI's graph: on a GPU it decodes JPEG there (PNG it decodes on the CPU either way).
Leaves the order to `order`. Without DALI nothing here is imported; it is in no stack.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import tensorflow as tf

from chexnet.data.films import load_films
from chexnet.errors import UserError
from chexnet.input.fitting import no_dali
from chexnet.input.order import Order
from chexnet.records import Dataset

# A record is its length (8 bytes), a checksum of that (4), the data, and a checksum of it (4).
_LENGTH = struct.Struct("<Q")
_BEFORE, _AFTER = 12, 4
BATCHES_AHEAD = 3


@dataclass(frozen=True)
class DaliPipeline:
    """The training batches of one rank; iterate over it.

    Attributes:
        dataset: prepared data of format ``encoded``.
        split: which side is trained on.
        batch_size: films in a batch of this rank.
        crop_px: height and width of what is cut out of a film.
        rank: 0 to size - 1.
        size: number of ranks that share the films.
        seed: of the order, the crops and the flips; the same on every rank.
        flip: mirror each film with probability 0.5.
        first_film: where in the order of all films the first batch of all ranks begins.
    """

    dataset: Dataset
    split: str
    batch_size: int
    crop_px: int
    rank: int = 0
    size: int = 1
    seed: int = 0
    flip: bool = True
    first_film: int = 0

    def __iter__(self) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """Yield images uint8 [B, crop, crop, 1] and labels float32 [B, 14], without end.

        Raises:
            UserError: DALI is not installed.
        """
        graph = _build(self)
        while True:
            images, labels = graph.run()
            yield tf.constant(images.as_cpu().as_array()), tf.constant(labels.as_array())

    def batches(self) -> Iterator[tuple[list[np.ndarray], ...]]:
        """Yield what DALI needs for each batch, a list with an array for each film.

        Encoded images (uint8 [bytes]), first row and column of the crop (int32 [2]), whether it
        is mirrored (int32 []), labels (float32 [14]).
        """
        split = self.dataset.splits[self.split]
        table = load_films(self.dataset.root / split.films.name, num_films=split.num_examples)
        paths = [Path(path) for path in self.dataset.shard_paths(self.split)]
        records = RecordFiles(tuple(paths))
        margin = self.dataset.image_size - self.crop_px
        order = Order(split.num_examples, seed=self.seed, margin_px=margin, flip=self.flip)
        position = self.first_film + self.rank * self.batch_size
        while True:
            turns = order.take(position, count=self.batch_size)
            starts = np.stack([turns.tops, turns.lefts], -1).astype(np.int32)
            yield (
                [records.read_image(int(film)) for film in turns.films],
                list(starts),
                list(turns.flips.astype(np.int32)),
                list(table.labels[turns.films].astype(np.float32)),
            )
            position += self.batch_size * self.size


def _build(pipeline: DaliPipeline):  # noqa: ANN202 - DALI's own type, of a package that may be absent
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError as error:
        raise no_dali(str(error)) from error
    gpus = tf.config.get_visible_devices("GPU")

    @pipeline_def(
        batch_size=pipeline.batch_size, num_threads=len(os.sched_getaffinity(0)),
        prefetch_queue_depth=BATCHES_AHEAD, device_id=device_of([gpu.name for gpu in gpus]),
    )  # fmt: skip
    def graph() -> tuple[object, object]:
        encoded, starts, flips, labels = fn.external_source(
            source=pipeline.batches(), num_outputs=4, batch=True
        )
        films = fn.decoders.image(
            encoded, device="mixed" if gpus else "cpu", output_type=types.GRAY
        )
        shape = [pipeline.crop_px, pipeline.crop_px]
        films = fn.slice(films, start=starts, shape=shape, axes=[0, 1])
        return fn.flip(films, horizontal=flips), labels

    built = graph()
    built.build()
    return built


def device_of(names: Sequence[str]) -> int | None:
    """Return the number by which DALI knows this rank's GPU; None without one.

    TensorFlow may see one GPU alone, while CUDA, and so DALI, counts all of the process.

    Args:
        names: of the GPUs that TensorFlow may see, such as ``/physical_device:GPU:3``.
    """
    return int(names[0].rsplit(":", 1)[1]) if names else None


class RecordFiles:
    """TFRecord files read by the number of the record, without reading those before it.

    Args:
        paths: the files, in the order in which their records are counted.
    """

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._files = [path.open("rb") for path in paths]
        self._places = _find_records(paths)

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self._places)

    def read_image(self, number: int) -> np.ndarray:
        """Return the encoded image of a record, uint8 [bytes].

        Args:
            number: of the record, from 0 over all files.
        """
        file, start, length = self._places[number]
        self._files[file].seek(start)
        example = tf.train.Example.FromString(self._files[file].read(length))
        (image,) = example.features.feature["image/encoded"].bytes_list.value
        return np.frombuffer(image, np.uint8)


@lru_cache(maxsize=4)
def _find_records(paths: tuple[Path, ...]) -> list[tuple[int, int, int]]:
    """Return (file, start, length) of every record, by reading the lengths alone."""
    places = []
    for number, path in enumerate(paths):
        size, position = path.stat().st_size, 0
        with path.open("rb") as file:
            while position < size:
                file.seek(position)
                (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                places.append((number, position + _BEFORE, length))
                position += _BEFORE + length + _AFTER
        if position != size:
            raise UserError(
                f"whole records in {path}", found=f"{size - position} bytes too few at the end",
                fix="prepare the data again",
            )  # fmt: skip
    return places
