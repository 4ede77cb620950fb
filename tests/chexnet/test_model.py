"""The networks: shapes, sizes, the one place of normalisation."""

import keras
import numpy as np
import pytest

from chexnet.model import Normalise, build_model
from chexnet.networks.batch_norm import GlobalBatchNormalization
from chexnet.networks.weights import NORMALISATION, find_normalisation


@pytest.fixture(autouse=True)
def _policy():
    yield
    keras.config.set_dtype_policy("float32")


def build(name="tiny", **changes):
    return build_model(name, **{"input_size": 32, "image_size": 32} | changes)


def test_bytes_in_14_logits_out():
    model = build()
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 1), dtype=np.uint8)
    logits = model(images).numpy()
    assert logits.shape == (3, 14)
    assert logits.dtype == np.float32
    assert (logits < 0).any()  # a sigmoid would leave nothing below 0


def test_densenet121_has_its_published_size():
    # 7,037,504 without a head (Keras' documentation of DenseNet-121) and a head of
    # 1024 x 14 weights with 14 biases.
    model = build("densenet121", batch_norm_momentum=0.8)
    assert model.count_params() == 7_037_504 + 1024 * 14 + 14
    assert model.output_shape == (None, 14)
    backbone = model.get_layer("densenet121")
    momenta = {
        layer.momentum
        for layer in backbone.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    }
    assert momenta == {0.8}


@pytest.mark.parametrize("value", [0, 255])
def test_normalisation_by_hand(value):
    # Red of ImageNet: mean 0.485, standard deviation 0.229.
    expected = ((value / 255) - 0.485) / 0.229
    image = np.full((1, 4, 4, 1), value, np.uint8)
    result = Normalise(size=4)(image).numpy()
    assert result.shape == (1, 4, 4, 3)
    assert result[0, 0, 0, 0] == pytest.approx(expected, abs=1e-6)
    assert NORMALISATION["mean"][2] == 0.406


@pytest.mark.parametrize("value", [0, 255])
def test_resnet50_gets_what_caffe_gave_it(value):
    # Caffe's means of ImageNet: blue 103.939, green 116.779, red 123.68, of bytes unscaled.
    image = np.full((1, 4, 4, 1), value, np.uint8)
    result = Normalise(size=4, normalisation=find_normalisation("resnet50"))(image).numpy()
    expected = [value - 103.939, value - 116.779, value - 123.68]
    assert result[0, 0, 0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["densenet121", "resnet50"])
def test_normalisation_is_what_keras_does_before_its_weights(name):
    module = {"densenet121": "densenet", "resnet50": "resnet"}[name]
    image = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 1), dtype=np.uint8)
    keras_input = np.repeat(image, 3, axis=-1).astype("float32")
    expected = getattr(keras.applications, module).preprocess_input(keras_input)
    result = Normalise(size=8, normalisation=find_normalisation(name))(image).numpy()
    assert np.abs(result - expected).max() < 1e-4


def test_normalisation_goes_with_the_saved_layer():
    layer = Normalise(size=4, normalisation=find_normalisation("resnet50"))
    again = Normalise.from_config(layer.get_config())
    image = np.full((1, 4, 4, 1), 7, np.uint8)
    assert (again(image).numpy() == layer(image).numpy()).all()


def test_half_precision_normalises_in_full_and_ends_in_full_logits():
    model = build(precision="mixed_bfloat16")
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1), dtype=np.uint8)
    assert model(images).dtype == "float32"
    normalised = model.get_layer("normalise")(images)
    assert normalised.dtype == "bfloat16"
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}


def test_other_image_size_is_resized_inside():
    image = np.zeros((1, 8, 8, 1), np.uint8)
    image[:, :, 4:] = 200
    result = Normalise(size=4)(image).numpy()
    assert result.shape == (1, 4, 4, 3)
    assert result[0, 0, 0, 0] == pytest.approx(-0.485 / 0.229, abs=1e-5)
    assert result[0, 0, 3, 0] == pytest.approx((200 / 255 - 0.485) / 0.229, abs=1e-5)


def test_same_seed_same_weights():
    keras.utils.set_random_seed(3)
    one = build().get_weights()
    keras.utils.set_random_seed(3)
    other = build().get_weights()
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_float64_reaches_every_weight():
    assert {variable.dtype for variable in build(precision="float64").variables} == {"float64"}


def test_global_statistics_replace_every_normalisation():
    backbone = build(batch_statistics="global").get_layer("tiny_backbone")
    layers = [x for x in backbone.layers if isinstance(x, keras.layers.BatchNormalization)]
    assert len(layers) == 3
    assert all(isinstance(layer, GlobalBatchNormalization) for layer in layers)
