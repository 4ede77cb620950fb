"""Thresholds, against counts made by hand and scikit-learn's ROC curve."""

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from chexnet.results.thresholds import choose_thresholds, measure_threshold


def test_by_hand():
    # Falling: 0.9+ 0.8+ 0.7- 0.6+ 0.5- 0.4- 0.3- 0.2-
    labels = np.array([1, 1, 0, 1, 0, 0, 0, 0])
    p = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    chosen = choose_thresholds(labels, probabilities=p)
    # Youden: at 0.6 all 3 positives and 4 of 5 negatives are right.
    assert chosen["youden"] == 0.6
    assert chosen["sensitivity 0.90"] == chosen["sensitivity 0.95"] == 0.6
    # Not one negative may be flagged (1 of 5 is too many): the lowest such is 0.8.
    assert chosen["specificity 0.90"] == chosen["specificity 0.95"] == 0.8
    assert measure_threshold(labels, probabilities=p, threshold=0.6) == {
        "sensitivity": 1.0, "specificity": 0.8, "ppv": 0.75, "npv": 1.0,
    }  # fmt: skip
    assert measure_threshold(labels, probabilities=p, threshold=0.8) == {
        "sensitivity": pytest.approx(2 / 3), "specificity": 1.0, "ppv": 1.0, "npv": 5 / 6,
    }  # fmt: skip


def test_shares_are_those_of_scikit_learns_curve():
    random = np.random.default_rng(0)
    labels = random.random(500) < 0.2
    p = np.round(random.random(500) * 0.5 + labels * 0.3, 2)
    fpr, tpr, thresholds = roc_curve(labels, p, drop_intermediate=False)
    chosen = choose_thresholds(labels, probabilities=p)
    assert chosen["youden"] == thresholds[np.argmax(tpr - fpr)]
    assert chosen["sensitivity 0.95"] == thresholds[tpr >= 0.95].max()
    assert chosen["specificity 0.90"] == thresholds[fpr <= 0.1][1:].min()
    for value in chosen.values():
        found = measure_threshold(labels, probabilities=p, threshold=value)
        place = np.flatnonzero(thresholds == value)[0]
        assert found["sensitivity"] == pytest.approx(tpr[place])
        assert found["specificity"] == pytest.approx(1 - fpr[place])


def test_a_share_that_is_reached_exactly_counts():
    labels = np.array([1] * 10 + [0] * 10)
    p = np.concatenate([np.linspace(0.9, 0.45, 10), np.linspace(0.5, 0.05, 10)])
    chosen = choose_thresholds(labels, probabilities=p)
    assert chosen["sensitivity 0.90"] == pytest.approx(0.5)
    assert chosen["specificity 0.90"] == pytest.approx(0.5)


def test_what_no_threshold_reaches_is_left_out():
    labels, p = np.array([1, 0, 0]), np.array([0.5, 0.5, 0.5])
    assert choose_thresholds(labels, probabilities=p) == {
        "youden": 0.5, "sensitivity 0.90": 0.5, "sensitivity 0.95": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("label", [0, 1])
def test_one_kind_of_films_gives_none(label):
    assert choose_thresholds(np.full(4, label), probabilities=np.arange(4) / 4) == {}


def test_nothing_flagged_has_no_predictive_value():
    found = measure_threshold(np.array([0, 0]), probabilities=np.zeros(2), threshold=0.5)
    assert found == {"sensitivity": None, "specificity": 1.0, "ppv": None, "npv": 1.0}
