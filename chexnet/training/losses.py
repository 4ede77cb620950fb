"""The losses: how far 14 logits are from 14 labels.

Knows binary cross-entropy, plain and weighted by how frequent a finding is, and label
smoothing. Leaves the step that makes it smaller to ``step``. "No Finding" is no class here:
a film without findings has 14 labels of 0 and counts as 14 negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tensorflow as tf

from chexnet.labels import FINDINGS

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def make_loss(
    name: str,
    *,
    smoothing: float = 0.0,
    positives: Mapping[str, int] | None = None,
    num_films: int = 0,
) -> Loss:
    """Return the function from labels and logits to the mean loss.

    ``bce`` is the one that CheXNet was trained with for 14 findings, ``weighted_bce`` its loss
    for pneumonia alone, here for each finding (Rajpurkar et al. 2017, arXiv:1711.05225,
    section 2.1 and section 4).

    Args:
        name: ``bce`` or ``weighted_bce``.
        smoothing: how far labels are moved towards 0.5: 0 becomes smoothing / 2.
        positives: positive films of each finding among the training films.
        num_films: training films.

    Returns:
        A function of labels and logits [B, 14]; both are counted in float32, or in float64
        where the logits are.

    Raises:
        ValueError: the weighted loss, and no counts.
    """
    if name == "weighted_bce" and not (positives and num_films):
        raise ValueError("weighted_bce needs the counts of the training films")
    share = [positives[finding] / num_films for finding in FINDINGS] if positives else []

    def compute(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        dtype = tf.float64 if logits.dtype == tf.float64 else tf.float32
        logits = tf.cast(logits, dtype)
        labels = tf.cast(labels, dtype) * (1 - smoothing) + smoothing / 2
        if name == "bce":
            return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
        # w+ = |N| / (|P| + |N|) on what is positive, w- = |P| / (|P| + |N|) on what is not;
        # softplus(-x) is -log of the probability, softplus(x) of its complement.
        positive = tf.constant(share, dtype)
        parts = (1 - positive) * labels * tf.nn.softplus(-logits)
        return tf.reduce_mean(parts + positive * (1 - labels) * tf.nn.softplus(logits))

    return compute
