"""Predictions of a user's films: the numbers, the files, and what must not stop them."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from PIL import Image

import chexnet.predict
from chexnet.__main__ import main
from chexnet.checkpoint import save_checkpoint
from chexnet.data.pixels import convert_film
from chexnet.data.planted import draw_film
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.networks.loading import load_run
from chexnet.predict import Options, predict
from chexnet.prediction.inputs import find_inputs
from chexnet.prediction.prediction_files import Names
from chexnet.results.calibration import Calibration, write_calibration

SCHEMA = Path(chexnet.__file__).parent / "prediction" / "predictions.schema.json"


@pytest.fixture(scope="module")
def films(tmp_path_factory) -> Path:
    """Return a folder of seven films in two folders, and two files that are none."""
    folder = tmp_path_factory.mktemp("films")
    (folder / "two").mkdir()
    for number in range(7):
        name = f"two/{number}.jpg" if number > 4 else f"{number}.png"
        image = Image.fromarray(draw_film(seed=2, index=number, size_px=60 + number).image)
        image.save(folder / name, quality=95)
    (folder / "bad.png").write_text("text, whatever its name says")
    (folder / "two" / "empty.png").touch()
    return folder


@pytest.fixture(scope="module")
def done(known_run, films, tmp_path_factory):
    """Return what a prediction of that folder with heat maps left, and its outcome."""
    out = tmp_path_factory.mktemp("predicted")
    options = Options(output=out / "out", heatmap=out / "maps", batch_size=3)
    outcome = predict(known_run, inputs=find_inputs([films]), options=options)
    return out, outcome


def read_table(path):
    first, *lines = path.read_text().splitlines()
    return first, list(csv.DictReader(lines))


def by_hand(run, paths, calibration=None):
    """Return probabilities of films by way of prepare-data's pixels and the bare network."""
    loaded = load_run(run)
    rows = []
    for path in paths:
        stored = convert_film((path, 40, "fast")).data
        middle = np.frombuffer(stored, np.uint8).reshape(1, 40, 40, 1)[:, 4:36, 4:36]
        logits = loaded.model(middle, training=False).numpy()[0].astype(float)
        slope, intercept = calibration or (1, 0)
        rows.append(1 / (1 + np.exp(-(slope * logits + intercept))))
    return np.array(rows)


def test_probabilities_are_those_of_the_network_on_prepared_films(done, known_run, films):
    out, outcome = done
    document = json.loads((out / "out" / "predictions.json").read_text())
    paths = [Path(film["file"]) for film in document["films"]]
    assert [path.relative_to(films).as_posix() for path in paths] == [
        *(f"{number}.png" for number in range(5)), "two/5.jpg", "two/6.jpg",
    ]  # fmt: skip
    found = [[film["probabilities"][name] for name in FINDINGS] for film in document["films"]]
    np.testing.assert_allclose(found, by_hand(known_run, paths), atol=2e-6)
    _, rows = read_table(out / "out" / "predictions.csv")
    table = [[float(row[name]) for name in FINDINGS] for row in rows]
    np.testing.assert_allclose(table, found, atol=1e-9)
    assert outcome.num_films == 7


def test_the_document_is_as_its_schema_says(done):
    out, _ = done
    document = json.loads((out / "out" / "predictions.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["findings"] == list(FINDINGS)
    assert document["num_films"] == 7


def test_what_is_no_film_is_listed_with_its_reason(done):
    out, outcome = done
    document = json.loads((out / "out" / "predictions.json").read_text())
    listed = {Path(bad["file"]).name: bad["reason"] for bad in document["unreadable"]}
    assert listed == {
        "bad.png": "text; PNG, JPEG and DICOM are read",
        "empty.png": "an empty file",
    }
    assert len(outcome.unreadable) == 2


def test_not_for_clinical_use_and_not_calibrated_stand_where_they_belong(done):
    out, _ = done
    first, _ = read_table(out / "out" / "predictions.csv")
    assert first == "# Not for clinical use. Probabilities are not calibrated."
    document = json.loads((out / "out" / "predictions.json").read_text())
    assert document["note"] == "Not for clinical use"
    assert document["calibration"]["method"] == "none"


def test_three_most_probable_findings_of_each_film_are_drawn(done):
    out, _ = done
    document = json.loads((out / "out" / "predictions.json").read_text())
    drawn = sorted(name for film in document["films"] for name in film["heatmaps"].values())
    assert drawn == sorted(path.name for path in (out / "maps").iterdir())
    assert len(drawn) == 21
    film = document["films"][5]
    ranked = sorted(film["probabilities"], key=lambda name: -film["probabilities"][name])
    assert list(film["heatmaps"]) == ranked[:3]
    assert film["heatmaps"][ranked[0]] == f"two_5.jpg__{ranked[0]}.png"
    for name in drawn:
        Image.open(out / "maps" / name).verify()


def test_the_batch_size_changes_nothing(known_run, films, done, tmp_path):
    _, outcome = done
    options = Options(output=tmp_path, batch_size=1)
    other = predict(known_run, inputs=find_inputs([films]), options=options)
    for one, two in zip(outcome.films, other.films, strict=True):
        np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-6)
        assert two.heatmaps == {}


def copy_run(run, folder):
    return Path(shutil.copytree(run, folder / "run"))


def test_a_calibration_of_the_run_is_applied_and_said(known_run, films, tmp_path):
    run = copy_run(known_run, tmp_path)
    [checkpoint] = (run / "checkpoints").glob("*.npz")
    slope, intercept = 0.5, -1.0
    calibration = Calibration("platt", (slope,) * 14, (intercept,) * 14)
    write_calibration(calibration, checkpoint=checkpoint)
    options = Options(output=tmp_path / "out")
    outcome = predict(run, inputs=find_inputs([films / "3.png"]), options=options)
    expected = by_hand(run, [films / "3.png"], (slope, intercept))[0]
    np.testing.assert_allclose(outcome.films[0].probabilities, expected, atol=1e-6)
    first, _ = read_table(tmp_path / "out" / "predictions.csv")
    assert first == "# Not for clinical use. Probabilities are calibrated."


def test_weights_of_mixed_precision_are_used_in_single_on_a_cpu(known_run, films, done, tmp_path):
    run = copy_run(known_run, tmp_path)
    loaded = load_run(run)
    mixed = replace(loaded.description, precision="mixed_float16")
    save_checkpoint(
        run / "checkpoints", description=mixed, model=loaded.model.variables, optimizer=[]
    )
    options = Options(device="cpu")
    outcome = predict(run, inputs=find_inputs([films / "0.png"]), options=options)
    np.testing.assert_allclose(
        outcome.films[0].probabilities, done[1].films[0].probabilities, atol=1e-6
    )
    assert outcome.loaded.model.dtype_policy.name == "float32"


def test_weights_that_diverged_are_an_error_that_names_films(known_run, films, tmp_path):
    run = copy_run(known_run, tmp_path)
    loaded = load_run(run)
    for variable in loaded.model.variables:
        variable.assign(np.full(variable.shape, 3e38))  # finite; their products are not
    save_checkpoint(
        run / "checkpoints", description=loaded.description, model=loaded.model.variables,
        optimizer=[],
    )  # fmt: skip
    with pytest.raises(UserError, match="diverged") as raised:
        predict(run, inputs=find_inputs([films]), options=Options(output=tmp_path / "out"))
    assert raised.value.exit_code == 1
    assert str(films / "0.png") in raised.value.found
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert document["films"] == []
    assert len(document["unreadable"]) == 9


def test_one_film_without_a_number_is_left_out_and_named(known_run, films, tmp_path, monkeypatch):
    make = chexnet.predict._make_explain

    def spoil(model, *, options):
        explain = make(model, options=options)

        def spoilt(images):
            logits, maps = explain(images)
            logits = logits.copy()
            logits[2, 5] = np.nan
            return logits, maps

        return spoilt

    monkeypatch.setattr(chexnet.predict, "_make_explain", spoil)
    options = Options(output=tmp_path / "out", heatmap=tmp_path / "maps")
    outcome = predict(known_run, inputs=find_inputs([films]), options=options)
    assert outcome.num_films == 6
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    [reason] = [b["reason"] for b in document["unreadable"] if b["file"] == str(films / "2.png")]
    assert "no number" in reason
    assert not [*(tmp_path / "maps").glob("2.png*")]
    # The films after it keep their own numbers.
    found = [list(one["probabilities"].values()) for one in document["films"]]
    paths = [Path(one["file"]) for one in document["films"]]
    np.testing.assert_allclose(found, by_hand(known_run, paths), atol=2e-6)


def run_main(*words, capsys):
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_user_sees_a_table_and_exit_1_for_what_was_left_out(known_run, films, capsys):
    code, out, err = run_main("predict", "--run", known_run, "--input", films, capsys=capsys)
    assert code == 1
    assert out.count("left out: ") == 2
    assert "Not for clinical use." in out
    assert "not calibrated" in out
    assert "7 films in " in out
    assert "images/s" in out
    assert "expected: films alone" in err
    assert "bad.png" in err


def test_one_film_shows_all_findings_the_surest_first(known_run, films, capsys):
    code, out, _ = run_main(
        "predict", "--run", known_run, "--input", films / "0.png", capsys=capsys
    )
    assert code == 0
    numbers = [float(line.split("│")[2]) for line in out.splitlines() if line.startswith("│")]
    assert len(numbers) == 14
    assert numbers == sorted(numbers, reverse=True)


def test_json_goes_to_the_console_alone(known_run, films, capsys):
    code, out, _ = run_main(
        "predict", "--run", known_run, "--input", films / "0.png", "--json", capsys=capsys
    )
    assert code == 0
    jsonschema.validate(json.loads(out), json.loads(SCHEMA.read_text()))


@pytest.mark.slow
def test_a_reader_that_has_read_enough_is_no_mistake(known_run, films):
    reader, writer = os.pipe()
    os.close(reader)
    words = ["predict", "--run", known_run, "--input", films / "0.png", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "chexnet", *words], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE


def test_nothing_is_written_over_without_force(known_run, films, done, capsys):
    out, _ = done
    words = ["predict", "--run", known_run, "--input", films / "1.png"]
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    for option, folder in (("--output", "out"), ("--heatmap", "maps")):
        code, _, err = run_main(*words, option, out / folder, capsys=capsys)
        assert code == 2
        assert "--force" in err
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_force_writes_over_and_not_through_a_link(known_run, films, tmp_path, capsys):
    words = ["predict", "--run", known_run, "--input", films / "1.png", "--findings", "Mass"]
    (tmp_path / "maps").mkdir()
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "maps" / "1.png__Mass.png").symlink_to(tmp_path / "mine.txt")
    code, _, _ = run_main(*words, "--heatmap", tmp_path / "maps", "--force", capsys=capsys)
    assert code == 0
    assert (tmp_path / "mine.txt").read_text() == "keep"
    Image.open(tmp_path / "maps" / "1.png__Mass.png").verify()


def test_force_leaves_no_heat_maps_of_an_earlier_prediction(known_run, films, tmp_path, capsys):
    film = tmp_path / "film__Mass.png"  # a film of such a name is no heat map
    film.write_bytes((films / "1.png").read_bytes())
    for name in ("old.png__Mass.png", "a.png__Pleural_Thickening.png", "x__y.png", "notes.txt"):
        (tmp_path / name).write_text("earlier")
    code, _, _ = run_main(
        "predict", "--run", known_run, "--input", film, "--findings", "Hernia",
        "--heatmap", tmp_path, "--force", capsys=capsys,
    )  # fmt: skip
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "film__Mass.png", "film__Mass.png__Hernia.png", "notes.txt", "x__y.png",
    ]  # fmt: skip


MISTAKES = [
    (["--findings", "Masss"], 2, "Pleural_Thickening"),
    (["--method", "lime"], 2, "cam, gradcam"),
    (["--batch-size", "0"], 2, "--batch-size"),
    (["--device", "tpu"], 2, "auto, cpu, gpu"),
    (["--checkpoint", "epoch-9999.npz"], 2, "epoch-9999.npz"),
    (["--output", "FILE"], 2, "a folder at"),
]


@pytest.mark.parametrize(("options", "code", "words"), MISTAKES)
def test_mistakes_are_told(known_run, films, tmp_path, capsys, options, code, words):
    (tmp_path / "file").touch()
    options = [tmp_path / "file" if word == "FILE" else word for word in options]
    found, _, err = run_main(
        "predict", "--run", known_run, "--input", films / "0.png", "--heatmap", tmp_path / "m",
        *options, capsys=capsys,
    )  # fmt: skip
    assert found == code
    assert words in err
    assert err.count("expected:") == 1


def test_no_film_at_all_is_a_bad_file(known_run, films, tmp_path, capsys):
    code, _, err = run_main(
        "predict", "--run", known_run, "--input", films / "bad.png", "--output", tmp_path / "o",
        capsys=capsys,
    )  # fmt: skip
    assert code == 2
    assert "bad.png: text" in err
    document = json.loads((tmp_path / "o" / "predictions.json").read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    assert document["films"] == []
    assert [bad["reason"] for bad in document["unreadable"]] == [
        "text; PNG, JPEG and DICOM are read"
    ]
    assert read_table(tmp_path / "o" / "predictions.csv")[1] == []


def test_the_reasons_are_printed_whole_where_no_file_is_a_film(known_run, films, capsys):
    code, out, _ = run_main(
        "predict", "--run", known_run, "--input", films / "bad.png", "--json", capsys=capsys
    )
    assert code == 2
    jsonschema.validate(json.loads(out), json.loads(SCHEMA.read_text()))


def test_a_run_without_a_checkpoint_is_an_error(known_run, films, tmp_path, capsys):
    (tmp_path / "config.json").write_bytes((known_run / "config.json").read_bytes())
    code, out, err = run_main("predict", "--run", tmp_path, "--input", films, capsys=capsys)
    assert code == 2
    assert "checkpoint" in err
    assert out == ""


def test_a_half_written_checkpoint_is_an_error(known_run, films, tmp_path, capsys):
    run = copy_run(known_run, tmp_path)
    [checkpoint] = (run / "checkpoints").glob("*.npz")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1000])
    code, _, err = run_main("predict", "--run", run, "--input", films, capsys=capsys)
    assert code == 1
    assert str(checkpoint) in err
    assert "Traceback" not in err


def test_one_bad_file_among_a_thousand_good_ones_stops_none(known_run, films, tmp_path, capsys):
    content = (films / "0.png").read_bytes()
    for number in range(1000):
        (tmp_path / f"{number:04d}.png").write_bytes(content)
    (tmp_path / "0500.png").write_bytes(content[:-100])
    code, out, err = run_main(
        "predict", "--run", known_run, "--input", tmp_path, "--output", tmp_path / "out",
        capsys=capsys,
    )  # fmt: skip
    assert code == 1
    document = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert [Path(bad["file"]).name for bad in document["unreadable"]] == ["0500.png"]
    assert document["num_films"] == len(document["films"]) == 999
    assert "0500.png" in err
    assert "999 films in" in out
    assert "0001.png" not in out  # too many for a table


NAMES = [
    ("a.png", "a.png__Mass.png"),
    ("one/two/a b.png", "one_two_a_b.png__Mass.png"),
    ("../../etc/passwd", "_.._etc_passwd__Mass.png"),
    ("..", "film__Mass.png"),
    ("C:\\x\\y.dcm", "C__x_y.dcm__Mass.png"),
    ("フィルム.png", "フィルム.png__Mass.png"),
]


@pytest.mark.parametrize(("name", "given"), NAMES)
def test_names_of_heat_maps_are_safe(name, given):
    assert Names().give(name, finding="Mass") == given
    assert os.sep not in given


def test_names_of_heat_maps_are_given_once():
    names = Names()
    given = [names.give(name, finding="Mass") for name in ("a/b.png", "a_b.png", "A_B.png")]
    assert given == ["a_b.png__Mass.png", "a_b.png-2__Mass.png", "A_B.png-3__Mass.png"]
    long = [names.give("é" * 200 + end, finding="Pleural_Thickening") for end in "xy"]
    assert len(set(long)) == 2
    assert all(len(name.encode()) < 200 for name in long)


def test_a_name_that_is_no_text_is_written_down(known_run, films, tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.png"
    Path(os.fsdecode(odd)).write_bytes((films / "0.png").read_bytes())
    options = Options(output=tmp_path / "out", heatmap=tmp_path / "maps")
    outcome = predict(known_run, inputs=find_inputs([tmp_path]), options=options)
    assert outcome.num_films == 1
    json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert "\\udcff" in (tmp_path / "out" / "predictions.csv").read_text()


def test_a_name_that_is_no_text_is_printed(known_run, films, tmp_path, capsys):
    for name in (b"/a\xff.png", b"/b\xfe.png"):
        place = Path(os.fsdecode(os.fsencode(tmp_path) + name))
        place.write_bytes((films / "0.png").read_bytes() if b"a" in name else b"text")
    sys.stderr.reconfigure(errors="backslashreplace")  # as Python's own is
    code, out, err = run_main("predict", "--run", known_run, "--input", tmp_path, capsys=capsys)
    assert code == 1
    assert "a\\udcff.png" in out
    assert "left out: " in out
    assert "b\\udcfe.png" in out
    assert "Traceback" not in err
