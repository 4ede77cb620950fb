"""The networks: shapes, sizes, the one place of normalisation."""

import keras
import numpy as np
import pytest

from chexnet.errors import UserError
from chexnet.model import NORMALISATION, GlobalBatchNormalization, Normalise, build_model


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


def test_weights_file_is_loaded(tmp_path):
    keras.utils.set_random_seed(1)
    source = keras.applications.DenseNet121(
        include_top=False, weights=None, input_shape=(32, 32, 3), pooling="avg"
    )
    path = tmp_path / "notop.weights.h5"
    source.save_weights(path)
    model = build("densenet121", weights=str(path))
    found = model.get_layer("densenet121").get_layer("conv1_conv").kernel.numpy()
    assert (found == source.get_layer("conv1_conv").kernel.numpy()).all()


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("densenet121", {"image_size": 16}, "at least 32"),
        ("densenet121", {"weights": "/nowhere/a.h5"}, "no file /nowhere/a.h5"),
        ("tiny", {"weights": "imagenet"}, "weights=none"),
    ],
)
def test_what_cannot_be_built_is_said(name, changes, expected):
    with pytest.raises(UserError) as caught:
        build(name, **changes)
    assert expected in str(caught.value)


def test_imagenet_offline_says_how_to_give_a_file(monkeypatch):
    def offline(**arguments):
        raise Exception("URL fetch failure on https://…: [Errno -3] no name resolution")

    monkeypatch.setattr(keras.applications, "DenseNet121", offline)
    with pytest.raises(UserError) as caught:
        build("densenet121", weights="imagenet")
    assert "give its path" in str(caught.value)
    assert caught.value.exit_code == 1
