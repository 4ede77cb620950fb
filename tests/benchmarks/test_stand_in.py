"""Ranks that feed a stand-in device: the arithmetic, and one small real run."""

import itertools
import json
import sys
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import stand_in, stand_in_rank
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

SCHEMA = json.loads((Path(benchmarks.__file__).parent / "record.schema.json").read_text())
CASES = [stand_in.Case(Path("d"), "old", 1), stand_in.Case(Path("d"), "old", 4)]


def found_of(one_step, four_step):
    return {
        "old, 1 rank": [{"input_ms": 10.0, "device_ms": 20.0, "step_ms": one_step}] * 3,
        "old, 4 ranks": [
            {"input_ms": 40.0, "device_ms": 20.0, "step_ms": four_step * factor}
            for factor in (1, 4, 2)
        ],
    }


def test_rates_are_those_of_all_ranks_and_steps_stand_between_their_bounds():
    one, four = stand_in.describe_cases(CASES, found=found_of(20.0, 20.0), batch_size=32)
    assert (one["value"], one["device_limit"], one["device_idle_share"]) == (1600, 1600, 0)
    assert (four["value"], four["slowest"], four["fastest"]) == (3200, 1600, 6400)
    assert (four["no_overlap_ms"], four["full_overlap_ms"], four["step_ms"]) == (60, 40, 40)
    assert four["device_limit"] == 6400
    assert four["device_idle_share"] == 0.5
    assert "stand-in" in one["device"]


def test_efficiency_is_against_so_many_times_one_rank():
    results = stand_in.describe_cases(CASES, found=found_of(20.0, 20.0), batch_size=32)
    assert stand_in.compare_cases(results) == {"scaling efficiency: old, 4 ranks": 0.5}


def test_every_pipeline_that_reads_a_folder_is_planned(tmp_path):
    sample = make_sample_data(tmp_path / "s", num_images=20, size_px=32, workers=1)
    prepare_data(sample, output=tmp_path / "e", size_px=32, workers=1, format="encoded")
    cases = stand_in.plan_cases([tmp_path / "e"], ranks=[1, 8])
    assert [case.name for case in cases] == [
        "old, 1 rank", "old, 8 ranks", "new, 1 rank", "new, 8 ranks"]  # fmt: skip


def test_the_stand_in_takes_its_time_and_hands_the_batch_on():
    device = stand_in_rank.StandIn(0.002)
    fed = device.feed(itertools.count())
    assert [next(fed) for _ in range(3)] == [0, 1, 2]
    assert device.step_ms >= 2


@pytest.mark.slow
def test_a_record_of_a_real_run(tmp_path, monkeypatch, capsys):
    sample = make_sample_data(tmp_path / "s", num_images=40, size_px=32, workers=1)
    prepare_data(sample, output=tmp_path / "fast", size_px=32, workers=1, format="fast")
    argv = ["x", "--data", str(tmp_path / "fast")]
    output = tmp_path / "r.json"
    argv += ["--output", str(output), "--batch-size", "4", "--rounds", "1", "--seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", [*argv, "--ranks", "1", "3", "--step-ms", "1"])
    stand_in.main()
    data = json.loads(output.read_text())
    jsonschema.validate(data, SCHEMA)
    results = {one["name"]: one for one in data["results"]}
    assert list(results) == ["fast, 1 rank", "fast, 3 ranks"]
    for one in results.values():
        assert one["step_ms"] >= 1
        assert one["value"] == pytest.approx(one["ranks"] * 4000 / one["step_ms"], rel=0.01)
        assert 0 <= one["device_idle_share"] < 1
    assert set(data["ratios"]) == {"scaling efficiency: fast, 3 ranks"}
    assert "stand-in" in capsys.readouterr().out
