"""Writing checkpoints beside the training, and the state of each rank that belongs in them.

Knows which values are copied on the training's thread and which work a thread of its own does.
Leaves the file to ``checkpoint_file``, which files are kept to ``checkpoint``, and when to
``epochs``.

Within an epoch the moving statistics of batch normalisation differ between ranks, since each
has seen its own films; so a checkpoint taken there holds those of every rank.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import tensorflow as tf

from chexnet import distributed
from chexnet.checkpoint import Description, collect_arrays, remove_old, write_checkpoint
from chexnet.errors import UserError
from chexnet.training.ending import CHECKPOINT_THREAD
from chexnet.training.step import Trainer


class CheckpointWriter:
    """Writes one checkpoint at a time in the background, on rank 0; nothing on the others.

    Args:
        folder: where the checkpoints of the run lie; made if need be.
        enabled: whether this rank writes.
        keep_every: keep every n-th epoch's for good; 0: none.
    """

    def __init__(self, folder: Path, *, enabled: bool, keep_every: int = 0) -> None:
        self._folder = folder
        self._enabled = enabled
        self._keep_every = keep_every
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def save(
        self, trainer: Trainer, *, description: Description, rank_values: np.ndarray | None = None
    ) -> None:
        """Copy the state now and write it in the background, after the one before.

        Args:
            trainer: whose state it is.
            description: what it is.
            rank_values: float [ranks, N] from `gather_statistics`, within an epoch.

        Raises:
            UserError: the checkpoint before could not be written.
        """
        if not self._enabled:
            return
        self.finish()
        arrays = collect_arrays(
            description,
            model=_copy_model(trainer, rank_values),
            # A copy: on CPUs numpy() may show the memory that the next step writes to.
            optimizer=[np.array(variable.numpy()) for variable in trainer.optimizer.variables],
            rank_values=rank_values,
        )
        path = self._folder / description.name
        # No daemon: a program that ends for another reason still finishes the file.
        self._thread = threading.Thread(
            target=self._write, args=(path, arrays), name=CHECKPOINT_THREAD, daemon=False
        )
        self._thread.start()

    def check(self) -> None:
        """Raise what went wrong in the background; do not wait.

        Raises:
            UserError: a checkpoint could not be written.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finish(self) -> None:
        """Wait for the file in the works.

        Raises:
            UserError: it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, path: Path, arrays: dict[str, np.ndarray]) -> None:
        try:
            write_checkpoint(path, arrays=arrays)
            remove_old(self._folder, newest=path, keep_every=self._keep_every)
        except (UserError, OSError, MemoryError) as error:
            self._error = error


def gather_statistics(trainer: Trainer, *, size: int) -> np.ndarray | None:
    """Return the moving statistics of every rank, float [ranks, N]; every rank must call this.

    None with one rank, whose model holds them.

    Args:
        trainer: whose they are.
        size: number of ranks.
    """
    values = [variable.numpy().ravel() for variable in trainer.moving_statistics]
    if size == 1 or not values:
        return None
    with tf.device("CPU:0"):
        return distributed.gather_rows(np.concatenate(values)[None], name="statistics")


def set_statistics(trainer: Trainer, *, values: np.ndarray) -> None:
    """Give this rank its moving statistics back.

    Args:
        trainer: whose they are.
        values: float [N], a row of what `gather_statistics` returned.
    """
    variables = trainer.moving_statistics
    ends = np.cumsum([int(np.prod(variable.shape)) for variable in variables])[:-1]
    for variable, part in zip(variables, np.split(values, ends), strict=True):
        variable.assign(part.reshape(variable.shape))


def _copy_model(trainer: Trainer, rank_values: np.ndarray | None) -> list[np.ndarray]:
    """Return the model's values; of moving statistics that differ, the mean over the ranks."""
    values = {id(v): np.array(v.numpy()) for v in trainer.model.variables}
    if rank_values is not None:
        means = rank_values.mean(axis=0, dtype=np.float64)
        start = 0
        for variable in trainer.moving_statistics:
            old = values[id(variable)]
            part = means[start : start + old.size]
            values[id(variable)] = part.reshape(old.shape).astype(old.dtype)
            start += old.size
    return [values[id(variable)] for variable in trainer.model.variables]
