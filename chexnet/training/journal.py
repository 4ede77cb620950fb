"""What a run measures, as it is measured: lines of metrics.jsonl and TensorBoard's curves.

Knows that both hold the same numbers, and that a full disk ends the training cleanly. Leaves
the files to ``metrics_log`` and ``events``. Rank 0 alone writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.training.events import EVENTS, Events, name_scalars
from chexnet.training.metrics_log import METRICS, append_metrics


class Journal:
    """Writes both; use as a context. Does nothing where it is not enabled.

    Args:
        folder: the run folder.
        enabled: whether this rank writes.
        first_step: steps that are done already, as older curves count them; TensorBoard forgets
            what it had of later ones.
    """

    def __init__(self, folder: Path, *, enabled: bool, first_step: int) -> None:
        self._folder = folder
        self._enabled = enabled
        self._first_step = first_step
        self._events: Events | None = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._events is not None:
            try:
                self._events.close()
            except tf.errors.OpError:
                if error is None:
                    raise

    def add(self, values: Mapping[str, Any]) -> None:
        """Add the numbers of a window of steps or of an epoch.

        Raises:
            UserError: the disk is full or the files cannot be written; what was there is whole.
        """
        if not self._enabled:
            return
        try:
            append_metrics(self._folder, values=values)
            if self._events is None:
                self._events = Events(self._folder / EVENTS, first_step=self._first_step)
            self._events.scalars(values["step"], name_scalars(values))
        except (OSError, tf.errors.OpError) as error:
            reason = error.strerror if isinstance(error, OSError) else error.message
            raise UserError(
                f"room for {METRICS} and {EVENTS} in {self._folder}",
                found=str(reason),
                fix="make room, then continue with --resume",
                exit_code=EXIT_FAILED,
            ) from error
