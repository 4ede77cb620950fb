"""The pixels of single films of prepared data, by their place in the split.

Knows both formats. Leaves the stream of all films to `pipeline`, and what the films are to
`films`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from chexnet import records
from chexnet.data.films import load_films
from chexnet.errors import EXIT_FAILED, UserError
from chexnet.input.mapped import FilmArrays
from chexnet.input.order import Turns
from chexnet.quiet import quiet_import


def read_films(
    dataset: records.Dataset, *, split: str, numbers: Iterable[int]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield chosen films in the order of the record files, each with its number.

    Args:
        dataset: the prepared data.
        split: ``train``, ``validation`` or ``test``.
        numbers: places in the split's table of films, from 0.

    Yields:
        The number and the film: uint8 [H, W], 0..255, as it is stored.
    """
    wanted = sorted(set(numbers))
    if dataset.format == "encoded":
        chosen = set(wanted)
        for number, (image, _, _) in enumerate(read_records(dataset, split=split)):
            if number in chosen:
                yield number, image
        return
    size, shards = dataset.image_size, dataset.splits[split].shards
    arrays = FilmArrays(
        [dataset.root / shard.name for shard in shards],
        counts=[shard.num_examples for shard in shards],
        size_px=size,
    )
    zero, no = np.zeros(1, np.int64), np.zeros(1, bool)
    for number in wanted:
        out = np.empty((1, size, size), np.uint8)
        arrays.copy(out, turns=Turns(np.array([number]), zero, zero, no))
        yield number, out[0]


def read_records(
    dataset: records.Dataset, *, split: str
) -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
    """Yield every film of an ``encoded`` split: uint8 [H, W], label float32 [14], its name.

    Raises:
        UserError: a record holds no film of the data's size; names the film (exit code 1).
    """
    with quiet_import():
        import tensorflow as tf

    stream = tf.data.TFRecordDataset(dataset.shard_paths(split))
    parse = partial(records.parse_example, image_size=dataset.image_size)
    parsed = stream.map(
        tf.autograph.experimental.do_not_convert(parse), num_parallel_calls=tf.data.AUTOTUNE
    )
    number = 0
    try:
        for image, label, name in parsed.as_numpy_iterator():
            yield image[..., 0], label, name.decode()
            number += 1
    except tf.errors.InvalidArgumentError as error:
        side = dataset.splits[split]
        films = load_films(dataset.root / side.films.name, num_films=side.num_examples)
        raise UserError(
            f"films of {dataset.image_size} px in the {split} records of {dataset.root}",
            found=f"{films.names[number]}: {str(error).splitlines()[0]}",
            fix=f"copy the record files again, or {records.PREPARE_AGAIN}",
            exit_code=EXIT_FAILED,
        ) from error
