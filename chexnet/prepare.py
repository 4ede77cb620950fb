"""From an NIH folder to prepared data: record files and their description.

Knows the order of the work and what `dataset.json` says. Leaves the source's layout to
`nih`, the sides to `splits` and writing record files to `shards`.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from chexnet import nih, records
from chexnet.data.shards import (
    JOURNAL,
    Plan,
    Source,
    Written,
    allowed_bad,
    describe_split,
    outcome,
    plan_shards,
    write_description,
    write_shards,
)
from chexnet.data.splits import LISTED_SIDES, SPLIT_KINDS, split_films
from chexnet.errors import EXIT_FAILED, UserError, name_some, unknown_name
from chexnet.folders import new_folder
from chexnet.labels import FINDINGS
from chexnet.quiet import quiet_import

SMALLEST_PX, LARGEST_PX = 8, 4096
# Of a film beside its pixels: its line of the table, its label, its share of dataset.json.
BYTES_BESIDE = 400


def prepare_data(
    source: Path,
    *,
    output: Path,
    split: str = "official",
    size_px: int = 256,
    format: str = "fast",
    workers: int | None = None,
    seed: int = 0,
    lists: Path | None = None,
    max_bad: int | None = None,
    force: bool = False,
) -> records.Dataset:
    """Make prepared data of an NIH folder.

    The same source and options give the same bytes, whatever the number of workers and of
    interruptions. The output appears when it is complete; what an interrupted run had done
    is used by the next one with the same source and options. Prints what became of it.

    Args:
        source: a folder in NIH's layout.
        output: a new or empty folder.
        split: ``official``, ``patient`` or ``lists``.
        size_px: height and width of the stored films.
        format: ``fast``, the grey bytes of a film, or ``encoded``, a grey PNG a film.
        workers: number of processes; None for one a core.
        seed: of the division by patient and of the films' order in training files.
        lists: the folder of the user's lists, for the split ``lists``.
        max_bad: how many films may be left out because their image cannot be read; they
            are named in the description. None for one in a hundred.
        force: replace an output of this program that exists.

    Returns:
        The description of what was written.

    Raises:
        UserError: wrong options, a source that is not as NIH ships it, too little space, or
            too many images that cannot be read; no output is there then.
    """
    begun = time.monotonic()
    _check_options(split=split, format=format, size_px=size_px, max_bad=max_bad, lists=lists)
    table = nih.find_table(source)
    placed = _place_films(source, table=table, split=split, seed=seed, lists=lists)
    head = {
        "schema_version": records.SCHEMA_VERSION, "classes": list(FINDINGS), "split": split,
        "seed": seed, "image_size": size_px, "format": format,
        "source": _hash_source(source, table=table, split=split, lists=lists),
    }  # fmt: skip
    total = sum(map(len, placed.values()))
    work = json.dumps({**head, "folder": str(source.resolve())}, sort_keys=True)
    with new_folder(output, marker=records.DESCRIPTION, force=force, work=work) as folder:
        _make_ready(folder, num_bytes=total * (size_px**2 + BYTES_BESIDE), format=format)
        sides = {
            side: plan_shards(side, films=films, format=format) for side, films in placed.items()
        }
        written = write_shards(
            folder, plans=[plan for plans in sides.values() for plan in plans], size_px=size_px,
            format=format, workers=workers,
            max_bad=allowed_bad(total) if max_bad is None else max_bad,
        )  # fmt: skip
        write_description(folder, head | _describe(folder, sides=sides, written=written))
        (folder / JOURNAL).unlink()  # not before: what it says cost the time
    dataset = records.load_dataset(output)
    print(_summarise(dataset, written=written, seconds=time.monotonic() - begun), flush=True)
    return dataset


def _summarise(dataset: records.Dataset, *, written: Mapping[str, Written], seconds: float) -> str:
    """Return what became of the films, as lines to read."""
    splits = dataset.splits
    films = sum(split.num_examples for split in splits.values())
    kept = sum(one.shard.num_examples for one in written.values() if one.kept)
    size = sum(file.num_bytes for split in splits.values() for file in split.files)
    counts = ", ".join(f"{split.num_examples:,} {side}" for side, split in splits.items())
    modes = sum((Counter(one.modes) for one in written.values()), Counter())
    turned = ", ".join(f"{n:,} {mode}" for mode, n in sorted(modes.items()) if mode != "L")
    enlarged = sum(one.enlarged for one in written.values())
    return (
        f"{dataset.root}: {counts} films of {dataset.image_size} px, {dataset.format}, "
        f"{size / 1e6:,.1f} MB\n"
        f"left out: {len(dataset.quarantined):,}; turned to 8 bit grey: {turned or 'none'}; "
        f"enlarged: {enlarged:,}\n"
        f"{films - kept:,} films in {seconds:.1f} s: {(films - kept) / seconds:,.0f}/s; "
        f"kept of an interrupted run: {kept:,}"
    )


def _describe(
    folder: Path, *, sides: Mapping[str, Sequence[Plan]], written: Mapping[str, Written]
) -> dict[str, object]:
    """Return what became of the films; write the tables of those that are there."""
    return {
        "quarantined": _list_quarantined(sides, written=written),
        "splits": {
            side: describe_split(folder, side, films=films, shards=shards)
            for side, (films, shards) in outcome(sides, written=written).items()
        },
    }


def _check_options(
    *, split: str, format: str, size_px: int, max_bad: int | None, lists: Path | None
) -> None:
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
    if max_bad is not None and max_bad < 0:
        raise UserError("--max-bad of 0 or more", found=str(max_bad), fix="0 leaves no film out")
    if lists and split != "lists":
        raise UserError(
            "--lists with --split lists alone",
            found=f"--lists {lists} with --split {split}",
            fix="add --split lists, or leave --lists out",
        )


def _make_ready(folder: Path, *, num_bytes: int, format: str) -> None:
    """Look for room, and import what writes records: later it would greet amid the progress."""
    _check_space(folder, num_bytes=num_bytes)
    if format == "encoded":
        with quiet_import():
            import tensorflow  # noqa: F401


def _place_films(
    source: Path, *, table: Path, split: str, seed: int, lists: Path | None
) -> dict[str, list[Source]]:
    """Return the films of each side with their images, in the order of the records."""
    films = nih.load_table(table)
    images = nih.find_images(source)
    nih.check_images_present(films, images=images, table=table)
    sides = split_films(films, source=source, kind=split, seed=seed, lists=lists)
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


def _hash_source(source: Path, *, table: Path, split: str, lists: Path | None) -> dict[str, str]:
    read = {
        "official": [source / nih.TRAIN_VAL_LIST, source / nih.TEST_LIST],
        "lists": [(lists or source) / f"{side}.txt" for side in LISTED_SIDES],
    }
    return {path.name: records.hash_file(path) for path in (table, *read.get(split, []))}


def _check_space(folder: Path, *, num_bytes: int) -> None:
    """Raise if the disk cannot hold the films; a PNG is smaller than its pixels."""
    there = sum(path.stat().st_size for path in folder.iterdir())
    free = shutil.disk_usage(folder).free
    if free < num_bytes - there:
        raise UserError(
            f"{(num_bytes - there) / 2**30:.1f} GiB free for {folder.parent}",
            found=f"{free / 2**30:.1f} GiB",
            fix="choose another --output, a smaller --size, or make room",
            exit_code=EXIT_FAILED,
        )


def _list_quarantined(
    sides: Mapping[str, Sequence[Plan]], *, written: Mapping[str, Written]
) -> list[dict[str, str]]:
    """Return the films that are left out; say how many."""
    bad = [
        {"film": name, "split": side, "reason": reason}
        for side, plans in sides.items()
        for plan in plans
        for name, reason in written[plan.name].bad
    ]
    if bad:
        named = name_some([f"{one['film']} ({one['reason']})" for one in bad])
        print(f"{len(bad)} films left out, named in {records.DESCRIPTION}: {named}",
              file=sys.stderr, flush=True)  # fmt: skip
    return bad
