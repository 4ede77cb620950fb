"""The losses against logarithms written out."""

import numpy as np
import pytest
import tensorflow as tf

from chexnet.labels import FINDINGS
from chexnet.training.losses import make_loss

# Of 10 training films 1 shows Hernia, 5 every other finding.
POSITIVES = dict.fromkeys(FINDINGS, 5) | {"Hernia": 1}


@pytest.fixture(scope="module")
def films():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, (6, 14)).astype(np.float32)
    return labels, random.normal(0, 3, (6, 14))


def by_hand(labels, logits, *, positive=1.0, negative=1.0):
    probability = 1 / (1 + np.exp(-logits))
    log_loss = positive * labels * np.log(probability)
    return -np.mean(log_loss + negative * (1 - labels) * np.log(1 - probability))


def test_plain(films):
    labels, logits = films
    found = make_loss("bce")(tf.constant(labels), tf.constant(logits))
    assert float(found) == pytest.approx(by_hand(labels, logits), rel=1e-12)


def test_weights_of_the_paper(films):
    labels, logits = films
    share = np.full(14, 0.5)
    share[FINDINGS.index("Hernia")] = 0.1
    loss = make_loss("weighted_bce", positives=POSITIVES, num_films=10)
    expected = by_hand(labels, logits, positive=1 - share, negative=share)
    assert float(loss(tf.constant(labels), tf.constant(logits))) == pytest.approx(expected)


def test_weights_give_both_sides_of_a_finding_the_same_say():
    # One positive and nine negative films at logit 0 pull with 0.9 and with 9 x 0.1.
    labels = np.zeros((10, 14), np.float32)
    labels[0] = 1
    logits = tf.Variable(tf.zeros((10, 14)))
    loss = make_loss("weighted_bce", positives=dict.fromkeys(FINDINGS, 1), num_films=10)
    with tf.GradientTape() as tape:
        value = loss(tf.constant(labels), logits)
    pull = tape.gradient(value, logits).numpy()
    assert pull[0] == pytest.approx(-pull[1:].sum(0), rel=1e-6)


def test_smoothing_moves_labels_towards_a_half(films):
    labels, logits = films
    found = make_loss("bce", smoothing=0.2)(tf.constant(labels), tf.constant(logits))
    smooth = np.where(labels == 1, 0.9, 0.1)
    assert float(found) == pytest.approx(by_hand(smooth, logits), rel=1e-6)


def test_float16_logits_are_counted_in_float32(films):
    labels, _ = films
    logits = tf.fill((6, 14), tf.constant(40.0, tf.float16))
    found = make_loss("bce")(tf.constant(labels), logits)
    assert found.dtype == tf.float32
    assert float(found) == pytest.approx(40 * (1 - labels).mean(), rel=1e-6)


def test_weights_without_counts_are_a_programming_error():
    with pytest.raises(ValueError, match="counts"):
        make_loss("weighted_bce")
