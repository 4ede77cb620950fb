"""Whether the films evaluated are of patients whom the run has seen before.

Knows the data that a run was trained on, by its record, and how patients of other data are
found in it. Leaves what is refused because of that to ``published`` and ``evaluate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chexnet.data.films import load_films
from chexnet.errors import UserError
from chexnet.records import Dataset, load_dataset
from chexnet.training.run_record import load_record


@dataclass(frozen=True)
class Overlap:
    """What the run has seen of the patients evaluated.

    Attributes:
        own: the data is what the run was trained on, by its hash.
        patients: how many of the split's patients were trained on; of other data: trained on
            or validated with. None where it cannot be told.
    """

    own: bool
    patients: int | None


def find_data(run: Path) -> Path:
    """Return the data folder that a run was trained on.

    Raises:
        UserError: there is no record that names it.
    """
    record = load_record(run)
    if record is None:
        raise UserError(
            f"the data folder, from {run / 'record.json'}",
            found="no such file",
            fix="name it with --data DIR",
        )
    return Path(record.data)


def find_overlap(run: Path, *, dataset: Dataset, split: str, chosen: bool) -> Overlap:
    """Return what a run has seen of the patients of a split.

    Args:
        run: the run folder.
        dataset: the data to evaluate on.
        split: which side of it.
        chosen: the user named the data; else it is the run's own folder.

    Raises:
        UserError: the run's own folder was prepared again: patients who were trained on may
            be among the test films now.
    """
    record = load_record(run)
    if record is not None and record.data_sha256 == dataset.sha256:
        # Prepared data has no patient on two sides.
        seen = len(_load_patients(dataset, ["train"])) if split == "train" else 0
        return Overlap(own=True, patients=seen)
    if not chosen:
        raise UserError(
            f"the data that the run in {run} was trained on",
            found=f"{dataset.root} was prepared again since, with another result",
            fix="prepare it as it was, or name other data with --data DIR",
        )
    if record is None:
        return Overlap(own=False, patients=None)
    try:
        before = load_dataset(Path(record.data))
        if before.sha256 != record.data_sha256:
            return Overlap(own=False, patients=None)
        seen = _load_patients(before, ["train", "validation"])
    except (UserError, OSError):  # it is no longer there, or not whole
        return Overlap(own=False, patients=None)
    return Overlap(own=False, patients=len(seen & _load_patients(dataset, [split])))


def caution(patients: int | None) -> str:
    """Return what a reader must know where patients were seen; nothing where none was.

    Args:
        patients: as `Overlap.patients`.
    """
    if patients is None:
        return "it cannot be told whether the run was trained on patients of these films"
    if patients:
        return f"the run was trained on {patients:,} of the patients of these films"
    return ""


def _load_patients(dataset: Dataset, splits: Iterable[str]) -> set[str]:
    """Return the patients of some sides; NIH's table writes 13, its file names 00000013."""
    sides = [dataset.splits[name] for name in splits]
    tables = [load_films(dataset.root / s.films.name, num_films=s.num_examples) for s in sides]
    return {patient.lstrip("0") for table in tables for patient in table.patients}
