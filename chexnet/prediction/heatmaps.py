"""Where on a film a network sees a finding: class activation maps and Grad-CAM.

Knows how a map is made of the network's last features. Leaves painting it over a film to
``overlay`` and reading films to others.

CAM (Zhou et al. 2016, as in the CheXNet paper): the map of a finding is the sum of the last
features, weighted by the head's weights for that finding. Grad-CAM (Selvaraju et al. 2017)
weighs them by the mean of the logit's gradient instead, and asks nothing of the head. Where
the head is one dense layer after global pooling the two differ by a factor alone; so on films
so small that the last features have hardly any places, Grad-CAM takes earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from chexnet.errors import UserError, unknown_name
from chexnet.labels import FINDINGS

if TYPE_CHECKING:
    from keras.src.ops.node import Node

METHODS = ("cam", "gradcam")
HEAD = "findings"
FEWEST_CELLS = 7  # across: what a film of 224 px has in the last features of DenseNet-121

Explain = Callable[[tf.Tensor], tuple[np.ndarray, np.ndarray]]
Maps = Callable[[tf.Tensor], np.ndarray]


def make_heatmaps(model: keras.Model, *, method: str = "cam") -> Maps:
    """Return the function from films to the maps of all findings.

    Args:
        model: from `model.build_model`: a backbone that ends in global pooling, and a dense
            head called ``findings``.
        method: ``cam`` or ``gradcam``.

    Returns:
        Takes uint8 [B, H, W, 1], 0..255; gives float32 [B, h, w, 14], 0 or more, on the coarse
        grid of the features, whose cells cover the film evenly. The numbers of one map
        compare with each other, those of different findings do not.

    Raises:
        UserError: an unknown method, or a network of another shape.
    """
    explain = make_explain(model, method=method)
    return lambda images: explain(images)[1]


def make_explain(model: keras.Model, *, method: str = "cam") -> Explain:
    """Return the function from films to logits and maps, with one pass over the network.

    Args:
        model: as in `make_heatmaps`.
        method: ``cam`` or ``gradcam``.

    Returns:
        Takes uint8 [B, H, W, 1]; gives logits float32 [B, 14] and maps float32 [B, h, w, 14].

    Raises:
        UserError: an unknown method, or a network of another shape.
    """
    if method not in METHODS:
        raise unknown_name("method of heat maps", method, known=METHODS)
    backbone = _find_backbone(model)
    last = _last_features(backbone)
    graph = {"cam": _cam, "gradcam": _gradcam}[method](model, backbone, last)
    signature = [tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8)]
    compiled = tf.function(graph, input_signature=signature, autograph=False)

    def explain(images: tf.Tensor) -> tuple[np.ndarray, np.ndarray]:
        logits, maps = compiled(images)
        return logits.numpy(), maps.numpy()

    return explain


Graph = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def _cam(model: keras.Model, backbone: keras.Model, last: keras.KerasTensor) -> Graph:
    split = keras.Model(backbone.inputs, [last, backbone.output])
    before, head = _before(model, backbone), model.get_layer(HEAD)

    def graph(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features, pooled = split(before(images), training=False)
        kernel = tf.cast(head.kernel.value, tf.float32)
        maps = tf.tensordot(tf.cast(features, tf.float32), kernel, axes=1)
        return tf.cast(head(pooled), tf.float32), tf.nn.relu(maps)

    return graph


def _gradcam(model: keras.Model, backbone: keras.Model, last: keras.KerasTensor) -> Graph:
    chosen = _fine_features(backbone, last)
    lower = keras.Model(backbone.inputs, chosen)
    upper = keras.Model(chosen, backbone.output)
    before, head = _before(model, backbone), model.get_layer(HEAD)

    def graph(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features = lower(before(images), training=False)
        # A copy of each film for each finding: one gradient then gives all of them.
        copies = tf.repeat(features, len(FINDINGS), axis=0)
        with tf.GradientTape() as tape:
            tape.watch(copies)
            logits = tf.cast(head(upper(copies, training=False)), tf.float32)
            logits = tf.reshape(logits, [-1, len(FINDINGS), len(FINDINGS)])
            own = tf.linalg.diag_part(logits)
        gradient = tf.cast(tape.gradient(own, copies), tf.float32)
        weights = tf.reduce_mean(gradient, axis=[1, 2])
        weights = tf.reshape(weights, [-1, len(FINDINGS), features.shape[-1]])
        places = tf.cast(features, tf.float32)
        return own, tf.nn.relu(tf.einsum("bhwc,bfc->bhwf", places, weights))

    return graph


def _before(model: keras.Model, backbone: keras.Model) -> keras.Model:
    """Return what turns a film's bytes into what the backbone takes."""
    node = model.get_layer(backbone.name)
    return keras.Model(model.inputs, model.layers[model.layers.index(node) - 1].output)


def _find_backbone(model: keras.Model) -> keras.Model:
    nested = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    head = model.layers[-1]
    if len(nested) != 1 or head.name != HEAD or head.units != len(FINDINGS):
        raise UserError(
            f"a network of a backbone and a dense head {HEAD!r}",
            found=", ".join(layer.name for layer in model.layers),
            fix="heat maps are made of the networks that this program trains",
        )
    return nested[0]


def _last_features(backbone: keras.Model) -> keras.KerasTensor:
    """Return the input of the global pooling: [B, h, w, C]."""
    sources = _own_node(backbone.layers[-1]).input_tensors
    features = sources[0]
    if len(sources) != 1 or len(features.shape) != 4 or len(backbone.output.shape) != 2:
        raise UserError(
            "a backbone that ends in a global pooling layer",
            found=f"{backbone.layers[-1].name} at the end of {backbone.name}",
            fix="heat maps are made of the networks that this program trains",
        )
    return features


def _fine_features(backbone: keras.Model, last: keras.KerasTensor) -> keras.KerasTensor:
    """Return the last features, or on a small film the latest ones that have enough cells.

    Only features that all later ones are computed from can be taken: at every other place
    something would pass by.
    """
    if last.shape[1] >= FEWEST_CELLS:
        return last
    for features in _bottlenecks(backbone):
        if len(features.shape) == 4 and features.shape[1] >= FEWEST_CELLS:
            return features
    return last


def _bottlenecks(backbone: keras.Model) -> list[keras.KerasTensor]:
    """Return the outputs through which everything passes, the latest first.

    In the order of computation, that is one after which no later layer takes anything from an
    earlier one.
    """
    place = {layer.name: number for number, layer in enumerate(backbone.layers)}
    # For each layer, the latest place that reads its output.
    reach = list(range(len(place)))
    for layer in backbone.layers:
        for origin in _origins(layer):
            reach[place[origin]] = max(reach[place[origin]], place[layer.name])
    found, furthest = [], -1
    for number, layer in enumerate(backbone.layers[:-1]):
        if furthest <= number:
            found.append(_own_node(layer).output_tensors[0])
        furthest = max(furthest, reach[number])
    return found[::-1]


def _origins(layer: keras.layers.Layer) -> list[str]:
    """Return the names of the layers whose outputs a layer takes."""
    return [parent.operation.name for parent in _own_node(layer).parent_nodes]


def _own_node(layer: keras.layers.Layer) -> Node:
    """Return how a layer was joined to others in its network.

    A model that begins amid a network adds nodes to the layers it shares with it, so that
    `layer.input` has no single meaning afterwards; the first node is the network's own.
    """
    return layer._inbound_nodes[0]
