"""The record of the scaling model: what is committed is what is made, and it reaches 512 GPUs."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import scaling_model

FOLDER = Path(benchmarks.__file__).parent
SCHEMA = json.loads((FOLDER / "record.schema.json").read_text())


def test_the_record_is_committed_as_made(tmp_path, monkeypatch, capsys):
    output = tmp_path / "r.json"
    monkeypatch.setattr(sys, "argv", ["x", "--output", str(output)])
    scaling_model.main()
    made = json.loads(output.read_text())
    jsonschema.validate(made, SCHEMA)
    kept = json.loads((FOLDER / "results" / "scaling-model.json").read_text())
    assert (made["results"], made["ratios"]) == (kept["results"], kept["ratios"])
    assert "largest error on unseen rows: dell, stragglers" in capsys.readouterr().out


def test_every_published_row_is_there_with_its_error_and_a_reason_where_it_is_missed():
    rows = scaling_model.describe_rows()
    assert len(rows) == 3 * (7 + 5 + 4)  # three explanations of three tables
    for row in rows:
        assert row["error"] == pytest.approx(row["value"] / row["published"] - 1, abs=1e-4)
        assert bool(row["reason"]) == (abs(row["error"]) > 0.05)


def test_the_curves_reach_512_and_start_at_what_was_published():
    for line in scaling_model.predict_curves().values():
        assert [one.ranks for one in line] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
        assert round(line[0].images_per_s, 2) == 185.12
