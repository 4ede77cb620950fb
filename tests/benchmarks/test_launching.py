"""The launch benchmark measures what it says, and its record keeps to the schema."""

import json

import jsonschema
import pytest

from benchmarks import launching
from env.stack import PROJECT

SCHEMA = json.loads((PROJECT / "benchmarks/record.schema.json").read_text())


@pytest.mark.mpi
def test_the_record_has_both_launches_and_their_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(launching, "measure_preflight", lambda rounds, folder: [])
    output = tmp_path / "launching.json"
    assert launching.main(["--output", str(output), "--rounds", "1"]) == 0
    record = json.loads(output.read_text())
    jsonschema.validate(record, SCHEMA)
    seconds = {result["name"]: result["value"] for result in record["results"]}
    added = seconds["our launch"] - seconds["bare mpirun"]
    assert seconds["added by our launch"] == pytest.approx(added, abs=0.002)


def test_a_command_that_fails_is_no_number():
    with pytest.raises(RuntimeError, match="false failed"):
        launching.time_line(["false"])


def test_a_command_without_end_is_ended_with_what_it_started(monkeypatch, tmp_path, ends):
    monkeypatch.setattr(launching, "PATIENCE_S", 3)
    line = ["sh", "-c", "sleep 977 & echo $! >$0; sleep 977", str(tmp_path / "pid")]
    with pytest.raises(RuntimeError, match="no end within"):
        launching.time_line(line)
    assert ends((tmp_path / "pid").read_text())
