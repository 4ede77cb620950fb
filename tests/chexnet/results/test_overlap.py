"""Patients of other data whom a run has seen, by the tables of both."""

import csv
import shutil
from dataclasses import replace

import pytest

from chexnet.errors import UserError
from chexnet.prepare import prepare_data
from chexnet.records import load_dataset
from chexnet.results.overlap import Overlap, caution, find_data, find_overlap
from chexnet.training.run_record import make_record, write_record


@pytest.fixture(scope="module")
def others(fast_data, tmp_path_factory):
    """Return the same films divided by patient: some of the test films were trained on."""
    folder = tmp_path_factory.mktemp("others") / "data"
    source = fast_data.parent / "nih"
    return prepare_data(source, output=folder, size_px=32, format="fast", split="patient")


@pytest.fixture
def run(fast_data, tmp_path):
    """Return a run folder that holds the record alone."""
    record = make_record(
        load_dataset(fast_data), hosts=["a"], device="cpu", command=["train"], horovod={}
    )
    write_record(tmp_path, record=record)
    return tmp_path, record


def patients_of(folder, *splits):
    rows = [row for s in splits for row in csv.DictReader((folder / f"{s}-films.csv").open())]
    return {row["patient"] for row in rows}


def find(folder, dataset, split="test", chosen=True):
    return find_overlap(folder, dataset=dataset, split=split, chosen=chosen)


def test_of_its_own_data_a_run_has_seen_the_patients_it_trained_on(run, fast_data):
    own = load_dataset(find_data(run[0]))
    assert [find(run[0], own, split).patients for split in ("train", "validation", "test")] == [
        len(patients_of(fast_data, "train")), 0, 0,
    ]  # fmt: skip


def test_of_other_data_those_are_counted_who_trained_or_validated(
    run, others, fast_data, small_data
):
    seen = patients_of(fast_data, "train", "validation")
    for split in ("train", "validation", "test"):
        expected = len(seen & patients_of(others.root, split))
        assert find(run[0], others, split) == Overlap(own=False, patients=expected)
    assert find(run[0], others).patients > 0
    # The same division in another format: nobody of the test was trained on.
    assert find(run[0], load_dataset(small_data)) == Overlap(own=False, patients=0)


def test_a_patient_with_and_without_leading_zeros_is_one(run, others, tmp_path):
    folder = tmp_path / "zeros"
    shutil.copytree(others.root, folder)
    path = folder / "test-films.csv"
    rows = list(csv.reader(path.open()))
    rows = [rows[0], *([row[0], row[1].lstrip("0").zfill(8), *row[2:]] for row in rows[1:])]
    path.write_text("".join(",".join(row) + "\n" for row in rows))
    assert find(run[0], replace(others, root=folder)) == find(run[0], others)


@pytest.mark.parametrize(
    "changes", [None, {"data": "/nowhere"}, {"data_sha256": "0" * 64}], ids=str
)
def test_where_it_cannot_be_told_it_is_not_nought(run, others, changes):
    folder, record = run
    if changes is None:
        (folder / "record.json").unlink()
    else:
        write_record(folder, record=replace(record, **changes))
    assert find(folder, others) == Overlap(own=False, patients=None)
    assert "cannot be told" in caution(None)


def test_a_folder_prepared_again_is_refused(run, others):
    with pytest.raises(UserError, match="prepared again since"):
        find(run[0], others, chosen=False)


def test_caution_counts_and_is_silent_where_nobody_was_seen():
    assert caution(0) == ""
    assert "2,797 of the patients" in caution(2797)
