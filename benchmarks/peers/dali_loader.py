"""DALI on CPUs: its own readers and operators in C++, decoded films through external_source.

As its documentation advises: a thread a core, the shuffle in the reader, crop and flip fused
in `crop_mirror_normalize`, and memory that stays handed over without a copy. Its own format
for arrays is a file in numpy's form for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from nvidia.dali import fn, pipeline_def, types

from benchmarks.peers.common import BYTES, JPEG, NPY, PNG, Job, run_loader

QUEUE = 3  # batches ahead
INITIAL_FILL = 1024  # of the reader's shuffle buffer


def _crop_and_flip(films: object, *, crop: int) -> object:
    return fn.crop_mirror_normalize(
        films, dtype=types.UINT8, output_layout="HWC", crop=(crop, crop), mean=[0.0], std=[1.0],
        crop_pos_x=fn.random.uniform(range=(0.0, 1.0)),
        crop_pos_y=fn.random.uniform(range=(0.0, 1.0)), mirror=fn.random.coin_flip(),
    )  # fmt: skip


def _batches(job: Job, graph: Callable[[], tuple[object, object]]) -> Iterator[object]:
    pipeline = pipeline_def(graph)(
        batch_size=job.batch_size, num_threads=job.workers, device_id=None, seed=1,
        prefetch_queue_depth=QUEUE,
    )  # fmt: skip
    pipeline.build()
    while True:
        images, labels = pipeline.run()
        yield images.as_tensor(), labels.as_tensor()


def _files(what: str):  # noqa: ANN202 - a Make
    def make(job: Job) -> Iterator[object]:
        paths = job.paths(what)

        def graph() -> tuple[object, object]:
            encoded, labels = fn.readers.file(
                files=paths, labels=list(range(len(paths))), random_shuffle=True,
                initial_fill=INITIAL_FILL,
            )  # fmt: skip
            films = fn.decoders.image(encoded, device="cpu", output_type=types.GRAY)
            if what == PNG:
                films = fn.resize(films, size=(job.size, job.size))
            return _crop_and_flip(films, crop=job.crop), labels

        return _batches(job, graph)

    return make


def _array(job: Job) -> Iterator[object]:
    films, labels = job.array()[..., None], job.labels()
    rng = np.random.default_rng(0)

    def numbers() -> Iterator[int]:
        while True:
            yield from rng.permutation(len(films)).tolist()

    def source() -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        order = numbers()
        while True:
            batch = [next(order) for _ in range(job.batch_size)]
            yield [films[index] for index in batch], [labels[index] for index in batch]

    def graph() -> tuple[object, object]:
        # The array is never written to, so DALI may read it in place.
        drawn, found = fn.external_source(source=source(), num_outputs=2, layout=["HWC", None],
                                          no_copy=True, batch=True)  # fmt: skip
        return _crop_and_flip(drawn, crop=job.crop), found

    return _batches(job, graph)


def _npy(job: Job) -> Iterator[object]:
    paths = job.paths(NPY)

    def graph() -> tuple[object, object]:
        films = fn.readers.numpy(files=paths, random_shuffle=True, initial_fill=INITIAL_FILL)
        films = fn.reshape(films, shape=[job.size, job.size, 1], layout="HWC")
        return _crop_and_flip(films, crop=job.crop), fn.constant(idata=0, dtype=types.INT32)

    return _batches(job, graph)


if __name__ == "__main__":
    run_loader({PNG: _files(PNG), JPEG: _files(JPEG), BYTES: _array, NPY: _npy})
