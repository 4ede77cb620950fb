"""What an evaluation.json says, read so that a page can be made of it whatever is missing.

Knows the fields of schema versions 1 and 2, and that a number that is none is shown as missing.
Leaves computing scores to ``evaluate`` and drawing them to ``report_figures``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Points = tuple[tuple[float, float], ...]
Interval = tuple[float, float]

# NIH's test_list.txt holds this many films; docs/data.md.
OFFICIAL_TEST_FILMS = 25_596


@dataclass(frozen=True)
class Threshold:
    """One point to decide at: all but the name are shares, 0 .. 1, or None."""

    name: str
    threshold: float | None
    sensitivity: float | None
    specificity: float | None
    ppv: float | None
    npv: float | None


@dataclass(frozen=True)
class FindingScores:
    """The scores of one finding; None and empty curves where there are none.

    Attributes:
        finding: its name.
        num_positives: films with it.
        num_negatives: films without it.
        auroc: area under the ROC curve, 0 .. 1.
        auroc_interval: its confidence interval.
        auprc: area under the precision-recall curve, 0 .. 1.
        auprc_interval: its confidence interval.
        brier: mean squared error of the probabilities, 0 .. 1.
        expected_error: expected calibration error, 0 .. 1.
        roc: (false positive rate, true positive rate).
        pr: (recall, precision).
        calibration: (predicted probability, observed share) of each group of films.
        thresholds: points to decide at.
    """

    finding: str
    num_positives: int
    num_negatives: int
    auroc: float | None
    auroc_interval: Interval | None
    auprc: float | None
    auprc_interval: Interval | None
    brier: float | None
    expected_error: float | None
    roc: Points
    pr: Points
    calibration: Points
    thresholds: tuple[Threshold, ...]

    @property
    def prevalence(self) -> float | None:
        """Return the share of films with the finding, 0 .. 1; None without films."""
        films = self.num_positives + self.num_negatives
        return self.num_positives / films if films else None


@dataclass(frozen=True)
class Published:
    """A published result on the same split: its mean AUROC, and that of each finding it tells."""

    work: str
    network: str
    px: str
    mean_auroc: float | None
    findings: Mapping[str, float]
    source: str


@dataclass(frozen=True)
class Evaluation:
    """The scores of one split.

    Attributes:
        split: ``test``, ``validation`` or ``train``.
        split_title: what these films are, in words; empty where it does not say.
        split_kind: how the films were divided: ``official``, ``patient``, ``lists``, ``records``.
        data: the data folder.
        data_sha256: hash of the dataset.json that describes the films.
        checkpoint: name of the checkpoint's file.
        checkpoint_sha256: of that file; empty where it does not say.
        epoch: after which it was written.
        num_examples: films.
        num_patients: their patients, None where it does not say.
        trained_on_patients: how many of them were trained on; None where it cannot be told.
        request: options of the command, as words; None where it does not say.
        mean_auroc: over the findings that have one.
        mean_interval: its confidence interval.
        mean_auprc: mean area under the precision-recall curves.
        num_defined: findings with an AUROC.
        bootstrap: how the intervals were made: resamples, by, level, seed.
        calibration: how probabilities were calibrated: method, fitted_on.
        thresholds_chosen_on: the split that the thresholds come from; empty where there are none.
        findings: the scores of each.
        published: results of others on the same split.
        refused: why none are shown beside these, None where they are.
        boxes: agreement of heat maps with the box list; empty where it was not looked at.
        images_per_s: films scored in a second.
    """

    split: str
    split_title: str
    split_kind: str
    data: str
    data_sha256: str
    checkpoint: str
    checkpoint_sha256: str
    epoch: int | None
    num_examples: int
    num_patients: int | None
    trained_on_patients: int | None
    request: tuple[str, ...] | None
    mean_auroc: float | None
    mean_interval: Interval | None
    mean_auprc: float | None
    num_defined: int
    bootstrap: Mapping[str, Any]
    calibration: Mapping[str, Any]
    thresholds_chosen_on: str
    findings: tuple[FindingScores, ...]
    published: tuple[Published, ...]
    refused: str | None
    boxes: Mapping[str, Any]
    images_per_s: float | None

    @property
    def level(self) -> int:
        """Return the level of the intervals, percent."""
        return round(100 * (number(self.bootstrap.get("level")) or 0.95))

    @property
    def is_official_test(self) -> bool:
        """Return whether this is NIH's test list, whole."""
        official = self.split == "test" and self.split_kind == "official"
        return official and self.num_examples == OFFICIAL_TEST_FILMS

    @property
    def is_calibrated(self) -> bool:
        """Return whether the probabilities were calibrated."""
        return self.calibration.get("method", "none") != "none"


def parse_evaluation(values: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation of a file's values.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they are none.
    """
    published = values.get("published") or {}
    return Evaluation(
        split=str(values["split"]),
        split_title=str(values.get("split_title") or ""),
        split_kind=str(values["split_kind"]),
        data=str(values.get("data", "")),
        data_sha256=str(values.get("data_sha256", "")),
        checkpoint=str(values.get("checkpoint", "")),
        checkpoint_sha256=str(values.get("checkpoint_sha256", "")),
        epoch=values.get("epoch"),
        num_examples=int(values["num_examples"]),
        num_patients=_whole(values.get("num_patients")),
        trained_on_patients=_whole(values.get("trained_on_patients", 0)),
        request=_parse_request(values.get("request")),
        mean_auroc=number(values["mean_auroc"]),
        mean_interval=interval(values.get("mean_auroc_interval")),
        mean_auprc=number(values.get("mean_auprc")),
        num_defined=int(values["num_defined"]),
        bootstrap=dict(values.get("bootstrap") or {}),
        calibration=dict(values.get("calibration") or {}),
        thresholds_chosen_on=str(values.get("thresholds_chosen_on") or ""),
        findings=tuple(_parse_finding(row) for row in values["findings"]),
        published=tuple(_parse_published(row) for row in published.get("comparable") or ()),
        refused=published.get("refused"),
        boxes=dict(values.get("boxes") or {}),
        images_per_s=number(values.get("images_per_s")),
    )


def number(value: object) -> float | None:
    """Return a finite number as it is, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _whole(value: object) -> int | None:
    """Return a finite number without its fraction, None for anything else."""
    found = number(value)
    return None if found is None else int(found)


def _parse_request(value: object) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list) else None


def interval(value: object) -> Interval | None:
    """Return the two ends of an interval, None for anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        return None
    low, high = number(value[0]), number(value[1])
    return None if low is None or high is None else (low, high)


def points(xs: Sequence[object], ys: Sequence[object]) -> Points:
    """Return pairs of numbers, without those of which one is none."""
    pairs = zip(map(number, xs), map(number, ys), strict=False)
    return tuple((x, y) for x, y in pairs if x is not None and y is not None)


def _parse_finding(row: Mapping[str, Any]) -> FindingScores:
    roc, pr = row.get("roc") or {}, row.get("pr") or {}
    curve = row.get("calibration_curve") or {}
    return FindingScores(
        finding=str(row["finding"]),
        num_positives=int(row["num_positives"]),
        num_negatives=int(row["num_negatives"]),
        auroc=number(row["auroc"]),
        auroc_interval=interval(row.get("auroc_interval")),
        auprc=number(row.get("auprc")),
        auprc_interval=interval(row.get("auprc_interval")),
        brier=number(row.get("brier")),
        expected_error=number(row.get("expected_error")),
        roc=points(roc.get("fpr") or (), roc.get("tpr") or ()),
        pr=points(pr.get("recall") or (), pr.get("precision") or ()),
        calibration=points(curve.get("predicted") or (), curve.get("observed") or ()),
        thresholds=tuple(_parse_threshold(one) for one in row.get("thresholds") or ()),
    )


def _parse_threshold(row: Mapping[str, Any]) -> Threshold:
    names = ("threshold", "sensitivity", "specificity", "ppv", "npv")
    return Threshold(str(row["name"]), *(number(row.get(name)) for name in names))


def _parse_published(row: Mapping[str, Any]) -> Published:
    findings = {str(name): number(value) for name, value in (row.get("findings") or {}).items()}
    return Published(
        work=str(row["work"]),
        network=str(row.get("network") or ""),
        px=str(row.get("px") or ""),
        mean_auroc=number(row.get("mean_auroc")),
        findings={name: value for name, value in findings.items() if value is not None},
        source=str(row.get("source") or ""),
    )
