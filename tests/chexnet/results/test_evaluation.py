"""evaluation.json and the tables of it, from predictions made by hand."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from rich.console import Console

import chexnet.results.evaluation
from chexnet.counter import Counter
from chexnet.errors import UserError
from chexnet.results.calibration import Calibration
from chexnet.results.evaluation import Assessed, assess, load_evaluation, write_evaluation
from chexnet.results.evaluation_text import print_evaluation
from chexnet.results.intervals import Bootstrap
from chexnet.results.predictions import Predictions
from chexnet.results.published import load_published

SCHEMA = Path(chexnet.results.evaluation.__file__).with_name("evaluation.schema.json")
DESCRIBED = {
    "split": "test", "split_kind": "official", "split_title": "test, NIH's official list (…)",
    "data": "d", "data_sha256": "0", "checkpoint": "epoch-0003.npz", "epoch": 3, "ranks": 1,
    "trained_on_patients": 0, "request": ["--seed", "3"], "checkpoint_sha256": "a" * 64,
    "published": {"comparable": [], "refused": "not shown: others"}, "boxes": None,
    "seconds": 1.5, "images_per_s": 20.0,
}  # fmt: skip
BOXES = {"num_boxes": 4, "mass_inside": 0.31, "mass_by_chance": 0.05, "hit_rate": 0.75}


def make_predictions(split, *, seed=0, num_films=60):
    random = np.random.default_rng(seed)
    labels = (random.random((num_films, 14)) < 0.3).astype(np.float32)
    labels[:, 13], labels[:, 12] = 0, 1  # no film with it; no film without it
    logits = np.round(random.normal(size=labels.shape) + labels, 1)
    names = tuple(f"{film // 3:08d}_{film % 3:03d}.png" for film in range(num_films))
    patients = tuple(name.partition("_")[0] for name in names)
    return Predictions(split, names, patients, labels, logits, 1.5)


def judge(validation=True, resamples=60):
    other = make_predictions("validation", seed=1) if validation else None
    how = Bootstrap(resamples=resamples)
    return assess(Assessed(make_predictions("test"), other, Calibration(), how))


def show(values):
    console = Console(width=80, record=True, force_terminal=False)
    print_evaluation(values, console=console, where="runs/one, epoch-0003.npz")
    return console.export_text()


def test_findings_of_one_kind_are_undefined_and_the_rest_is_scored(tmp_path):
    path = write_evaluation(tmp_path, values=DESCRIBED | judge())
    values = json.loads(path.read_text())
    jsonschema.validate(values, json.loads(SCHEMA.read_text()))
    assert load_evaluation(tmp_path) == values
    assert (values["num_examples"], values["num_patients"], values["num_defined"]) == (60, 20, 12)
    everywhere, nowhere = values["findings"][12:]
    assert (nowhere["auroc"], nowhere["auprc"], nowhere["roc"], nowhere["pr"]) == (None,) * 4
    assert (everywhere["auroc"], everywhere["auprc"], everywhere["num_negatives"]) == (None, 1, 0)
    assert nowhere["thresholds"] == everywhere["thresholds"] == []
    assert values["mean_auroc_interval"][0] < values["mean_auroc"]
    defined = [row["auprc"] for row in values["findings"][:12]]
    assert values["mean_auprc"] == pytest.approx(np.mean(defined))


def test_without_validation_films_there_are_no_thresholds():
    values = judge(validation=False, resamples=0)
    assert values["thresholds_chosen_on"] is None
    assert all(row["thresholds"] == [] for row in values["findings"])


def test_tables_say_which_films_and_fit_a_terminal():
    shown = show(DESCRIBED | judge())
    assert "test, NIH's official list" in shown
    assert "mean of 12 defined" in shown
    assert "undefined" in shown
    assert "not calibrated" in shown
    assert "chosen on validation" in shown
    assert "60 resamples of patients" in " ".join(shown.split())
    assert "…" not in shown.replace("(…)", "")  # no finding and no number is cut off
    assert "these films chose" in " ".join(
        show(DESCRIBED | judge() | {"split": "validation"}).split()
    )


def test_patients_who_were_trained_on_are_told_before_any_score():
    assert "No result" not in show(DESCRIBED | judge())
    for seen, said in ((2797, "trained on 2,797 of the patients"), (None, "cannot be told")):
        shown = " ".join(show(DESCRIBED | judge() | {"trained_on_patients": seen}).split())
        assert shown.startswith("No result: ")
        assert said in shown.partition("finding")[0]


def test_brier_and_ece_on_the_films_of_the_calibration_are_said_to_be_in_sample():
    fitted = Calibration("temperature", (0.5,) * 14)
    described = {"calibration": fitted.describe()}
    assert "in-sample" not in show(DESCRIBED | judge() | described)
    assert "in-sample" not in show(DESCRIBED | judge() | {"split": "validation"})
    assert "in-sample" in show(DESCRIBED | judge() | described | {"split": "validation"})


def test_few_patients_have_no_interval_and_the_reason_is_told(tmp_path):
    few = make_predictions("test", num_films=27)  # of 9 patients
    values = assess(Assessed(few, None, Calibration(), Bootstrap(resamples=60)))
    assert values["bootstrap"]["refused"] == "9 patients, and at least 10 are needed"
    assert values["mean_auroc_interval"] is None
    assert all(row["auroc_interval"] is None for row in values["findings"])
    path = write_evaluation(tmp_path, values=DESCRIBED | values)
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))
    shown = " ".join(show(DESCRIBED | values).split())
    assert "no intervals: 9 patients, and at least 10 are needed" in shown
    assert judge()["bootstrap"]["refused"] is None


def test_published_results_and_boxes_have_tables_of_their_own():
    beside = [one.describe() for one in load_published() if one.work in ("Wang 2017", "Kim 2021")]
    rows = [BOXES | {"finding": "Mass", "num_boxes": 4}]
    values = DESCRIBED | judge() | {
        "mean_auroc": 0.8,
        "published": {"comparable": beside, "refused": "not shown: others"},
        "boxes": BOXES | {"file": "list.csv", "method": "cam", "findings": rows},
    }  # fmt: skip
    jsonschema.validate(
        {"schema_version": 2} | json.loads(json.dumps(values)), json.loads(SCHEMA.read_text())
    )
    shown = show(values)
    order = [shown.index(name) for name in ("Wang 2017", "this run", "Kim 2021")]
    assert order == sorted(order)
    assert "75.0%" in shown
    assert "Dell" not in shown


@pytest.mark.parametrize("text", ["{", "{}", '{"schema_version": 1}', "[]"])
def test_another_file_is_refused_by_name(tmp_path, text):
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(UserError, match=r"evaluation\.json"):
        load_evaluation(tmp_path)


def test_a_number_that_is_none_is_not_written(tmp_path):
    values = DESCRIBED | judge()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_evaluation(tmp_path, values=values | {"loss": float("nan")})
    assert not (tmp_path / "evaluation.json").exists()


def test_counting_is_told_now_and_then_in_lines_on_standard_error(capsys, monkeypatch):
    times = iter([0.0, 5.0, 11.0, 12.0])
    monkeypatch.setattr("chexnet.counter.time.monotonic", lambda: next(times))
    with Counter("films", total=30) as counter:
        for done in (10, 22, 30):
            counter(done)
    said = capsys.readouterr()
    assert said.out == ""
    # 22 in 11 s: the other 8 take 4.
    assert said.err == "22/30 films, 2/s, 0:00:04 left\n30/30 films, 2/s, 0:00:00 left\n"


def test_ranks_that_do_not_speak_count_in_silence(capsys, monkeypatch):
    monkeypatch.setattr("chexnet.counter.SECONDS_BETWEEN_LINES", -1)
    with Counter("films", total=3, enabled=False) as counter:
        counter(3)
    assert capsys.readouterr().err == ""
