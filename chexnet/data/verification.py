"""Whether prepared data is what was written: bytes, counts, labels, and pixels of a sample.

Knows what can be wrong with a folder and says all of it, not the first thing alone. Leaves
the description to `records` and the films' table to `films`.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from chexnet import nih, records
from chexnet.data.films import FilmTable, load_films
from chexnet.data.pixels import BadImageError, load_grey, resize_square
from chexnet.data.stored import read_films, read_records
from chexnet.errors import EXIT_FAILED, UserError, name_some


def verify_data(folder: Path, *, source: Path | None = None, sample: int = 100) -> list[str]:
    """Return all that is wrong with prepared data, as lines to read; none where it is whole.

    Args:
        folder: the prepared data.
        source: NIH's folder: a sample of films is made from it again and compared.
        sample: how many films of each side to compare.

    Raises:
        UserError: the description is missing or bad, or a listed file is, in which case
            nothing else can be said; the source has no images; or a negative sample.
    """
    if sample < 0:
        raise UserError("--sample of 0 or more", found=str(sample), fix="0 compares no film")
    dataset = records.load_dataset(folder)
    damaged = set(records.find_damaged_shards(dataset))
    wrong = [f"{path}: other bytes than were written" for path in sorted(damaged)]
    wrong += _unlisted(dataset)
    images = nih.find_images(source) if source else {}
    for name, split in dataset.splits.items():
        paths = {str(dataset.root / file.name) for file in split.files}
        if paths & damaged or not split.num_examples:
            continue
        table = load_films(dataset.root / split.films.name, num_films=split.num_examples)
        try:
            wrong += _wrong_labels(dataset, name, table)
            if source:
                wrong += _wrong_pixels(dataset, name, table, images=images, sample=sample)
        except UserError as error:  # a record that is no film: no later one can be read
            wrong.append(f"{name}: {error.found}")
    return wrong


def _unlisted(dataset: records.Dataset) -> list[str]:
    listed = {file.name for split in dataset.splits.values() for file in split.files}
    there = {path.name for path in dataset.root.iterdir()} - {records.DESCRIPTION}
    extra = sorted(there - listed)
    return [f"{dataset.root}: files of other data: {name_some(extra)}"] if extra else []


def _wrong_labels(dataset: records.Dataset, side: str, table: FilmTable) -> list[str]:
    """Return where the labels differ: table, description and, for records, the films'."""
    split, wrong = dataset.splits[side], []
    counts = dict(zip(dataset.findings, table.labels.sum(axis=0).astype(int).tolist(), strict=True))
    for finding, number in counts.items():
        if split.positives.get(finding) != number:
            wrong.append(
                f"{side}: {number} films with {finding} in {split.films.name}, "
                f"{split.positives.get(finding)} in {records.DESCRIPTION}"
            )
    if dataset.format == "encoded":
        rows = zip(read_records(dataset, split=side), table.names, table.labels, strict=True)
        for number, ((_, label, name), known, known_label) in enumerate(rows):
            if name != known or not np.array_equal(label, known_label):
                wrong.append(f"{side}: record {number} is not {known} as {split.films.name} says")
                break
    return wrong


def _wrong_pixels(
    dataset: records.Dataset, side: str, table: FilmTable, *, images: dict[str, Path], sample: int
) -> list[str]:
    """Return the films of a sample that the source does not give again, pixel by pixel."""
    chosen = sorted(
        random.Random(0).sample(range(len(table.names)), k=min(sample, len(table.names)))
    )
    wrong = []
    for number, stored in read_films(dataset, split=side, numbers=chosen):
        name = table.names[number]
        try:
            if name not in images:
                raise BadImageError("not in the source")
            again = np.asarray(resize_square(load_grey(images[name]), size_px=dataset.image_size))
            if not np.array_equal(again, stored):
                most = int(np.abs(again.astype(int) - stored).max())
                raise BadImageError(f"other pixels than the source's, by up to {most} of 255")
        except BadImageError as error:
            wrong.append(f"{side}: {name}: {error}")
    return wrong


def require_whole(folder: Path, *, source: Path | None = None, sample: int = 100) -> None:
    """Raise if anything is wrong with prepared data.

    Raises:
        UserError: names all that is wrong (exit code 1), or as `verify_data` does.
    """
    wrong = verify_data(folder, source=source, sample=sample)
    if wrong:
        raise UserError(
            f"prepared data in {folder} as it was written",
            found="\n          ".join(wrong),
            fix="copy the named files again, or prepare the data again with `invoke prepare-data`",
            exit_code=EXIT_FAILED,
        )
