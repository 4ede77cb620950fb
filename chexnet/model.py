"""The networks: from bytes of a film to 14 logits.

Knows the one place of normalisation (inside the model, so that training and prediction cannot
differ) and the head. Leaves what lies between to ``backbones``, batch normalisation over all
ranks to ``batch_norm`` and the loss, which takes logits, to ``losses``.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from chexnet.labels import FINDINGS
from chexnet.networks.backbones import build_backbone
from chexnet.networks.batch_norm import GlobalBatchNormalization
from chexnet.networks.weights import NORMALISATION, find_normalisation


@keras.saving.register_keras_serializable("chexnet")
class Normalise(keras.layers.Layer):
    """uint8 [B, H, W, 1], 0..255 -> float [B, size, size, 3], normalised.

    Attributes:
        size: height and width of what comes out, px.
        normalisation: scale, mean and std, from `chexnet.networks.weights.find_normalisation`.
    """

    def __init__(
        self, *, size: int, normalisation: dict[str, Any] = NORMALISATION, **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.size = size
        self.normalisation = dict(normalisation)

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """Return the images as the network wants them."""
        # Not in half precision, where bytes less their mean lose an eighth of a grey level.
        exact = self.variable_dtype
        grey = tf.cast(images, exact) * self.normalisation["scale"]
        if images.shape[1] != self.size:
            grey = tf.cast(tf.image.resize(grey, [self.size, self.size], antialias=True), exact)
        mean = tf.constant(self.normalisation["mean"], exact)
        std = tf.constant(self.normalisation["std"], exact)
        return tf.cast((grey - mean) / std, self.compute_dtype)

    def get_config(self) -> dict[str, object]:
        """Return what is needed to make the layer anew."""
        return super().get_config() | {"size": self.size, "normalisation": self.normalisation}


def build_model(
    name: str,
    *,
    input_size: int,
    image_size: int,
    weights: str = "none",
    batch_statistics: str = "local",
    batch_norm_momentum: float = 0.99,
    precision: str = "float32",
) -> keras.Model:
    """Return a network from uint8 [B, H, W, 1] to 14 logits: float64 if so asked, else float32.

    Input, "normalise", the backbone (a network of its own, which ends in a global pooling
    layer), "findings": heat maps rely on this order.

    Args:
        name: a network of ``chexnet.networks.backbones``.
        input_size: height and width of the films that come in, px.
        image_size: height and width that the network works on, px.
        weights: ``none``, ``imagenet`` or the path of a weights file, for the backbone.
        batch_statistics: ``local`` or ``global`` batch normalisation.
        batch_norm_momentum: weight of the past in its moving statistics.
        precision: type of weights and computation: ``float32``, ``float64``, or a mixed one,
            whose weights are float32.

    Raises:
        UserError: the weights cannot be had or do not fit, or the size is too small.
    """
    keras.config.set_dtype_policy(precision)
    inputs = keras.Input((input_size, input_size, 1), dtype="uint8", name="film")
    images = Normalise(size=image_size, normalisation=find_normalisation(name), name="normalise")(
        inputs
    )
    backbone = build_backbone(name, image_size=image_size, weights=weights)
    backbone = _replace_normalisation(
        backbone, statistics=batch_statistics, momentum=batch_norm_momentum
    )
    # In half precision the logits, and the loss after them, would lose what tells films apart.
    exact = "float32" if precision.startswith("mixed") else precision
    logits = keras.layers.Dense(len(FINDINGS), dtype=exact, name="findings")(backbone(images))
    return keras.Model(inputs, logits, name=name)


def _replace_normalisation(
    backbone: keras.Model, *, statistics: str, momentum: float
) -> keras.Model:
    """Return the backbone with its batch normalisation layers as configured."""
    layers = [x for x in backbone.layers if isinstance(x, keras.layers.BatchNormalization)]
    if statistics == "local":
        for layer in layers:
            layer.momentum = momentum
        return backbone

    def clone(layer: keras.layers.Layer) -> keras.layers.Layer:
        if not isinstance(layer, keras.layers.BatchNormalization):
            return type(layer).from_config(layer.get_config())
        return GlobalBatchNormalization.from_config(layer.get_config() | {"momentum": momentum})

    replaced = keras.models.clone_model(backbone, clone_function=clone)
    replaced.set_weights(backbone.get_weights())
    return replaced
