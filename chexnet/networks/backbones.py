"""The networks below the head: from normalised pixels to one vector of features a film.

Knows the four that the lab compared and a tiny one for tests, the smallest film each takes,
and how a file of weights gets into one, strictly. Leaves the input and the head to ``model``,
and which file that is to ``weights``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import keras
import numpy as np

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.networks.weights import PUBLISHED, find_weights, md5_of

LEAST_PX = 32  # five halvings: Keras refuses less


def build_backbone(name: str, *, image_size: int, weights: str = "none") -> keras.Model:
    """Return a network from float [B, image_size, image_size, 3] to features [B, F].

    It ends in a global pooling layer, before which the features keep their places.

    Args:
        name: ``densenet121``, ``densenet169``, ``densenet201``, ``resnet50`` or ``tiny``.
        image_size: height and width, px.
        weights: ``none``, ``imagenet`` or the path of a weights file.

    Raises:
        UserError: the size is too small, or the weights cannot be had or do not fit.
    """
    if name != "tiny" and image_size < LEAST_PX:
        raise UserError(
            f"image_size of at least {LEAST_PX} for {name}",
            found=f"{image_size}",
            fix="--set image_size=64, or prepare larger films",
        )
    path = find_weights(name, weights)
    backbone = _build_tiny(image_size) if name == "tiny" else _build_published(name, image_size)
    if path:
        load_backbone(backbone, path=path, name=name)
    return backbone


def load_backbone(backbone: keras.Model, *, path: Path, name: str) -> None:
    """Put the weights of a file into a network below the head; all of them or an error.

    Args:
        backbone: what `build_backbone` returned.
        path: ``.h5`` as Keras publishes them, or ``.weights.h5``.
        name: of the network.

    Raises:
        UserError: the file cannot be read, is of another network or holds a head too.
    """
    wrong = UserError(
        f"the weights of {name} without its head in {path}",
        found="",
        fix="give a file of the network below the head (include_top=False), of this network",
        exit_code=EXIT_FAILED,
    )
    try:
        if md5_of(path) != PUBLISHED[name].md5:
            _compare_names(_read_names(path), backbone=backbone)
        backbone.load_weights(path)
        if not all(np.isfinite(value).all() for value in backbone.get_weights()):
            raise ValueError("weights that are not numbers")
    # h5py and Keras raise many kinds where a file is not what it should be.
    except Exception as error:
        reason = str(error).strip().splitlines()
        found = reason[0] if reason else type(error).__name__
        raise UserError(
            wrong.expected, found=found, fix=wrong.fix, exit_code=EXIT_FAILED
        ) from error


def _read_names(path: Path) -> list[str]:
    """Return the names of the layers that have weights; none for ``.weights.h5``.

    Those are matched by Keras itself, which gives them other names.
    """
    with h5py.File(path) as file:
        group = file.get("model_weights", file)
        names = group.attrs.get("layer_names", [])
        words = [name.decode() if isinstance(name, bytes) else str(name) for name in names]
        return [word for word in words if len(group[word].attrs.get("weight_names", []))]


def _compare_names(found: Sequence[str], *, backbone: keras.Model) -> None:
    """Refuse layers of other names: Keras goes by their order alone, and shapes repeat.

    Raises:
        ValueError: naming the first that differs.
    """
    if not found:
        return
    # Keras 2 wrote conv1/conv for what is conv1_conv now.
    there = [name.replace("/", "_") for name in found]
    wanted = [layer.name for layer in backbone.layers if layer.weights]
    if there == wanted:
        return
    extra = [name for name in there if name not in wanted]
    missing = [name for name in wanted if name not in there]
    odd = f"layers that do not belong: {', '.join(extra[:3])}" if extra else "layers in disorder"
    lacking = f"; missing: {', '.join(missing[:3])}" if missing else ""
    raise ValueError(f"{len(there)} layers where there are {len(wanted)}; {odd}{lacking}")


def _build_published(name: str, image_size: int) -> keras.Model:
    return _MAKERS[name](
        include_top=False, weights=None, input_shape=(image_size, image_size, 3), pooling="avg"
    )


def _build_tiny(image_size: int) -> keras.Model:
    """Return three small convolutions, for tests: it learns the made-up films a little."""
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


_MAKERS: dict[str, Callable[..., keras.Model]] = {
    "densenet121": keras.applications.DenseNet121,
    "densenet169": keras.applications.DenseNet169,
    "densenet201": keras.applications.DenseNet201,
    "resnet50": keras.applications.ResNet50,
}
