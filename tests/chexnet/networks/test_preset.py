"""The presets: what their headers must say, and that page and files agree."""

import json
from pathlib import Path

import jsonschema
import pytest

import chexnet.__main__ as program
import chexnet.networks.preset
from chexnet.config import KEYS
from chexnet.networks.preset import HEADER, list_keys, load_presets, read_header, render_page

SCHEMA = json.loads(
    Path(chexnet.networks.preset.__file__).with_name("presets.schema.json").read_text()
)
PAGE = Path(__file__).parents[3] / "docs" / "presets.md"
PRESETS = {one.name: one for one in load_presets()}


def test_the_page_is_what_the_presets_say():
    assert PAGE.read_text() == render_page(load_presets())


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "demo"])
def test_no_preset_claims_what_was_not_measured_here(name):
    expected = PRESETS[name].about["Expected"]
    assert "not yet reproduced here" in expected
    assert "official" in expected  # the split, without which a figure says nothing


def test_demo_speaks_of_made_up_films_alone():
    assert "made-up" in PRESETS["demo"].about["Expected"]


def test_best_sees_crops_of_the_size_that_the_weights_were_made_for():
    config = PRESETS["best"].config
    assert (config.crop_size, config.image_size, config.weights) == (224, 224, "imagenet")


def test_header_is_read_over_its_lines(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text(
        "# What:     a: one\n#           two\n# Source: s\n# Expected: e\n# Note: n\n\nx=1\n"
    )
    assert read_header(path) == {"What": "a: one two", "Source": "s", "Expected": "e", "Note": "n"}


def test_header_that_lacks_a_word_is_named(tmp_path):
    path = tmp_path / "one.toml"
    path.write_text("# What: a\n# Note: n\n")
    with pytest.raises(ValueError, match="Source, Expected"):
        read_header(path)


def test_every_key_is_listed_once():
    presets = load_presets()
    keys = [
        key for differing in (True, False) for key, _ in list_keys(presets, differing=differing)
    ]
    assert sorted([*keys, "preset"]) == sorted(KEYS)


def test_json_fits_its_schema(capsys):
    assert program.main(["presets", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, SCHEMA)
    assert [row["name"] for row in data["presets"] if row["default"]] == ["lab"]
    assert set(HEADER) == {"What", "Source", "Expected", "Note"}


def test_table_shows_what_differs(capsys):
    assert program.main(["presets"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith("batch_size"))
    assert row.split()[1:] == [str(one.config.batch_size) for one in load_presets()]
    assert "lab (default)" in out


def test_paper_is_the_recipe_of_the_paper():
    config = PRESETS["paper"].config
    recipe = (config.model, config.weights, config.image_size, config.batch_size, config.loss)
    assert recipe == ("densenet121", "imagenet", 224, 16, "bce")
    assert (config.learning_rate, config.decay, config.warmup_epochs) == (1e-3, "plateau", 0.0)
