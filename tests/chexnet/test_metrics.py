"""Areas under the curves against scikit-learn's and against counts made by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from chexnet.metrics import Ranking, auroc, cross_entropy, score_findings


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.one_of(st.integers(-3, 3).map(float), st.floats(-9, 9))),
        min_size=2,
        max_size=60,
    ).filter(lambda rows: len({label for label, _ in rows}) == 2)
)
def test_equals_scikit_learn_with_and_without_ties(rows):
    labels = np.array([label for label, _ in rows])
    scores = np.array([score for _, score in rows])
    assert auroc(labels, scores=scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    _, auprc = Ranking(labels, scores=scores).areas()
    assert auprc == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    weights = np.arange(len(rows)) % 3
    if len(set(labels[weights > 0])) == 2:
        found = Ranking(labels, scores=scores).areas(weights)
        reference = (roc_auc_score, average_precision_score)
        expected = [one(labels, scores, sample_weight=weights) for one in reference]
        assert found == pytest.approx(expected, abs=1e-12)


def test_by_hand():
    # Positives 0.8 and 0.3, negatives 0.5, 0.3 and 0.1. Of the 6 pairs 0.8 wins 3; 0.3 wins
    # 1 and ties 1: 4.5 / 6.
    labels = np.array([1, 1, 0, 0, 0])
    scores = np.array([0.8, 0.3, 0.5, 0.3, 0.1])
    assert auroc(labels, scores=scores) == 0.75
    # At 0.8 precision is 1 of 1, at 0.3 (four films) 2 of 4; each gains half of the recall.
    assert Ranking(labels, scores=scores).areas()[1] == 0.5 * 1 + 0.5 * 0.5


@pytest.mark.parametrize("label", [0, 1])
def test_one_kind_only_is_undefined(label):
    assert auroc(np.full(4, label), scores=np.arange(4.0)) is None


def test_not_a_number_is_refused():
    with pytest.raises(ValueError, match="1 of 3 scores"):
        auroc(np.array([0, 1, 1]), scores=np.array([0.1, np.nan, 0.3]))


def test_mean_is_over_the_defined_findings():
    labels = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1]])
    scores = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, 5.0], [3.0, 2.0, 6.0]])
    result = score_findings(labels, scores=scores, findings=("A", "B", "C"))
    assert [row.auroc for row in result.findings] == [1.0, None, 0.5]
    assert [row.num_positives for row in result.findings] == [2, 0, 2]
    assert [row.num_negatives for row in result.findings] == [1, 3, 1]
    assert (result.mean_auroc, result.num_defined) == (0.75, 2)


def test_nothing_defined_has_no_mean():
    result = score_findings(np.zeros((3, 1)), scores=np.zeros((3, 1)), findings=("A",))
    assert (result.mean_auroc, result.num_defined) == (None, 0)


def test_weights_without_a_positive_are_undefined():
    ranking = Ranking(np.array([0, 1]), scores=np.array([0.1, 0.9]))
    assert np.isnan(ranking.areas(np.array([2, 0]))).all()
    assert np.isnan(ranking.areas(np.array([0, 2]))[0])


def test_cross_entropy_equals_scikit_learn_and_bears_large_logits():
    labels, logits = np.array([[1, 0], [0, 1]]), np.array([[2.0, -1.0], [0.5, 0.1]])
    probabilities = 1 / (1 + np.exp(-logits))
    expected = log_loss(labels.ravel(), probabilities.ravel())
    assert cross_entropy(labels, logits=logits) == pytest.approx(expected)
    assert cross_entropy(np.array([[1, 0]]), logits=np.array([[900.0, 900.0]])) == 450
