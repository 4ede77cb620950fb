"""TFRecord files that others made, described so that they can be trained on as they lie.

Knows how such files are named and what must be in every record (the keys of the public
Dell data). Writes only `dataset.json` and the tables of films beside them. Leaves the
form of a record to `records`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from chexnet import records
from chexnet.data.shards import describe_split, write_description
from chexnet.data.splits import check_patients_apart
from chexnet.errors import UserError
from chexnet.labels import FINDINGS, decode_findings
from chexnet.nih import Film
from chexnet.parallel import map_in_order
from chexnet.quiet import quiet_import

# How the files of each side begin.
PREFIXES = {"train": ("train",), "validation": ("validation", "valid", "val"), "test": ("test",)}
SPLIT = "records"


def adopt_records(folder: Path) -> records.Dataset:
    """Describe a folder of TFRecord files, without copying or changing them.

    Args:
        folder: holds ``train-…``, ``validation-…`` (or ``valid-…``) and ``test-…`` files
            whose examples have ``image/encoded``, ``image/label`` (14 int64 in the order of
            `labels.FINDINGS`) and ``image/filename``.

    Returns:
        The description.

    Raises:
        UserError: no such files, a record that cannot be read, has other keys, is not
            square or of another size than the others; or a patient on two sides.
    """
    folder = Path(folder)
    if (folder / records.DESCRIPTION).exists():
        raise UserError(
            f"a folder without {records.DESCRIPTION}",
            found=f"{folder} has one",
            fix="it is prepared data already; remove that file to describe it anew",
        )
    sides = {side: _files(folder, prefixes) for side, prefixes in PREFIXES.items()}
    if not sides["train"]:
        raise UserError(
            f"TFRecord files train-* in {folder}",
            found="none",
            fix="give the folder that holds them",
        )
    read = map_in_order(
        _read_file,
        items=[path for files in sides.values() for path in files],
        workers=1,
        chunk=1,
        label="record files read",
    )
    found = {side: [next(read) for _ in files] for side, files in sides.items()}
    next(read, None)
    sizes = {size for files in found.values() for _, films in files for _, size in films}
    if len(sizes) != 1:
        raise UserError(
            "films of one size in all records",
            found=f"{sorted(sizes)} px",
            fix="prepare the data again from NIH's files: invoke prepare-data",
        )
    films = {side: [f for _, part in files for f, _ in part] for side, files in found.items()}
    check_patients_apart(films)
    _write(folder, found=found, films=films, size_px=sizes.pop())
    return records.load_dataset(folder)


def _files(folder: Path, prefixes: Sequence[str]) -> list[Path]:
    return sorted(
        path
        for path in folder.glob("*")
        if path.is_file()
        and path.name.split("-")[0].split("_")[0].split(".")[0] in prefixes
        and not path.name.endswith(".csv")
    )


def _read_file(path: Path) -> tuple[records.Shard, list[tuple[Film, int]]]:
    """Return what a record file holds: its films in order, each with its height and width."""
    films = [_read_example(path, number, data) for number, data in enumerate(_examples(path))]
    shard = records.Shard(
        name=path.name,
        num_examples=len(films),
        sha256=records.hash_file(path),
        num_bytes=path.stat().st_size,
    )
    return shard, films


def _examples(path: Path) -> Iterator[bytes]:
    with quiet_import():
        import tensorflow as tf

    try:
        yield from tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    except tf.errors.DataLossError as error:
        raise UserError(
            f"a TFRecord file in {path}",
            found=str(error).splitlines()[0],
            fix="copy that file again",
        ) from error


def _read_example(path: Path, number: int, data: bytes) -> tuple[Film, int]:
    import tensorflow as tf

    fix = f"a record holds {', '.join(records.KEYS)}; the label is 14 numbers, 0 or 1"
    try:
        feature = tf.train.Example.FromString(data).features.feature
        encoded, label, name = (feature[key] for key in records.KEYS)
        vector = list(label.int64_list.value)
        [image_bytes], [filename] = encoded.bytes_list.value, name.bytes_list.value
        if len(vector) != len(FINDINGS) or not set(vector) <= {0, 1}:
            raise ValueError(f"label {vector}")
        # As training will: a header alone does not tell that the rest is there.
        height, width, _ = tf.io.decode_png(image_bytes, channels=1).shape
        if width != height:
            raise ValueError(f"an image of {width}x{height} px")
    except Exception as error:  # protobuf's and TensorFlow's share no class with the others
        raise UserError(
            f"a film in record {number} of {path}",
            found=f"{type(error).__name__}: {error}",
            fix=fix,
        ) from error
    film = filename.decode(errors="replace")
    # NIH's names begin with the patient: 00000013_025.png.
    return Film(film, film.partition("_")[0], decode_findings(vector), None, ""), width


def _write(
    folder: Path,
    *,
    found: dict[str, list[tuple[records.Shard, list[tuple[Film, int]]]]],
    films: dict[str, list[Film]],
    size_px: int,
) -> None:
    """Write the tables of films, then the description that makes it a data set."""
    shards = {
        side: [shard for shard, _ in files if shard.num_examples] for side, files in found.items()
    }
    description = {
        "schema_version": records.SCHEMA_VERSION,
        "classes": list(FINDINGS),
        "split": SPLIT,
        "seed": 0,
        "image_size": size_px,
        "format": "encoded",
        "source": {s.name: s.sha256 for files in found.values() for s, _ in files},
        "quarantined": [],
        "splits": {
            side: describe_split(folder, side, films=part, shards=shards[side])
            for side, part in films.items()
        },
    }
    write_description(folder, description)
