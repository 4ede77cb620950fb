"""Predictions of a whole split, over all ranks, and their scores.

Knows how a split is predicted once, whatever the number of ranks, and the file
evaluation.json. Leaves the scores to ``metrics`` and choosing a checkpoint to ``checkpoint``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from chexnet import distributed
from chexnet.distributed import Ranks
from chexnet.errors import EXIT_FAILED, UserError
from chexnet.fitting import best_pipeline
from chexnet.labels import FINDINGS
from chexnet.loading import Loaded, check_films, load_run
from chexnet.metrics import Scores, score_findings
from chexnet.pipeline import make_pipeline
from chexnet.progress import Reporter
from chexnet.records import Dataset, load_dataset, named_damage
from chexnet.run import load_record, load_run_config, write_text

SCHEMA_VERSION = 1
EVALUATION = "evaluation.json"

Predict = Callable[[tf.Tensor], tf.Tensor]


def make_predict(model: keras.Model, *, input_size: int) -> Predict:
    """Return the compiled prediction: uint8 [B, size, size, 1] -> logits [B, 14].

    Compiled once for every batch size, since the last batch of a share is smaller.
    """
    signature = [tf.TensorSpec([None, input_size, input_size, 1], tf.uint8)]
    return tf.function(lambda images: model(images, training=False), input_signature=signature)


def score_split(
    predict: Predict,
    *,
    dataset: Dataset,
    split: str,
    batch_size: int,
    ranks: Ranks,
    crop_px: int = 0,
) -> Scores:
    """Return the scores of a split; each rank predicts its share, all get the result.

    Args:
        predict: what `make_predict` returned.
        dataset: the data.
        split: ``train``, ``validation`` or ``test``.
        batch_size: films of one prediction.
        ranks: who this process is.
        crop_px: height and width of the films' middle that is looked at; 0 for all.

    Raises:
        UserError: a record file is damaged or incomplete, or a prediction is not a number.
    """
    batches = make_pipeline(
        dataset, split=split, name=best_pipeline(dataset), batch_size=batch_size,
        rank=ranks.rank, size=ranks.size, training=False, crop_px=crop_px,
    )  # fmt: skip
    labels = [np.zeros((0, len(FINDINGS)), np.float32)]
    # Logits, not probabilities: a sigmoid rounds surely positive films to equal scores.
    logits = [np.zeros((0, len(FINDINGS)), np.float64)]
    with named_damage(dataset):
        for images, label, _ in batches:
            labels.append(label.numpy())
            logits.append(predict(images).numpy().astype(np.float64))
    all_labels = distributed.gather_rows(np.concatenate(labels), name="labels")
    all_logits = distributed.gather_rows(np.concatenate(logits), name="logits")
    expected = dataset.splits[split].num_examples
    if len(all_labels) != expected:
        raise UserError(
            f"{expected} films in the split {split} of {dataset.root}",
            found=f"{len(all_labels)}",
            fix="prepare the data again",
            exit_code=EXIT_FAILED,
        )
    if not np.isfinite(all_logits).all():
        raise UserError(
            "predictions that are numbers",
            found=f"{int((~np.isfinite(all_logits)).sum())} that are not, in the split {split}",
            fix="the weights have diverged: train with a lower learning_rate",
            exit_code=EXIT_FAILED,
        )
    return score_findings(all_labels, scores=all_logits, findings=FINDINGS)


def evaluate(run: Path, *, split: str = "test", data: Path | None = None) -> Scores:
    """Score the best checkpoint of a run and write ``evaluation.json``.

    Args:
        run: the run folder.
        split: ``train``, ``validation`` or ``test``.
        data: the data folder; by default the one the run was trained on.

    Raises:
        UserError: no run, checkpoint or data there, or they do not fit each other.
    """
    config = load_run_config(run)
    ranks = distributed.start()
    distributed.select_device(config.device, ranks=ranks)
    dataset = load_dataset(data or _find_data(run))
    other = _check_data(run, dataset=dataset, chosen=data is not None)
    with Reporter(enabled=ranks.is_first) as reporter:
        if other:
            reporter.say(other)
        loaded = load_run(run, say=reporter.say)
        check_films(loaded.description, dataset=dataset, where=loaded.path)
        predict = make_predict(loaded.model, input_size=loaded.description.input_size)
        scores = score_split(
            predict, dataset=dataset, split=split, batch_size=config.batch_size, ranks=ranks,
            crop_px=loaded.description.input_size,
        )  # fmt: skip
        if ranks.is_first:
            write_evaluation(
                run, scores=scores, split=split, dataset=dataset, loaded=loaded,
                size=ranks.size,
            )  # fmt: skip
            show_scores(scores, split=split, where=f"{run}, {loaded.path.name}")
            reporter.say(f"wrote {run / EVALUATION}")
    return scores


def write_evaluation(
    run: Path, *, scores: Scores, split: str, dataset: Dataset, loaded: Loaded, size: int
) -> None:
    """Write ``evaluation.json`` into the run folder."""
    values = {
        "schema_version": SCHEMA_VERSION,
        "split": split,
        "split_kind": dataset.split,
        "data": str(dataset.root),
        "data_sha256": dataset.sha256,
        "checkpoint": loaded.path.name,
        "epoch": loaded.description.epoch,
        "ranks": size,
        "num_examples": dataset.splits[split].num_examples,
    }
    write_text(run / EVALUATION, text=json.dumps(values | asdict(scores), indent=1) + "\n")


def show_scores(scores: Scores, *, split: str, where: str) -> None:
    """Print the scores as a table."""
    table = Table(title=f"AUROC on {split} ({where})", title_justify="left")
    table.add_column("finding")
    table.add_column("AUROC", justify="right")
    table.add_column("with", justify="right")
    table.add_column("without", justify="right")
    for row in scores.findings:
        value = "undefined" if row.auroc is None else f"{row.auroc:.4f}"
        table.add_row(row.finding, value, str(row.num_positives), str(row.num_negatives))
    mean = "undefined" if scores.mean_auroc is None else f"{scores.mean_auroc:.4f}"
    table.add_section()
    table.add_row(f"mean of {scores.num_defined} defined", mean, "", "")
    Console().print(table)


def _check_data(run: Path, *, dataset: Dataset, chosen: bool) -> str:
    """Return a warning where the data is not what the run was trained on, else nothing.

    Raises:
        UserError: the run's own folder was prepared again: patients who were trained on may
            be among the test films now.
    """
    record = load_record(run)
    if record is None or record.data_sha256 == dataset.sha256:
        return ""
    if not chosen:
        raise UserError(
            f"the data that the run in {run} was trained on",
            found=f"{dataset.root} was prepared again since, with another result",
            fix="prepare it as it was, or name other data with --data DIR",
        )
    return f"note: {dataset.root} is not what the run was trained on; patients may overlap"


def _find_data(run: Path) -> Path:
    record = load_record(run)
    if record is None:
        raise UserError(
            f"the data folder, from {run / 'record.json'}",
            found="no such file",
            fix="name it with --data DIR",
        )
    return Path(record.data)
