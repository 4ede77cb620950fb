"""How films are divided into training, validation and test: never a patient on two sides.

Knows NIH's official division with a validation side carved out of it, and the
division by patient of the CheXNet paper. Leaves reading the table and the lists
to `nih`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chexnet.errors import UserError, unknown_name
from chexnet.nih import TEST_LIST, TRAIN_VAL_LIST, Film, load_list

SPLIT_KINDS = ("official", "patient", "lists")
# The article's records: 8,653 of the 86,524 films of the train_val list.
VALIDATION_SHARE = 0.1
LISTED_SIDES = ("train", "validation", "test")
# The CheXNet paper: 70 % training, 10 % validation, 20 % test.
PATIENT_SHARES = {"validation": 0.1, "test": 0.2}


def split_films(
    films: Sequence[Film], *, source: Path, kind: str, seed: int = 0, lists: Path | None = None
) -> dict[str, list[Film]]:
    """Return the films of `train`, `validation` and `test`, in the table's order.

    Args:
        films: the rows of the table.
        source: the NIH folder; its lists are read for ``official``.
        kind: ``official`` takes NIH's lists and carves validation out of
            train_val by patient; ``patient`` divides the patients 70/10/20; ``lists``
            takes the lists of the user.
        seed: which patients go where.
        lists: a folder with `train.txt`, `validation.txt` and `test.txt`.

    Raises:
        UserError: an unknown kind, a list that is missing or does not fit the
            table, or a patient on two sides.
    """
    if kind == "official":
        sides = _official_sides(films, source=source, seed=seed)
    elif kind == "patient":
        sides = _patient_sides(films, seed=seed)
    elif kind == "lists":
        sides = _listed_sides(films, lists=lists)
    else:
        raise unknown_name("split", kind, known=SPLIT_KINDS)
    splits = {side: [film for film in films if film.name in names] for side, names in sides.items()}
    check_patients_apart(splits)
    return splits


def check_patients_apart(splits: Mapping[str, Sequence[Film]]) -> None:
    """Raise if films of one patient are on two sides.

    Raises:
        UserError: names the first such patient, the two sides and a film of each.
    """
    first: dict[str, tuple[str, Film]] = {}
    for side, films in splits.items():
        for film in films:
            other, seen = first.setdefault(film.patient, (side, film))
            if other != side:
                raise UserError(
                    "every patient on one side of the split",
                    found=f"patient {film.patient} in {other} ({seen.name}) and {side} "
                    f"({film.name})",
                    fix="correct the lists, or use --split patient",
                )


def _official_sides(films: Sequence[Film], *, source: Path, seed: int) -> dict[str, set[str]]:
    known = {film.name for film in films}
    train_val = load_list(source / TRAIN_VAL_LIST, known=known)
    test = load_list(source / TEST_LIST, known=known)
    listed = [film for film in films if film.name in train_val]
    # Before carving: afterwards the message would name `train` for a film that
    # the user finds in train_val_list.txt.
    tested = [film for film in films if film.name in test]
    check_patients_apart({TRAIN_VAL_LIST: listed, TEST_LIST: tested})
    patients = _shuffled_patients(listed, seed=seed)
    names: dict[str, list[str]] = {patient: [] for patient in patients}
    for film in listed:
        names[film.patient].append(film.name)
    validation: set[str] = set()
    for patient in patients[:-1]:
        if len(validation) >= VALIDATION_SHARE * len(listed):
            break
        validation.update(names[patient])
    return {"train": train_val - validation, "validation": validation, "test": test}


def _listed_sides(films: Sequence[Film], *, lists: Path | None) -> dict[str, set[str]]:
    if lists is None:
        raise UserError(
            "--lists DIR with train.txt, validation.txt and test.txt for --split lists",
            found="no --lists",
            fix="one image name a line, as in NIH's lists",
        )
    known = {film.name for film in films}
    return {side: load_list(lists / f"{side}.txt", known=known) for side in LISTED_SIDES}


def _patient_sides(films: Sequence[Film], *, seed: int) -> dict[str, set[str]]:
    patients = _shuffled_patients(films, seed=seed)
    total = len(patients)
    side_of: dict[str, str] = {}
    for side, share in PATIENT_SHARES.items():
        # At least one, where there are enough for all three sides.
        for _ in range(max(round(share * total), int(total > len(PATIENT_SHARES)))):
            side_of[patients.pop()] = side
    sides: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for film in films:
        sides[side_of.get(film.patient, "train")].add(film.name)
    return sides


def _shuffled_patients(films: Iterable[Film], *, seed: int) -> list[str]:
    # Sorted first: a set of strings has another order in every process.
    patients = sorted({film.patient for film in films})
    random.Random(seed).shuffle(patients)
    return patients
