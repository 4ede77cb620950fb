import json
import sys
from pathlib import Path

import jsonschema
import pytest

import benchmarks
from benchmarks import input_rate, pipeline, record
from chexnet.prepare import prepare_data
from chexnet.synthetic import make_sample_data

FOLDER = Path(benchmarks.__file__).parent
SCHEMA = json.loads((FOLDER / "record.schema.json").read_text())


def test_a_rate_counts_whole_batches_for_the_time_it_took():
    found = input_rate.measure(iter(range(10**9)), batch_size=32, seconds=0.02, most=0)
    assert found["seconds"] >= 0.02
    assert found["images"] % 32 == 0
    few = input_rate.measure(iter(range(10**9)), batch_size=32, seconds=60, most=100)
    assert few["images"] == 128


CASES = [
    pipeline.Case(Path("d"), "synthetic", (0, 1)),
    pipeline.Case(Path("d"), "new", (0, 1)),
    pipeline.Case(Path("d"), "new", (0, 1), cold=True),
    pipeline.Case(Path("d"), "new", (0,)),
]


def round_of(images, peak=100.0):
    return {"images": images, "seconds": 2.0, "peak_mb": peak}


def test_results_are_medians():
    found = {case.name: [round_of(20), round_of(2, 300.0), round_of(4)] for case in CASES}
    first, *_ = pipeline.describe_rates(CASES, found=found)
    assert (first["value"], first["slowest"], first["fastest"]) == (2.0, 1.0, 10.0)
    assert (first["name"], first["peak_mb"]) == ("synthetic, 2 cores", 300)


@pytest.mark.parametrize(
    ("cold", "words"), [(100.0, "next limit: storage"), (190.0, "next limit: decoding")]
)
def test_advice_follows_from_the_rates(cold, words):
    rates = dict(zip([case.name for case in CASES], (9000, 200.0, cold, 125.0), strict=True))
    found = {
        name: [{"images": rate, "seconds": 1.0, "peak_mb": 1.0}] for name, rate in rates.items()
    }
    [line] = pipeline.advise(pipeline.describe_rates(CASES, found=found), gpu_rate=90.0)
    # A GPU of 90 images/s that is busy 0.9 of the time needs 100.
    assert f"fed as {cold / 100:.1f} GPUs of 90 images/s each need" in line
    assert "0.80 cores a GPU" in line
    assert words in line


@pytest.mark.slow  # seven processes with TensorFlow
def test_a_record_of_a_real_run(tmp_path, monkeypatch, capsys):
    sample = make_sample_data(tmp_path / "s", num_images=40, size_px=32, workers=1)
    argv = ["x"]
    for format in ("encoded", "fast"):
        prepare_data(sample, output=tmp_path / format, size_px=32, workers=1, format=format)
        argv += ["--data", str(tmp_path / format)]
    output = tmp_path / "deep" / "r.json"
    argv += ["--output", str(output), "--batch-size", "4", "--rounds", "1", "--seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(pipeline.os, "sched_getaffinity", lambda pid: {0})
    pipeline.main()
    data = json.loads(output.read_text())
    jsonschema.validate(data, SCHEMA)
    values = {result["name"]: result["value"] for result in data["results"]}
    assert set(values) == {"synthetic, 1 core"} | {
        f"{name}, {cache}, 1 core"
        for name in ("old", "new", "fast")
        for cache in ("cached", "cold")
    }
    ratio = values["fast, cached, 1 core"] / values["new, cached, 1 core"]
    assert data["ratios"]["fast, cached, 1 core / new"] == pytest.approx(ratio, rel=0.01)
    assert [path.name for path in output.parent.iterdir()] == ["r.json"]
    assert "fast: one rank is fed as" in capsys.readouterr().out


def test_versions_leave_out_what_is_not_installed():
    versions = record.describe_versions(["numpy", "no-such-distribution"])
    assert set(versions) == {"python", "numpy"}


@pytest.mark.parametrize("path", sorted((FOLDER / "results").glob("*.json")), ids=lambda p: p.name)
def test_committed_records_follow_the_schema(path):
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
