"""A run's network as a TensorFlow SavedModel, with a card that says what it is.

Knows the signatures, the card, and that what is written gives the checkpoint's probabilities:
that is tried before the folder appears. The SavedModel needs TensorFlow alone, neither this
program nor Horovod nor Keras. Leaves training data and scores to their own files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from chexnet import __version__
from chexnet.data.planted import draw_film
from chexnet.errors import EXIT_FAILED, UserError
from chexnet.files import write_text
from chexnet.folders import new_folder
from chexnet.labels import FINDINGS
from chexnet.networks.loading import BEST, Loaded, load_run
from chexnet.predict import describe_calibration
from chexnet.prediction.overlay import NOT_CLINICAL
from chexnet.records import hash_file
from chexnet.results.calibration import Calibration, load_calibration
from chexnet.training.checkpoint_file import load_description
from chexnet.training.run_record import list_versions, load_record

SCHEMA_VERSION = 1
CARD = "model_card.json"
MOST_DIFFERENCE = 1e-5  # of a probability; single precision differs by less from graph to graph
_NUM_SAMPLE = 8


class ExportedNetwork(tf.Module):
    """What is saved: the network, and the calibration as numbers of the graph."""

    def __init__(self, model: keras.Model, *, calibration: Calibration) -> None:
        super().__init__(name="chexnet")
        self.model = model
        self._slope = tf.constant(calibration.slope, tf.float32)
        self._intercept = tf.constant(calibration.intercept, tf.float32)
        films = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8, name="films")
        self.serve = tf.function(self._serve, input_signature=[films])
        self.by_finding = tf.function(self._by_finding, input_signature=[films])

    def _serve(self, films: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return probabilities float32 [N, 14] and the 14 names in their order."""
        logits = tf.cast(self.model(films, training=False), tf.float32)
        probabilities = tf.sigmoid(logits * self._slope + self._intercept)
        return {"probabilities": probabilities, "findings": tf.constant(FINDINGS)}

    def _by_finding(self, films: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probability of each finding by its name, float32 [N]."""
        columns = tf.unstack(self._serve(films)["probabilities"], axis=1)
        return dict(zip(FINDINGS, columns, strict=True))


def export_run(
    run: Path,
    *,
    output: Path,
    checkpoint: str = BEST,
    calibrated: bool = True,
    force: bool = False,
) -> dict[str, Any]:
    """Write a run's network as a SavedModel, and return its card.

    Args:
        run: the run folder.
        output: a new or empty folder.
        checkpoint: ``best``, ``last`` or a file.
        calibrated: put the checkpoint's calibration in, where it has one.
        force: replace an earlier export.

    Raises:
        UserError: no run or checkpoint there, an output with something in it, or outputs
            that are not the checkpoint's (exit code 1).
    """
    loaded = load_run(run, checkpoint=checkpoint, device="cpu")
    calibration = (load_calibration(loaded.path) if calibrated else None) or Calibration()
    with new_folder(output, marker=CARD, force=force) as folder:
        network = ExportedNetwork(loaded.model, calibration=calibration)
        tf.saved_model.save(
            network, str(folder),
            signatures={"serving_default": network.serve, "by_finding": network.by_finding},
        )  # fmt: skip
        difference = _compare(folder, loaded=loaded, calibration=calibration)
        card = describe_export(run, loaded=loaded, calibration=calibration, difference=difference)
        write_text(folder / CARD, text=json.dumps(card, indent=1) + "\n")
    return card


def _compare(folder: Path, *, loaded: Loaded, calibration: Calibration) -> float:
    """Return by how much what was written differs from the network, at most, on a sample.

    Raises:
        UserError: by more than rounding.
    """
    films = sample_films(loaded.description.input_size)
    expected = calibration.probabilities(loaded.model(films, training=False).numpy())
    serve: Callable[..., dict[str, tf.Tensor]] = tf.saved_model.load(str(folder)).signatures[
        "serving_default"
    ]
    found = serve(films=tf.constant(films))["probabilities"].numpy()
    difference = float(np.abs(found - expected).max())
    if not difference <= MOST_DIFFERENCE:
        raise UserError(
            f"probabilities as the checkpoint's, to {MOST_DIFFERENCE}",
            found=f"a difference of {difference:.2g} on {len(films)} films",
            fix="try another version of TensorFlow; nothing was written",
            exit_code=EXIT_FAILED,
        )
    return difference


def sample_films(size_px: int) -> np.ndarray:
    """Return made-up films, one of noise, one black and one white: uint8 [8, size, size, 1]."""
    drawn = [
        draw_film(seed=11, index=number, size_px=max(size_px, 32)).image[:size_px, :size_px]
        for number in range(_NUM_SAMPLE - 3)
    ]
    noise = np.random.default_rng(11).integers(0, 256, (size_px, size_px), np.uint8)
    plain = [np.full((size_px, size_px), grey, np.uint8) for grey in (0, 255)]
    return np.stack([*drawn, noise, *plain])[..., None]


def describe_export(
    run: Path, *, loaded: Loaded, calibration: Calibration, difference: float
) -> dict[str, Any]:
    """Return the card: what the network is, what goes in, what comes out, what it is not for."""
    known, record = loaded.description, load_record(run)
    size = known.input_size
    middle = "" if size == known.data_size else f" Then its middle {size} x {size} px is cut out."
    return {
        "schema_version": SCHEMA_VERSION,
        "note": NOT_CLINICAL,
        "what": "14 findings of ChestX-ray14 on frontal chest films; for research alone",
        "findings": list(known.findings),
        "input": {
            "name": "films",
            "type": "uint8",
            "shape": [None, size, size, 1],
            "range": [0, 255],
            "preparation": "One grey channel, bone white, resized to "
            f"{known.data_size} x {known.data_size} px, each pixel the exact mean of its "
            "area, edge pixels by their share (Pillow's BOX differs where sizes do not divide; "
            f"smaller films by Pillow's BILINEAR), without keeping proportions.{middle} "
            "Bytes as they are: the network normalises them itself.",
        },
        "output": {"name": "probabilities", "type": "float32", "shape": [None, len(FINDINGS)]},
        "signatures": ["serving_default", "by_finding"],
        "calibration": {**calibration.describe(), "said": describe_calibration(calibration)},
        "model": known.model,
        "image_size": known.image_size,
        "normalisation": known.normalisation,
        "trained_precision": load_description(loaded.path)["precision"],
        "checkpoint": loaded.path.name,
        "checkpoint_sha256": hash_file(loaded.path),
        "epoch": known.epoch,
        "validation_auroc": known.validation_auroc,
        "config_sha256": known.config_sha256,
        "data_sha256": record.data_sha256 if record else None,
        "versions": {"chexnet": __version__, **list_versions()},
        "check": {"films": _NUM_SAMPLE, "largest_difference": difference},
    }
