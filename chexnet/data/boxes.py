"""NIH's list of boxes: where findings lie on 880 films, drawn by a radiologist.

Knows the file's layout and its one finding of another name. Leaves the films to `nih`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chexnet.errors import UserError
from chexnet.labels import parse_findings

BOX_LIST = "BBox_List_2017.csv"
_SPELLING = {"Infiltrate": "Infiltration"}
_NUM_COLUMNS = 6


@dataclass(frozen=True)
class Box:
    """One finding on one film.

    Attributes:
        film: file name of the image.
        finding: out of `labels.FINDINGS`.
        left, top, width, height: px of the film as NIH ships it, 1024 wide and high.
    """

    film: str
    finding: str
    left: float
    top: float
    width: float
    height: float


def load_boxes(path: Path) -> list[Box]:
    """Return the boxes of NIH's list.

    Raises:
        UserError: the file cannot be read, or a line is no box; the line is named.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            next(rows, None)  # its names do not line up: `Bbox [x,y,w,h]` heads four columns
            return [_parse_box(path, rows.line_num, row) for row in rows if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"NIH's list of boxes in {path}",
            found=getattr(error, "strerror", None) or str(error),
            fix="take the list as NIH ships it",
        ) from error


def _parse_box(path: Path, line: int, row: Sequence[str]) -> Box:
    try:
        film, finding, *numbers = row[:_NUM_COLUMNS]
        left, top, width, height = map(float, numbers)
        [name] = parse_findings(_SPELLING.get(finding, finding), where=f"{path}, line {line}")
    except ValueError as error:
        raise UserError(
            f"a film, a finding and four numbers in {path}, line {line}",
            found=repr(",".join(row)[:120]),
            fix="take the list as NIH ships it",
        ) from error
    return Box(film, name, left, top, width, height)
