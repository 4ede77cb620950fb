"""Batch normalisation with the statistics of all ranks' films.

Knows how mean and variance cross between ranks, forwards and backwards. A layer of our own:
Horovod's reaches into private methods of Keras 2. Leaves which layers of a network it
replaces to ``model``.
"""

from __future__ import annotations

import horovod.tensorflow as hvd
import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("chexnet")
class GlobalBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalisation over the films of all ranks, each of which holds as many.

    Mean and mean square cross together, in one allreduce a layer; Horovod's allreduce
    carries the gradient back to every rank's films. Statistics are of the type of the
    weights: float32 under mixed precision, where squares would overflow float16.
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: None = None) -> tf.Tensor:
        """Return the normalised inputs, [B, H, W, C] and of the type that came."""
        values = tf.cast(inputs, self.variable_dtype)
        mean, variance = (
            tf.convert_to_tensor(moving.value, self.variable_dtype)
            for moving in (self.moving_mean, self.moving_variance)
        )
        if training and self.trainable:
            both = tf.stack([tf.reduce_mean(x, [0, 1, 2]) for x in (values, tf.square(values))])
            if hvd.size() > 1:
                both = hvd.allreduce(both, op=hvd.Average)
            mean, square = tf.unstack(both)
            variance = tf.maximum(square - tf.square(mean), 0)
            for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
                moving.assign(moving * self.momentum + new * (1 - self.momentum))
        beta, gamma = (tf.cast(x.value, self.variable_dtype) for x in (self.beta, self.gamma))
        normalised = tf.nn.batch_normalization(values, mean, variance, beta, gamma, self.epsilon)
        return tf.cast(normalised, inputs.dtype)
