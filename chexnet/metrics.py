"""How good predictions are: the area under the ROC curve of each finding.

Knows AUROC by rank statistics. Leaves gathering the predictions of all ranks to
``evaluate``.
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
    """

    finding: str
    auroc: float | None
    num_positives: int
    num_negatives: int


@dataclass(frozen=True)
class Scores:
    """The scores of all findings.

    Attributes:
        findings: one for each finding, in label order.
        mean_auroc: mean over the findings whose AUROC is defined; None if none is.
        num_defined: how many those are.
    """

    findings: tuple[FindingScore, ...]
    mean_auroc: float | None
    num_defined: int


def auroc(labels: np.ndarray, *, scores: np.ndarray) -> float | None:
    """Return the chance that a positive scores above a negative; ties count half.

    This is the Mann-Whitney statistic, U = R - P (P + 1) / 2 over P N, with R the sum of
    the positives' ranks and equal scores sharing their mean rank (Hanley and McNeil 1982).

    Args:
        labels: bool or 0/1 [B].
        scores: float [B]; higher means more surely positive.

    Returns:
        0 .. 1, or None without a positive or without a negative.

    Raises:
        ValueError: a score is not a number.
    """
    if np.isnan(scores).any():
        raise ValueError(f"{int(np.isnan(scores).sum())} of {scores.size} scores are not a number")
    positive = labels.astype(bool)
    num_positives = int(positive.sum())
    num_negatives = positive.size - num_positives
    if not num_positives or not num_negatives:
        return None
    _, group, count = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(count) - (count - 1) / 2
    rank_sum = float(mean_rank[group][positive].sum())
    above = rank_sum - num_positives * (num_positives + 1) / 2
    return above / (num_positives * num_negatives)


def score_findings(labels: np.ndarray, *, scores: np.ndarray, findings: Sequence[str]) -> Scores:
    """Return the AUROC of every finding and their mean.

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
        value = auroc(labels[:, column], scores=scores[:, column])
        rows.append(FindingScore(finding, value, positives, len(labels) - positives))
    defined = [row.auroc for row in rows if row.auroc is not None]
    mean = float(np.mean(defined)) if defined else None
    return Scores(tuple(rows), mean, len(defined))
