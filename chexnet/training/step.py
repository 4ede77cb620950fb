"""The training step, compiled once, and a loop of several within one call.

Knows gradients, their local accumulation and their application, in the precision that the
configuration asks for. Leaves the loop over an epoch to ``train``, the loss to ``losses``,
the exchange between ranks to ``exchange`` and Adam with its loss scale to ``optimizer``.

What XLA compiles ends before the exchange and begins after it: Horovod's operations cannot
lie inside, since those it had for XLA (HOROVOD_ENABLE_XLA_OPS) do not build against today's
TensorFlow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from chexnet.config import TrainConfig
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.records import Split
from chexnet.training.exchange import make_exchange
from chexnet.training.losses import make_loss
from chexnet.training.meter import Measured, Meter
from chexnet.training.optimizer import Optimizer
from chexnet.training.roll_call import together

__all__ = ["Measured", "Meter", "Trainer"]

Batches = Iterator[tuple[tf.Tensor, tf.Tensor]]
# AutoGraph has nothing to convert here, and takes most of the time of tracing a small network.
_graph = partial(tf.function, autograph=False)


class Trainer:
    """A model, its optimizer and the compiled steps that change both.

    Attributes:
        model: the network.
        optimizer: Adam; its ``variables`` belong to a checkpoint.
        steps_per_call: most steps in one call.
        accumulation_steps: batches that a step takes on each rank.
    """

    def __init__(
        self, model: keras.Model, *, config: TrainConfig, films: Split | None = None
    ) -> None:
        """Prepare the step; nothing is compiled before `trace` or the first call.

        Args:
            model: from `build_model`, of the configuration's precision.
            config: with what is ``auto`` settled.
            films: the training films, whose counts weigh the loss ``weighted_bce``.

        Raises:
            UserError: XLA together with statistics that cross between ranks in the step.
        """
        if config.xla == "on" and config.batch_statistics == "global" and hvd.size() > 1:
            raise UserError(
                "batch_statistics=local with xla=on on several ranks",
                found="batch_statistics=global, whose exchange XLA cannot compile",
                fix="--set xla=off, or --set batch_statistics=local",
            )
        self.model = model
        self.steps_per_call = config.steps_per_call or 1
        self.accumulation_steps = config.accumulation_steps
        self.optimizer = Optimizer(
            model.trainable_variables, scaled=config.precision == "mixed_float16"
        )
        self._config = config
        self._loss_type = tf.float64 if config.precision == "float64" else tf.float32
        self._loss = make_loss(
            config.loss,
            smoothing=config.label_smoothing,
            positives=films.positives if films else None,
            num_films=films.num_examples if films else 0,
        )
        self._exchange = make_exchange(config)
        compiled = config.xla == "on"
        # What resizes films has no XLA kernel: it stays before what is compiled.
        self._normalise = model.get_layer("normalise") if compiled else None
        self._network = keras.Sequential(model.layers[2:]) if compiled else model
        self._gradients = _graph(self._compute_gradients, jit_compile=compiled)
        self._apply = _graph(self.optimizer.apply, jit_compile=compiled)
        self._call = _graph(self._take_steps, input_signature=self._signature())

    def _signature(self) -> list[tf.TensorSpec]:
        """Return the inputs' shapes: any number of steps, so that none is traced anew."""
        steps = None if self.steps_per_call > 1 else 1
        config = self._config
        shape = [steps, self.accumulation_steps, config.batch_size]
        return [
            tf.TensorSpec([*shape, config.crop_size, config.crop_size, 1], tf.uint8),
            tf.TensorSpec([*shape, len(FINDINGS)], tf.float32),
            tf.TensorSpec([steps], tf.float32),
        ]

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

    @property
    def num_traces(self) -> int:
        """Return how often the steps were traced: 1 at most."""
        return self._call.experimental_get_tracing_count()

    @property
    def effective(self) -> dict[str, Any]:
        """Return what holds of the step's settings, for the run's record."""
        config, several = self._config, hvd.size() > 1
        groups = config.fusion_groups if config.exchange == "grouped" else 1
        hierarchical = config.hierarchical_allreduce if hvd.nccl_built() and several else "off"
        return {
            "precision": config.precision,
            "loss_scaling": "dynamic" if config.precision == "mixed_float16" else "none",
            "xla": config.xla if config.xla == "on" else "off",
            "data_format": keras.config.image_data_format(),
            "steps_per_call": self.steps_per_call,
            "accumulation_steps": self.accumulation_steps,
            "exchange": config.exchange if several else "none",
            "fusion_groups": groups if several else 0,
            "compression": config.compression if several else "none",
            "hierarchical_allreduce": hierarchical,  # which Horovod has for NCCL alone
        }

    def trace(self) -> None:
        """Trace the steps, so that this is not taken for slow input or a slow first step."""
        self._call.get_concrete_function()

    def gradients(self, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the mean loss of this rank's films and the gradients averaged over ranks.

        Args:
            images: uint8 [A, B, H, W, 1], A batches that are differentiated one by one.
            labels: float32 [A, B, 14], 0 or 1.

        Returns:
            The loss, float32 (float64 in that precision), and a gradient a trainable variable;
            these are multiplied by the loss scale, where there is one.
        """
        loss, gradients = self._accumulate(images, labels)
        return loss, self._exchange(gradients)

    def timed_steps(
        self, batches: Batches, *, rates: Sequence[float], meters: Sequence[Meter]
    ) -> tf.Tensor:
        """Wait for films, take ``len(rates)`` steps in one call and count them on the meters.

        Args:
            batches: images uint8 [B, H, W, 1] and labels float32 [B, 14];
                ``accumulation_steps`` of them for each step.
            rates: the learning rate of each step, at most ``steps_per_call``.
            meters: what counts them.

        Returns:
            This rank's loss of each step, [K], on the device.
        """
        begun = time.perf_counter()
        taken = [next(batches) for _ in range(len(rates) * self.accumulation_steps)]
        waited = time.perf_counter()
        shape = [len(rates), self.accumulation_steps]
        images, labels = (_stack(part, shape=shape) for part in zip(*taken, strict=True))
        with together():
            losses = self._call(images, labels, tf.constant(rates, tf.float32))
        ended = time.perf_counter()
        for meter in meters:
            meter.add(losses, wait_s=waited - begun, seconds=ended - begun)
        return losses

    def _take_steps(self, images: tf.Tensor, labels: tf.Tensor, rates: tf.Tensor) -> tf.Tensor:
        """Return the loss of each of K steps, taken without Python in between."""
        if self.steps_per_call == 1:
            return self._take_step(images[0], labels[0], rates[0])[None]
        number = tf.shape(rates)[0]

        def body(index: tf.Tensor, losses: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
            loss = self._take_step(images[index], labels[index], rates[index])
            return index + 1, losses.write(index, loss)

        # One after the other: a step begins with the weights that the one before it left.
        _, losses = tf.while_loop(
            lambda index, _: index < number,
            body,
            (0, tf.TensorArray(self._loss_type, number)),
            parallel_iterations=1,
        )
        return losses.stack()

    def _take_step(self, images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> tf.Tensor:
        loss, gradients = self.gradients(images, labels)
        self._apply(gradients, rate=rate)
        return loss

    def _accumulate(
        self, images: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the mean loss of A batches and this rank's part of the averaged gradients."""
        if self.accumulation_steps == 1:
            return self._differentiate(images[0], labels[0])

        def body(index: tf.Tensor, loss: tf.Tensor, sums: list[tf.Tensor]) -> tuple[Any, ...]:
            more, gradients = self._differentiate(images[index], labels[index])
            added = [one + other for one, other in zip(sums, gradients, strict=True)]
            return index + 1, loss + more, added

        zeros = [tf.zeros(v.shape, v.dtype) for v in self.model.trainable_variables]
        start = tf.constant(0.0, self._loss_type)
        number = self.accumulation_steps
        _, loss, sums = tf.while_loop(
            lambda index, *_: index < number, body, (0, start, zeros), parallel_iterations=1
        )
        return loss / number, sums

    def _differentiate(
        self, images: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        return self._gradients(self._normalise(images) if self._normalise else images, labels)

    def _compute_gradients(
        self, images: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return the loss of one batch and its part of the averaged, scaled gradients."""
        variables = [variable.value for variable in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            loss = self._loss(labels, self._network(images, training=True))
            # Divided here, where it is one number, rather than in every gradient.
            parts = hvd.size() * self.accumulation_steps
            scaled = loss * tf.cast(self.optimizer.scale, loss.dtype) / parts
        return loss, tape.gradient(scaled, variables)


def _stack(parts: Sequence[tf.Tensor], *, shape: list[int]) -> tf.Tensor:
    """Return the batches as one tensor [K, A, B, …], on the host: the call moves it at once."""
    with tf.device("CPU:0"):
        # One batch, the usual case on CPUs, is not copied.
        whole = parts[0] if len(parts) == 1 else tf.stack(parts)
        return tf.reshape(whole, [*shape, *parts[0].shape])
