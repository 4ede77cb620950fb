"""Predictions of a whole split: each film once, in one order, whatever the number of ranks.

Knows how the ranks share the films, how their shares become one table again, and the file
``predictions-<split>.csv``. Leaves what the predictions are worth to ``metrics`` and others.

Nothing is sampled and nothing is counted twice: the last batch is filled up with empty films,
so that the network meets batches of one size, and what it says of those is dropped; then every
film of the split's table must be there once. Memory does not grow with the images: they pass
by, and 14 numbers of each film stay.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.data.films import load_films
from chexnet.distributed import Ranks
from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.input.fitting import best_pipeline
from chexnet.labels import FINDINGS
from chexnet.pipeline import make_pipeline
from chexnet.records import PREPARE_AGAIN, Dataset, named_damage
from chexnet.run import write_text

Predict = Callable[[tf.Tensor], tf.Tensor]
Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a network says of every film of a split, in the order of the split's table.

    Attributes:
        split: ``train``, ``validation`` or ``test``.
        names: file name of each film, N.
        patients: whose it is, N.
        labels: float32 [N, 14], 0 or 1.
        logits: float64 [N, 14]; not probabilities, which round surely positive films to one.
        seconds: from the first film asked for to the last number gathered.
    """

    split: str
    names: tuple[str, ...]
    patients: tuple[str, ...]
    labels: np.ndarray
    logits: np.ndarray
    seconds: float

    @property
    def num_patients(self) -> int:
        """Return how many patients the films are of."""
        return len(set(self.patients))


def make_predict(model: keras.Model, *, input_size: int) -> Predict:
    """Return the compiled prediction: uint8 [B, size, size, 1] -> logits [B, 14]."""
    signature = [tf.TensorSpec([None, input_size, input_size, 1], tf.uint8)]
    return tf.function(
        lambda images: model(images, training=False), input_signature=signature, autograph=False
    )


def predict_split(
    predict: Predict,
    *,
    dataset: Dataset,
    split: str,
    batch_size: int,
    ranks: Ranks,
    crop_px: int = 0,
    progress: Progress = lambda done: None,
) -> Predictions:
    """Return the predictions of a split; each rank predicts its share, all get the result.

    Args:
        predict: what `make_predict` returned.
        dataset: the data.
        split: ``train``, ``validation`` or ``test``.
        batch_size: films of one prediction.
        ranks: who this process is.
        crop_px: height and width of the films' middle that is looked at; 0 for all.
        progress: told how many films this rank has done.

    Raises:
        UserError: a record file is damaged or incomplete, or a prediction is not a number.
    """
    batches = make_pipeline(
        dataset, split=split, name=best_pipeline(dataset), batch_size=batch_size,
        rank=ranks.rank, size=ranks.size, training=False, crop_px=crop_px,
    )  # fmt: skip
    described = dataset.splits[split]
    begun = time.perf_counter()
    with named_damage(dataset):
        own = _predict_share(predict, batches=batches, batch_size=batch_size, progress=progress)
    table = load_films(dataset.root / described.films.name, num_films=described.num_examples)
    places = {name: place for place, name in enumerate(table.names)}
    rows = np.array([places.get(name, -1) for name in own[0]], np.int64)
    rows, labels, logits = (
        distributed.gather_rows(values, name=f"{split}.{name}")
        for name, values in (("rows", rows), ("labels", own[1]), ("logits", own[2]))
    )
    seconds = time.perf_counter() - begun
    _check_whole(rows, dataset=dataset, split=split)
    order = np.argsort(rows)
    found = Predictions(
        split, table.names, table.patients, labels[order], logits[order], seconds
    )  # fmt: skip
    _check_finite(found)
    return found


def render_predictions(predictions: Predictions, *, probabilities: np.ndarray) -> str:
    """Return the predictions as CSV text: a film a line, label and probability by finding.

    Args:
        predictions: of a split.
        probabilities: float [N, 14], 0 .. 1; written so that reading gives the same numbers.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    pairs = [(f"{finding}_label", f"{finding}_probability") for finding in FINDINGS]
    writer.writerow(["filename", "patient", *(name for pair in pairs for name in pair)])
    labels = predictions.labels.astype(int).tolist()
    films = zip(
        predictions.names, predictions.patients, labels, probabilities.tolist(), strict=True
    )
    for name, patient, label, row in films:
        cells = (cell for pair in zip(label, row, strict=True) for cell in pair)
        writer.writerow([name, patient, *cells])
    return stream.getvalue()


def write_predictions(
    folder: Path, *, predictions: Predictions, probabilities: np.ndarray, films: str
) -> Path:
    """Write ``predictions-<films>.csv`` into a run folder and return its path."""
    path = folder / f"predictions-{films}.csv"
    write_text(path, text=render_predictions(predictions, probabilities=probabilities))
    return path


def _predict_share(
    predict: Predict,
    *,
    batches: Iterable[tuple[tf.Tensor, ...]],
    batch_size: int,
    progress: Progress,
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return names, labels and logits of this rank's films, which may be none."""
    names: list[str] = []
    labels = [np.zeros((0, len(FINDINGS)), np.float32)]
    logits = [np.zeros((0, len(FINDINGS)), np.float64)]
    for found, label, name in _one_ahead(predict, batches, batch_size):
        names += [one.decode(errors="replace") for one in name.numpy()]
        labels.append(label.numpy())
        logits.append(found.numpy()[: len(label)].astype(np.float64))
        progress(len(names))
    return names, np.concatenate(labels), np.concatenate(logits)


def _one_ahead(
    predict: Predict, batches: Iterable[tuple[tf.Tensor, ...]], batch_size: int
) -> Iterator[tuple[tf.Tensor, ...]]:
    """Yield logits, labels and names; the device works on the next batch meanwhile."""
    waiting: tuple[tf.Tensor, ...] | None = None
    for images, label, name in batches:
        lacking = batch_size - images.shape[0]
        filled = tf.pad(images, [[0, lacking], [0, 0], [0, 0], [0, 0]]) if lacking else images
        asked = (predict(filled), label, name)
        if waiting:
            yield waiting
        waiting = asked
    if waiting:
        yield waiting


def _check_whole(rows: np.ndarray, *, dataset: Dataset, split: str) -> None:
    """Raise where the films that came are not those of the split's table, each once."""
    expected = dataset.splits[split].num_examples
    different = len(np.unique(rows[rows >= 0]))
    if len(rows) == different == expected:
        return
    raise UserError(
        f"{expected} films in the split {split} of {dataset.root}, each once",
        found=f"{len(rows)}, {different} different ones of the table "
        f"{dataset.splits[split].films.name}",
        fix=PREPARE_AGAIN,
        exit_code=EXIT_FAILED,
    )


def _check_finite(predictions: Predictions) -> None:
    wrong = np.flatnonzero(~np.isfinite(predictions.logits).all(axis=1))
    if len(wrong):
        raise UserError(
            "predictions that are numbers",
            found=f"others for {len(wrong)} of {len(predictions.names)} films of the split "
            f"{predictions.split}: {name_some(predictions.names[film] for film in wrong)}",
            fix="if it is every film the weights have diverged: train with a lower learning_rate; "
            "if it is a few, look at those images",
            exit_code=EXIT_FAILED,
        )
