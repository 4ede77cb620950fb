"""The networks: from bytes of a film to 14 logits.

Knows DenseNet-121 and a tiny network for tests, the one place of normalisation (inside
the model, so that training and prediction cannot differ), and batch normalisation over
all ranks. Leaves the loss, which takes logits, to ``train``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import horovod.tensorflow as hvd
import keras
import tensorflow as tf

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.labels import FINDINGS

# Of ImageNet, as Keras' DenseNet weights were trained with; written into checkpoints.
NORMALISATION: dict[str, list[float] | float] = {
    "scale": 1 / 255,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
}


@keras.saving.register_keras_serializable("chexnet")
class Normalise(keras.layers.Layer):
    """uint8 [B, H, W, 1], 0..255 -> float [B, size, size, 3], normalised."""

    def __init__(self, *, size: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.size = size

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """Return the images as the network wants them."""
        grey = tf.cast(images, self.compute_dtype) * NORMALISATION["scale"]
        if images.shape[1] != self.size:
            grey = tf.cast(
                tf.image.resize(grey, [self.size, self.size], antialias=True), self.compute_dtype
            )
        mean = tf.constant(NORMALISATION["mean"], self.compute_dtype)
        std = tf.constant(NORMALISATION["std"], self.compute_dtype)
        return (grey - mean) / std

    def get_config(self) -> dict[str, object]:
        """Return what is needed to make the layer anew."""
        return super().get_config() | {"size": self.size}


@keras.saving.register_keras_serializable("chexnet")
class GlobalBatchNormalization(keras.layers.BatchNormalization):
    """Batch normalisation with the statistics of all ranks' films.

    Mean and mean square are averaged over the ranks, each of which holds as many films;
    Horovod's allreduce carries the gradient back to every rank's films.
    """

    def call(self, inputs: tf.Tensor, training: bool | None = None, mask: None = None) -> tf.Tensor:
        """Return the normalised inputs, [B, H, W, C] as they came."""
        mean, variance = self.moving_mean.value, self.moving_variance.value
        if training and self.trainable:
            mean = tf.reduce_mean(inputs, [0, 1, 2])
            square = tf.reduce_mean(tf.square(inputs), [0, 1, 2])
            if hvd.size() > 1:
                both = hvd.allreduce(tf.stack([mean, square]), op=hvd.Average)
                mean, square = tf.unstack(both)
            variance = tf.maximum(square - tf.square(mean), 0)
            for moving, new in ((self.moving_mean, mean), (self.moving_variance, variance)):
                moving.assign(moving * self.momentum + new * (1 - self.momentum))
        return tf.nn.batch_normalization(
            inputs, mean, variance, self.beta.value, self.gamma.value, self.epsilon
        )


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
    """Return a network from uint8 [B, H, W, 1] to 14 logits, of type ``precision``.

    Args:
        name: ``densenet121`` or ``tiny``.
        input_size: height and width of the films that come in, px.
        image_size: height and width that the network works on, px.
        weights: ``none``, ``imagenet`` or the path of a weights file (densenet121 only).
        batch_statistics: ``local`` or ``global`` batch normalisation.
        batch_norm_momentum: weight of the past in its moving statistics.
        precision: type of weights and computation.

    Raises:
        UserError: the weights cannot be had or do not fit, or the size is too small.
    """
    keras.config.set_dtype_policy(precision)
    inputs = keras.Input((input_size, input_size, 1), dtype="uint8", name="film")
    images = Normalise(size=image_size, name="normalise")(inputs)
    backbone = _BACKBONES[name](image_size, weights)
    backbone = _replace_normalisation(
        backbone, statistics=batch_statistics, momentum=batch_norm_momentum
    )
    logits = keras.layers.Dense(len(FINDINGS), name="findings")(backbone(images))
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


def _build_densenet121(image_size: int, weights: str) -> keras.Model:
    if image_size < 32:
        raise UserError(
            "image_size of at least 32 for densenet121",
            found=f"{image_size}",
            fix="--set image_size=64, or prepare larger films",
        )
    try:
        return keras.applications.DenseNet121(
            include_top=False,
            weights=_check_weights(weights),
            input_shape=(image_size, image_size, 3),
            pooling="avg",
        )
    # Keras raises a bare Exception where the download fails.
    except Exception as error:
        if weights == "none":
            raise
        reason = str(error).strip().splitlines()
        raise UserError(
            f"weights={weights} for densenet121",
            found=reason[0] if reason else type(error).__name__,
            fix="offline: fetch Keras' densenet121_weights_tf_dim_ordering_tf_kernels_notop.h5 "
            "elsewhere and give its path, --set weights=FILE; or train from --set weights=none",
            exit_code=EXIT_FAILED,
        ) from error


def _check_weights(weights: str) -> str | None:
    if weights in ("none", "imagenet"):
        return None if weights == "none" else weights
    if not Path(weights).is_file():
        raise FileNotFoundError(f"no file {weights}")
    return weights


def _build_tiny(image_size: int, weights: str) -> keras.Model:
    """Return four small convolutions, for tests: it learns the made-up films a little."""
    if weights != "none":
        raise UserError("weights=none for model tiny", found=weights, fix="--set weights=none")
    layers = keras.layers
    inputs = x = keras.Input((image_size, image_size, 3))
    for number, filters in enumerate((8, 16, 32)):
        x = layers.Conv2D(
            filters, 3, strides=2, padding="same", use_bias=False, name=f"conv{number}"
        )(x)
        x = layers.BatchNormalization(name=f"bn{number}")(x)
        x = layers.ReLU(name=f"relu{number}")(x)
    x = layers.GlobalMaxPooling2D(name="pool")(x)
    return keras.Model(inputs, x, name="tiny_backbone")


_BACKBONES: dict[str, Callable[[int, str], keras.Model]] = {
    "densenet121": _build_densenet121,
    "tiny": _build_tiny,
}
