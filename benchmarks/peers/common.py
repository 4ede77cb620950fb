"""What every loader's program shares: its options, the clock, the memory, the answer.

Knows that batches are counted in whole epochs and in the process that would train. Leaves
making them to the programs beside it, which run in environments of their own: standard
library only, beside numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PNG, JPEG, BYTES = "png", "jpeg", "bytes"
# Below the folder of inputs; what each holds stands in `benchmarks.inputs`.
ARRAY, LABELS, NAMES, NPY, RECORDS = "array.npy", "labels.npy", "names.txt", "npy", "films.riegeli"


@dataclass(frozen=True)
class Job:
    """What a loader is asked for.

    Attributes:
        folder: the inputs, as `benchmarks.inputs` wrote them.
        batch_size: images in a batch.
        size: height and width that an image is resized to, px.
        crop: height and width of what is cut out of it, px.
        workers: threads or processes that make batches.
    """

    folder: Path
    batch_size: int
    size: int
    crop: int
    workers: int

    def paths(self, what: str) -> list[str]:
        """Return the image files of an input, in the order of the other inputs."""
        names = (self.folder / NAMES).read_text().split()
        suffix = {PNG: ".png", JPEG: ".jpg", NPY: ".npy"}[what]
        return [str(self.folder / what / f"{name}{suffix}") for name in names]

    def array(self) -> np.ndarray:
        """Return the decoded images, uint8 [N, size, size], mapped into memory."""
        return np.load(self.folder / ARRAY, mmap_mode="r")

    def labels(self) -> np.ndarray:
        """Return the labels, float32 [N, 14]."""
        return np.load(self.folder / LABELS)


Make = Callable[[Job], Iterator[Any]]


def measure_epochs(
    batches: Iterator[object], *, batch_size: int, epoch: int, seconds: float
) -> dict[str, float]:
    """Draw whole epochs, since a shuffle buffer as large as the data gives them in bursts.

    Args:
        batches: endless; one epoch is drawn before the clock starts.
        batch_size: images in each.
        epoch: images in an epoch.
        seconds: at least so long.
    """
    for _ in range(-(-epoch // batch_size)):
        next(batches)
    begun = now = time.perf_counter()
    images = target = 0
    while now - begun < seconds:
        target += epoch
        while images < target:
            next(batches)
            images += batch_size
        now = time.perf_counter()
    return {"images": images, "seconds": now - begun}


def children() -> list[int]:
    """Return the processes that this one has started and that are still there."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if parent == os.getpid():
            found.append(int(status.parent.name))
    return found


def peak_mb() -> tuple[float, float]:
    """Return the most memory that this process and its largest child held, MB."""
    return _peak("self"), max((_peak(str(child)) for child in children()), default=0.0)


def _peak(process: str) -> float:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0  # it has ended, and waits for its parent


def crop_and_flip(
    film: np.ndarray, rng: np.random.Generator, *, crop: int, out: np.ndarray | None = None
) -> np.ndarray:
    """Return a part of a film at a random place, mirrored at random.

    Args:
        film: uint8 [H, W].
        rng: draws the place.
        crop: height and width of the part, px.
        out: uint8 [crop, crop] to write it to, instead of memory of its own.
    """
    top, left = rng.integers(0, film.shape[0] - crop + 1, 2)
    part = film[top : top + crop, left : left + crop]
    part = part[:, ::-1] if rng.random() < 0.5 else part
    if out is None:
        return np.ascontiguousarray(part)
    out[...] = part
    return out


def load_image(path: str, *, size: int) -> np.ndarray:
    """Return an image file as grey bytes, uint8 [size, size], by Pillow."""
    from PIL import Image

    with Image.open(path) as image:
        grey = image.convert("L")
        if grey.size != (size, size):
            # Reads a large image at a fraction of its size first, as Pillow advises for speed.
            grey = grey.resize((size, size), Image.Resampling.BOX, reducing_gap=2.0)
        return np.asarray(grey)


def read_job(cases: Sequence[str]) -> tuple[str, Job, float]:
    """Return what the command line asks for: the case, the job, and seconds to measure."""
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("case", choices=list(cases))
    add("--folder", type=Path, required=True)
    add("--batch-size", type=int, default=32)
    add("--size", type=int, default=256)
    add("--crop", type=int, default=224)
    add("--workers", type=int, default=len(os.sched_getaffinity(0)))
    add("--seconds", type=float, default=2.5)
    options = vars(parser.parse_args())
    case, seconds = options.pop("case"), options.pop("seconds")
    return case, Job(**options), seconds


def run_loader(cases: Mapping[str, Make]) -> None:
    """Measure one case and print the result: the whole of a loader's program.

    Args:
        cases: by name, what makes endless batches.
    """
    case, job, seconds = read_job(list(cases))
    epoch = len((job.folder / NAMES).read_text().split())
    batches = cases[case](job)
    found = measure_epochs(batches, batch_size=job.batch_size, epoch=epoch, seconds=seconds)
    own, worker = peak_mb()
    print(json.dumps({**found, "peak_mb": own, "worker_peak_mb": worker}), flush=True)
    # Workers that wait to hand over a batch would hold up the end.
    for child in children():
        os.kill(child, signal.SIGKILL)
    os._exit(0)
