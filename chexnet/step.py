"""One training step, compiled once, and what was measured of some steps.

Knows loss, gradients and their application. Leaves the loop over steps to ``train`` and
the exchange between ranks to ``distributed``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import keras
import tensorflow as tf

from chexnet import distributed
from chexnet.labels import FINDINGS


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

    def add(self, loss: tf.Tensor, *, wait_s: float, seconds: float) -> None:
        """Count one step."""
        self.num_steps += 1
        self.seconds += seconds
        self._wait_s += wait_s
        self._losses.append(loss)

    def measure(self, *, images_per_step: int) -> Measured:
        """Return the means over all ranks; every rank must call this.

        Args:
            images_per_step: films in one step of all ranks together.
        """
        begun = time.perf_counter()
        loss = float(tf.reduce_mean(tf.stack(self._losses)))
        self.seconds += time.perf_counter() - begun  # where a GPU had still to finish
        loss, seconds, wait_s = distributed.average_numbers(
            [loss, self.seconds, self._wait_s], name="meter"
        )
        return Measured(loss, self.num_steps * images_per_step / seconds, wait_s / seconds)


class Trainer:
    """A model, its optimizer and the compiled step that changes both.

    Attributes:
        model: the network.
        optimizer: Adam; its variables exist from the start, since building them inside
            the step would trace it twice.
    """

    def __init__(self, model: keras.Model, *, batch_size: int, input_size: int) -> None:
        self.model = model
        self.optimizer = keras.optimizers.Adam()
        self.optimizer.build(model.trainable_variables)
        self._step = tf.function(
            self._compute,
            input_signature=[
                tf.TensorSpec([batch_size, input_size, input_size, 1], tf.uint8),
                tf.TensorSpec([batch_size, len(FINDINGS)], tf.float32),
                tf.TensorSpec([], tf.float32),
            ],
        )

    @property
    def moving_statistics(self) -> list[keras.Variable]:
        """Return the means and variances of batch normalisation."""
        return [
            variable
            for variable in self.model.non_trainable_variables
            if keras.backend.is_float_dtype(variable.dtype)
        ]

    @property
    def variables(self) -> list[keras.Variable]:
        """Return the whole state: of the model, then of the optimizer."""
        return [*self.model.variables, *self.optimizer.variables]

    def trace(self) -> None:
        """Compile the step, so that this is not taken for slow input or a slow first step."""
        self._step.get_concrete_function()

    def gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the mean loss of this rank's films and the gradients averaged over ranks.

        Args:
            images: uint8 [B, H, W, 1].
            labels: float32 [B, 14], 0 or 1.
        """
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            logits = self.model(images, training=True)
            losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(labels, logits.dtype), logits)
            loss = tf.reduce_mean(losses)
        return loss, distributed.average_gradients(tape.gradient(loss, variables))

    def step(self, images: tf.Tensor, labels: tf.Tensor, *, rate: float) -> tf.Tensor:
        """Take one step at this learning rate and return this rank's loss."""
        return self._step(images, labels, tf.constant(rate, tf.float32))

    def timed_step(
        self, batches: Iterator[tuple[tf.Tensor, tf.Tensor]], *, rate: float, meters: list[Meter]
    ) -> None:
        """Wait for a batch, take one step and count both on the meters."""
        begun = time.perf_counter()
        images, labels = next(batches)
        waited = time.perf_counter()
        loss = self.step(images, labels, rate=rate)
        ended = time.perf_counter()
        for meter in meters:
            meter.add(loss, wait_s=waited - begun, seconds=ended - begun)

    def _compute(self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        loss, gradients = self.gradients(images, labels)
        self.optimizer.learning_rate.assign(tf.cast(rate, self.optimizer.learning_rate.dtype))
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return loss
