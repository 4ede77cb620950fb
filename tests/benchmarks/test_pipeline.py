import json
import sys
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import pipeline, record
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

FOLDER = Path(benchmarks.__file__).parent
SCHEMA = json.loads((FOLDER / "record.schema.json").read_text())


def test_rates_are_images_per_second():
    batches = iter(range(10**9))
    rate = pipeline._time_stream(batches, batch_size=32, round_s=0.02)
    drawn = next(batches)
    # A quarter of the time is spent on throwing away, so at most all of the
    # batches and at least one were counted, over no less than 0.02 s.
    assert 32 < rate <= 32 * drawn / 0.02


def test_results_are_medians():
    (result,) = pipeline.describe_rates({"old": [1.0, 9.0, 2.0]})
    assert (result["value"], result["slowest"], result["fastest"]) == (2.0, 1.0, 9.0)


def test_a_record_of_a_real_run(tmp_path, monkeypatch):
    sample = make_sample_data(tmp_path / "s", num_images=40, size_px=32, workers=1)
    prepare_data(sample, output=tmp_path / "d", size_px=32, workers=1)
    output = tmp_path / "deep" / "r.json"
    argv = ["x", "--data", str(tmp_path / "d"), "--output", str(output), "--batch-size", "4"]
    monkeypatch.setattr(sys, "argv", [*argv, "--rounds", "1", "--round-s", "0.1"])
    pipeline.main()
    data = json.loads(output.read_text())
    jsonschema.validate(data, SCHEMA)
    values = {result["name"]: result["value"] for result in data["results"]}
    assert set(values) == {"old", "new"}
    assert data["ratios"]["new/old"] == pytest.approx(values["new"] / values["old"], abs=0.001)
    assert [path.name for path in output.parent.iterdir()] == ["r.json"]


def test_versions_leave_out_what_is_not_installed():
    versions = record.describe_versions(["numpy", "no-such-distribution"])
    assert set(versions) == {"python", "numpy"}


@pytest.mark.parametrize("path", sorted((FOLDER / "results").glob("*.json")), ids=lambda p: p.name)
def test_committed_records_follow_the_schema(path):
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
