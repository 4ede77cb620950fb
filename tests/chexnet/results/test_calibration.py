"""Calibration against scikit-learn, a general optimiser and sums made by hand."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.calibration import calibration_curve as reference_curve
from sklearn.metrics import brier_score_loss

import chexnet.results.calibration
from chexnet.errors import UserError
from chexnet.results.calibration import (
    Calibration,
    brier,
    calibration_curve,
    expected_error,
    fit_calibration,
    load_calibration,
    sigmoid,
    write_calibration,
)

SCHEMA = Path(chexnet.results.calibration.__file__).with_name("calibration.schema.json")


def make_logits(seed=0, num_films=2000, overconfidence=2.0):
    """Return labels drawn with the probabilities of some logits, and those logits scaled up."""
    random = np.random.default_rng(seed)
    logits = random.normal(-1, 1.5, (num_films, 14))
    labels = (random.random(logits.shape) < sigmoid(logits)).astype(np.float32)
    return labels, overconfidence * logits


def test_brier_and_curve_equal_scikit_learn():
    labels, logits = make_logits()
    y, p = labels[:, 0], sigmoid(logits[:, 0])
    assert brier(y, probabilities=p) == pytest.approx(brier_score_loss(y, p), abs=1e-12)
    observed, predicted = reference_curve(y, p, n_bins=10, strategy="quantile")
    curve = calibration_curve(y, probabilities=p)
    assert curve["observed"] == pytest.approx(observed.tolist())
    assert curve["predicted"] == pytest.approx(predicted.tolist())
    assert curve["count"] == [200] * 10


def test_expected_error_by_hand():
    # Bins {0.1, 0.2} and {0.6, 0.8}: |0.15 - 0.5| and |0.7 - 1.0|, as many films in each.
    labels, p = np.array([0, 1, 1, 1]), np.array([0.1, 0.2, 0.6, 0.8])
    curve = calibration_curve(labels, probabilities=p, num_bins=2)
    assert curve["count"] == [2, 2]
    assert expected_error(curve) == pytest.approx((0.35 + 0.3) / 2)


def test_films_of_one_probability_make_one_bin():
    labels = np.array([0, 1, 0, 1])
    curve = calibration_curve(labels, probabilities=np.full(4, 0.5))
    assert curve == {"predicted": [0.5], "observed": [0.5], "count": [4]}


def test_temperature_finds_how_much_too_sure_the_logits_are():
    labels, logits = make_logits(overconfidence=3.0)
    found = fit_calibration(labels, logits=logits, method="temperature")
    reference = minimize(
        lambda t: np.mean(np.logaddexp(0, logits / t) - labels * logits / t), 1.0,
        method="Nelder-Mead", options={"xatol": 1e-8},
    )  # fmt: skip
    assert found.describe()["parameters"]["temperature"] == pytest.approx(reference.x[0], rel=1e-5)
    assert 1 / found.slope[0] == pytest.approx(3, rel=0.05)
    assert found.intercept == (0,) * 14
    after = calibration_curve(labels[:, 0], probabilities=found.probabilities(logits)[:, 0])
    before = calibration_curve(labels[:, 0], probabilities=sigmoid(logits[:, 0]))
    assert expected_error(after) < 0.5 * expected_error(before)


def test_platt_equals_a_general_optimiser_with_his_targets():
    labels, logits = make_logits(num_films=300)
    found = fit_calibration(labels, logits=logits + 2, method="platt")
    for f in (0, 7):
        y, x = labels[:, f], logits[:, f] + 2
        targets = np.where(y == 1, (y.sum() + 1) / (y.sum() + 2), 1 / ((1 - y).sum() + 2))

        def loss(at, x=x, targets=targets):
            return np.sum(np.logaddexp(0, at[0] * x + at[1]) - targets * (at[0] * x + at[1]))

        reference = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
        assert [found.slope[f], found.intercept[f]] == pytest.approx(reference.x, abs=1e-4)


def test_platt_bears_findings_told_apart_perfectly_and_findings_of_one_kind():
    labels = np.zeros((20, 14))
    labels[10:, 0] = 1
    logits = np.tile(np.linspace(-50, 50, 20)[:, None], 14)
    found = fit_calibration(labels, logits=logits, method="platt")
    assert 0 < found.slope[0] < 10
    assert (found.slope[1], found.intercept[1]) == (1, 0)


def test_platt_does_not_turn_the_order_of_a_bad_network_round():
    labels, logits = make_logits(num_films=300)
    found = fit_calibration(labels, logits=-logits, method="platt")
    assert set(found.slope) == {0}
    shares = found.probabilities(logits)[0]
    assert shares == pytest.approx(labels.mean(axis=0), abs=0.01)


def test_a_file_comes_back_for_its_own_checkpoint_only(tmp_path):
    checkpoint = tmp_path / "epoch-0003.npz"
    checkpoint.write_bytes(b"weights")
    assert load_calibration(checkpoint) is None
    labels, logits = make_logits(num_films=200)
    found = fit_calibration(labels, logits=logits, method="platt")
    path = write_calibration(found, checkpoint=checkpoint)
    jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))
    assert load_calibration(checkpoint) == found
    other = tmp_path / "epoch-0002.npz"
    other.write_bytes(b"weights")
    assert load_calibration(other) is None
    apart = fit_calibration(labels, logits=logits, method="temperature")
    write_calibration(apart, checkpoint=other)
    assert (load_calibration(other), load_calibration(checkpoint)) == (apart, found)
    checkpoint.write_bytes(b"trained further")
    assert load_calibration(checkpoint) is None


def test_no_calibration_leaves_the_networks_own_probabilities():
    logits = np.array([[0.0] * 14, [800.0] * 14, [-800.0] * 14])
    assert Calibration().probabilities(logits)[:, 0].tolist() == [0.5, 1.0, 0.0]
    assert fit_calibration(np.zeros((3, 14)), logits=logits, method="none") == Calibration()


@pytest.mark.parametrize(
    "change",
    [{"schema_version": 9}, {"findings": []}, {"method": "guess"}, {"parameters": {"slope": [1]}}],
)
def test_a_file_of_something_else_is_refused_by_name(tmp_path, change):
    checkpoint = tmp_path / "epoch-0003.npz"
    checkpoint.write_bytes(b"weights")
    labels, logits = make_logits(num_films=50)
    found = fit_calibration(labels, logits=logits, method="temperature")
    path = write_calibration(found, checkpoint=checkpoint)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=r"calibration-epoch-0003\.json|known calibration"):
        load_calibration(checkpoint)


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="none, platt, temperature"):
        fit_calibration(np.zeros((1, 14)), logits=np.zeros((1, 14)), method="isotonic")
