"""The files that a user means by some files and folders.

Knows how folders are searched and what a file is called in results. Leaves reading them to
``film_files``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chexnet.errors import UserError
from chexnet.prediction.film_files import READ, SUFFIXES, is_dicom

_CONTENTS = "DICOMDIR"


@dataclass(frozen=True)
class Input:
    """One file to be read.

    Attributes:
        path: where it is, beginning as the user gave it.
        name: its path within the folder that was given; of a file that was given, its name.
    """

    path: Path
    name: str


def find_inputs(given: Sequence[Path]) -> list[Input]:
    """Return the files to read, each once, folders in the order of their names.

    A file that is named is taken whatever it is. In folders, and all that lies below, those
    are taken whose names end as images do, and those without an ending that say they are
    DICOM, as scanners write them; hidden ones are passed over, and so is DICOMDIR, the
    list of contents of a disc. What cannot be looked into is taken too, so that it is told.

    Raises:
        UserError: a path at which nothing is, or a folder without a file to read.
    """
    if not given:
        raise UserError("--input FILE or DIR", found="none", fix="give one or several")
    found: dict[str, Input] = {}
    for place in given:
        if not place.exists():
            raise UserError(
                "a film or a folder of films", found=f"nothing at {place}", fix="correct --input"
            )
        listed = [Input(place, place.name)] if not place.is_dir() else list(_search(place))
        if not listed:
            raise UserError(
                f"images below {place}",
                found=f"no file that ends in {', '.join(SUFFIXES)}, nor DICOM without an ending",
                fix=f"correct --input; {READ}",
            )
        for one in listed:
            found.setdefault(os.path.realpath(one.path), one)
    return list(found.values())


def _search(folder: Path) -> Iterator[Input]:
    seen = set()
    closed: list[OSError] = []
    for root, folders, files in os.walk(folder, followlinks=True, onerror=closed.append):
        # A link that leads back up would never end.
        true = os.path.realpath(root)
        if true in seen:
            folders.clear()
            continue
        seen.add(true)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(root, name)
            if not name.startswith(".") and _is_wanted(path):
                yield Input(path, path.relative_to(folder).as_posix())
    for error in closed:
        path = Path(error.filename)
        yield Input(path, path.relative_to(folder).as_posix())


def _is_wanted(path: Path) -> bool:
    if path.name.upper() == _CONTENTS:
        return False
    if path.suffix:
        # Scanners name files by numbers with dots too: 1.2.840.113619.2.5
        if path.suffix.lower() in SUFFIXES:
            return True
        if not path.suffix[1:].isdigit():
            return False
    try:
        if not path.is_file():  # a pipe would be waited for
            return False
        with path.open("rb") as stream:
            return is_dicom(stream.read(132))
    except OSError:
        return True  # reading it says why it cannot be read
