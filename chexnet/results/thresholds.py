"""Thresholds: from a probability to yes or no, and what that yes and no are worth.

Knows how thresholds are chosen (on validation films, by their caller) and what becomes of
them on other films. A threshold is reported on films that it was not chosen on, since on its
own films it looks better than it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

YOUDEN = "youden"
# Name, which share must be reached, and by how much.
_REACHED = (
    ("sensitivity 0.90", "sensitivity", 0.90),
    ("sensitivity 0.95", "sensitivity", 0.95),
    ("specificity 0.90", "specificity", 0.90),
    ("specificity 0.95", "specificity", 0.95),
)
NAMES = (YOUDEN, *(name for name, _, _ in _REACHED))


def choose_thresholds(labels: np.ndarray, *, probabilities: np.ndarray) -> dict[str, float]:
    """Return the chosen thresholds of one finding by name; none without both kinds of films.

    ``youden`` has the highest sensitivity + specificity (Youden 1950), the higher of equals.
    ``sensitivity X`` is the highest that reaches that sensitivity, ``specificity X`` the lowest
    that reaches that specificity; one that no threshold reaches is left out. What is at or above
    a threshold is positive.

    Args:
        labels: 0/1 [B].
        probabilities: float [B].
    """
    positive = labels.astype(bool)
    if not positive.any() or positive.all():
        return {}
    values, group = np.unique(-probabilities, return_inverse=True)
    found = np.cumsum(np.bincount(group, weights=positive))
    flagged = np.cumsum(np.bincount(group))
    shares = {
        "sensitivity": found / positive.sum(),
        "specificity": 1 - (flagged - found) / (~positive).sum(),
    }
    chosen = {YOUDEN: int(np.argmax(shares["sensitivity"] + shares["specificity"]))}
    for name, share, least in _REACHED:
        # Rounding must not lose a share that is reached exactly, such as 9 of 10.
        reached = np.flatnonzero(shares[share] >= least - 1e-12)
        if len(reached):
            chosen[name] = int(reached[0] if share == "sensitivity" else reached[-1])
    return {name: float(-values[place]) for name, place in chosen.items()}


def measure_threshold(
    labels: np.ndarray, *, probabilities: np.ndarray, threshold: float
) -> dict[str, Any]:
    """Return sensitivity, specificity, PPV and NPV, 0 .. 1; None where nothing is divided by.

    Args:
        labels: 0/1 [B].
        probabilities: float [B].
        threshold: what is at or above it is positive.
    """
    positive, flagged = labels.astype(bool), probabilities >= threshold
    return {
        "sensitivity": _share(flagged[positive]),
        "specificity": _share(~flagged[~positive]),
        "ppv": _share(positive[flagged]),
        "npv": _share(~positive[~flagged]),
    }


def _share(of: np.ndarray) -> float | None:
    return float(of.mean()) if len(of) else None
