"""Adam, and the loss scale that keeps small float16 gradients from becoming 0.

Knows when the scale rises and falls and which steps are left out. Leaves multiplying the
loss by it to ``step``, and the learning rate to ``schedule``.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

# As Keras' and NVIDIA's defaults (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2).
FIRST_SCALE = 2.0**15
STEPS_TO_DOUBLE = 2000
# The variables of a loss scale, in a checkpoint after those of Adam.
NUM_SCALING = 3


class Optimizer:
    """Adam over some variables, with a loss scale where asked for.

    Its variables exist from the start, since making them inside the step would trace it twice.
    """

    def __init__(self, variables: Sequence[keras.Variable], *, scaled: bool) -> None:
        self._targets = list(variables)
        self._adam = keras.optimizers.Adam()
        self._adam.build(self._targets)
        self._scaling: list[keras.Variable] = []
        if scaled:
            self._scaling = [
                keras.Variable(value, dtype="float32", trainable=False, name=name)
                for name, value in (
                    ("loss_scale", FIRST_SCALE),
                    ("steps_since_change", 0.0),
                    ("skipped_steps", 0.0),
                )
            ]

    @property
    def variables(self) -> list[keras.Variable]:
        """Return its whole state: of Adam, then of the loss scale."""
        return [*self._adam.variables, *self._scaling]

    @property
    def adam_variables(self) -> list[keras.Variable]:
        """Return the state of Adam, which is the same in every precision but ``float64``."""
        return list(self._adam.variables)

    @property
    def scaling_variables(self) -> list[keras.Variable]:
        """Return the state of the loss scale; none where none is used."""
        return list(self._scaling)

    @property
    def scale(self) -> tf.Tensor | float:
        """Return what the loss is to be multiplied by."""
        return tf.convert_to_tensor(self._scaling[0].value) if self._scaling else 1.0

    @property
    def scaling(self) -> dict[str, float]:
        """Return the loss scale and how many steps were left out; nothing where none is used."""
        if not self._scaling:
            return {}
        scale, _, skipped = (float(variable.numpy()) for variable in self._scaling)
        return {"loss_scale": scale, "skipped_steps": int(skipped)}

    def apply(self, gradients: Sequence[tf.Tensor], *, rate: tf.Tensor) -> None:
        """Change the variables; leave the step out where a scaled gradient overflowed.

        Args:
            gradients: of the scaled loss, alike on all ranks, so that all decide alike.
            rate: the learning rate, a scalar.
        """
        self._adam.learning_rate.assign(tf.cast(rate, self._adam.learning_rate.dtype))
        if not self._scaling:
            self._update(gradients)
            return
        finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
        tf.cond(finite, lambda: self._step(gradients), self._leave_out)

    @tf.autograph.experimental.do_not_convert
    def _update(self, gradients: Sequence[tf.Tensor]) -> None:
        """Take a step of Adam, with TensorFlow's one operation a variable.

        The formula is that of Keras' own update, which takes some twenty operations a variable:
        thousands for a DenseNet, to be traced and started before the first step.
        """
        adam = self._adam
        adam.iterations.assign_add(1)
        scalars: dict[str, dict[str, tf.Tensor]] = {}
        slots = zip(self._targets, adam._momentums, adam._velocities, gradients, strict=True)
        for variable, momentum, velocity, gradient in slots:
            if variable.dtype not in scalars:
                scalars[variable.dtype] = self._scalars(variable.dtype)
            tf.raw_ops.ResourceApplyAdam(
                var=variable.value.handle, m=momentum.value.handle, v=velocity.value.handle,
                grad=gradient, **scalars[variable.dtype],
            )  # fmt: skip

    def _scalars(self, dtype: str) -> dict[str, tf.Tensor]:
        """Return the numbers of the coming step, in the type of a variable."""
        adam = self._adam
        step = tf.cast(adam.iterations.value, dtype)
        beta1, beta2 = tf.constant(adam.beta_1, dtype), tf.constant(adam.beta_2, dtype)
        return {
            "lr": tf.cast(adam.learning_rate.value, dtype),
            "beta1": beta1,
            "beta2": beta2,
            "beta1_power": tf.pow(beta1, step),
            "beta2_power": tf.pow(beta2, step),
            "epsilon": tf.constant(adam.epsilon, dtype),
        }

    def _step(self, gradients: Sequence[tf.Tensor]) -> tf.Tensor:
        scale, steps, _ = self._scaling
        factor = 1 / self.scale
        self._update([g * tf.cast(factor, g.dtype) for g in gradients])
        count = steps.value + 1
        doubles = count >= STEPS_TO_DOUBLE
        scale.assign(tf.where(doubles, scale.value * 2, scale.value))
        steps.assign(tf.where(doubles, 0.0, count))
        return tf.constant(True)

    def _leave_out(self) -> tf.Tensor:
        scale, steps, skipped = self._scaling
        # Not below 1: with a loss that is no number it would sink to 0 and never come back.
        scale.assign(tf.maximum(scale.value / 2, 1.0))
        steps.assign(0.0)
        skipped.assign(skipped.value + 1)
        return tf.constant(False)
