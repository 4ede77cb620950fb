"""Maps against maps worked out by hand: of a network whose features are the film's grey."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.model import build_model
from chexnet.prediction.heatmaps import FEWEST_CELLS, make_explain, make_heatmaps


def grey_network(size=8, pooling=keras.layers.GlobalAveragePooling2D):
    """Return a network with two features, the grey value and its negative, and a known head."""
    inputs = keras.Input((size, size, 1), dtype="uint8")
    scaled = keras.layers.Rescaling(1 / 255, name="normalise")(inputs)
    inner = keras.Input((size, size, 1))
    features = keras.layers.Conv2D(2, 1, use_bias=False, name="features")(inner)
    backbone = keras.Model(inner, pooling(name="pool")(features), name="backbone")
    logits = keras.layers.Dense(14, name="findings")(backbone(scaled))
    model = keras.Model(inputs, logits)
    backbone.get_layer("features").set_weights([np.array([[[[1.0, -1.0]]]], np.float32)])
    kernel = np.zeros((2, 14), np.float32)
    kernel[0, 0], kernel[1, 1], kernel[:, 2] = 3.0, 1.0, (2.0, 1.0)
    model.get_layer("findings").set_weights([kernel, np.arange(14, dtype=np.float32)])
    return model


@pytest.fixture
def film():
    grey = np.zeros((1, 8, 8, 1), np.uint8)
    grey[0, 2:4, 5:7] = 255
    grey[0, 7, 0] = 51
    return grey


def test_cam_is_the_features_weighted_by_the_head(film):
    grey = film[0, ..., 0] / 255
    maps = make_heatmaps(grey_network())(film)
    assert maps.shape == (1, 8, 8, 14)
    assert maps.dtype == np.float32
    np.testing.assert_allclose(maps[0, ..., 0], 3 * grey, atol=1e-6)
    np.testing.assert_allclose(maps[0, ..., 2], grey, atol=1e-6)  # 2 g - g
    assert not maps[0, ..., 1].any()  # speaks against it, everywhere
    assert not maps[0, ..., 3:].any()


def test_gradcam_is_the_mean_of_the_gradient_times_the_features(film):
    # The mean over 64 places passes 1/64 of the head's weight to each of them.
    grey = film[0, ..., 0] / 255
    maps = make_heatmaps(grey_network(), method="gradcam")(film)
    np.testing.assert_allclose(maps[0, ..., 0], 3 / 64 * grey, atol=1e-7)
    assert not maps[0, ..., 1].any()


def test_gradcam_follows_a_maximum_too(film):
    # The largest of 64 places takes the whole gradient: 1/64 of it in the mean.
    model = grey_network(pooling=keras.layers.GlobalMaxPooling2D)
    film[0, 2:4, 5:7] = 0
    maps = make_heatmaps(model, method="gradcam")(film)
    assert maps[0, 7, 0, 0] == pytest.approx(3 / 64 * 0.2)
    assert maps[0, ..., 0].sum() == pytest.approx(maps[0, 7, 0, 0])


@pytest.mark.parametrize("method", ["cam", "gradcam"])
def test_logits_are_those_of_the_network_itself(method):
    model = build_model("tiny", input_size=48, image_size=32)
    films = np.random.default_rng(0).integers(0, 256, (3, 48, 48, 1), np.uint8)
    logits, maps = make_explain(model, method=method)(films)
    np.testing.assert_allclose(logits, model(films, training=False), atol=1e-5)
    assert (maps >= 0).all()
    assert maps.shape[0] == 3
    assert maps.shape[-1] == len(FINDINGS)


def test_gradcam_takes_earlier_features_where_the_last_have_few_places():
    model = build_model("tiny", input_size=32, image_size=32)  # strides 2, 2, 2: 16, 8, 4
    film = np.zeros((1, 32, 32, 1), np.uint8)
    assert make_heatmaps(model)(film).shape[1:3] == (4, 4)
    assert make_heatmaps(model, method="gradcam")(film).shape[1:3] == (8, 8)
    assert FEWEST_CELLS <= 8


@pytest.mark.parametrize("size", [32, 64])
def test_maps_are_made_of_one_network_as_often_as_one_likes(size):
    model = build_model("tiny", input_size=size, image_size=size)
    films = np.random.default_rng(1).integers(0, 256, (2, size, size, 1), np.uint8)
    first = {method: make_heatmaps(model, method=method)(films) for method in ("gradcam", "cam")}
    for method in ("cam", "gradcam", "gradcam"):
        again = make_heatmaps(model, method=method)(films)
        np.testing.assert_allclose(again, first[method], atol=1e-6)


def test_features_that_others_pass_by_are_not_taken():
    # Beside the second layer runs a sum with the first: only the sum holds everything.
    inner = keras.Input((8, 8, 1))
    first = keras.layers.Conv2D(2, 1, name="first")(inner)
    second = keras.layers.Conv2D(2, 1, name="second")(first)
    both = keras.layers.Add(name="both")([first, second])
    small = keras.layers.AveragePooling2D(4, name="small")(both)
    backbone = keras.Model(inner, keras.layers.GlobalAveragePooling2D()(small), name="backbone")
    inputs = keras.Input((8, 8, 1), dtype="uint8")
    scaled = keras.layers.Rescaling(1.0)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(14, name="findings")(backbone(scaled)))
    film = np.full((1, 8, 8, 1), 7, np.uint8)
    logits, maps = make_explain(model, method="gradcam")(film)
    np.testing.assert_allclose(logits, model(film), rtol=1e-5)
    assert maps.shape[1:3] == (8, 8)


def test_half_precision_gives_maps_in_single():
    policy = keras.config.dtype_policy()
    try:
        model = build_model("tiny", input_size=32, image_size=32, precision="mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy(policy)
    for method in ("cam", "gradcam"):
        maps = make_heatmaps(model, method=method)(tf.zeros((1, 32, 32, 1), tf.uint8))
        assert maps.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", ["densenet121", "densenet169", "densenet201", "resnet50"])
def test_every_network_has_maps(name):
    model = build_model(name, input_size=64, image_size=64, batch_statistics="global")
    film = np.random.default_rng(2).integers(0, 256, (1, 64, 64, 1), np.uint8)
    logits, maps = make_explain(model)(film)
    np.testing.assert_allclose(logits, model(film, training=False), atol=1e-5)
    assert maps.shape == (1, 2, 2, 14)
    logits, maps = make_explain(model, method="gradcam")(film)
    np.testing.assert_allclose(logits, model(film, training=False), atol=1e-5)
    assert maps.shape == (1, 8, 8, 14)  # the latest with at least 7 by 7 places


def test_an_unknown_method_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="cam, gradcam"):
        make_heatmaps(grey_network(), method="lime")


def test_another_kind_of_network_is_refused():
    inputs = keras.Input((8, 8, 1), dtype="uint8")
    flat = keras.layers.Flatten()(keras.layers.Rescaling(1.0)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(14, name="findings")(flat))
    with pytest.raises(UserError, match="a backbone and a dense head"):
        make_heatmaps(model)
