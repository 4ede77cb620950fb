"""PyTorch's DataLoader: workers that stay, batches sent ahead, whole batches from an array.

As its documentation advises: a worker a core, `persistent_workers`, `prefetch_factor`, and
for data that is read fastest many at a time a sampler of batches with automatic batching off.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, get_worker_info

from benchmarks.peers.common import BYTES, JPEG, PNG, Job, crop_and_flip, load_image, run_loader

EPOCHS = 100_000  # more than are drawn
PREFETCH = 4  # batches a worker


def _rng() -> np.random.Generator:
    return np.random.default_rng(get_worker_info().seed)


class _Files(Dataset):
    """Image files, one at a time."""

    def __init__(self, job: Job, what: str) -> None:
        self.job, self.paths, self.labels = job, job.paths(what), torch.from_numpy(job.labels())
        self.rng: np.random.Generator | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.rng = self.rng or _rng()
        film = load_image(self.paths[index], size=self.job.size)
        part = crop_and_flip(film, self.rng, crop=self.job.crop)
        return torch.from_numpy(part)[None], self.labels[index]


class _Array(Dataset):
    """Decoded images, a batch at a time."""

    def __init__(self, job: Job) -> None:
        self.job, self.films, self.labels = job, job.array(), torch.from_numpy(job.labels())
        self.rng: np.random.Generator | None = None

    def __len__(self) -> int:
        return len(self.films)

    def __getitem__(self, batch: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        self.rng = self.rng or _rng()
        images = torch.empty((len(batch), 1, self.job.crop, self.job.crop), dtype=torch.uint8)
        for out, index in zip(images.numpy(), batch, strict=True):
            crop_and_flip(self.films[index], self.rng, crop=self.job.crop, out=out[0])
        return images, self.labels[batch]


def _files(what: str):  # noqa: ANN202 - a Make
    def make(job: Job) -> Iterator[object]:
        files = _Files(job, what)
        sampler = RandomSampler(files, num_samples=EPOCHS * len(files))
        return iter(DataLoader(files, batch_size=job.batch_size, sampler=sampler, drop_last=True,
                               num_workers=job.workers, persistent_workers=True,
                               prefetch_factor=PREFETCH))  # fmt: skip

    return make


def _array(job: Job) -> Iterator[object]:
    films = _Array(job)
    sampler = RandomSampler(films, num_samples=EPOCHS * len(films))
    batches = BatchSampler(sampler, batch_size=job.batch_size, drop_last=True)
    return iter(DataLoader(films, batch_size=None, sampler=batches, num_workers=job.workers,
                           persistent_workers=True, prefetch_factor=PREFETCH))  # fmt: skip


if __name__ == "__main__":
    run_loader({PNG: _files(PNG), JPEG: _files(JPEG), BYTES: _array})
