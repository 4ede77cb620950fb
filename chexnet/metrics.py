"""How good predictions are: the areas under the ROC and the precision-recall curve.

Knows AUROC and average precision of each finding by rank statistics, over films that count
once or as often as a resample drew them. Leaves gathering the predictions of all ranks to
``predictions`` and intervals to ``intervals``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class FindingScore:
    """How well one finding is told from its absence.

    Attributes:
        finding: its name.
        auroc: 0 .. 1; None where it is undefined, for want of positives or of negatives.
        num_positives: films with the finding.
        num_negatives: films without it.
        auprc: average precision, 0 .. 1; None without a positive.
    """

    finding: str
    auroc: float | None
    num_positives: int
    num_negatives: int
    auprc: float | None = None


@dataclass(frozen=True)
class Scores:
    """The scores of all findings.

    Attributes:
        findings: one for each finding, in label order.
        mean_auroc: mean over the findings whose AUROC is defined; None if none is.
        num_defined: how many those are.
        mean_auprc: mean average precision over the same findings; None if there are none.
        loss: mean binary cross-entropy over films and findings; None where it was not asked for.
    """

    findings: tuple[FindingScore, ...]
    mean_auroc: float | None
    num_defined: int
    mean_auprc: float | None = None
    loss: float | None = None


class Ranking:
    """The films of one finding, sorted by score once; any weighting of them is then one pass.

    Both areas depend on the places where a positive stands: how many films stand above it, and
    how many stand level with it. Equal scores form one group, which no order can tell apart.

    Args:
        labels: bool or 0/1 [B].
        scores: float [B]; higher means more surely positive.

    Raises:
        ValueError: a score is not a number.
    """

    def __init__(self, labels: np.ndarray, *, scores: np.ndarray) -> None:
        if np.isnan(scores).any():
            raise ValueError(f"{np.isnan(scores).sum()} of {scores.size} scores are not a number")
        self._order = np.argsort(-scores, kind="stable")
        places = np.flatnonzero(labels.astype(bool)[self._order])
        self._positives = self._order[places]
        falling = -scores[self._order]
        values = falling[places]
        # Of each score that a positive has: its last positive, and its first and last film.
        self._last = np.flatnonzero(np.append(values[1:] != values[:-1], True)[: len(values)])
        self._first_film = np.searchsorted(falling, values[self._last], side="left")
        self._after_film = np.searchsorted(falling, values[self._last], side="right")

    def areas(self, weights: np.ndarray | None = None) -> tuple[float, float]:
        """Return AUROC and average precision, NaN where undefined.

        AUROC is the Mann-Whitney statistic over P N, ties counting half (Hanley and McNeil
        1982). Average precision is the sum of precision at each score times the recall gained
        there, without interpolation, as scikit-learn's ``average_precision_score``.

        Args:
            weights: int [B], how often each film counts; None for once.
        """
        if weights is None:
            weights = np.ones(len(self._order), np.int64)
        films = np.concatenate(([0], np.cumsum(weights[self._order])))
        positives = np.cumsum(weights[self._positives])[self._last]
        num_positives = int(positives[-1]) if len(positives) else 0
        num_negatives = int(films[-1]) - num_positives
        if not num_positives:
            return float("nan"), float("nan")
        gained = np.diff(positives, prepend=0)
        above, level = films[self._first_film], films[self._after_film]
        precision = positives / np.maximum(level, 1)
        auprc = float(np.sum(gained * precision)) / num_positives
        if not num_negatives:
            return float("nan"), auprc
        # Twice the pairs that are the wrong way round: a tie is half of one.
        wrong = np.sum(gained * ((above - (positives - gained)) + (level - positives)))
        return 1 - float(wrong) / (2 * num_positives * num_negatives), auprc


def auroc(labels: np.ndarray, *, scores: np.ndarray) -> float | None:
    """Return the chance that a positive scores above a negative; ties count half.

    Args:
        labels: bool or 0/1 [B].
        scores: float [B]; higher means more surely positive.

    Returns:
        0 .. 1, or None without a positive or without a negative.

    Raises:
        ValueError: a score is not a number.
    """
    return defined(Ranking(labels, scores=scores).areas()[0])


def score_findings(labels: np.ndarray, *, scores: np.ndarray, findings: Sequence[str]) -> Scores:
    """Return the areas of every finding and their means.

    Args:
        labels: 0/1 [B, F].
        scores: float [B, F].
        findings: the F names, in the order of the columns.

    Raises:
        ValueError: a score is not a number.
    """
    rows = []
    for column, finding in enumerate(findings):
        positives = int(labels[:, column].astype(bool).sum())
        roc, pr = Ranking(labels[:, column], scores=scores[:, column]).areas()
        negatives = len(labels) - positives
        rows.append(FindingScore(finding, defined(roc), positives, negatives, defined(pr)))
    scored = [row for row in rows if row.auroc is not None]
    if not scored:
        return Scores(tuple(rows), None, 0)
    mean_auroc, mean_auprc = (
        float(np.mean([getattr(row, name) for row in scored])) for name in ("auroc", "auprc")
    )
    return Scores(tuple(rows), mean_auroc, len(scored), mean_auprc)


def cross_entropy(labels: np.ndarray, *, logits: np.ndarray) -> float:
    """Return the mean binary cross-entropy over films and findings.

    Args:
        labels: 0/1 [B, F].
        logits: float [B, F].
    """
    # log(1 + e^x) without overflow; what is left of the definition is - y x.
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def defined(value: float) -> float | None:
    """Return a number, or None for NaN, which JSON does not know."""
    return None if np.isnan(value) else float(value)
