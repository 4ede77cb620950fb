"""What predictions are worth, as evaluation.json says it.

Knows the file and how its numbers follow from the predictions of a split and of validation.
Imports no TensorFlow, so that a page about a run is quick to make. Leaves predicting to
``evaluate`` and each measure to its module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.metrics import Scores, cross_entropy, score_findings
from chexnet.results.calibration import Calibration, brier, calibration_curve, expected_error
from chexnet.results.curves import pr_curve, roc_curve
from chexnet.results.intervals import Bootstrap, Intervals, make_intervals
from chexnet.results.thresholds import choose_thresholds, measure_threshold
from chexnet.run import write_text

if TYPE_CHECKING:
    from chexnet.results.predictions import Predictions

SCHEMA_VERSION = 2
TEST, VALIDATION = "test", "validation"
HASH_DIGITS = 8  # in a file's name


@dataclass(frozen=True, eq=False)
class Assessed:
    """The predictions of a split and what there is to judge them by.

    Attributes:
        predictions: of the split.
        validation: of the validation films, on which thresholds are chosen; None for none.
        calibration: how logits become probabilities.
        bootstrap: how intervals are made.
    """

    predictions: Predictions
    validation: Predictions | None
    calibration: Calibration
    bootstrap: Bootstrap


def evaluation_path(run: Path, *, split: str = TEST, other: str = "") -> Path:
    """Return where an evaluation lies: only that of the run's own test is called evaluation.

    Args:
        run: the run folder.
        split: the side of the data.
        other: hash of the data, where they are not the run's own.
    """
    if split == TEST and not other:
        return run / "evaluation.json"
    return run / f"evaluation-{name_films(split, other=other)}.json"


def name_films(split: str, *, other: str) -> str:
    """Return what tells files about some films apart; arguments as `evaluation_path`."""
    return f"{split}-{other[:HASH_DIGITS]}" if other else split


def score(predictions: Predictions) -> Scores:
    """Return areas and loss of some predictions, by the network's own logits."""
    labels, logits = predictions.labels, predictions.logits
    found = score_findings(labels, scores=logits, findings=FINDINGS)
    return replace(found, loss=cross_entropy(labels, logits=logits))


def assess(assessed: Assessed, *, progress: Callable[[int], None] = lambda done: None) -> dict:
    """Return the part of evaluation.json that follows from the predictions alone."""
    predictions = assessed.predictions
    scores = score(predictions)
    intervals = make_intervals(
        predictions.labels,
        scores=predictions.logits,
        patients=predictions.patients,
        how=assessed.bootstrap,
        progress=progress,
    )
    return {
        "num_examples": len(predictions.names),
        "num_patients": predictions.num_patients,
        "mean_auroc": scores.mean_auroc,
        "mean_auroc_interval": intervals.mean_auroc,
        "num_defined": scores.num_defined,
        "mean_auprc": scores.mean_auprc,
        "loss": scores.loss,
        "bootstrap": {
            "by": "patient", **asdict(assessed.bootstrap), "refused": intervals.refused,
        },
        "calibration": assessed.calibration.describe(),
        "thresholds_chosen_on": VALIDATION if assessed.validation else None,
        "findings": _describe_findings(assessed, scores=scores, intervals=intervals),
    }  # fmt: skip


def write_evaluation(run: Path, *, values: Mapping[str, Any], other: str = "") -> Path:
    """Write an evaluation into the run folder and return its path, as `evaluation_path` says."""
    path = evaluation_path(run, split=values["split"], other=other)
    text = json.dumps({"schema_version": SCHEMA_VERSION, **values}, indent=1, allow_nan=False)
    write_text(path, text=text + "\n")
    return path


def load_evaluation(run: Path, *, split: str = TEST, other: str = "") -> dict[str, Any] | None:
    """Return an evaluation; None where there is none. Arguments as `evaluation_path`.

    Raises:
        UserError: the file is damaged or of another schema.
    """
    path = evaluation_path(run, split=split, other=other)
    if not path.exists():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {values['schema_version']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"an evaluation of schema_version {SCHEMA_VERSION} in {path}",
            found=f"{type(error).__name__}: {error}",
            fix=f"evaluate again: invoke evaluate --run {run} --split {split}",
        ) from error
    return values


def _describe_findings(
    assessed: Assessed, *, scores: Scores, intervals: Intervals
) -> list[dict[str, Any]]:
    labels, logits = assessed.predictions.labels, assessed.predictions.logits
    probabilities = assessed.calibration.probabilities(logits)
    rows = []
    for f, row in enumerate(scores.findings):
        curve = calibration_curve(labels[:, f], probabilities=probabilities[:, f])
        rows.append(
            asdict(row)
            | {
                "auroc_interval": intervals.auroc[f],
                "auprc_interval": intervals.auprc[f],
                "brier": brier(labels[:, f], probabilities=probabilities[:, f]),
                "expected_error": expected_error(curve),
                "calibration_curve": curve,
                "roc": roc_curve(labels[:, f], scores=logits[:, f]),
                "pr": pr_curve(labels[:, f], scores=logits[:, f]),
                "thresholds": _thresholds(assessed, f, labels[:, f], probabilities[:, f]),
            }
        )
    return rows


def _thresholds(
    assessed: Assessed, finding: int, labels: np.ndarray, probabilities: np.ndarray
) -> list[dict[str, Any]]:
    """Return the thresholds of a finding, chosen on validation, and their worth on the split."""
    validation = assessed.validation
    if validation is None:
        return []
    chosen = choose_thresholds(
        validation.labels[:, finding],
        probabilities=assessed.calibration.probabilities(validation.logits)[:, finding],
    )
    return [
        {"name": name, "threshold": value}
        | measure_threshold(labels, probabilities=probabilities, threshold=value)
        for name, value in chosen.items()
    ]
