"""Several runs on one page: never mixed, and told apart."""

import json
import shutil
import xml.etree.ElementTree as ET

import pytest

from benchmarks.report_run import make_run, write
from chexnet.__main__ import main
from chexnet.errors import UserError
from chexnet.pages.report_compare import name_runs, render_comparison, write_comparison
from chexnet.pages.report_data import RunFolder, load_folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    return make_run(folder / "one"), make_run(folder / "other", seed=1, epochs=4)


@pytest.fixture
def runs(pair, tmp_path):
    return [shutil.copytree(run, tmp_path / run.name) for run in pair]


def read(runs):
    page = render_comparison([load_folder(run) for run in runs])
    return ET.fromstring(page)


def texts(element):
    return " ".join(" ".join(element.itertext()).split())


def section(tree, name):
    return next(one for one in tree.iter("section") if one.get("id") == name)


def table(element):
    return [[texts(cell) for cell in row] for row in element.iter("tr")]


def change(path, **values):
    write(path, json.loads(path.read_text()) | values)


def test_runs_on_the_same_films_stand_in_one_table(runs):
    tree = read(runs)
    scores = section(tree, "scores")
    assert len(list(scores.iter("table"))) == 1
    rows = table(scores)
    for number, run in enumerate(runs, start=1):
        values = json.loads((run / "evaluation.json").read_text())
        assert rows[-1][number].startswith(f"{values['mean_auroc']:.3f}")
        assert [row[number][:5] for row in rows[1:-1]] == [
            f"{row['auroc']:.3f}" for row in values["findings"]
        ]


@pytest.mark.parametrize(
    "other",
    [
        {"data_sha256": "00" * 32},
        {"split_kind": "patient"},
        {"num_examples": 99},
        {"trained_on_patients": 7},
        {"trained_on_patients": None},
    ],
)
def test_scores_on_other_films_are_never_in_the_same_table(runs, other):
    change(runs[1] / "evaluation.json", **other)
    scores = section(read(runs), "scores")
    assert [len(row) for one in scores.iter("table") for row in table(one)[:1]] == [2, 2]
    assert "not comparable" in texts(scores)


def test_a_run_without_test_scores_is_named(runs):
    (runs[0] / "evaluation.json").unlink()
    scores = section(read(runs), "scores")
    assert "Not scored on test films: one." in texts(scores)
    assert [row[1] for row in table(scores)[:1]] == ["its line other"]


def test_only_keys_that_differ_are_listed(runs):
    change(runs[1] / "config.json", learning_rate=0.01)
    rows = table(section(read(runs), "differences"))[1:]
    assert rows == [["epochs", "8", "4"], ["seed", "0", "1"], ["learning_rate", "–", "0.01"]]


def test_what_ran_differs_by_flat_names(runs):
    record = json.loads((runs[1] / "record.json").read_text())
    changed = {"versions": record["versions"] | {"keras": "4.0"}, "lock_sha256": None}
    change(runs[1] / "record.json", **changed)
    rows = table(section(read(runs), "software"))[1:]
    assert rows == [["lock_sha256", "ab" * 32, "None"], ["versions.keras", "3.0", "4.0"]]


def test_where_a_log_lies_is_no_difference(runs):
    for run in runs:
        record = json.loads((run / "record.json").read_text())
        horovod = [{"variable": "HOROVOD_AUTOTUNE_LOG", "value": f"{run}/log.csv"}]
        change(run / "record.json", effective=record["effective"] | {"horovod": horovod})
    assert not table(section(read(runs), "software"))
    horovod.append({"variable": "HOROVOD_CYCLE_TIME", "value": "5"})
    change(runs[1] / "record.json", effective=record["effective"] | {"horovod": horovod})
    [row] = table(section(read(runs), "software"))[1:]
    assert row[:2] == ["effective.horovod", "[]"]


def test_curves_of_all_runs_lie_over_each_other(runs):
    learning = section(read(runs), "learning")
    for figure in learning.iter("figure"):
        lines = [path.get("class") for path in figure.iter("path")]
        assert [name for name in lines if name.startswith("line")] in (
            ["line marked c0", "line marked c1"],
            ["line line c0", "line line c1"],
        )


@pytest.mark.parametrize(
    ("data_sha256", "said"),
    [
        (..., ""),
        ("00" * 32, "These runs were trained on different data: their losses and validation AUROC"),
        (None, "Not every run says which data it was trained on"),
    ],
)
def test_validation_scores_of_different_data_carry_a_note(runs, data_sha256, said):
    if data_sha256 is not ...:
        change(runs[1] / "record.json", data_sha256=data_sha256)
    tree = read(runs)
    for name in ("runs", "learning"):
        notes = [texts(one) for one in section(tree, name).iter("p") if one.get("class") == "note"]
        assert len(notes) == bool(said)
        assert all(note.startswith(said) for note in notes)


def test_names_are_as_short_as_tells_runs_apart(tmp_path):
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "c" / "last"]
    assert name_runs([RunFolder(one) for one in folders]) == ["a/run", "b/run", "c/last"]
    assert name_runs([RunFolder(one) for one in folders[1:]]) == ["run", "last"]


@pytest.mark.parametrize("text", ["<script>x</script>", '" onload="x', "]]>{{ 7 * 7 }}\x00\ud800"])
def test_nothing_breaks_out_of_the_page(runs, text):
    change(runs[0] / "config.json", **{text: text})
    change(runs[0] / "record.json", status=text, device=text, git_revision=text)
    values = json.loads((runs[0] / "evaluation.json").read_text())
    values["findings"][0]["finding"] = text
    write(runs[0] / "evaluation.json", values)
    tree = read(runs)
    assert not list(tree.iter("script"))
    assert not [name for one in tree.iter() for name in one.attrib if name.startswith("on")]
    shown = text.replace("\x00", "�").replace("\ud800", "�")
    assert [shown, "–"] == table(section(tree, "differences"))[-1][0::2]


def test_fewer_than_two_runs_or_one_twice_is_refused(runs, tmp_path):
    for few in ([], runs[:1], [runs[0], runs[0]], [runs[0], tmp_path / "x" / ".." / "one"]):
        with pytest.raises(UserError, match="two or more different run folders"):
            write_comparison(few, output=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_the_verb_writes_the_page_where_it_is_told(runs, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert main(["report", "--compare", *map(str, runs), "--output", str(page)]) == 0
    assert str(page) in capsys.readouterr().out
    assert ET.fromstring(page.read_text()).find(".//h1").text == "2 CheXNet runs compared"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "neither"),
        (["--run", "x", "--compare", "x"], "both"),
        (["--run", "x"], "no such folder"),
        (["--compare", "x", "y"], "--output FILE"),
    ],
)
def test_wrong_use_is_told_and_exits_2(words, said, capsys):
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err
