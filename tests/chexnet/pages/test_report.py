"""The page of a run: what it shows, whatever the run has left; nothing breaks out of it."""

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise

import jsonschema
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import average_precision_score

from benchmarks.report_run import AUROCS, PUBLISHED, make_data, make_run, write
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.pages.report import render_report, write_report
from chexnet.pages.report_compare import write_comparison
from chexnet.pages.report_data import load_folder
from chexnet.pages.report_figures import hold_precision
from chexnet.pages.report_origin import list_commands
from chexnet.pages.report_text import show_threshold
from chexnet.results.curves import pr_curve
from env.binding import load_plan
from env.stack import PROJECT

MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return make_run(folder / "run", data=folder / "data")


@pytest.fixture(scope="module")
def written(full_run):
    """Return the page that the program writes by itself, and which modules it loaded for it."""
    code = ("import sys; from pathlib import Path; from chexnet.pages.report import write_report; "
            "write_report(Path(sys.argv[1])); print(*sys.modules)")  # fmt: skip
    line = [sys.executable, "-c", code, str(full_run)]
    done = subprocess.run(line, cwd=PROJECT, check=True, capture_output=True, text=True)
    return full_run / "report.html", set(done.stdout.split())


@pytest.fixture
def run(full_run, tmp_path):
    """Return a copy of the run, to take away from."""
    return shutil.copytree(full_run, tmp_path / "run")


def read(page):
    """Return the page as a tree: it is well-formed XML, or this fails."""
    assert page.startswith("<!DOCTYPE html>\n")
    return ET.fromstring(page)


def texts(element):
    return " ".join(" ".join(element.itertext()).split())


def section(tree, name):
    (found,) = [one for one in tree.iter("section") if one.get("id") == name]
    return found


def rows(element):
    return [[texts(cell) for cell in row] for row in element.iter("tr")]


def change(path, **values):
    write(path, json.loads(path.read_text()) | values)


def test_the_made_run_is_one_that_programs_write(full_run):
    schemas = {
        "record.json": "chexnet/training/record",
        "evaluation.json": "chexnet/results/evaluation",
        "environment.json": "env/report",
        "plots/gallery.json": "chexnet/prediction/gallery",
    }
    for name, schema in schemas.items():
        rules = json.loads((PROJECT / f"{schema}.schema.json").read_text())
        jsonschema.validate(json.loads((full_run / name).read_text()), rules)
    rules = json.loads((PROJECT / "chexnet/training/metrics.schema.json").read_text())
    for line in (full_run / "metrics.jsonl").read_text().splitlines():
        jsonschema.validate(json.loads(line), rules)
    assert len(load_plan(full_run / "plan.json").ranks) == 8


def test_the_page_is_one_small_file(written):
    text = written[0].read_text()
    assert len(text.encode()) < MOST_BYTES
    tree = read(text)
    assert not {one.tag for one in tree.iter()} & {"script", "link", "iframe", "object", "form"}
    sources = [one.get("src") for one in tree.iter("img")]
    assert len(sources) == 14
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(one.get("href").startswith("#") for one in tree.iter("a"))
    names = {one.get("id") for one in tree.iter("section")}
    assert {one.get("href")[1:] for one in tree.iter("a")} <= names


def test_the_score_stands_first_with_interval_films_and_a_warning(full_run):
    tree = read(render_report(load_folder(full_run)))
    mean = json.loads((full_run / "evaluation.json").read_text())["mean_auroc"]
    head = texts(tree.find(".//header"))
    assert f"mean AUROC {mean:.3f}" in head
    assert f"95 % interval {mean - 0.006:.3f} to {mean + 0.006:.3f}" in head
    assert "25,596 test films of 2,797 patients" in head
    assert "Not for clinical use." in head


def test_findings_stand_beside_those_published_on_the_same_split(full_run):
    tree = read(render_report(load_folder(full_run)))
    table = rows(section(tree, "scores"))
    assert table[0][5:7] == ["Wang 2017", "Guendel 2018"]  # the third tells no findings
    assert [row[0] for row in table[1:15]] == [name.replace("_", " ") for name in FINDINGS]
    for row, auroc in zip(table[1:15], AUROCS, strict=True):
        assert float(row[2]) == pytest.approx(auroc, abs=0.05)
        assert [float(cell) for cell in row[5:7]] == pytest.approx([auroc - 0.06, auroc + 0.004])
    ranking = rows(section(tree, "published"))[1:]
    means = [float(row[3]) for row in ranking]
    assert means == sorted(means, reverse=True)
    assert {row[0] for row in ranking} == {"this run", *(work["work"] for work in PUBLISHED)}


@pytest.mark.parametrize(
    ("calibrated", "said"), [(True, "are calibrated."), (False, "are not calibrated: read")]
)
def test_the_gallery_says_how_its_films_were_chosen(run, calibrated, said):
    change(run / "plots" / "gallery.json", calibrated=calibrated)
    gallery = texts(section(read(render_report(load_folder(run))), "gallery"))
    assert "the film that has it and scores highest: chosen for that" in gallery
    assert f"Probabilities {said}" in gallery


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"split_kind": "patient"}, "A split by patient, drawn here: not comparable"),
        ({"num_examples": 92}, "NIH's own has 25,596 films: not comparable"),
        ({"split_kind": "lists"}, "Lists of the user's own: not comparable"),
        ({}, "NIH's official test list: comparable"),
    ],
)
def test_a_score_says_what_it_may_be_compared_with(run, changes, said):
    change(run / "evaluation.json", **changes)
    head = texts(read(render_report(load_folder(run))).find(".//header"))
    assert said in head
    assert ("official test list" in head.replace("NIH's official test list", "")) == (not changes)


@pytest.mark.parametrize(
    ("trained", "tag", "said"),
    [
        (0, None, "NIH's official test list: comparable"),
        (1, "1 patient was trained on", "Patients of these films were trained on: this is no"),
        (1200, "1,200 patients were trained on", "Patients of these films were trained on"),
        (None, "whether patients were trained on cannot be told", "cannot be told: no result yet"),
    ],
)
def test_a_score_of_patients_who_were_trained_on_is_marked(run, trained, tag, said):
    change(run / "evaluation.json", trained_on_patients=trained)
    head = read(render_report(load_folder(run))).find(".//header")
    tags = {texts(one): one.get("class") for one in head.iter("li")}
    assert tags["official test list"] == ("good" if trained == 0 else "plain")
    cautions = {text for text, kind in tags.items() if kind == "caution" and "trained" in text}
    assert cautions == ({tag} if tag else set())
    assert said in texts(head)
    assert ("comparable with results" in texts(head)) == (trained == 0)


def test_the_command_of_the_scores_is_the_one_that_was_given(run):
    words = ["--calibrate", "temperature", "--seed", "3", "--data", "/a b", "--no-gallery"]
    change(run / "evaluation.json", request=words)
    page = read(render_report(load_folder(run)))
    lines = [one.text for one in section(page, "again").iter("pre")]
    line = ["invoke", "evaluate", "--run", "NEW-RUN", *words, "--image", "IMAGE"]
    assert line in map(shlex.split, lines)
    # A calibration that the old run had already is one that the new one has not.
    change(run / "evaluation.json", request=[])
    page = read(render_report(load_folder(run)))
    lines = [one.text for one in section(page, "again").iter("pre")]
    assert "invoke evaluate --run NEW-RUN --calibrate temperature --image IMAGE" in lines


def test_no_intervals_are_told_where_there_are_none(run):
    values = json.loads((run / "evaluation.json").read_text())
    drawn = values["bootstrap"]
    for changes, said in (
        ({}, "Intervals: 95 %, 1000 resamples by patient."),
        ({"resamples": 0}, ""),
        ({"refused": "there are too few patients"}, "No intervals: there are too few patients."),
    ):
        change(run / "evaluation.json", bootstrap=drawn | changes)
        tree = read(render_report(load_folder(run)))
        caption = texts(section(tree, "scores").find(".//caption"))
        assert said in caption
        assert ("ntervals" in caption) == bool(said)


def test_a_low_threshold_does_not_read_as_none(run):
    values = json.loads((run / "evaluation.json").read_text())
    values["findings"][0]["thresholds"][0]["threshold"] = 0.00031
    write(run / "evaluation.json", values)
    table = rows(section(read(render_report(load_folder(run))), "thresholds"))
    assert table[1][1] == "0.000310"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.500"), (0.1236, "0.124"), (0.01236, "0.0124"), (0.00031, "0.000310"), (0.0, "0.000"),
     (1.0, "1.000"), (2.345e-8, "2.35e-08"), (None, "–")],
)  # fmt: skip
def test_thresholds_have_three_digits_that_count(value, text):
    assert show_threshold(value) == text


def test_a_count_that_is_none_is_left_out(run):
    change(run / "evaluation.json", num_patients="x")
    assert "25,596 test films" in texts(read(render_report(load_folder(run))).find(".//header"))


def test_a_folder_in_the_place_of_the_page_is_refused_before_anything_is_written(run, tmp_path):
    (tmp_path / "out").mkdir()
    for write_page in (
        lambda: write_report(run, output=tmp_path / "out"),
        lambda: write_comparison([run, make_run(tmp_path / "two")], output=tmp_path / "out"),
    ):
        with pytest.raises(UserError, match=r"--output .*/out/report\.html") as raised:
            write_page()
        assert raised.value.exit_code == 2
    assert not (tmp_path / "plots").exists()
    assert not [*(tmp_path / "out").iterdir()]


def test_a_page_elsewhere_leaves_the_run_folder_as_it_is(run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    page = write_report(run, output=tmp_path / "out" / "one.html")
    assert page.is_file()
    assert {path.name for path in (tmp_path / "out" / "plots").iterdir()} == {
        "roc.png", "learning.png", "calibration.png",
    }  # fmt: skip
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_file_that_goes_meanwhile_is_not_listed(run):
    (run / "checkpoints" / "gone.npz").symlink_to(run / "removed")  # no longer there when asked
    assert "checkpoints/" in dict(load_folder(run).files)
    assert dict(load_folder(run).files)["checkpoints/"] == 1000


def test_the_mean_stands_under_no_number_of_films_with_it(full_run):
    *_, mean = rows(section(read(render_report(load_folder(full_run))), "scores"))
    assert mean[:2] == ["mean", ""]


def test_below_the_steps_of_precision_lies_the_average_precision():
    labels, scores = np.array([0, 1, 0, 1, 1, 0, 0]), np.array([0.9, 0.8, 0.7, 0.6, 0.6, 0.4, 0.1])
    curve = pr_curve(labels, scores=scores)
    steps = hold_precision(list(zip(curve["recall"], curve["precision"], strict=True)))
    pairs = list(pairwise(steps))
    assert all(x0 == x1 or y0 == y1 for (x0, y0), (x1, y1) in pairs)
    area = sum((x1 - x0) * y1 for (x0, _), (x1, y1) in pairs)
    assert area == pytest.approx(average_precision_score(labels, scores))
    assert (steps[0][0], steps[-1][0]) == (0, 1)


def test_refused_published_results_are_named_as_such(run):
    refused = {"comparable": [], "refused": "the split patient is not NIH's"}
    change(run / "evaluation.json", published=refused, split_kind="patient")
    tree = read(render_report(load_folder(run)))
    assert "scores. The split patient is not NIH's" in texts(section(tree, "published"))
    assert "Wang" not in texts(tree)


def test_validation_scores_are_never_the_result(run):
    values = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").unlink()
    write(run / "evaluation-validation.json", values | {"split": "validation"})
    tree = read(render_report(load_folder(run)))
    head = texts(tree.find(".//header"))
    assert "mean AUROC –" in head
    assert "no test films were scored yet" in head
    assert f"{values['mean_auroc']:.3f}" in texts(section(tree, "scores"))
    assert "chose the checkpoint: this is no result" in texts(section(tree, "scores"))


@pytest.mark.parametrize(
    ("name", "changes", "tag"),
    [
        ("evaluation.json", {"data_sha256": "00" * 32}, "scored on other data than the run's"),
        ("record.json", {"data_sha256": "00" * 32}, "scored on other data than the run's"),
        ("evaluation.json", {"epoch": 3}, "scored after epoch 3, and 8 is the best"),
        ("evaluation.json", {}, None),
        ("record.json", {"data_sha256": None}, None),
    ],
)
def test_a_score_of_other_data_or_of_another_checkpoint_is_marked(run, name, changes, tag):
    change(run / name, **changes)
    head = read(render_report(load_folder(run))).find(".//header")
    tags = {texts(one): one.get("class") for one in head.iter("li")}
    assert {text for text in tags if text.startswith("scored")} == ({tag} if tag else set())
    assert tags.get(tag) == ("caution" if tag else None)


def test_scores_of_other_data_stand_apart(run):
    values = json.loads((run / "evaluation.json").read_text())
    other = {"data": "/else", "data_sha256": "00" * 32, "mean_auroc": 0.6123}
    write(run / "evaluation-test-00000000.json", values | other | {"trained_on_patients": 3})
    tree = read(render_report(load_folder(run)))
    assert f"mean AUROC {values['mean_auroc']:.3f}" in texts(tree.find(".//header"))
    [row] = [row for row in rows(section(tree, "scores")) if "0.612" in row]
    assert row[0] == "test of /else"
    assert row[-1] == "Patients of these films were trained on: this is no result."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"checkpoint_sha256": "00" * 32}, "of another checkpoint than the scores."),
        ({"data_sha256": "00" * 32}, "of other data than the scores."),
    ],
)
def test_heat_maps_of_something_else_than_the_scores_are_marked(run, changes, said):
    change(run / "plots" / "gallery.json", **changes)
    gallery = section(read(render_report(load_folder(run))), "gallery")
    notes = [texts(one) for one in gallery.iter("p") if one.get("class") == "note"]
    assert notes == ([f"These pictures are {said}"] if said else [])


def test_the_machine_is_shown_with_what_to_do(full_run):
    machine = texts(section(read(render_report(load_folder(full_run))), "machine"))
    assert "every required check passed" in machine
    assert "1 WARN 71 PASS 1 INFO 1 SKIP" in machine
    assert "network.rdma WARN one of two ports is down" in machine
    assert "ask for the cable" in machine
    assert "rank 7" in machine
    assert "lock of the image, sha256 " + "ab" * 32 in machine


def test_the_commands_do_it_again(full_run):
    lines = [texts(one) for one in section(read(render_report(load_folder(full_run))), "again")
             .iter("pre")]  # fmt: skip
    words = [shlex.split(line) for line in lines]
    assert words[0] == ["git", "checkout", "c25c57d" + "0" * 33]
    assert words[1] == shlex.split("invoke build-image --stack cuda12 --format singularity "
                                   "--output IMAGE")  # fmt: skip
    assert words[2][:4] == ["invoke", "prepare-data", "--source", "FILMS"]
    assert "--max-bad" not in words[2]
    assert words[3] == ["invoke", "train", "--data", str(full_run.parent / "data"), "--run",
                        "NEW-RUN", "--ranks", "8", "--hosts", "gpu-a:4,gpu-b:4", "--config",
                        str(full_run / "config.json"), "--image", "IMAGE"]  # fmt: skip
    assert words[4] == shlex.split("invoke evaluate --run NEW-RUN --split test --resamples 1000 "
                                   "--seed 0 --calibrate temperature --image IMAGE")  # fmt: skip
    assert words[-1][1:] == json.loads((full_run / "record.json").read_text())["command"]


def test_as_many_films_may_be_left_out_again_as_were(tmp_path):
    run = make_run(tmp_path / "run", data=tmp_path / "data")
    bad = [{"file": f"{number}.png", "reason": "truncated"} for number in range(3)]
    change(tmp_path / "data" / "dataset.json", quarantined=bad)
    content = (tmp_path / "data" / "dataset.json").read_bytes()
    change(run / "record.json", data_sha256=hashlib.sha256(content).hexdigest(), lock_sha256=None)
    lines = [line for _, line in list_commands(load_folder(run))]
    assert lines[1].endswith("--max-bad 3")
    assert "IMAGE" not in " ".join(lines)


def test_counts_of_films_are_those_of_the_data_that_was_trained_on(run):
    tree = read(render_report(load_folder(run)))
    assert ["Infiltration", "18,778", "1,901", "6,117"] in rows(section(tree, "data"))
    assert rows(section(tree, "data"))[-1] == ["all films", "78,571", "7,953", "25,596"]
    change(run / "record.json", data_sha256="00" * 32)
    tree = read(render_report(load_folder(run)))
    assert not rows(section(tree, "data"))
    assert "was written anew since the training" in texts(tree.find(".//header"))


MISSING = {
    "config.json": "",
    "record.json": "No record in this run folder.",
    "metrics.jsonl": "No training steps were logged yet.",
    "evaluation.json": "No test films were scored.",
    "environment.json": "No validation report in this run folder",
    "plan.json": "No binding plan in this run folder.",
    "plots/gallery.json": "No gallery in this run folder.",
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize(
    "content", [None, b"", b'{"schema_ver', b"[1, 2]", b'{"findings": 3}', b"\xff"]
)
def test_a_page_is_made_of_what_is_there(run, name, content):
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    page = texts(read(render_report(load_folder(run))))
    if content is None:
        assert MISSING[name] in page
    elif content != b'{"findings": 3}' and not (name == "metrics.jsonl" and content == b""):
        assert name.rpartition("/")[2] in page


def test_a_metrics_line_that_a_kill_cut_short_is_left_out(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "kind": "steps", "st')
    page = texts(read(render_report(load_folder(run))))
    assert "metrics.jsonl: 1 damaged line is left out" in page


def test_an_interrupted_run_says_so(run):
    change(run / "record.json", status="interrupted", error="stopped by SIGTERM in epoch 3")
    (run / "evaluation.json").unlink()
    tree = read(render_report(load_folder(run)))
    assert "training interrupted" in texts(tree.find(".//header"))
    assert "stopped by SIGTERM in epoch 3" in texts(section(tree, "machine"))


def test_a_folder_without_a_run_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UserError, match="a run folder at"):
            load_folder(folder)


def test_a_gallery_reaches_no_file_elsewhere(run):
    Image.new("L", (8, 8)).save(run / "secret.png")
    Image.new("L", (8, 8)).save(run.parent / "secret.png")
    row = {"finding": "Mass", "film": "f", "probability": 0.5, "label": 1}
    rows = [
        row | {"file": name}
        for name in ("../secret.png", f"{run.parent}/secret.png", "../../secret.png")
    ]
    change(run / "plots" / "gallery.json", pictures=rows)
    assert load_folder(run).pictures == ()


def test_a_large_gallery_keeps_the_page_small(run):
    noise = Image.effect_noise((1024, 1024), 90)
    noise.save(run / "plots" / "noise.png")
    row = {"file": "noise.png", "finding": "Mass", "film": "f", "probability": 0.5, "label": 1}
    change(run / "plots" / "gallery.json", pictures=[row] * 60)
    folder = load_folder(run)
    page = render_report(folder)
    assert 10 < len(folder.pictures) < 60
    assert len(page.encode()) < MOST_BYTES
    assert f"{len(folder.pictures)} of 60; all are in plots/" in texts(read(page))


HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "</style></title><h1>",
    "{{ 7 * 7 }}",
    "a\nb\r\n'c'",
    "&lt;&amp;",
    "]]><!--",
    "\x00\x1b[31m\x0b",
    "\ud800",
    "é漢字🫁",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_breaks_out_of_the_page(run, text):
    poison(run, text)
    check_poisoned(run, text)


@given(text=st.text(max_size=60))
@settings(max_examples=15, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_no_text_at_all_breaks_out_of_the_page(run, text):
    poison(run, text)
    check_poisoned(run, text)


def poison(run, text):
    """Write the text wherever a run has text that others chose."""
    record = json.loads((run / "record.json").read_text())
    hosts, words = [text] * 2, ["train", "--run", text]
    versions = {text: text, "python": text}
    write(run / "record.json", record | {
        "hosts": hosts, "command": words, "versions": versions, "error": text, "device": text,
        "git_revision": text, "status": text, "effective": {text: text},
    })  # fmt: skip
    write(run / "config.json", {"schema_version": 2, text: text, "weights": text})
    scores = json.loads((run / "evaluation.json").read_text())
    scores["findings"][0] |= {"finding": text}
    scores["findings"][0]["thresholds"][0]["name"] = text
    scores["published"]["comparable"][0] |= {"work": text, "network": text, "source": text}
    scores |= {"checkpoint": text, "calibration": {"method": text, "fitted_on": text}}
    write(run / "evaluation.json", scores)
    machine = json.loads((run / "environment.json").read_text())
    machine["stack"] = text
    machine["results"][0] |= {"id": text, "status": "FAIL", "found": text, "fix": text,
                              "hosts": [text]}  # fmt: skip
    write(run / "environment.json", machine)
    plan = json.loads((run / "plan.json").read_text())
    plan["ranks"][0]["host"] = text
    write(run / "plan.json", plan)
    gallery = json.loads((run / "plots" / "gallery.json").read_text())
    gallery["pictures"][0] |= {"film": text, "finding": text}
    write(run / "plots" / "gallery.json", gallery)


def check_poisoned(run, text):
    tree = read(render_report(load_folder(run)))
    tags = {one.tag.rpartition("}")[2] for one in tree.iter()}
    assert "script" not in tags
    assert len(list(tree.iter("h1"))) == 1
    assert not [name for one in tree.iter() for name in one.attrib if name.startswith("on")]
    shown = "".join(c if c.isprintable() or c in "\t\n\r" else "�" for c in text)
    if shown == text and text.strip():
        wanted = " ".join(text.replace("_", " ").split())
        assert (
            " ".join(texts(section(tree, "gallery")).replace("_", " ").split()).count(wanted) >= 2
        )


def test_making_a_page_loads_no_tensorflow(written):
    assert not {"tensorflow", "keras", "horovod"} & written[1]
    assert {"jinja2", "matplotlib"} <= written[1]
    assert "matplotlib.pyplot" not in written[1]


def test_plots_for_slides_are_pictures(written):
    for name in ("roc.png", "learning.png", "calibration.png"):
        with Image.open(written[0].parent / "plots" / name) as picture:
            assert picture.width == 1210
            # Lines, not an empty frame: edges that were smoothed have many colours.
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 100


def test_a_run_without_scores_has_no_plots_of_them(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "evaluation.json").unlink()
    page = write_report(run, output=tmp_path / "new" / "page.html")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not (run / "report.html").exists()
    assert [path.name for path in (tmp_path / "new" / "plots").iterdir()] == ["learning.png"]


def test_an_older_evaluation_without_intervals_is_shown(run):
    values = json.loads((run / "evaluation.json").read_text())
    kept = {"split", "split_kind", "data", "data_sha256", "checkpoint", "epoch", "ranks",
            "num_examples", "mean_auroc", "num_defined"}  # fmt: skip
    plain = ("finding", "auroc", "num_positives", "num_negatives")
    old = {name: values[name] for name in kept} | {"schema_version": 1}
    old["findings"] = [{name: row[name] for name in plain} for row in values["findings"]]
    old["findings"][3]["auroc"] = None
    write(run / "evaluation.json", old | {"num_defined": 13})
    tree = read(render_report(load_folder(run)))
    assert "mean of the 13 findings of 14 that have an AUROC" in texts(tree.find(".//header"))
    assert rows(section(tree, "scores"))[4][2] == "–"


def test_data_that_is_gone_is_no_mistake(tmp_path):
    run = make_run(tmp_path / "run", data=tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    folder = load_folder(run)
    assert folder.dataset == {}
    assert folder.notes == ()
    assert "The data folder is not there any more" in texts(read(render_report(folder)))
    make_data(tmp_path / "data")
    assert load_folder(run).dataset["image_size"] == 256


def test_one_rank_is_called_one(run):
    change(run / "record.json", ranks=1, hosts=["vm"], resumed_from=[2])
    tree = read(render_report(load_folder(run)))
    assert "5,120 films/s in the last epoch on one rank." in texts(section(tree, "speed"))
    again = texts(section(tree, "again"))
    assert "--ranks 1 --config" in again  # one host needs no --hosts
    assert "continued after epoch 2" in texts(section(tree, "machine"))


def test_what_the_boxes_say_is_shown(full_run):
    table = rows(section(read(render_report(load_folder(full_run))), "boxes"))
    assert table[1] == ["Atelectasis", "100", "30%", "8.0%", "50%"]
    assert table[-1] == ["all boxes", "828", "34%", "8.0%", "57%"]
    assert len(table) == 1 + 8 + 1


def test_thresholds_say_where_they_were_chosen(full_run):
    thresholds = section(read(render_report(load_folder(full_run))), "thresholds")
    assert "the points were chosen on validation films" in texts(thresholds)
    assert [texts(one) for one in thresholds.iter("summary")] == ["youden", "sensitivity 0.90"]
    for row in rows(thresholds)[16:]:
        if len(row) == 6 and row[0] != "finding":
            assert float(row[2].rstrip("%")) == pytest.approx(90, abs=5)  # 20 positives at least


ODD = (None, True, -1, 1e308, float("nan"), float("inf"), 10**40, "x", "", [], [1], ["a", None], {},
       {"a": 1})  # fmt: skip
NAMES = [name for name in MISSING if name != "metrics.jsonl"]


def places(value, path=()):
    """Return the path of every value, of lists the first two members' alone."""
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value[:2]) if isinstance(value, list) else inside
    return [path, *(place for key, part in inside for place in places(part, (*path, key)))]


@given(data=st.data())
@settings(max_examples=20, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
def test_a_value_of_another_kind_anywhere_is_no_crash(run, data):
    path = run / data.draw(st.sampled_from(NAMES))
    text = path.read_text()
    values = json.loads(text)
    place = data.draw(st.sampled_from(places(values)))
    odd = data.draw(st.sampled_from(ODD))
    if not place:
        values = odd
    else:
        inner = values
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = odd
    path.write_text(json.dumps(values))
    read(render_report(load_folder(run)))
    path.write_text(text)
