"""Grain: a map data set shuffled by index, batches made by processes.

As its documentation advises: `mp_prefetch` with a process a core, and no reading threads
where the data is in memory already. Its own record format is ArrayRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import grain
import numpy as np

from benchmarks.peers.common import (
    BYTES,
    JPEG,
    PNG,
    RECORDS,
    Job,
    crop_and_flip,
    load_image,
    run_loader,
)

READ_AHEAD = 4  # batches a process


class _Numbers:
    """A source whose records are their numbers."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> int:
        return index


def _batches(
    source: object, job: Job, *, load: Callable[[object], np.ndarray], threads: int
) -> Iterator[object]:
    labels = job.labels()

    def to_film(index: int, record: object, rng: np.random.Generator) -> dict[str, np.ndarray]:
        film = crop_and_flip(load(record), rng, crop=job.crop)
        return {"image": film, "label": labels[index % len(labels)]}

    films = grain.MapDataset.source(source).map_with_index(lambda index, one: (index, one))
    films = films.seed(0).shuffle().repeat()
    films = films.random_map(lambda one, rng: to_film(*one, rng))
    batches = films.batch(job.batch_size, drop_remainder=True).to_iter_dataset(
        grain.ReadOptions(num_threads=threads, prefetch_buffer_size=READ_AHEAD if threads else 0)
    )
    return iter(batches.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=job.workers, per_worker_buffer_size=READ_AHEAD)
    ))  # fmt: skip


def _files(what: str):  # noqa: ANN202 - a Make
    def make(job: Job) -> Iterator[object]:
        def load(path: object) -> np.ndarray:
            return load_image(str(path), size=job.size)

        return _batches(job.paths(what), job, load=load, threads=1)

    return make


def _array(job: Job) -> Iterator[object]:
    films = job.array()
    return _batches(_Numbers(len(films)), job, load=films.__getitem__, threads=0)


def _records(job: Job) -> Iterator[object]:
    path = job.folder / RECORDS
    if not path.exists():
        _write_records(path, films=job.array())

    def load(record: object) -> np.ndarray:
        return np.frombuffer(record, np.uint8).reshape(job.size, job.size)

    source = grain.sources.ArrayRecordDataSource([str(path)])
    return _batches(source, job, load=load, threads=0)


def _write_records(path: Path, *, films: np.ndarray) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    # Records one by one, as Grain advises for access by number.
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for film in films:
        writer.write(film.tobytes())
    writer.close()


if __name__ == "__main__":
    from absl import app

    # Grain's processes read its flags, which absl sets up.
    app.run(
        lambda _: run_loader({PNG: _files(PNG), JPEG: _files(JPEG), BYTES: _array,
                              "records": _records}),
        flags_parser=lambda words: app.flags.FLAGS(words[:1]),
    )  # fmt: skip
