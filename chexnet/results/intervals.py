"""Intervals of scores by the bootstrap over patients.

Knows how patients are drawn and what becomes of findings that a resample lacks. Leaves the
scores to ``metrics``.

Films of one patient are alike, so patients are drawn with replacement and bring all their
films: intervals over films would be too narrow (NIH's test list holds nine films of a patient).
The films are ranked once; a resample only changes how often each counts, which is exact and
needs no memory that grows with the number of resamples but for their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from chexnet.metrics import Ranking

RESAMPLES = 1000
LEVEL = 0.95
# An end of the interval wants this many resamples beyond it and inside it.
FEWEST_DEFINED = 40
# Resamples of fewer patients are too alike: they say nothing of other patients.
FEWEST_PATIENTS = 10

Interval = tuple[float, float]


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Attributes:
        resamples: how many times the patients are drawn; 0 for no intervals.
        level: the share of resamples inside the interval, in the middle.
        seed: of the draws.
    """

    resamples: int = RESAMPLES
    level: float = LEVEL
    seed: int = 0


@dataclass(frozen=True)
class Intervals:
    """Percentile intervals; None where too few resamples had a defined score.

    Attributes:
        mean_auroc: of the mean over the findings that are defined on the films as they are.
        auroc: of each finding.
        auprc: of each finding.
        refused: why there are none at all, although they were asked for; None otherwise.
    """

    mean_auroc: Interval | None
    auroc: tuple[Interval | None, ...]
    auprc: tuple[Interval | None, ...]
    refused: str | None = None


def make_intervals(
    labels: np.ndarray,
    *,
    scores: np.ndarray,
    patients: Sequence[str],
    how: Bootstrap,
    progress: Callable[[int], None] = lambda done: None,
) -> Intervals:
    """Return the intervals of every finding's areas and of their mean.

    Args:
        labels: 0/1 [B, F].
        scores: float [B, F].
        patients: whose each film is, [B].
        how: the number of resamples, their seed and the level.
        progress: told the number of resamples done.
    """
    num_findings = labels.shape[1]
    nothing = (None,) * num_findings
    if not how.resamples:
        return Intervals(None, nothing, nothing)
    num_patients = len(set(patients))
    if num_patients < FEWEST_PATIENTS:
        said = f"{num_patients} patients, and at least {FEWEST_PATIENTS} are needed"
        return Intervals(None, nothing, nothing, said)
    rankings = [Ranking(labels[:, f], scores=scores[:, f]) for f in range(num_findings)]
    areas = resample(rankings, patients=patients, how=how, progress=progress)
    is_defined = [not np.isnan(ranking.areas()[0]) for ranking in rankings]
    # NaN where a resample lacks a finding: a mean over the others would be of something else.
    means = areas[:, is_defined, 0].mean(axis=1) if any(is_defined) else np.full(1, np.nan)
    return Intervals(
        _middle(means, level=how.level),
        tuple(_middle(areas[:, f, 0], level=how.level) for f in range(num_findings)),
        tuple(_middle(areas[:, f, 1], level=how.level) for f in range(num_findings)),
    )


def resample(
    rankings: Sequence[Ranking],
    *,
    patients: Sequence[str],
    how: Bootstrap,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Return the areas of every resample, float64 [resamples, F, 2]: AUROC and AUPRC."""
    _, patient_of = np.unique(np.asarray(patients), return_inverse=True)
    num_patients = int(patient_of.max()) + 1
    random = np.random.default_rng(how.seed)
    areas = np.empty((how.resamples, len(rankings), 2))
    for number in range(how.resamples):
        drawn = random.integers(num_patients, size=num_patients)
        weights = np.bincount(drawn, minlength=num_patients)[patient_of]
        areas[number] = [ranking.areas(weights) for ranking in rankings]
        progress(number + 1)
    return areas


def _middle(values: np.ndarray, *, level: float) -> Interval | None:
    values = values[~np.isnan(values)]
    if len(values) < FEWEST_DEFINED:
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
