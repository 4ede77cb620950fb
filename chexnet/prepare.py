"""From an NIH folder to prepared data: record files and their description.

Knows the order of the work, how films are dealt into record files, and what
`dataset.json` says. Leaves the source's layout to `nih`, the sides to `splits`,
pixels to `pixels` and the form of a record to `records`.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import tensorflow as tf

from chexnet import nih, records
from chexnet.errors import UserError, name_some, unknown_name
from chexnet.folders import new_folder
from chexnet.labels import FINDINGS, encode_findings
from chexnet.parallel import map_in_order
from chexnet.pixels import convert_film
from chexnet.splits import SPLIT_KINDS, split_films

SMALLEST_PX, LARGEST_PX = 8, 4096
FILMS_IN_A_SHARD = 256  # the article's records: 77,871 films in 304 files
SHARD_MULTIPLE = 64

# One film of one side: its row, and where its image lies.
Source = tuple[nih.Film, Path]


def prepare_data(
    source: Path,
    *,
    output: Path,
    split: str = "official",
    size_px: int = 256,
    format: str = "encoded",
    workers: int | None = None,
    seed: int = 0,
    force: bool = False,
) -> records.Dataset:
    """Make prepared data of an NIH folder.

    The same source and options give the same bytes, whatever the number of
    workers. The output appears when it is complete.

    Args:
        source: a folder in NIH's layout.
        output: a new or empty folder.
        split: ``official`` or ``patient``.
        size_px: height and width of the stored films.
        format: ``encoded``, a grey PNG a film.
        workers: number of processes; None for one a core.
        seed: of the division by patient and of the films' order in training files.
        force: replace an output of this program that exists.

    Returns:
        The description of what was written.

    Raises:
        UserError: wrong options, a source that is not as NIH ships it, or images
            that cannot be read; nothing is written then.
    """
    _check_options(split=split, format=format, size_px=size_px)
    source, output = Path(source), Path(output)
    table = nih.find_table(source)
    placed = _place_films(source, table=table, split=split, seed=seed)
    with new_folder(output, marker=records.DESCRIPTION, force=force) as folder:
        splits = _write_splits(folder, placed=placed, size_px=size_px, workers=workers)
        description = {
            "schema_version": records.SCHEMA_VERSION,
            "classes": list(FINDINGS),
            "split": split,
            "seed": seed,
            "image_size": size_px,
            "format": format,
            "source": _hash_source(source, table=table, split=split),
            "splits": splits,
        }
        (folder / records.DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n")
    return records.load_dataset(output)


def _check_options(*, split: str, format: str, size_px: int) -> None:
    if format not in records.FORMATS:
        raise unknown_name("format of prepared data", format, known=records.FORMATS)
    if split not in SPLIT_KINDS:
        raise unknown_name("split", split, known=SPLIT_KINDS)
    if not SMALLEST_PX <= size_px <= LARGEST_PX:
        raise UserError(
            f"an image size of {SMALLEST_PX} to {LARGEST_PX} px",
            found=str(size_px),
            fix="the article uses --size 256; the demo 64",
        )


def _place_films(source: Path, *, table: Path, split: str, seed: int) -> dict[str, list[Source]]:
    """Return the films of each side with their images, in the order of the records."""
    films = nih.load_table(table)
    images = nih.find_images(source)
    nih.check_images_present(films, images=images, table=table)
    sides = split_films(films, source=source, kind=split, seed=seed)
    if not sides["train"]:
        raise UserError(
            f"films to train on in {source}",
            found=f"{len(films)} films in the table, none of them on the training side",
            fix="give more films, or check the lists",
        )
    left_out = len(films) - sum(map(len, sides.values()))
    if left_out:
        print(f"{left_out} films are in no list: left out", file=sys.stderr, flush=True)
    # Neighbours in the table are films of one patient: mixed, each record file
    # holds a sample of all.
    random.Random(seed).shuffle(sides["train"])
    return {side: [(film, images[film.name]) for film in sides[side]] for side in sides}


def _hash_source(source: Path, *, table: Path, split: str) -> dict[str, str]:
    lists = [source / nih.TRAIN_VAL_LIST, source / nih.TEST_LIST] if split == "official" else []
    return {path.name: records.hash_file(path) for path in (table, *lists)}


def count_shards(num_films: int) -> int:
    """Return the number of record files for the films of one side.

    A multiple of 64 (or one film a file, where there are fewer than 64), so that
    2, 4, 8, 16, 32 or 64 ranks get equally many files; about 256 films a file.

    Args:
        num_films: films on that side, 0 or more.
    """
    multiples = max(1, math.ceil(num_films / (FILMS_IN_A_SHARD * SHARD_MULTIPLE)))
    return min(num_films, SHARD_MULTIPLE * multiples)


def _deal(films: Sequence[Source], num_shards: int) -> Iterator[Sequence[Source]]:
    """Yield the films of each record file: neighbours, and counts that differ by at most 1."""
    for index in range(num_shards):
        first = index * len(films) // num_shards
        yield films[first : (index + 1) * len(films) // num_shards]


def _write_splits(
    folder: Path, *, placed: dict[str, list[Source]], size_px: int, workers: int | None
) -> dict[str, dict[str, object]]:
    tasks = [(path, size_px) for films in placed.values() for _, path in films]
    converted = map_in_order(
        convert_film, items=tasks, workers=workers, chunk=8, label="films prepared"
    )
    bad: list[str] = []
    splits = {}
    for side, films in placed.items():
        num_shards = count_shards(len(films))
        shards = []
        for index, dealt in enumerate(_deal(films, num_shards)):
            path = folder / f"{side}-{index:05d}-of-{num_shards:05d}.tfrecord"
            bad.extend(_write_shard(path, films=dealt, converted=converted))
            shards.append(_describe_shard(path, num_examples=len(dealt)))
        splits[side] = {
            "num_examples": len(films),
            "positives": {name: sum(name in f.findings for f, _ in films) for name in FINDINGS},
            "shards": shards,
        }
    next(converted, None)  # let the progress line end
    if bad:
        raise UserError(
            "images that can be read",
            found=f"{len(bad)} that cannot: {name_some(bad)}",
            fix="fetch those files again, or remove their lines from the table and the lists",
        )
    return splits


def _write_shard(
    path: Path, *, films: Sequence[Source], converted: Iterator[tuple[bytes, str]]
) -> list[str]:
    """Write one record file; return what is wrong with images that could not be read."""
    bad = []
    with tf.io.TFRecordWriter(str(path)) as writer:
        for film, image_path in films:
            image_bytes, reason = next(converted)
            if reason:
                bad.append(f"{image_path} ({reason})")
                continue
            label = encode_findings(film.findings)
            writer.write(records.encode_example(image_bytes, label=label, filename=film.name))
    return bad


def _describe_shard(path: Path, *, num_examples: int) -> dict[str, object]:
    shard = records.Shard(
        name=path.name,
        num_examples=num_examples,
        sha256=records.hash_file(path),
        num_bytes=path.stat().st_size,
    )
    return asdict(shard)
