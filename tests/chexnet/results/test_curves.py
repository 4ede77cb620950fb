"""Curves against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve
from sklearn.metrics import roc_curve as reference_roc

from chexnet.results.curves import MOST_POINTS, pr_curve, roc_curve


def make_films(num_films, decimals):
    random = np.random.default_rng(0)
    labels = random.random(num_films) < 0.1
    return labels, np.round(random.normal(size=num_films) + labels, decimals)


def test_with_few_scores_they_equal_scikit_learns():
    labels, scores = make_films(400, 1)
    found = roc_curve(labels, scores=scores)
    fpr, tpr, _ = reference_roc(labels, scores, drop_intermediate=False)
    assert (found["fpr"], found["tpr"]) == (pytest.approx(fpr), pytest.approx(tpr))
    found = pr_curve(labels, scores=scores)
    precision, recall, _ = precision_recall_curve(labels, scores)
    expected = dict(zip(recall[:-1], precision[:-1], strict=True))
    for place, value in zip(found["recall"], found["precision"], strict=True):
        assert value in precision[np.isclose(recall, place)]
    assert set(np.round(found["recall"], 9)) == set(np.round([*expected], 9))


def test_with_many_scores_they_are_thinned_without_moving():
    labels, scores = make_films(20_000, 9)
    found = roc_curve(labels, scores=scores)
    assert 150 < len(found["fpr"]) <= MOST_POINTS
    assert (found["fpr"][0], found["tpr"][0], found["fpr"][-1], found["tpr"][-1]) == (0, 0, 1, 1)
    fpr, tpr, _ = reference_roc(labels, scores, drop_intermediate=False)
    assert np.trapezoid(found["tpr"], found["fpr"]) == pytest.approx(
        np.trapezoid(tpr, fpr), abs=2e-3
    )
    found = pr_curve(labels, scores=scores)
    assert len(found["recall"]) <= MOST_POINTS
    assert found["recall"][-1] == 1
    assert found["precision"][-1] == pytest.approx(labels.mean())


@pytest.mark.parametrize("label", [0, 1])
def test_one_kind_of_films_has_no_roc(label):
    labels = np.full(5, label)
    assert roc_curve(labels, scores=np.arange(5.0)) is None
    assert (pr_curve(labels, scores=np.arange(5.0)) is None) == (label == 0)
