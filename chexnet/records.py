"""Prepared data: its description (`dataset.json`) and its TFRecord files.

Knows what `dataset.json` holds, how one film is written into a record (the keys
of the public Dell data, so that existing records can be read), and how to tell
which record file is damaged. Leaves making the records to `prepare` and the
order of reading to `pipeline`. TensorFlow is imported only where records are
touched, so that describing a data set stays quick.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.labels import FINDINGS

if TYPE_CHECKING:
    import tensorflow as tf

SCHEMA_VERSION = 2
DESCRIPTION = "dataset.json"
SPLITS = ("train", "validation", "test")
# How films are stored, and what their files are called.
SUFFIXES = {"encoded": ".tfrecord", "fast": ".u8"}
FORMATS = tuple(SUFFIXES)
# What a record holds, by the names of the public Dell data.
KEYS = ("image/encoded", "image/label", "image/filename")
PREPARE_AGAIN = "prepare the data again with `invoke prepare-data`"


@dataclass(frozen=True)
class Shard:
    """One record file: its name in the data folder and what it must hold."""

    name: str
    num_examples: int
    sha256: str
    num_bytes: int


@dataclass(frozen=True)
class Table:
    """The file that lists the films of one side, in the order of its record files."""

    name: str
    sha256: str
    num_bytes: int


@dataclass(frozen=True)
class Split:
    """The films of one side of the split and the files they lie in."""

    num_examples: int
    positives: Mapping[str, int]
    films: Table
    shards: tuple[Shard, ...]

    @property
    def files(self) -> tuple[Shard | Table, ...]:
        """Return every file of this side."""
        return (*self.shards, self.films)


@dataclass(frozen=True)
class Quarantined:
    """A film that was left out, the side it belonged to, and what is wrong with its image."""

    film: str
    split: str
    reason: str


@dataclass(frozen=True)
class Dataset:
    """A prepared data folder, as its `dataset.json` describes it.

    Attributes:
        root: the folder.
        findings: the classes in the order of the label vectors.
        split: how the films were divided, ``official`` or ``patient``.
        image_size: height and width of every film, px.
        format: how a film is stored; ``encoded`` is a grey 8 bit PNG in a TFRecord, ``fast``
            its grey bytes, row by row, one film after the other.
        splits: ``train``, ``validation`` and ``test``.
        quarantined: films that were left out, since their image could not be read.
        sha256: hash of the bytes of `dataset.json`, which names every shard's hash.
    """

    root: Path
    findings: tuple[str, ...]
    split: str
    image_size: int
    format: str
    splits: Mapping[str, Split]
    quarantined: tuple[Quarantined, ...]
    sha256: str

    def shard_paths(self, split: str) -> list[str]:
        """Return the paths of the record files of one side, in order."""
        return [str(self.root / shard.name) for shard in self.splits[split].shards]


def load_dataset(folder: Path) -> Dataset:
    """Return the description of a prepared data folder, after a quick check of its files.

    Args:
        folder: what `prepare-data` wrote.

    Raises:
        UserError: the folder, `dataset.json` or a record file is missing, a record
            file has another length than written, or the description has another
            schema or other classes.
    """
    folder = Path(folder)
    description = folder / DESCRIPTION
    if not description.is_file():
        there = f"no {DESCRIPTION} there" if folder.is_dir() else "no such folder"
        raise UserError(
            f"a folder of prepared data at {folder}",
            found=there,
            fix="make one with `invoke prepare-data --source NIH_FOLDER --output DIR`",
        )
    content = description.read_bytes()
    try:
        dataset = _parse_description(folder, content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"a data description of schema {SCHEMA_VERSION} in {description}",
            found=f"{type(error).__name__}: {error}",
            fix=PREPARE_AGAIN,
        ) from error
    _check_shards_present(dataset)
    return dataset


def _parse_description(folder: Path, content: bytes) -> Dataset:
    data = json.loads(content)
    if data["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"schema_version is {data['schema_version']!r}")
    if tuple(data["classes"]) != FINDINGS:
        raise ValueError(f"other classes, or another order: {data['classes']}")
    if data["format"] not in FORMATS:
        raise ValueError(f"format {data['format']!r}, and only {', '.join(FORMATS)} is known")
    dataset = Dataset(
        root=folder,
        findings=tuple(data["classes"]),
        split=data["split"],
        image_size=int(data["image_size"]),
        format=data["format"],
        splits={name: _parse_split(data["splits"][name]) for name in SPLITS},
        quarantined=tuple(Quarantined(**one) for one in data["quarantined"]),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    for split in dataset.splits.values() if dataset.format == "fast" else ():
        for shard in split.shards:
            if shard.num_bytes != shard.num_examples * dataset.image_size**2:
                raise ValueError(f"{shard.name} has not the bytes of {shard.num_examples} films")
    return dataset


def _parse_split(data: Mapping[str, Any]) -> Split:
    shards = tuple(Shard(**shard) for shard in data["shards"])
    films = Table(**data["films"])
    for file in (*shards, films):
        if Path(file.name).name != file.name:
            raise ValueError(f"file {file.name!r} lies outside the data folder")
    if sum(shard.num_examples for shard in shards) != data["num_examples"]:
        raise ValueError("the shards' counts do not add up to num_examples")
    return Split(int(data["num_examples"]), dict(data["positives"]), films, shards)


def _check_shards_present(dataset: Dataset) -> None:
    for split in dataset.splits.values():
        for file in split.files:
            path = dataset.root / file.name
            length = path.stat().st_size if path.is_file() else None
            if length != file.num_bytes:
                found = "no such file" if length is None else f"{length} bytes"
                raise UserError(
                    f"the file {path} of {file.num_bytes} bytes",
                    found=found,
                    fix=f"copy that file again, or {PREPARE_AGAIN}",
                )


def hash_file(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def find_damaged_shards(dataset: Dataset) -> list[str]:
    """Return the paths of the record files whose bytes are not those that were written.

    Reads every record file whole: minutes for a large data set.
    """
    files = [file for split in dataset.splits.values() for file in split.files]
    paths = [(dataset.root / file.name, file.sha256) for file in files]
    return [str(path) for path, sha256 in paths if not path.is_file() or hash_file(path) != sha256]


@contextmanager
def named_damage(dataset: Dataset) -> Iterator[None]:
    """Turn TensorFlow's errors about unreadable records into one that names the file.

    TensorFlow says at which offset a record is bad, and not in which file; so on
    such an error the files are compared with the hashes of `dataset.json`.

    Args:
        dataset: what is read inside the ``with`` block.

    Raises:
        UserError: reading failed and a record file is damaged (exit code 1).
    """
    import tensorflow as tf

    unreadable = (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)
    try:
        yield
    except unreadable as error:
        damaged = find_damaged_shards(dataset)
        # An invalid argument may come from the caller's own step: let it through
        # unless a file is at fault.
        if not damaged and not isinstance(error, tf.errors.DataLossError):
            raise
        raise UserError(
            f"the record files that {dataset.root / DESCRIPTION} lists, unchanged",
            found=f"damaged: {name_some(damaged)}" if damaged else str(error).splitlines()[0],
            fix=f"copy the named files again, or {PREPARE_AGAIN}",
            exit_code=EXIT_FAILED,
        ) from error


def encode_example(image_bytes: bytes, *, label: list[int], filename: str) -> bytes:
    """Return one film as the bytes of a `tf.train.Example`.

    Args:
        image_bytes: the film as a PNG or JPEG file.
        label: 14 integers, 0 or 1.
        filename: the film's name in the NIH table.
    """
    import tensorflow as tf

    # Map fields of a message have no order of their own; asking for it keeps
    # the bytes of a record the same on every run.
    feature = {
        "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image_bytes])),
        "image/filename": tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[filename.encode()])
        ),
        "image/label": tf.train.Feature(int64_list=tf.train.Int64List(value=label)),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString(deterministic=True)


def parse_example(record: tf.Tensor, *, image_size: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the image, label and file name of one record, as graph operations.

    Args:
        record: string [], one serialised example.
        image_size: height and width that the image must have, px.

    Returns:
        image: uint8 [image_size, image_size, 1], 0..255.
        label: float32 [14], 0 or 1.
        filename: string [].
    """
    import tensorflow as tf

    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/label": tf.io.FixedLenFeature([len(FINDINGS)], tf.int64),
            "image/filename": tf.io.FixedLenFeature([], tf.string),
        },
    )
    # decode_png reads JPEG as well, by the file's first bytes.
    image = tf.io.decode_png(features["image/encoded"], channels=1)
    image = tf.ensure_shape(image, [image_size, image_size, 1])
    return image, tf.cast(features["image/label"], tf.float32), features["image/filename"]
