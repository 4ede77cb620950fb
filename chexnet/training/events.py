"""Scalars for TensorBoard: ``tensorboard/`` of a run folder.

Knows TensorBoard's event files, written with TensorFlow's own record writer; the tensorboard
package is not needed. Leaves what is worth a curve to its callers. Rank 0 alone makes one.

A run that is continued adds a file, whose first event tells TensorBoard to forget what an
earlier file holds of the steps that are done again.
"""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import tensorflow as tf

EVENTS = "tensorboard"
_VERSION = "brain.Event:2"  # the first event of every file; TensorBoard reads nothing without


class Events:
    """Writes scalars into a new event file; use as a context, or `close` it.

    Attributes:
        path: the file.
    """

    def __init__(self, folder: Path, *, first_step: int = 0) -> None:
        """Begin a file.

        Args:
            folder: where the event files lie; made if need be.
            first_step: steps that are done; what older files hold of later ones is forgotten.
        """
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns() // 10**9}.{platform.node()}.{os.getpid()}"
        # A name for each: TensorBoard reads them in the order of their names.
        self.path = folder / f"{name}.{len(list(folder.iterdir()))}"
        self._writer = tf.io.TFRecordWriter(str(self.path))
        self._add(file_version=_VERSION)
        start = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        self._add(session_log=start, step=first_step + 1)
        self._writer.flush()

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Add numbers of one step and put them on disk; those that are None are left out.

        Args:
            step: over the whole run, counted from 1.
            values: by name, such as ``train/loss``; what comes before a slash groups the curves.
        """
        known = {name: value for name, value in values.items() if value is not None}
        summary = tf.compat.v1.Summary(
            value=[
                tf.compat.v1.Summary.Value(tag=name, simple_value=_to_float32(value))
                for name, value in known.items()
            ]
        )
        self._add(summary=summary, step=step)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _add(self, **parts: object) -> None:
        event = tf.compat.v1.Event(wall_time=time.time(), **parts)
        self._writer.write(event.SerializeToString())


def _to_float32(value: float) -> float:
    """Return a number that float32 holds: protobuf refuses what is too large for it."""
    largest = 3.4028234e38
    return value if not math.isfinite(value) else min(max(float(value), -largest), largest)


def name_scalars(values: Mapping[str, object]) -> dict[str, float]:
    """Return the curves of a line of ``metrics.jsonl``, by TensorBoard's names.

    Args:
        values: a line of kind ``steps`` (curves ``train/…``) or ``epoch`` (``epoch/…``).
    """
    group = "train" if values.get("kind") == "steps" else "epoch"
    left_out = {"kind", "step", "epoch", "examples", "schema_version"}
    return {
        f"{group}/{key}": float(value)
        for key, value in values.items()
        if key not in left_out and isinstance(value, int | float) and not isinstance(value, bool)
    }
