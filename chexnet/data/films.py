"""The films of prepared data as a table: `train-films.csv` and its like, a line a film.

Knows its columns: what the NIH table says of a film, and the 14 labels. The lines are in
the order of the films in the record files. Leaves NIH's own table to `nih`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chexnet.errors import UserError
from chexnet.labels import FINDINGS, encode_findings
from chexnet.nih import Film

FEATURES = ("name", "patient", "follow_up", "age_years", "view")
COLUMNS = (*FEATURES, *FINDINGS)


@dataclass(frozen=True)
class FilmTable:
    """The films of one split.

    Attributes:
        names: file name of each film in the source.
        patients: NIH's number of each film's patient.
        views: ``PA``, ``AP`` or empty.
        labels: float32 [N, 14], 0 or 1, in the order of `labels.FINDINGS`.
    """

    names: tuple[str, ...]
    patients: tuple[str, ...]
    views: tuple[str, ...]
    labels: np.ndarray


def render_films(films: Iterable[Film]) -> str:
    """Return the table of some films as CSV text."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for film in films:
        features = (film.name, film.patient, film.follow_up, film.age_years, film.view)
        known = ("" if value is None else value for value in features)
        writer.writerow([*known, *encode_findings(film.findings)])
    return stream.getvalue()


def load_films(path: Path, *, num_films: int) -> FilmTable:
    """Read a table that `render_films` wrote.

    Args:
        path: the file.
        num_films: how many films it must list.

    Raises:
        UserError: the file is missing, has other columns, another number of lines, or a
            label that is not 0 or 1.
    """
    fix = "copy that file again, or prepare the data again with `invoke prepare-data`"
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"the films' table {path}", found=str(error), fix=fix) from error
    if not rows or tuple(rows[0]) != COLUMNS:
        raise UserError(f"the columns {', '.join(COLUMNS)} in {path}", found="others", fix=fix)
    if len(rows) - 1 != num_films or any(len(row) != len(COLUMNS) for row in rows):
        raise UserError(
            f"{num_films} films of {len(COLUMNS)} columns in {path}",
            found=f"{len(rows) - 1} lines",
            fix=fix,
        )
    return FilmTable(
        names=tuple(row[0] for row in rows[1:]),
        patients=tuple(row[1] for row in rows[1:]),
        views=tuple(row[4] for row in rows[1:]),
        labels=_labels(path, rows[1:], fix=fix),
    )


def _labels(path: Path, rows: Sequence[Sequence[str]], *, fix: str) -> np.ndarray:
    cells = ["".join(row[len(FEATURES) :]) for row in rows]
    flat = np.frombuffer("".join(cells).encode(), np.uint8) - ord("0")
    if flat.size != len(rows) * len(FINDINGS) or (flat > 1).any():
        raise UserError(f"labels 0 and 1 in {path}", found="others", fix=fix)
    return flat.reshape(len(rows), len(FINDINGS)).astype(np.float32)
