"""Evaluation of whole runs: numbers against scikit-learn, on ranks, and what is refused."""

import csv
import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

import chexnet.__main__ as program
import chexnet.evaluate
import chexnet.results.evaluation
from chexnet import distributed
from chexnet.checkpoint import load_checkpoint, save_checkpoint
from chexnet.distributed import Ranks
from chexnet.errors import UserError
from chexnet.evaluate import make_predict, predict_split
from chexnet.labels import FINDINGS
from chexnet.networks.loading import load_run
from chexnet.prepare import prepare_data
from chexnet.records import load_dataset
from chexnet.results.calibration import load_calibration
from chexnet.results.evaluation import load_evaluation
from chexnet.results.published import Films

SCHEMA = Path(chexnet.results.evaluation.__file__).with_name("evaluation.schema.json")
SETTINGS = ["preset=demo", "model=tiny", "device=cpu", "batch_size=32", "epochs=2"]
SMALL = [word for setting in SETTINGS for word in ("--set", setting)]
# Of two evaluations of one run these may differ.
OF_THE_MACHINE = ("ranks", "seconds", "images_per_s")


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Be the only rank, without MPI: it would stay with the process that runs the tests."""
    for name in (*program.RANK_VARIABLES, *program.SIZE_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(distributed.hvd, "size", lambda: 1)
    monkeypatch.setattr(distributed, "start", lambda: Ranks(0, 1, 0))
    monkeypatch.setattr(distributed, "select_device", lambda *_, **__: "cpu")


@pytest.fixture(scope="module")
def finished(chexnet, fast_data, tmp_path_factory):
    """Return the folder of a small run."""
    folder = tmp_path_factory.mktemp("evaluate") / "run"
    done = chexnet("train", "--data", fast_data, "--run", folder, *SMALL)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """Return a copy of it."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def evaluate(run, *words, split="test", other=""):
    words = ["evaluate", "--run", str(run), "--split", split, "--resamples", "50", *words]
    assert program.main([*words, "--no-gallery"]) == 0
    return load_evaluation(run, split=split, other=other)


def read_predictions(path):
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    columns = [
        np.array([[float(row[f"{finding}_{name}"]) for finding in FINDINGS] for row in rows])
        for name in ("label", "probability")
    ]
    return [row["filename"] for row in rows], *columns


def refused(run, capsys, *words, code=2):
    capsys.readouterr()
    assert program.main(["evaluate", "--run", str(run), *words]) == code
    return capsys.readouterr().err


def test_every_number_equals_scikit_learns_on_the_predictions_that_were_written(run, fast_data):
    found = evaluate(run)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    names, labels, p = read_predictions(run / "predictions-test.csv")
    described = load_dataset(fast_data).splits["test"]
    assert len(set(names)) == len(names) == found["num_examples"] == described.num_examples
    assert found["num_patients"] == len({name.partition("_")[0] for name in names})
    assert labels.sum(axis=0).tolist() == list(described.positives.values())
    for f, row in enumerate(found["findings"]):
        y, x = labels[:, f], p[:, f]
        assert row["finding"] == FINDINGS[f]
        assert row["auroc"] == pytest.approx(roc_auc_score(y, x), abs=1e-7)
        assert row["auprc"] == pytest.approx(average_precision_score(y, x), abs=1e-7)
        assert row["brier"] == pytest.approx(brier_score_loss(y, x), abs=1e-7)
        low, high = row["auroc_interval"]
        assert 0 <= low < high <= 1
    assert found["mean_auroc"] == pytest.approx(roc_auc_score(labels, p), abs=1e-7)
    assert found["mean_auprc"] == pytest.approx(average_precision_score(labels, p), abs=1e-7)
    assert found["loss"] == pytest.approx(log_loss(labels.ravel(), p.ravel()), abs=1e-6)


def test_validation_and_test_are_kept_apart_by_name(run, capsys):
    test, validation = evaluate(run), evaluate(run, split="validation")
    assert (test["split"], validation["split"]) == ("test", "validation")
    names = [read_predictions(run / f"predictions-{s}.csv")[0] for s in ("test", "validation")]
    assert not set(names[0]) & set(names[1])
    assert load_evaluation(run) == test
    assert load_evaluation(run, split="train") is None
    shown = capsys.readouterr().out
    assert "test, official lists, " in shown
    assert "validation, " in shown


def test_thresholds_are_chosen_on_validation_and_reported_on_test(run):
    evaluate(run, split="validation")
    found = evaluate(run)
    assert found["thresholds_chosen_on"] == "validation"
    _, labels, p = read_predictions(run / "predictions-test.csv")
    _, chosen_on, at = read_predictions(run / "predictions-validation.csv")
    known = found["findings"][FINDINGS.index("Infiltration")]
    assert [one["name"] for one in known["thresholds"]] == [
        "youden", "sensitivity 0.90", "sensitivity 0.95", "specificity 0.90", "specificity 0.95",
    ]  # fmt: skip
    for f, row in enumerate(found["findings"]):
        for one in row["thresholds"]:
            assert one["threshold"] in at[:, f]
            flagged = p[:, f] >= one["threshold"]
            assert one["sensitivity"] == pytest.approx(flagged[labels[:, f] == 1].mean())
            if one["name"] == "sensitivity 0.90":
                reached = (at[:, f] >= one["threshold"])[chosen_on[:, f] == 1].mean()
                assert reached >= 0.9


def test_calibration_is_fitted_on_validation_kept_and_used_again(run):
    before = evaluate(run)
    fitted = evaluate(run, "--calibrate", "temperature")
    calibration = fitted["calibration"]
    assert (calibration["method"], calibration["fitted_on"]) == ("temperature", "validation")
    assert before["calibration"]["method"] == "none"
    again = evaluate(run)
    assert again["calibration"] == calibration
    kept = load_calibration(run / "checkpoints" / fitted["checkpoint"])
    assert kept.describe() == calibration
    for mine, yours in zip(before["findings"], fitted["findings"], strict=True):
        assert mine["auroc"] == yours["auroc"]
        assert mine["brier"] != yours["brier"]
    assert evaluate(run, "--calibrate", "none")["findings"] == before["findings"]


@pytest.mark.mpi
def test_1_2_and_3_ranks_and_both_formats_give_the_same_evaluation(
    run, chexnet, fast_data, small_data
):
    boxes = fast_data.parent / "nih" / "BBox_List_2017.csv"
    found = [evaluate(run, "--boxes", str(boxes))]
    tables = [read_predictions(run / "predictions-test.csv")]
    # Ranks share single films of `fast` data, and whole files of `encoded` data.
    for ranks, data in ((2, fast_data), (3, small_data)):
        words = ("--data", data, "--resamples", 50, "--boxes", boxes, "--no-gallery")
        done = chexnet("evaluate", "--run", run, *words, ranks=ranks)
        assert done.code == 0, done.err
        other = load_dataset(data).sha256 if data is small_data else ""
        found.append(load_evaluation(run, other=other))
        name = f"predictions-test-{other[:8]}.csv" if other else "predictions-test.csv"
        tables.append(read_predictions(run / name))
    assert [one["ranks"] for one in found] == [1, 2, 3]
    assert found[0]["boxes"]["num_boxes"] > 20
    # Films are predicted in batches of one size, whatever the ranks; 1e-7 is for threads.
    one, two, three = ([*flatten(values)] for values in found)
    assert two == pytest.approx(one, abs=1e-7)
    assert three == pytest.approx(one, abs=1e-7)
    for names, labels, p in tables[1:]:
        assert names == tables[0][0]
        assert np.array_equal(labels, tables[0][1])
        assert p == pytest.approx(tables[0][2], abs=1e-7)


def flatten(values):
    """Yield every number of an evaluation that the machine does not decide."""
    if isinstance(values, dict):
        values = [value for key, value in values.items() if key not in OF_THE_MACHINE]
    if isinstance(values, list | tuple):
        for value in values:
            yield from flatten(value)
    elif isinstance(values, int | float):
        yield values


def test_json_is_all_that_is_printed(run, capsys):
    capsys.readouterr()
    found = evaluate(run, "--json")
    assert json.loads(capsys.readouterr().out) == found


def test_the_gallery_is_drawn_of_the_films_that_were_evaluated(run, fast_data):
    words = ["evaluate", "--run", str(run), "--resamples", "0"]
    assert program.main(words) == 0
    gallery = json.loads((run / "plots" / "gallery.json").read_text())
    pictures = gallery["pictures"]
    evaluation = load_evaluation(run)
    assert (
        gallery["data_sha256"]
        == hashlib.sha256((fast_data / "dataset.json").read_bytes()).hexdigest()
    )
    assert gallery["checkpoint_sha256"] == evaluation["checkpoint_sha256"]
    names, labels, p = read_predictions(run / "predictions-test.csv")
    for one in pictures:
        f = FINDINGS.index(one["finding"])
        assert labels[names.index(one["film"]), f] == 1
        assert one["probability"] == pytest.approx(p[labels[:, f] == 1, f].max(), abs=1e-6)
    assert evaluation["mean_auroc_interval"] is None
    # Another split leaves it alone unless it is asked for.
    assert program.main([*words, "--split", "validation"]) == 0
    assert json.loads((run / "plots" / "gallery.json").read_text())["split"] == "test"
    assert program.main([*words, "--split", "validation", "--gallery"]) == 0
    assert json.loads((run / "plots" / "gallery.json").read_text())["split"] == "validation"


def change_checkpoint(run, *, values=None, **changes):
    """Write the newest checkpoint anew, whole, with another description or other weights."""
    [*_, path] = sorted((run / "checkpoints").glob("epoch-*.npz"))
    found = load_checkpoint(path)
    for one in (run / "checkpoints").glob("epoch-*.npz"):
        one.unlink()
    save_checkpoint(
        run / "checkpoints",
        description=dataclasses.replace(found.description, **changes),
        model=[_Variable(v if values is None else np.full_like(v, values))
               for v in found.model_values],
        optimizer=[_Variable(v) for v in found.optimizer_values],
    )  # fmt: skip


class _Variable:
    def __init__(self, values):
        self.values = values

    def numpy(self):
        return self.values


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"findings": FINDINGS[::-1]}, "Hernia at place 0, where Atelectasis belongs"),
        ({"findings": FINDINGS[:8]}, "8 findings"),
        ({"model": "densenet121"}, "densenet121"),
        ({"normalisation": {"scale": 1.0}}, "normalisation"),
        ({"data_size": 64}, "films of 64 px"),
    ],
)
def test_wrong_weights_cannot_pass(run, capsys, changes, expected):
    change_checkpoint(run, **changes)
    assert expected in refused(run, capsys)
    assert not (run / "evaluation.json").exists()


def test_predictions_that_are_no_numbers_are_an_error_that_names_the_films(run, capsys, fast_data):
    change_checkpoint(run, values=3e38)  # finite, as every checkpoint; their products are not
    said = refused(run, capsys, code=1)
    first = (fast_data / "test-films.csv").read_text().splitlines()[1].split(",")[0]
    number = load_dataset(fast_data).splits["test"].num_examples
    assert f"others for {number} of {number} films of the split test: {first}" in said


def test_one_film_that_makes_no_number_is_named(finished, fast_data):
    loaded = load_run(finished)
    dataset = load_dataset(fast_data)
    asked = {"dataset": dataset, "split": "test", "batch_size": 7, "ranks": Ranks(0, 1, 0)}
    predict = make_predict(loaded.model, input_size=32)
    whole = predict_split(predict, **asked)
    seen = []

    def spoil(images):
        logits = predict(images).numpy()
        seen.append(len(logits))
        if len(seen) == 2:
            logits[3, 5] = np.inf
        return _Variable(logits)

    with pytest.raises(UserError) as caught:
        predict_split(spoil, **asked)
    assert caught.value.found.endswith(f"of the split test: {whole.names[10]}")
    assert set(seen) == {7}  # the last batch was filled up


def test_a_run_without_checkpoint_and_damaged_ones_are_errors(run, capsys):
    [newest, *_] = sorted((run / "checkpoints").glob("epoch-*.npz"))[::-1]
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2])
    assert newest.name in refused(run, capsys, "--checkpoint", newest.name)
    for path in (run / "checkpoints").glob("epoch-*.npz"):
        path.write_bytes(b"")
    assert "damaged" in refused(run, capsys, code=1)
    shutil.rmtree(run / "checkpoints")
    assert "a checkpoint to evaluate" in refused(run, capsys)
    assert "no such file" in refused(run, capsys, "--checkpoint", "epoch-0099.npz").lower()


def test_the_checkpoint_can_be_chosen(run):
    paths = sorted((run / "checkpoints").glob("epoch-*.npz"))
    last = evaluate(run, "--checkpoint", "last")
    assert (last["epoch"], last["checkpoint"]) == (2, paths[-1].name)
    assert evaluate(run, "--checkpoint", paths[0].name)["epoch"] == 1
    found = evaluate(run, "--checkpoint", str(paths[0]), "--seed", "5")
    assert found["epoch"] == 1
    assert found["checkpoint_sha256"] == hashlib.sha256(paths[0].read_bytes()).hexdigest()
    assert found["request"] == [
        "--checkpoint", paths[0].name, "--resamples", "50", "--seed", "5", "--no-gallery",
    ]  # fmt: skip


def test_a_calibration_of_one_checkpoint_leaves_that_of_another(run):
    first, last = sorted((run / "checkpoints").glob("epoch-*.npz"))
    one = evaluate(run, "--checkpoint", first.name, "--calibrate", "platt")["calibration"]
    other = evaluate(run, "--checkpoint", last.name, "--calibrate", "temperature")["calibration"]
    assert one["method"] != other["method"]
    assert evaluate(run, "--checkpoint", first.name)["calibration"] == one


def test_a_checkpoint_of_another_run_is_refused(run, known_run, capsys, tmp_path):
    [other] = (known_run / "checkpoints").glob("epoch-*.npz")
    assert "one of another run" in refused(run, capsys, "--checkpoint", str(other))
    [own, *_] = sorted((run / "checkpoints").glob("epoch-*.npz"))
    shutil.copyfile(own, tmp_path / own.name)
    assert evaluate(run, "--checkpoint", str(tmp_path / own.name))["epoch"] == 1


@pytest.fixture
def others(fast_data, tmp_path):
    """Return the same films divided by patient: some of the test films were trained on."""
    folder = tmp_path / "others"
    source = fast_data.parent / "nih"
    prepare_data(source, output=folder, size_px=32, format="fast", split="patient")
    return folder


def patients_of(folder, *splits):
    rows = [r for s in splits for r in csv.DictReader((folder / f"{s}-films.csv").open())]
    return {row["patient"] for row in rows}


def test_patients_who_were_trained_on_are_counted_and_nothing_stands_beside(
    run, capsys, fast_data, others, monkeypatch
):
    assert evaluate(run)["trained_on_patients"] == 0
    # As many films as NIH's list has, which would have published results beside them.
    films = Films("test, NIH's official list", "test", "official", 25_596)
    monkeypatch.setattr(chexnet.evaluate, "our_films", lambda *_, **__: films)
    assert evaluate(run)["published"]["comparable"]
    both = patients_of(others, "test") & patients_of(fast_data, "train", "validation")
    own = {path: path.read_bytes() for path in run.glob("*-test.*")} | {
        path: path.read_bytes() for path in run.glob("evaluation*")
    }
    found = evaluate(run, "--data", str(others), other=load_dataset(others).sha256)
    assert {path: path.read_bytes() for path in own} == own  # the run's own scores stay
    assert found["trained_on_patients"] == len(both) > 0
    assert found["published"]["comparable"] == []
    assert f"trained on {len(both)} of the patients" in found["published"]["refused"]
    assert f"No result: the run was trained on {len(both)} of" in capsys.readouterr().out
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert "has not seen" in refused(run, capsys, "--data", str(others), "--beside", "Wang 2017")


def test_nothing_is_calibrated_on_other_data(run, capsys, others):
    said = refused(run, capsys, "--data", str(others), "--calibrate", "platt")
    assert "calibrate without --data" in said
    assert not [*(run / "checkpoints").glob("calibration*")]


def test_a_device_that_is_missing_names_the_option_of_evaluate(run, capsys, monkeypatch):
    asked = []

    def select(device, **_):
        asked.append(device)
        raise UserError("GPU 0", found="none", fix="mean it: --set device=cpu")

    monkeypatch.setattr(distributed, "select_device", select)
    assert "mean it: --device cpu" in refused(run, capsys)
    refused(run, capsys, "--device", "gpu")
    assert asked == ["cpu", "gpu"]
    # A program that could use GPUs scores without one where there is none.
    for gpus in ([], ["GPU:0"]):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda _, found=gpus: found)
        refused(run, capsys, "--device", "auto")
    assert asked[2:] == ["cpu", "gpu"]


def test_weights_of_mixed_precision_are_scored_in_single_on_a_cpu(run):
    evaluate(run, "--checkpoint", "last")
    *_, exact = read_predictions(run / "predictions-test.csv")
    change_checkpoint(run, precision="mixed_float16")
    evaluate(run, "--checkpoint", "last")
    *_, p = read_predictions(run / "predictions-test.csv")
    np.testing.assert_allclose(p, exact, atol=1e-7)  # in half they differ by 1e-4


def test_a_run_that_cannot_be_written_to_is_told_before_films_are_predicted(
    run, capsys, monkeypatch
):
    """As on a file system that is mounted to be read only, where access(2) says no to root too."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run)
    told = refused(run, capsys)
    assert f"no permission to write in {run}" in told
    assert "films predicted" not in told


def test_wrong_use_is_told_with_what_would_be_right(run, capsys, tmp_path):
    assert "test, train, validation" in refused(run, capsys, "--split", "tests")
    assert "Wang 2017 on NIH" in refused(run, capsys, "--beside", "Wang 2017")
    assert "at least 40 resamples" in refused(run, capsys, "--resamples", "39")
    told = refused(run, capsys, "--boxes", str(tmp_path / "none.csv"))
    assert "found:    No such file or directory" in told
    assert "films predicted" not in told  # of NIH's test list that is an hour on a CPU
    assert "config.json" in refused(tmp_path, capsys)
