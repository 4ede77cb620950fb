"""Configuration: what overrides what, and what is refused."""

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

import chexnet.config
from chexnet.config import (
    CHOICES,
    KEYS,
    find_differences,
    list_presets,
    load_config,
    parse_config,
    render_config,
)
from chexnet.errors import UserError

SCHEMA = json.loads(Path(chexnet.config.__file__).with_name("config.schema.json").read_text())


@pytest.mark.parametrize("preset", list_presets())
def test_presets_hold_every_key_and_fit_the_schema(preset):
    config = load_config(settings=[f"preset={preset}"])
    assert config.preset == preset
    jsonschema.validate(json.loads(render_config(config)), SCHEMA)


def test_lab_is_the_default_and_the_recipe_of_the_article():
    config = load_config()
    assert config.preset == "lab"
    found = (config.model, config.batch_size, config.image_size, config.learning_rate)
    assert found == ("densenet121", 64, 256, 1e-3)


def test_settings_override_the_file_and_the_file_the_preset(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "demo"\nepochs = 3\nseed = 7\n')
    config = load_config(file, settings=["epochs=4", "learning_rate=2e-4"])
    assert (config.preset, config.epochs, config.seed) == ("demo", 4, 7)
    assert config.learning_rate == 2e-4


def test_whole_number_does_for_a_float(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"warmup_epochs": 2}')
    value = load_config(file).warmup_epochs
    assert (value, type(value)) == (2.0, float)


def test_config_json_of_a_run_can_be_given_as_a_file(tmp_path):
    config = load_config(settings=["epochs=3", "model=tiny"])
    file = tmp_path / "config.json"
    file.write_text(render_config(config))
    assert load_config(file) == config
    assert parse_config(file.read_text(), where="here") == config


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["epoch=3"], "epochs"),
        (["preset=labs"], "demo, lab"),
        (["model=resnet"], "densenet121, densenet169"),
        (["pipeline=fastest"], "auto, dali, fast, new, old"),
        (["epochs=many"], "epochs: a value of type int"),
        (["epochs=0"], "epochs at least 1"),
        (["learning_rate=nan"], "learning_rate at least 0"),
        (["learning_rate=inf"], "learning_rate at least 0"),
        (["batch_norm_momentum=1.5"], "from 0 to 1"),
        (["epochs"], "--set key=value"),
    ],
)
def test_wrong_settings_are_named_with_what_is_known(settings, expected):
    with pytest.raises(UserError) as caught:
        load_config(settings=settings)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.toml", "colour = 1", "'colour'"),
        ("a.toml", "epochs = 1.5", "type int"),
        ("a.toml", "epochs = true", "type int"),
        ("a.toml", "weights = 3", "type str"),
        ("a.toml", "epochs = ", "a.toml"),
        ("a.json", "[1]", "list"),
        ("a.json", "{", "a.json"),
    ],
)
def test_wrong_files_are_refused(tmp_path, name, text, expected):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(file)
    assert expected in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        load_config(tmp_path / "none.toml")


def test_differences_name_key_and_both_values():
    one = load_config(settings=["preset=demo", "seed=1"])
    other = dataclasses.replace(one, seed=2, epochs=99)
    assert find_differences(one, other) == [f"epochs: {one.epochs} and 99", "seed: 1 and 2"]
    assert one.sha256 != other.sha256


def test_schema_knows_the_keys_and_names():
    assert set(SCHEMA["properties"]) == {"schema_version", *KEYS}
    for key, names in CHOICES.items():
        assert SCHEMA["properties"][key]["enum"] == list(names)


def test_another_schema_version_is_refused():
    with pytest.raises(UserError, match="schema_version"):
        parse_config('{"schema_version": 99}', where="here")
