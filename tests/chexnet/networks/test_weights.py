"""Published weights: where they are looked for, and that they are what Keras publishes."""

import hashlib
import inspect

import keras
import pytest

import chexnet.__main__ as program
from chexnet.checkpoint import Description, check_description
from chexnet.config import MODELS, load_config, render_config
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.networks import weights
from chexnet.networks.weights import PUBLISHED, Published, find_normalisation, find_weights
from chexnet.records import load_dataset
from chexnet.run import fit_config


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CHEXNET_WEIGHTS", str(tmp_path))
    return tmp_path


def test_every_network_but_tiny_has_published_weights():
    assert {*PUBLISHED, "tiny"} == set(MODELS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_file_and_hash_are_those_in_the_keras_package(name):
    maker = keras.applications.ResNet50 if name == "resnet50" else keras.applications.DenseNet121
    source = inspect.getsource(inspect.getmodule(maker))
    assert PUBLISHED[name].md5 in source
    stem = PUBLISHED[name].file if name.startswith("dense") else "tf_dim_ordering_tf_kernels_notop"
    assert stem in source
    assert PUBLISHED[name].url.rpartition("/")[0] in source


def test_none_is_no_file(cache):
    assert find_weights("densenet121", "none") is None


def test_keras_cache_is_the_place_unless_one_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CHEXNET_WEIGHTS", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    assert weights.weights_folder() == tmp_path / "models"
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", "/home/anna")
    assert str(weights.weights_folder()) == "/home/anna/.keras/models"


def test_absent_weights_say_what_to_bring_and_where_to(cache):
    with pytest.raises(UserError) as caught:
        find_weights("densenet169", "imagenet")
    text = str(caught.value)
    assert f"{cache}/densenet169_weights_tf_dim_ordering_tf_kernels_notop.h5" in text
    assert "https://storage.googleapis.com/tensorflow/keras-applications/densenet/" in text
    assert "invoke fetch-weights --model densenet169" in text


def test_whole_file_is_found_and_another_refused(cache, monkeypatch):
    content = b"what Keras publishes"
    digest = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(PUBLISHED, "resnet50", Published("r.h5", "resnet", digest))
    (cache / "r.h5").write_bytes(content)
    assert find_weights("resnet50", "imagenet") == cache / "r.h5"
    (cache / "r.h5").write_bytes(content[:-1])
    with pytest.raises(UserError) as caught:
        find_weights("resnet50", "imagenet")
    assert digest in str(caught.value)
    assert caught.value.exit_code == 1


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "model.pth.tar"
    path.write_bytes(b"")
    with pytest.raises(UserError) as caught:
        find_weights("densenet121", str(path))
    assert "save_weights" in str(caught.value)


def test_networks_differ_in_their_normalisation():
    assert find_normalisation("resnet50") != find_normalisation("densenet121")
    assert find_normalisation("tiny") == find_normalisation("densenet201")


def test_a_checkpoint_of_another_normalisation_is_refused():
    # As a ResNet-50 whose films were normalised for DenseNet's weights would be.
    found = Description(
        epoch=1, step=1, model="resnet50", data_size=64, input_size=64, image_size=64,
        precision="float32", findings=FINDINGS, normalisation=find_normalisation("densenet121"),
        config_sha256="", validation_auroc=None,
    )  # fmt: skip
    with pytest.raises(UserError) as caught:
        check_description(
            found, where="here", model="resnet50", findings=FINDINGS,
            normalisation=find_normalisation("resnet50"),
        )  # fmt: skip
    assert "103.939" in caught.value.expected


def test_weights_are_asked_for_before_a_training_and_not_when_it_goes_on(
    cache, fast_data, tmp_path, capsys
):
    run = tmp_path / "run"
    words = ["train", "--data", str(fast_data), "--run", str(run), "--check"]
    words += ["--set", "preset=best", "--set", "crop_size=0"]
    assert program.main(words) == 1
    assert "invoke fetch-weights --model densenet121" in capsys.readouterr().err
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "epoch-0001.npz").touch()
    (run / "config.json").write_text(
        render_config(
            fit_config(
                load_config(settings=["preset=best", "crop_size=0"]),
                dataset=load_dataset(fast_data),
            )
        )
    )
    assert program.main([*words, "--resume"]) == 0
