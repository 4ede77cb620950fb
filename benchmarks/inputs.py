"""The same films in every form that the loaders read, made once below one folder.

Knows the folder's layout:

- ``source``: made-up films in NIH's layout, where the user has none;
- ``png``: links to the source's images; ``png-records``: the same bytes in TFRecords;
- ``jpeg``, ``jpeg-records``: 256 px JPEG files, and the same in TFRecords;
- ``fast``: the project's own format; ``array.npy``, ``npy``: the same bytes as one numpy
  array, and as a file each;
- ``labels.npy``, ``names.txt``: of every film; ``inputs.json``: seconds and bytes of each.

Everything holds the films of the training side alone, in the order of the fast data.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.peers.common import ARRAY, JPEG, LABELS, NAMES, NPY, PNG

SOURCE, FAST = "source", "fast"
PNG_RECORDS, JPEG_RECORDS = "png-records", "jpeg-records"
DESCRIPTION = "inputs.json"
SHIPPED_PX = 1024
JPEG_QUALITY = 90


def ensure_inputs(folder: Path, *, source: Path | None, images: int, size: int) -> dict:
    """Make what is not there yet, and return the description.

    Args:
        folder: takes it all.
        source: a folder in NIH's layout, or none for made-up films.
        images: how many films to make up.
        size: height and width of the smaller films, px.

    Returns:
        ``images``: their number; ``shipped_px``: height and width in the source; ``made_up``;
        ``seconds`` and ``bytes`` of each form.
    """
    from chexnet.synthetic import make_sample_data

    described = folder / DESCRIPTION
    if described.is_file():
        return json.loads(described.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    films = source or folder / SOURCE
    if source is None and not films.exists():
        make_sample_data(films, num_images=images, size_px=SHIPPED_PX)
    seconds = _make_forms(folder, source=films, size=size)
    forms = (PNG, PNG_RECORDS, JPEG, JPEG_RECORDS, FAST, ARRAY, NPY)
    found = {
        "images": len((folder / NAMES).read_text().split()),
        "shipped_px": _find_size(folder / PNG),
        "made_up": source is None,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "bytes": {form: _count_bytes(folder / form) for form in forms},
    }
    described.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _find_size(folder: Path) -> int:
    from PIL import Image

    from chexnet.errors import UserError

    found = {Image.open(path).size for path in folder.iterdir()}
    if len(found) != 1 or len(set(*found)) != 1:
        raise UserError(
            "square films of one size in the source, as NIH ships them",
            found=", ".join(f"{width} x {height} px" for width, height in sorted(found)),
            fix="leave the others out of the table and the lists",
        )
    return next(iter(found))[0]


def _make_forms(folder: Path, *, source: Path, size: int) -> dict[str, float]:
    """Write every form, and return the seconds each took."""
    from chexnet.prepare import prepare_data

    steps: dict[str, Callable[[], object]] = {
        FAST: lambda: prepare_data(source, output=folder / FAST, size_px=size, force=True),
        ARRAY: lambda: _write_arrays(folder),
        PNG: lambda: _link_png(folder, source=source),
        JPEG: lambda: _write_jpeg(folder),
        PNG_RECORDS: lambda: _write_records(folder / PNG_RECORDS, files=folder / PNG),
        JPEG_RECORDS: lambda: _write_records(folder / JPEG_RECORDS, files=folder / JPEG),
    }
    seconds = {}
    for name, make in steps.items():
        begun = time.perf_counter()
        make()
        seconds[name] = time.perf_counter() - begun
    # The JPEG files are made of films that are decoded and resized already.
    seconds[JPEG] += seconds[FAST]
    return seconds


def _write_arrays(folder: Path) -> None:
    from chexnet.data.films import load_films
    from chexnet.records import load_dataset

    dataset = load_dataset(folder / FAST)
    split = dataset.splits["train"]
    table = load_films(dataset.root / split.films.name, num_films=split.num_examples)
    pixels = b"".join(Path(path).read_bytes() for path in dataset.shard_paths("train"))
    side = dataset.image_size
    films = np.frombuffer(pixels, np.uint8).reshape(-1, side, side)
    names = [Path(name).stem for name in table.names]
    np.save(folder / ARRAY, films)
    np.save(folder / LABELS, table.labels)
    (folder / NAMES).write_text("\n".join(names) + "\n")
    (folder / NPY).mkdir(exist_ok=True)
    for name, film in zip(names, films, strict=True):
        np.save(folder / NPY / f"{name}.npy", film)


def _write_jpeg(folder: Path) -> None:
    from PIL import Image

    (folder / JPEG).mkdir(exist_ok=True)
    names = (folder / NAMES).read_text().split()
    for name, film in zip(names, np.load(folder / ARRAY, mmap_mode="r"), strict=True):
        Image.fromarray(film).save(folder / JPEG / f"{name}.jpg", quality=JPEG_QUALITY)


def _link_png(folder: Path, *, source: Path) -> None:
    from chexnet.nih import find_images

    (folder / PNG).mkdir(exist_ok=True)
    paths = find_images(source)
    for name in (folder / NAMES).read_text().split():
        link = folder / PNG / f"{name}.png"
        link.unlink(missing_ok=True)
        link.symlink_to(paths[link.name].resolve())


def _write_records(output: Path, *, files: Path) -> None:
    """Write image files as TFRecords, as many a file as the fast data has."""
    import tensorflow as tf

    from chexnet.records import encode_example, load_dataset

    folder = output.parent
    output.mkdir(exist_ok=True)
    suffix = {PNG: ".png", JPEG: ".jpg"}[files.name]
    names = iter((folder / NAMES).read_text().split())
    labels = iter(np.load(folder / LABELS).astype(int).tolist())
    for shard in load_dataset(folder / FAST).splits["train"].shards:
        path = output / shard.name.replace(".u8", ".tfrecord")
        with tf.io.TFRecordWriter(str(path)) as writer:
            for _ in range(shard.num_examples):
                name = next(names)
                content = (files / f"{name}{suffix}").read_bytes()
                writer.write(encode_example(content, label=next(labels), filename=f"{name}.png"))


def _count_bytes(path: Path) -> int:
    """Return the bytes of a file, or of the training side's files in a folder."""
    if path.is_file():
        return path.stat().st_size
    files = [one for one in path.iterdir() if not one.name.startswith(("validation", "test"))]
    return sum(one.stat().st_size for one in files)
