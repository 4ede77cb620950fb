"""Whether a probability means what it says, and how to make it so.

Knows Brier score, expected calibration error and the curve behind it, temperature and Platt
scaling, and the file ``calibration-<name>.json`` beside a checkpoint. Leaves which films it is
fitted on to ``evaluate``: validation, never test.

Networks trained to be right tend to be too sure (Guo et al. 2017). Scaling moves all
probabilities of a finding together, so it changes neither AUROC nor the order of films; where
a network is worse than chance, all films get one probability.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chexnet.errors import UserError, unknown_name
from chexnet.labels import FINDINGS
from chexnet.records import hash_file
from chexnet.run import write_text

SCHEMA_VERSION = 1
NONE, TEMPERATURE, PLATT = "none", "temperature", "platt"
METHODS = (NONE, TEMPERATURE, PLATT)
NUM_BINS = 10
# A temperature of more than this, or less than one over it, says that something else is wrong.
_MOST_SLOPE = 100.0
_HALVINGS = 60
_NEWTON_STEPS = 100


@dataclass(frozen=True)
class Calibration:
    """probability = sigmoid(slope x logit + intercept), for each finding in label order.

    Attributes:
        method: out of `METHODS`; ``none`` leaves the network's own probabilities.
        slope: one number for a finding.
        intercept: one number for a finding.
    """

    method: str = NONE
    slope: tuple[float, ...] = (1.0,) * len(FINDINGS)
    intercept: tuple[float, ...] = (0.0,) * len(FINDINGS)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Return probabilities, float64 [B, F], 0 .. 1, of the network's logits [B, F]."""
        wide = logits.astype(np.float64)
        return sigmoid(wide * np.array(self.slope) + np.array(self.intercept))

    def describe(self) -> dict[str, Any]:
        """Return what evaluation.json and the calibration's own file say of it."""
        if self.method == NONE:
            return {"method": NONE, "fitted_on": None, "parameters": {}}
        parameters: dict[str, Any] = {"slope": [*self.slope], "intercept": [*self.intercept]}
        if self.method == TEMPERATURE:
            parameters["temperature"] = 1 / self.slope[0]
        return {"method": self.method, "fitted_on": "validation", "parameters": parameters}


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^-x) without overflow."""
    return np.exp(-np.logaddexp(0, -values))


def check_method(method: str) -> None:
    """Refuse a method that is not known.

    Raises:
        UserError: naming the known ones.
    """
    if method not in METHODS:
        raise unknown_name("calibration", method, known=METHODS)


def fit_calibration(labels: np.ndarray, *, logits: np.ndarray, method: str) -> Calibration:
    """Return the calibration that fits some films best.

    Args:
        labels: 0/1 [B, F].
        logits: float [B, F].
        method: ``temperature``, one number for all findings (Guo et al. 2017); ``platt``, slope
            and intercept for each finding (Platt 1999), left at 1 and 0 for a finding without
            positives or negatives there, and never turning the films' order round; ``none``.
    """
    check_method(method)
    if method == NONE:
        return Calibration()
    if method == TEMPERATURE:
        return Calibration(method, (_fit_slope(labels, logits),) * labels.shape[1])
    pairs = [_fit_platt(labels[:, f].astype(bool), logits[:, f]) for f in range(labels.shape[1])]
    return Calibration(method, tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def calibration_path(checkpoint: Path) -> Path:
    """Return where the calibration of a checkpoint lies: each has its own."""
    return checkpoint.with_name(f"calibration-{checkpoint.stem}.json")


def write_calibration(calibration: Calibration, *, checkpoint: Path) -> Path:
    """Write a calibration beside the checkpoint that it was fitted for."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "checkpoint": checkpoint.name,
        "checkpoint_sha256": hash_file(checkpoint),
        "findings": [*FINDINGS],
        **calibration.describe(),
    }
    path = calibration_path(checkpoint)
    write_text(path, text=json.dumps(values, indent=1) + "\n")
    return path


def load_calibration(checkpoint: Path) -> Calibration | None:
    """Return the calibration fitted for a checkpoint; None if there is none for this very file.

    Raises:
        UserError: the file is no calibration of these findings.
    """
    path = calibration_path(checkpoint)
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION or tuple(data["findings"]) != FINDINGS:
            raise ValueError("another schema_version, or other findings")
        found = _parse(data)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"a calibration of schema_version {SCHEMA_VERSION} in {path}",
            found=f"{type(error).__name__}: {error}",
            fix="remove that file, or fit it again: invoke evaluate --calibrate temperature",
        ) from error
    same = data["checkpoint"] == checkpoint.name
    return found if same and data["checkpoint_sha256"] == hash_file(checkpoint) else None


def brier(labels: np.ndarray, *, probabilities: np.ndarray) -> float:
    """Return the mean squared distance of probability and label [B], 0 .. 1 (Brier 1950)."""
    return float(np.mean((probabilities - labels) ** 2))


def calibration_curve(
    labels: np.ndarray, *, probabilities: np.ndarray, num_bins: int = NUM_BINS
) -> dict[str, list[Any]]:
    """Return mean probability, share of positives and films of each bin, by rising probability.

    Bins of equal counts: most findings are rare, so bins of equal width would hold nearly all
    films in the first. Films of one probability stay in one bin, so bins may be fewer.

    Args:
        labels: 0/1 [B].
        probabilities: float [B].
        num_bins: bins, if no two films have the same probability.
    """
    inner = np.quantile(probabilities, np.linspace(0, 1, num_bins + 1)[1:-1])
    bins = np.searchsorted(np.unique(inner), probabilities)
    count = np.bincount(bins)
    held = count > 0
    predicted, observed = (
        (np.bincount(bins, weights=values)[held] / count[held]).tolist()
        for values in (probabilities, labels)
    )
    return {"predicted": predicted, "observed": observed, "count": count[held].tolist()}


def expected_error(curve: dict[str, list[Any]]) -> float:
    """Return the mean over films of how far their bin's probability is from its share."""
    gaps = np.abs(np.subtract(curve["predicted"], curve["observed"]))
    return float(np.average(gaps, weights=curve["count"]))


def _fit_slope(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the slope of least cross-entropy; its derivative rises, so halving finds the root."""
    low, high = -np.log(_MOST_SLOPE), np.log(_MOST_SLOPE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rise = np.sum((sigmoid(np.exp(middle) * logits) - labels) * logits)
        low, high = (low, middle) if rise > 0 else (middle, high)
    return float(np.exp((low + high) / 2))


def _fit_platt(positive: np.ndarray, logits: np.ndarray) -> tuple[float, float]:
    """Return slope and intercept, by Newton's method with halved steps (Lin et al. 2007)."""
    num_positives, num_negatives = int(positive.sum()), int((~positive).sum())
    if not num_positives or not num_negatives:
        return 1.0, 0.0
    # Platt's targets instead of 0 and 1, or films told apart perfectly have no best slope.
    targets = np.where(positive, (num_positives + 1) / (num_positives + 2), 1 / (num_negatives + 2))
    inputs = np.stack([logits, np.ones_like(logits)])

    def loss(at: np.ndarray) -> float:
        values = at @ inputs
        return float(np.sum(np.logaddexp(0, values) - targets * values))

    best = np.array([0.0, np.log((num_positives + 1) / (num_negatives + 1))])
    for _ in range(_NEWTON_STEPS):
        shares = sigmoid(best @ inputs)
        gradient = inputs @ (shares - targets)
        if np.abs(gradient).max() < 1e-9 * len(logits):
            break
        bend = (inputs * (shares * (1 - shares))) @ inputs.T + 1e-12 * np.eye(2)
        step = np.linalg.solve(bend, gradient)
        size = 1.0
        while size > 1e-10 and loss(best - size * step) > loss(best):
            size /= 2
        best = best - size * step
    if best[0] <= 0:
        # Worse than chance on those films: turning their order round would be no calibration.
        return 0.0, float(np.log(targets.mean() / (1 - targets.mean())))
    return float(best[0]), float(best[1])


def _parse(data: dict[str, Any]) -> Calibration:
    check_method(data["method"])
    if data["method"] == NONE:
        return Calibration()
    slope, intercept = (_numbers(data["parameters"][key]) for key in ("slope", "intercept"))
    return Calibration(data["method"], slope, intercept)


def _numbers(values: Sequence[Any]) -> tuple[float, ...]:
    if len(values) != len(FINDINGS) or not np.isfinite(np.array(values, np.float64)).all():
        raise ValueError(f"{len(FINDINGS)} numbers are needed")
    return tuple(float(value) for value in values)
