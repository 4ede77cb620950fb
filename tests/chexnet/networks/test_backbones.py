"""The networks below the head: their published sizes, and weights that get in whole or not."""

import h5py
import keras
import numpy as np
import pytest

from chexnet.errors import UserError
from chexnet.networks.backbones import build_backbone, load_backbone


def make_small():
    """Return a network of two layers of one shape, which only their names tell apart."""
    layers = keras.layers
    inputs = x = keras.Input((8, 8, 3))
    for name in ("first_conv", "first_bn", "second_conv"):
        maker = layers.BatchNormalization if name.endswith("bn") else layers.Conv2D
        options = {} if name.endswith("bn") else {"filters": 3, "kernel_size": 1}
        x = maker(name=name, **options)(x)
    return keras.Model(inputs, layers.GlobalAveragePooling2D(name="avg_pool")(x))


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(1)
    return make_small()


@pytest.fixture(scope="module")
def published(small, tmp_path_factory):
    """Return a file laid out as Keras publishes them, with made-up weights."""
    path = tmp_path_factory.mktemp("weights") / "small_notop.h5"
    write_published(path, model=small)
    return path


def write_published(path, *, model, rename=lambda name: name, extra=()):
    with h5py.File(path, "w") as file:
        names = []
        for layer in model.layers:
            group = file.create_group(rename(layer.name))
            names.append(rename(layer.name).encode())
            weights = [f"{variable.path}:0".encode() for variable in layer.weights]
            group.attrs["weight_names"] = weights
            for name, variable in zip(weights, layer.weights, strict=True):
                group[name.decode()] = variable.numpy()
        for name in extra:
            group = file.create_group(name)
            group.attrs["weight_names"] = [f"{name}/kernel:0".encode()]
            group[f"{name}/kernel:0"] = np.zeros((8, 14), np.float32)
            names.append(name.encode())
        file.attrs["layer_names"] = names
        file.attrs["backend"] = b"tensorflow"
        file.attrs["keras_version"] = b"2.1.0"


# Of the networks without their top, as the documentation of keras.applications counts them;
# DenseNet-121 is counted in test_model.py, ResNet-50 where it is loaded.
SIZES = {
    "densenet169": 12_642_880,
    "densenet201": 18_321_984,
}


@pytest.mark.slow  # built by Keras, in seconds each; the layout is that of DenseNet-121
@pytest.mark.parametrize("name", SIZES)
def test_published_size(name):
    backbone = build_backbone(name, image_size=32)
    assert backbone.count_params() == SIZES[name]
    assert len(backbone.output_shape) == 2  # pooled: a vector a film
    assert len(backbone.layers[-1].input.shape) == 4


def same(one, other):
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return all((a == b).all() for a, b in pairs)


def load(path):
    keras.utils.set_random_seed(2)
    backbone = make_small()
    load_backbone(backbone, path=path, name="resnet50")
    return backbone


def test_published_file_is_loaded_into_the_whole_network(tmp_path):
    keras.utils.set_random_seed(1)
    network = build_backbone("resnet50", image_size=32)
    assert network.count_params() == 23_587_712
    path = tmp_path / "resnet50_notop.h5"
    write_published(path, model=network)
    written = network.get_weights()
    # Building it takes seconds: the same network, emptied.
    network.set_weights([np.zeros_like(one) for one in written])
    load_backbone(network, path=path, name="resnet50")
    assert all((a == b).all() for a, b in zip(network.get_weights(), written, strict=True))


def test_saved_weights_are_loaded(small, tmp_path):
    path = tmp_path / "mine.weights.h5"
    small.save_weights(path)
    assert same(load(path), small)


def test_names_with_a_slash_are_those_of_keras_2(small, tmp_path):
    path = tmp_path / "old.h5"
    write_published(path, model=small, rename=lambda name: name.replace("_bn", "/bn"))
    assert same(load(path), small)


def refused(path):
    with pytest.raises(UserError) as caught:
        load(path)
    assert caught.value.exit_code == 1
    assert f"resnet50 without its head in {path}" in str(caught.value)
    return str(caught.value)


def test_weights_with_a_head_are_refused(small, tmp_path):
    path = tmp_path / "top.h5"
    write_published(path, model=small, extra=["fc1000"])
    assert "do not belong: fc1000" in refused(path)


def test_layers_in_another_order_are_refused(small, tmp_path):
    # Of one shape: Keras would exchange their weights without a word.
    names = {"first_conv": "second_conv", "second_conv": "first_conv"}
    path = tmp_path / "mixed.h5"
    write_published(path, model=small, rename=lambda name: names.get(name, name))
    assert "in disorder" in refused(path)


def test_weights_of_another_network_are_refused(tmp_path):
    path = tmp_path / "other.h5"
    write_published(path, model=build_backbone("tiny", image_size=32))
    assert "missing: first_conv, first_bn" in refused(path)


def test_file_that_is_cut_short_is_refused(published, tmp_path):
    path = tmp_path / "cut.h5"
    path.write_bytes(published.read_bytes()[:2000])
    assert "truncated" in refused(path)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    broken = make_small()
    broken.get_layer("first_conv").bias.assign(np.full(3, np.nan, np.float32))
    path = tmp_path / "nan.weights.h5"
    broken.save_weights(path)
    assert "not numbers" in refused(path)


@pytest.mark.parametrize(
    ("name", "image_size", "weights", "expected"),
    [
        ("densenet121", 16, "none", "at least 32"),
        ("densenet121", 32, "/nowhere/a.h5", "no file /nowhere/a.h5"),
        ("tiny", 32, "imagenet", "weights=none"),
    ],
)
def test_what_cannot_be_built_is_said(name, image_size, weights, expected):
    with pytest.raises(UserError) as caught:
        build_backbone(name, image_size=image_size, weights=weights)
    assert expected in str(caught.value)
