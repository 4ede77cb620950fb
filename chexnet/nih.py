"""The folder of ChestX-ray14 as NIH ships it: table, images and lists.

Knows the layout (`Data_Entry_2017*.csv`, `images/` or `images_001/images/` …,
`train_val_list.txt`, `test_list.txt`) and both releases of the table. Leaves
dividing the films to `splits`, the images' pixels to `pixels` and the names of
the findings to `labels`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from chexnet.errors import UserError, name_some
from chexnet.labels import parse_findings

TABLE_PATTERN = "Data_Entry_2017*.csv"
TRAIN_VAL_LIST = "train_val_list.txt"
TEST_LIST = "test_list.txt"
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")

_NEEDED = ("Image Index", "Finding Labels", "Patient ID")
_YEARS = {"Y": 1.0, "M": 1 / 12, "D": 1 / 365.25}
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")
_AGE = re.compile(r"(\d+)([YMD]?)")


@dataclass(frozen=True, slots=True)
class Film:
    """One row of the table.

    Attributes:
        name: file name of the image.
        patient: NIH's number of the patient.
        findings: names out of `labels.FINDINGS`, in that order.
        age_years: as the table gives it (it holds impossible ones), or None.
        view: ``PA`` or ``AP``, or empty where the table has no such column.
        follow_up: how many films of the patient came before, or None.
    """

    name: str
    patient: str
    findings: tuple[str, ...]
    age_years: float | None
    view: str
    follow_up: int | None = None


def find_table(source: Path) -> Path:
    """Return the path of the table in an NIH folder.

    Raises:
        UserError: the folder is missing or empty, or has no table or several.
    """
    if not source.is_dir():
        found = "a file" if source.exists() else "no such folder"
        raise UserError(f"a folder in NIH's layout at {source}", found=found, fix=_LAYOUT)
    tables = sorted(source.glob(TABLE_PATTERN))
    if len(tables) == 1:
        return tables[0]
    empty = "an empty folder" if not any(source.iterdir()) else "none"
    names = ", ".join(table.name for table in tables)
    raise UserError(
        f"one table {TABLE_PATTERN} in {source}",
        found=names or empty,
        fix="keep one of them" if tables else _LAYOUT,
    )


_LAYOUT = (
    f"give the folder that holds {TABLE_PATTERN} and images/ (or images_001/images/ …), "
    "or make a sample with `invoke make-sample-data --output DIR`"
)


def load_table(path: Path) -> list[Film]:
    """Return the films of the table, in its order.

    Args:
        path: `Data_Entry_2017*.csv` of either release.

    Raises:
        UserError: a needed column is missing, or a line cannot be read; the
            message names file and line.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            places = _find_columns(path, stream.readline())
            return list(_read_rows(path, stream, places))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"a table of comma-separated UTF-8 text in {path}",
            found=str(error),
            fix="take the table as NIH ships it, or save it as CSV in UTF-8",
        ) from error


def _find_columns(path: Path, header: str) -> dict[str, int]:
    # `OriginalImage[Width,Height]` heads two columns: its comma is inside the
    # brackets, so a plain CSV reader would see names that do not line up.
    columns: list[str] = []
    for part in _COMMA_OUTSIDE_BRACKETS.split(header.strip()):
        name = part.strip().strip('"')
        columns.extend([name] * (1 + name.count(",")))
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise UserError(
            f"the columns {', '.join(_NEEDED)} in {path}, line 1",
            found=f"no column {', '.join(missing)}; there are: {', '.join(filter(None, columns))}",
            fix="take the table as NIH ships it, with its header",
        )
    return {name: columns.index(name) for name in columns if name}


def _read_rows(path: Path, stream: TextIO, places: Mapping[str, int]) -> Iterator[Film]:
    rows = csv.reader(stream)
    name_at, findings_at, patient_at = (places[name] for name in _NEEDED)
    age_at, view_at = places.get("Patient Age"), places.get("View Position")
    follow_at = places.get("Follow-up #")
    width = 1 + max(name_at, findings_at, patient_at, age_at or 0, view_at or 0, follow_at or 0)
    known_cells: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for row in rows:
        if not row:
            continue
        line = 1 + rows.line_num  # the header was read before
        if len(row) < width or not row[patient_at].strip():
            raise _bad_line(path, line, f"at least {width} columns and a patient", row)
        name, cell = row[name_at].strip(), row[findings_at]
        if not _is_plain(name) or name in seen:
            raise _bad_line(path, line, "an image name, once, without a folder", row)
        seen.add(name)
        if cell not in known_cells:
            known_cells[cell] = parse_findings(cell, where=f"{path}, line {line}")
        yield Film(
            name=name,
            patient=row[patient_at].strip(),
            findings=known_cells[cell],
            age_years=None if age_at is None else _parse_age(path, line, row[age_at]),
            view="" if view_at is None else row[view_at].strip(),
            follow_up=None if follow_at is None else _parse_follow_up(path, line, row[follow_at]),
        )


def _bad_line(path: Path, line: int, expected: str, row: Sequence[str]) -> UserError:
    return UserError(
        f"{expected} in {path}, line {line}",
        found=repr(",".join(row)[:120]),
        fix="correct or remove that line",
    )


def _parse_age(path: Path, line: int, text: str) -> float | None:
    # The 2017 release writes 058Y (and a few 011M, 007D), that of 2020 writes 57.
    if not text.strip():
        return None
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise _bad_line(path, line, "a patient's age such as 57 or 058Y", [text])
    return int(match[1]) * _YEARS[match[2] or "Y"]


def _parse_follow_up(path: Path, line: int, text: str) -> int | None:
    if not text.strip():
        return None
    if not text.strip().isdecimal():
        raise _bad_line(path, line, "a follow-up number", [text])
    return int(text)


def _is_plain(name: str) -> bool:
    """Return whether a name stays in its folder: no separators, no `..`."""
    return bool(name) and name not in (".", "..") and not set(name) & set("/\\\0")


def image_folders(source: Path) -> list[Path]:
    """Return the folders of an NIH folder that hold images: one, or one for each archive."""
    folders = [source / "images", *sorted(source.glob("images_*/images"))]
    return [folder for folder in folders if folder.is_dir()]


def find_images(source: Path) -> dict[str, Path]:
    """Return the path of every image of an NIH folder, by file name.

    Raises:
        UserError: there are no image folders, or two images of one name.
    """
    folders = image_folders(source)
    if not folders:
        raise UserError(f"images/ or images_001/images/ … in {source}", found="none", fix=_LAYOUT)
    images: dict[str, Path] = {}
    for folder in folders:
        for name in sorted(path.name for path in folder.iterdir()):
            if not name.lower().endswith(IMAGE_SUFFIXES):
                continue
            if name in images:
                raise UserError(
                    f"one image of each name below {source}",
                    found=f"{images[name]} and {folder / name}",
                    fix="remove one of the two",
                )
            images[name] = folder / name
    return images


def check_images_present(films: Iterable[Film], *, images: Mapping[str, Path], table: Path) -> None:
    """Raise if an image that the table names is not there.

    Args:
        films: the rows of the table.
        images: what `find_images` found.
        table: path of the table, for the message.

    Raises:
        UserError: names the first few and the number of missing images.
    """
    missing = [film.name for film in films if film.name not in images]
    if missing:
        raise UserError(
            f"every image that {table} names, in images/ or images_*/images/ beside it",
            found=f"{len(missing)} missing: {name_some(missing)}",
            fix="unpack the archives that hold them, or remove their lines from the table",
        )


def load_list(path: Path, *, known: set[str]) -> set[str]:
    """Return the image names of one of NIH's lists.

    Args:
        path: a text file with one image name a line.
        known: the names that the table has.

    Raises:
        UserError: the file is missing, or a line leaves the folder or names an
            image that is not in the table.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"a list of image names in {path}",
            found="no such file" if isinstance(error, FileNotFoundError) else str(error),
            fix="put NIH's list there, or use --split patient, which needs none",
        ) from error
    names = [line.strip() for line in lines]
    for number, name in enumerate(names, start=1):
        if name and not _is_plain(name):
            raise _bad_line(path, number, "an image name without a folder", [name])
    strange = [(number, name) for number, name in enumerate(names, 1) if name and name not in known]
    if strange:
        number, name = strange[0]
        raise UserError(
            f"names that the table has in {path}",
            found=f"{len(strange)} others, the first in line {number}: {name}",
            fix="use the lists and the table of one release, or remove those lines",
        )
    return {name for name in names if name}
