"""A trained network on a user's films: probabilities and heat maps.

Knows the order of the work, and what the results say of the network they came from. A film
that cannot be read, or whose prediction is no number, is listed, and the rest is done. Leaves
reading films to ``film_stream``, results to ``prediction_files`` and ``heatmap_files``, and
what a user sees to ``prediction_text``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import keras
import numpy as np
import tensorflow as tf

from chexnet.errors import EXIT_FAILED, UserError, name_some, unknown_name
from chexnet.networks.loading import BEST, Loaded, load_run
from chexnet.prediction.choice import DEFAULT, Choice, parse_choice
from chexnet.prediction.film_stream import FEW, ReadFilm, read_batches
from chexnet.prediction.heatmap_files import HeatmapFiles
from chexnet.prediction.heatmaps import make_explain
from chexnet.prediction.inputs import Input
from chexnet.prediction.prediction_files import DOCUMENT, Predicted, PredictionFiles
from chexnet.records import hash_file
from chexnet.results.calibration import NONE, Calibration, load_calibration

DEVICES = ("auto", "gpu", "cpu")
CALIBRATED = "Probabilities are calibrated ({method}, fitted on validation)."
NO_NUMBER = "the network's answer to it is no number"
UNCALIBRATED = "Probabilities are not calibrated: they rank films, and mean no more."


@dataclass(frozen=True, kw_only=True)
class Options:
    """How films are predicted.

    Attributes:
        output: folder for predictions.csv and predictions.json; None for none.
        heatmap: folder for overlays; None for none.
        method: of the heat maps, ``cam`` or ``gradcam``.
        choice: which findings get a heat map.
        batch_size: films of one pass.
        checkpoint: ``best``, ``last`` or a file.
        device: ``auto`` takes a GPU where there is one, ``cpu`` or ``gpu``.
    """

    output: Path | None = None
    heatmap: Path | None = None
    method: str = "cam"
    choice: Choice = field(default_factory=lambda: parse_choice(DEFAULT))
    batch_size: int = 32
    checkpoint: str = BEST
    device: str = "auto"


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        films: what was predicted, up to `FEW` of them.
        num_films: how many were predicted.
        unreadable: path and reason of the others.
        num_warned: films with warnings.
        seconds: from the first film to the last, without loading the network.
        calibration: of the probabilities.
        loaded: the network.
    """

    films: tuple[Predicted, ...]
    num_films: int
    unreadable: tuple[tuple[str, str], ...]
    num_warned: int
    seconds: float
    calibration: Calibration
    loaded: Loaded

    @property
    def images_per_s(self) -> float:
        """Return films predicted a second."""
        return self.num_films / max(self.seconds, 1e-9)

    @property
    def totals(self) -> dict[str, float]:
        """Return what the document says in the end."""
        return {
            "num_films": self.num_films,
            "seconds": round(self.seconds, 3),
            "images_per_s": round(self.images_per_s, 2),
        }


def predict(
    run: Path, *, inputs: Sequence[Input], options: Options, stream: TextIO | None = None
) -> Outcome:
    """Predict films with a run's network and write down what came out.

    Args:
        run: the run folder.
        inputs: from `inputs.find_inputs`.
        options: how.
        stream: gets the JSON document, too.

    Raises:
        UserError: no run or checkpoint there, no film at all can be read, or all predictions
            are no numbers.
    """
    device = choose_device(options.device)
    # Not to stdout, where the JSON document may go.
    aside = partial(print, file=sys.stderr)
    loaded = load_run(run, checkpoint=options.checkpoint, device=device, say=aside)
    calibration = load_calibration(loaded.path) or Calibration()
    explain = _make_explain(loaded.model, options=options)
    head = _describe(run, loaded=loaded, calibration=calibration, options=options)
    tally = _Tally()
    note = describe_calibration(calibration)
    with (
        PredictionFiles(options.output, head=head, stream=stream) as files,
        HeatmapFiles(
            options.heatmap, choice=options.choice, note=note, keep=[one.path for one in inputs]
        ) as pictures,
    ):
        begun = time.perf_counter()
        for read in read_batches(
            inputs, data_px=loaded.description.data_size, input_px=loaded.description.input_size,
            batch_size=options.batch_size, bad=tally.bad, keep=options.heatmap is not None,
        ):  # fmt: skip
            logits, maps = explain(np.stack([film.pixels for film in read])[..., None])
            batch, logits, maps = _leave_out(read, logits=logits, maps=maps, bad=tally.bad)
            rows = calibration.probabilities(logits)
            drawn = pictures.draw(batch, probabilities=rows, maps=maps)
            for film, row, names in zip(batch, rows, drawn, strict=True):
                files.add(tally.count(_conclude(film, row, names)))
        outcome = tally.conclude(
            time.perf_counter() - begun, calibration=calibration, loaded=loaded
        )
        files.end(unreadable=outcome.unreadable, totals=outcome.totals)
    _require_some(outcome, output=options.output)  # once the reasons are written
    return outcome


class _Tally:
    """What has come of the films so far."""

    def __init__(self) -> None:
        self.bad: list[tuple[str, str]] = []
        self._first: list[Predicted] = []
        self._num_films = self._num_warned = 0

    def count(self, film: Predicted) -> Predicted:
        self._num_films += 1
        self._num_warned += bool(film.warnings)
        if len(self._first) < FEW:
            self._first.append(film)
        return film

    def conclude(self, seconds: float, *, calibration: Calibration, loaded: Loaded) -> Outcome:
        return Outcome(
            tuple(self._first), self._num_films, tuple(self.bad), self._num_warned, seconds,
            calibration, loaded,
        )  # fmt: skip


def _conclude(film: ReadFilm, row: np.ndarray, heatmaps: dict[str, str]) -> Predicted:
    return Predicted(
        str(film.source.path), film.kind, film.width, film.height,
        tuple(float(value) for value in row), film.notes, heatmaps,
    )  # fmt: skip


def describe_calibration(calibration: Calibration) -> str:
    """Return the sentence that says whether probabilities mean what they say."""
    if calibration.method == NONE:
        return UNCALIBRATED
    return CALIBRATED.format(method=calibration.method)


def choose_device(device: str) -> str:
    """Take a GPU or the cores of this process, before TensorFlow computes anything.

    Args:
        device: ``auto`` takes a GPU where there is one; ``gpu``; ``cpu``.

    Returns:
        ``gpu`` or ``cpu``.

    Raises:
        UserError: an unknown name, or no GPU where one is asked for.
    """
    if device not in DEVICES:
        raise unknown_name("device", device, known=DEVICES)
    gpus = tf.config.list_physical_devices("GPU") if device != "cpu" else []
    if device == "gpu" and not gpus:
        raise UserError(
            "a GPU that TensorFlow can use", found="none", fix="--device cpu, or repair the set-up"
        )
    tf.config.set_visible_devices(gpus[:1], "GPU")
    for gpu in gpus[:1]:
        tf.config.experimental.set_memory_growth(gpu, True)
    return "gpu" if gpus else "cpu"


def _make_explain(
    model: keras.Model, *, options: Options
) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray | None]]:
    """Return the function from films to logits, and to maps where they are wanted."""
    if options.heatmap:
        return make_explain(model, method=options.method)
    signature = [tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8)]
    compiled = tf.function(
        lambda images: model(images, training=False), input_signature=signature, autograph=False
    )
    return lambda images: (compiled(images).numpy(), None)


def _describe(
    run: Path, *, loaded: Loaded, calibration: Calibration, options: Options
) -> dict[str, Any]:
    """Return what the document says of the whole."""
    known = loaded.description
    return {
        "run": str(run),
        "checkpoint": loaded.path.name,
        "checkpoint_sha256": hash_file(loaded.path),
        "epoch": known.epoch,
        "model": known.model,
        "data_size": known.data_size,
        "input_size": known.input_size,
        "calibration": {**calibration.describe(), "said": describe_calibration(calibration)},
        "heatmap_method": options.method if options.heatmap else None,
    }


def _leave_out(
    batch: list[ReadFilm],
    *,
    logits: np.ndarray,
    maps: np.ndarray | None,
    bad: list[tuple[str, str]],
) -> tuple[list[ReadFilm], np.ndarray, np.ndarray | None]:
    """Return films, logits and maps without those whose logits are no numbers, which are listed."""
    good = np.isfinite(logits).all(axis=1)
    bad += [(str(batch[place].source.path), NO_NUMBER) for place in np.flatnonzero(~good)]
    kept = [batch[place] for place in np.flatnonzero(good)]
    return kept, logits[good], None if maps is None else maps[good]


def _require_some(outcome: Outcome, *, output: Path | None) -> None:
    bad = outcome.unreadable
    diverged = [file for file, reason in bad if reason == NO_NUMBER]
    if diverged and not outcome.num_films:
        raise UserError(
            "predictions that are numbers",
            found=f"none of any film, by the weights of {outcome.loaded.path}: "
            f"{name_some(diverged)}",
            fix="the weights have diverged: train with a lower learning_rate",
            exit_code=EXIT_FAILED,
        )
    if not outcome.num_films:
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise UserError(
            "a film that can be read",
            found=f"{bad[0][0]}: {bad[0][1]}{more}",
            fix="give PNG, JPEG or DICOM files of chest films"
            + (f"; {output / DOCUMENT} has the reason of each" if output else ""),
        )
