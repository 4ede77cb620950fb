"""The record files of a data set, written so that the work can be interrupted.

Knows how films are dealt into files, how a file is written whole or not at all, and the
journal of what is done. Leaves pixels to `pixels`, the form of a record to `records`, and
what the files add up to to `prepare`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from chexnet import nih, records
from chexnet.data.films import render_films
from chexnet.data.pixels import Converted, convert_film
from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.files import append_line
from chexnet.labels import FINDINGS, encode_findings
from chexnet.parallel import map_in_order

FILMS_IN_A_SHARD = 256  # the article's records: 77,871 films in 304 files
SHARD_MULTIPLE = 64
BAD_SHARE = 0.01  # of all films, may be left out unless told otherwise
JOURNAL = "journal.jsonl"

# One film of one side: its row, and where its image lies.
Source = tuple[nih.Film, Path]


@dataclass(frozen=True)
class Plan:
    """One record file to be: its name, and the films that shall lie in it."""

    name: str
    films: Sequence[Source]


@dataclass(frozen=True)
class Written:
    """One record file that is there, and the films whose images could not be read.

    Attributes:
        shard: None where not one film of it could be read; then there is no file.
        bad: name and reason of each film that is left out.
        modes: films in it by Pillow's mode of their files (see `pixels.Converted`).
        kept: whether an interrupted run had done it.
        enlarged: films in it whose files have fewer pixels a side than are stored.
    """

    shard: records.Shard | None
    bad: tuple[tuple[str, str], ...]
    modes: Mapping[str, int] = field(default_factory=dict)
    kept: bool = False
    enlarged: int = 0


def allowed_bad(num_films: int) -> int:
    """Return how many films with an image that cannot be read are left out without a word."""
    return int(BAD_SHARE * num_films)


class _Writer(Protocol):
    def write(self, data: bytes) -> object: ...


def count_shards(num_films: int) -> int:
    """Return the number of record files for the films of one side.

    A multiple of 64 (or one film a file, where there are fewer than 64), so that
    2, 4, 8, 16, 32 or 64 ranks get equally many files; about 256 films a file.

    Args:
        num_films: films on that side, 0 or more.
    """
    multiples = max(1, math.ceil(num_films / (FILMS_IN_A_SHARD * SHARD_MULTIPLE)))
    return min(num_films, SHARD_MULTIPLE * multiples)


def plan_shards(side: str, *, films: Sequence[Source], format: str) -> list[Plan]:
    """Return the record files of one side: neighbours, in counts that differ by at most 1."""
    number = count_shards(len(films))
    bounds = [index * len(films) // number for index in range(number + 1)] if number else [0]
    return [
        Plan(f"{side}-{index:05d}-of-{number:05d}{records.SUFFIXES[format]}", films[first:last])
        for index, (first, last) in enumerate(pairwise(bounds))
    ]


def write_shards(
    folder: Path,
    *,
    plans: Sequence[Plan],
    size_px: int,
    format: str,
    workers: int | None,
    max_bad: int,
) -> dict[str, Written]:
    """Write the record files that are not there yet.

    Args:
        folder: takes the files and the journal.
        plans: all files of the data set.
        size_px: height and width of the stored films.
        format: a key of `records.SUFFIXES`.
        workers: number of processes; None for one a core.
        max_bad: how many films may be left out because their image cannot be read.

    Returns:
        What became of each plan, by its name.

    Raises:
        UserError: more films than that cannot be read; what is done stays for the next run.
    """
    written = _read_journal(folder)
    todo = [plan for plan in plans if plan.name not in written]
    made = _make_shards(folder, plans=todo, size_px=size_px, format=format, workers=workers)
    bad: list[str] = []
    with closing(made):
        for plan, one in zip(todo, made, strict=True):
            if one.shard:
                _put_in_place(folder / plan.name)
            written[plan.name] = one
            append_line(folder / JOURNAL, line=json.dumps({"plan": plan.name, **asdict(one)}))
            paths = {film.name: path for film, path in plan.films}
            bad += [f"{paths[name]} ({reason})" for name, reason in one.bad]
            if len(bad) > max_bad:
                raise _too_many(bad, max_bad=max_bad)
    return written


def _make_shards(
    folder: Path, *, plans: Sequence[Plan], size_px: int, format: str, workers: int | None
) -> Iterator[Written]:
    """Write record files beside their places, in order, by several processes."""
    label = "films prepared"
    if format == "fast":
        make = partial(_make_fast_shard, folder, size_px=size_px)
        yield from map_in_order(
            make, items=plans, workers=workers, chunk=1, label=label,
            weigh=lambda plan: len(plan.films),
        )  # fmt: skip
        return
    # Only TensorFlow writes TFRecords. It is large: this process alone loads it.
    tasks = [(path, size_px, format) for plan in plans for _, path in plan.films]
    with closing(
        map_in_order(convert_film, items=tasks, workers=workers, chunk=8, label=label)
    ) as converted:
        for plan in plans:
            yield _write_shard(folder, plan, converted=converted, format=format)
        next(converted, None)  # let the progress line end


def _make_fast_shard(folder: Path, plan: Plan, *, size_px: int) -> Written:
    converted = (convert_film((path, size_px, "fast")) for _, path in plan.films)
    return _write_shard(folder, plan, converted=converted, format="fast")


def _too_many(bad: Sequence[str], *, max_bad: int) -> UserError:
    return UserError(
        f"at most {max_bad} images that cannot be read",
        found=f"{len(bad)} so far: {name_some(bad)}",
        fix="fetch those files again, or leave more out with --max-bad; then run this again: "
        "it goes on where it stopped",
        exit_code=EXIT_FAILED,
    )


def _write_shard(
    folder: Path, plan: Plan, *, converted: Iterator[Converted], format: str
) -> Written:
    """Write one record file beside its place."""
    beside = _beside(folder / plan.name)
    bad, modes, enlarged = [], Counter(), 0
    with _WRITERS[format](beside) as writer:
        for film, _ in plan.films:
            one = next(converted)
            if one.bad:
                bad.append((film.name, one.bad))
            else:
                modes[one.mode] += 1
                enlarged += one.enlarged
                writer.write(_RECORDS[format](one.data, film))
    number = len(plan.films) - len(bad)
    if not number:
        beside.unlink()
        return Written(None, tuple(bad))
    shard = records.Shard(
        name=plan.name,
        num_examples=number,
        sha256=records.hash_file(beside),
        num_bytes=beside.stat().st_size,
    )
    return Written(shard, tuple(bad), dict(modes), enlarged=enlarged)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _put_in_place(path: Path) -> None:
    """Move a record file to its place once the disk has it: the journal will say that it is."""
    beside = _beside(path)
    with beside.open("rb") as stream:
        os.fsync(stream.fileno())
    beside.replace(path)


@contextmanager
def _open_records(path: Path) -> Iterator[_Writer]:
    """Open a TFRecord file; a disk that takes no more is the error that other files have."""
    import tensorflow as tf

    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            yield writer
    # By TensorFlow's table of the system's errors: no space, or over a quota; too large a file.
    except (tf.errors.ResourceExhaustedError, tf.errors.OutOfRangeError) as error:
        text = error.message.rpartition("; ")[2]  # after the path
        raise OSError(errno.ENOSPC, text, str(path)) from error


def _encode_record(data: bytes, film: nih.Film) -> bytes:
    label = encode_findings(film.findings)
    return records.encode_example(data, label=label, filename=film.name)


_WRITERS = {"encoded": _open_records, "fast": lambda path: path.open("wb")}
_RECORDS = {"encoded": _encode_record, "fast": lambda data, film: data}


def _read_journal(folder: Path) -> dict[str, Written]:
    """Return the files that an interrupted run finished, of those that are still as written.

    A file with films left out is not among them: its images may have been mended since.
    """
    try:
        lines = (folder / JOURNAL).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    done = {}
    for line in lines:
        try:
            entry = json.loads(line)
            plan, modes, enlarged = entry["plan"], entry["modes"], entry["enlarged"]
            shard = records.Shard(**entry["shard"])
        except (ValueError, KeyError, TypeError):
            continue  # the line that a kill cut off
        path = folder / shard.name
        if not entry["bad"] and path.is_file() and records.hash_file(path) == shard.sha256:
            done[plan] = Written(shard, (), modes, kept=True, enlarged=enlarged)
    return done


def outcome(
    sides: Mapping[str, Sequence[Plan]], *, written: Mapping[str, Written]
) -> dict[str, tuple[list[nih.Film], list[records.Shard]]]:
    """Return the films and record files that each side has in the end."""
    described = {}
    for side, plans in sides.items():
        left_out = {name for plan in plans for name, _ in written[plan.name].bad}
        films = [f for plan in plans for f, _ in plan.films if f.name not in left_out]
        shards = [written[plan.name].shard for plan in plans]
        described[side] = (films, [shard for shard in shards if shard is not None])
    return described


def describe_split(
    folder: Path, side: str, *, films: Sequence[nih.Film], shards: Sequence[records.Shard]
) -> dict[str, object]:
    """Write the table of films of one side; return what the description says of that side.

    Args:
        folder: of the data set.
        side: ``train``, ``validation`` or ``test``.
        films: in the order of the record files.
        shards: the record files.
    """
    text = render_films(films).encode()
    table = records.Table(
        f"{side}-films.csv", sha256=hashlib.sha256(text).hexdigest(), num_bytes=len(text)
    )
    (folder / table.name).write_bytes(text)
    return {
        "num_examples": len(films),
        "positives": {name: sum(name in film.findings for film in films) for name in FINDINGS},
        "films": asdict(table),
        "shards": [asdict(shard) for shard in shards],
    }


def write_description(folder: Path, description: Mapping[str, object]) -> None:
    """Write ``dataset.json``, which makes a folder a data set; the last thing to be done."""
    partial = folder / f".{records.DESCRIPTION}.partial"
    partial.write_text(json.dumps(description, indent=1) + "\n")
    partial.replace(folder / records.DESCRIPTION)
