"""The ROC and the precision-recall curve of one finding, as points to draw.

Knows where the curves bend and how to thin them out. Leaves the areas to ``metrics``, which
are exact and not those below these points.
"""

from __future__ import annotations

import numpy as np

MOST_POINTS = 200

Curve = dict[str, list[float]]


def roc_curve(labels: np.ndarray, *, scores: np.ndarray) -> Curve | None:
    """Return ``fpr`` and ``tpr`` at falling thresholds, from (0, 0) to (1, 1).

    Args:
        labels: 0/1 [B].
        scores: float [B].

    Returns:
        At most `MOST_POINTS` points; None without both kinds of films.
    """
    true, false = _count(labels, scores)
    if not true[-1] or not false[-1]:
        return None
    fpr, tpr = (np.concatenate(([0.0], values / values[-1])) for values in (false, true))
    kept = _thin(fpr + tpr)
    return {"fpr": fpr[kept].tolist(), "tpr": tpr[kept].tolist()}


def pr_curve(labels: np.ndarray, *, scores: np.ndarray) -> Curve | None:
    """Return ``recall`` and ``precision`` at falling thresholds; None without a positive."""
    true, false = _count(labels, scores)
    if not true[-1]:
        return None
    recall, precision = true / true[-1], true / (true + false)
    # By recall, where films are; by precision too, which swings at the first few films.
    kept = _thin(recall + np.abs(np.diff(precision, prepend=precision[0])).cumsum())
    return {"recall": recall[kept].tolist(), "precision": precision[kept].tolist()}


def _count(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many positives and negatives have each score or a higher one."""
    _, group = np.unique(-scores, return_inverse=True)
    true = np.bincount(group, weights=labels)
    return true.cumsum(), (np.bincount(group) - true).cumsum()


def _thin(travelled: np.ndarray) -> np.ndarray:
    """Return the places of at most `MOST_POINTS` points, evenly along the curve, ends included."""
    if len(travelled) <= MOST_POINTS:
        return np.arange(len(travelled))
    wanted = np.linspace(travelled[0], travelled[-1], MOST_POINTS)
    return np.unique(np.append(np.searchsorted(travelled, wanted[:-1]), len(travelled) - 1))
