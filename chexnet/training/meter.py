"""What some steps took and gave, over all ranks.

Knows how losses, seconds and waiting add up. Leaves the steps to ``step`` and when to look
to ``train``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import tensorflow as tf

from chexnet import distributed


@dataclass(frozen=True)
class Measured:
    """Some steps, over all ranks.

    Attributes:
        loss: mean over steps and ranks.
        images_per_s: of all ranks together.
        input_wait_fraction: part of the time spent waiting for films, mean over ranks.
    """

    loss: float
    images_per_s: float
    input_wait_fraction: float


class Meter:
    """Adds up what steps took; the losses stay on the device until they are asked for."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.seconds = 0.0
        self._wait_s = 0.0
        self._losses: list[tf.Tensor] = []

    def add(self, losses: tf.Tensor, *, wait_s: float, seconds: float) -> None:
        """Count the steps of one call.

        Args:
            losses: float [K], or a scalar for one step; on the device.
            wait_s: time the call waited for films.
            seconds: time it took in all.
        """
        self.num_steps += losses.shape.num_elements()
        self.seconds += seconds
        self._wait_s += wait_s
        self._losses.append(tf.reshape(losses, [-1]))

    def measure(self, *, images_per_step: int) -> Measured:
        """Return the means over all ranks; every rank must call this.

        Args:
            images_per_step: films in one step of all ranks together.
        """
        begun = time.perf_counter()
        loss = float(tf.reduce_mean(tf.concat(self._losses, 0)))
        self.seconds += time.perf_counter() - begun  # where a GPU had still to finish
        loss, seconds, wait_s = distributed.average_numbers(
            [loss, self.seconds, self._wait_s], name="meter"
        )
        return Measured(loss, self.num_steps * images_per_step / seconds, wait_s / seconds)
