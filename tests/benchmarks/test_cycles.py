"""Starting and stopping ranks leaves nothing behind; what is left is seen."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest

from benchmarks import cycles
from env.stack import PROJECT

SCHEMA = json.loads((PROJECT / "benchmarks/record.schema.json").read_text())
pytestmark = pytest.mark.mpi


def record(tmp_path, count):
    output = tmp_path / "cycles.json"
    code = cycles.main(["--output", str(output), "--cycles", str(count)])
    told = json.loads(output.read_text())
    jsonschema.validate(told, SCHEMA)
    return code, {result["name"]: result for result in told["results"]}


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_cycles_of_starting_and_stopping_leave_nothing_behind(tmp_path, count):
    code, results = record(tmp_path, count)
    assert code == 0, results
    assert sum(result["cycles"] for result in results.values()) == count
    assert {result["value"] for result in results.values()} == {0}
    # Ranks that were asked to stop said so; those that were left alone finished.
    assert set(results["left after SIGTERM"]["exit_codes"]) == {"75"}
    assert set(results["left after SIGINT"]["exit_codes"]) == {"75"}
    assert set(results["left after end"]["exit_codes"]) == {"0"}


def test_ranks_that_never_join_are_given_up_and_ended(monkeypatch):
    monkeypatch.setattr(cycles, "PATIENCE_S", 2.0)
    monkeypatch.setattr(cycles, "_RANK", "import time; time.sleep(60)")
    with pytest.raises(RuntimeError, match="did not join"):
        cycles.run_cycle("SIGTERM", mark="never-joined")
    deadline = time.monotonic() + 10  # killed, they still take a moment to go
    while cycles._processes("never-joined"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_left_is_seen(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cycles, "SETTLE_S", 0.1)
    before = cycles.holdings("a-mark")
    (tmp_path / "chexnet_preflight_x").mkdir()
    (tmp_path / "some.lock").touch()
    segment = Path("/dev/shm") / f"left.{tmp_path.name}"
    segment.touch()
    child = subprocess.Popen([sys.executable, "-c", "input()"], env={"CYCLE": "a-mark"},
                             stdin=subprocess.PIPE)  # fmt: skip
    try:
        more = cycles.left_behind(before, mark="a-mark")
    finally:
        segment.unlink()
        child.kill()
        child.communicate()
    assert more["folders"] == {"chexnet_preflight_x"}
    assert more["locks"] == {"some.lock"}
    assert segment.name in more["shared memory"]
    assert more["processes"] == {str(child.pid)}
