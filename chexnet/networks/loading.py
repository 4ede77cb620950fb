"""A trained network, out of the run folder that holds it.

Knows which checkpoint is meant, and that a checkpoint of another run, network, label order,
normalisation or film size is refused by name: a score of weights that never loaded is worse
than none. Leaves the file itself to ``checkpoint`` and what the network is for to its callers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import keras

from chexnet.checkpoint import (
    Checkpoint,
    Description,
    Say,
    check_description,
    load_best,
    load_checkpoint,
    load_newest,
    restore,
)
from chexnet.config import TrainConfig
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.model import build_model
from chexnet.networks.weights import find_normalisation
from chexnet.records import Dataset
from chexnet.run import CHECKPOINTS, load_run_config

BEST, LAST = "best", "last"


@dataclass(frozen=True)
class Loaded:
    """A network with the weights of a checkpoint.

    Attributes:
        model: uint8 [B, input_size, input_size, 1] -> logits [B, 14].
        description: what the checkpoint says about itself.
        config: the run's configuration, as it was asked for.
        path: the checkpoint's file.
    """

    model: keras.Model
    description: Description
    config: TrainConfig
    path: Path


def load_run(
    run: Path, *, checkpoint: str = BEST, device: str | None = None, say: Say = print
) -> Loaded:
    """Return the network of a run with the weights of one of its checkpoints.

    Args:
        run: the run folder.
        checkpoint: ``best`` by validation AUROC, ``last``, or a file: its path, or its name
            in the run's folder of checkpoints.
        device: that it will work on; on a ``cpu`` in single precision, which half only slows
            there. None: as it was trained.
        say: told about damaged checkpoints that were passed over.

    Raises:
        UserError: no run or checkpoint there, a file that is not whole, or one of another
            run, network, label order or normalisation.
    """
    config = load_run_config(run)
    found = _find_checkpoint(run / CHECKPOINTS, checkpoint=checkpoint, say=say)
    _check_run(found, run=run, config=config)
    if device == "cpu" and found.description.precision.startswith("mixed"):
        found = replace(found, description=replace(found.description, precision="float32"))
    return Loaded(load_model(found, config=config), found.description, config, found.path)


def is_own(path: Path, *, run: Path) -> bool:
    """Return whether a checkpoint lies in a run's own folder."""
    return path.resolve().parent == (run / CHECKPOINTS).resolve()


def _find_checkpoint(folder: Path, *, checkpoint: str, say: Say) -> Checkpoint:
    if checkpoint == BEST:
        return load_best(folder, say=say)
    if checkpoint == LAST:
        newest = load_newest(folder, say=say)
        # For want of any, the error is that of the best.
        return newest or load_best(folder, say=say)
    path = Path(checkpoint)
    return load_checkpoint(path if path.exists() else folder / checkpoint)


def _check_run(checkpoint: Checkpoint, *, run: Path, config: TrainConfig) -> None:
    """Refuse a file from elsewhere that another configuration wrote.

    Those in the run's own folder are the run's, also where keys came to the configuration since.
    """
    same = checkpoint.description.config_sha256 == config.sha256
    if not same and not is_own(checkpoint.path, run=run):
        raise UserError(
            f"a checkpoint of the run in {run}",
            found=f"one of another run, by the hash of its configuration: {checkpoint.path}",
            fix="give the --run that wrote it",
        )


def load_model(checkpoint: Checkpoint, *, config: TrainConfig) -> keras.Model:
    """Return the network of a checkpoint, with its weights.

    Raises:
        UserError: it is of another network, label order or normalisation.
    """
    found, where = checkpoint.description, str(checkpoint.path)
    check_description(
        found,
        where=where,
        model=config.model,
        findings=FINDINGS,
        normalisation=find_normalisation(config.model),
    )
    model = build_model(
        found.model, input_size=found.input_size, image_size=found.image_size,
        batch_statistics=config.batch_statistics, precision=found.precision,
    )  # fmt: skip
    restore(checkpoint.model_values, variables=model.variables, where=where)
    return model


def check_films(description: Description, *, dataset: Dataset, where: Path) -> None:
    """Refuse data whose films have another size than those trained on.

    Raises:
        UserError: naming both sizes.
    """
    if description.data_size != dataset.image_size:
        raise UserError(
            f"films of {description.data_size} px, as {where} was trained on",
            found=f"{dataset.image_size} px in {dataset.root}",
            fix=f"prepare the data with --size {description.data_size}",
        )
