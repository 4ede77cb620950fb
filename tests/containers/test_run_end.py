"""A record is closed for ranks that were killed, and for nobody else."""

import fcntl
import json

import pytest

from containers.run_end import close_record, end_of


@pytest.fixture
def run(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "record.json").write_text(json.dumps({"status": "running", "error": None, "x": 1}))
    return tmp_path


def read(run):
    return json.loads((run / "record.json").read_text())


def test_ranks_that_were_killed_have_failed(run):
    assert close_record(run, code=137)
    assert read(run)["status"] == "failed"
    assert "code 137" in read(run)["error"]
    assert read(run)["ended"].endswith("+00:00")
    assert read(run)["x"] == 1
    assert end_of(run)[0] == "failed"


def test_what_a_rank_said_itself_stays(run):
    (run / "record.json").write_text(json.dumps({"status": "interrupted", "error": "SIGUSR1"}))
    assert not close_record(run, code=1)
    assert read(run) == {"status": "interrupted", "error": "SIGUSR1"}


def test_a_training_that_still_runs_there_is_left_alone(run):
    with (run / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not close_record(run, code=2)
    assert read(run)["status"] == "running"


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_no_record_is_no_error(run, text):
    (run / "record.json").write_text(text)
    assert not close_record(run, code=1)
    assert end_of(run) == ("", 0)


def test_nothing_there(tmp_path):
    assert not close_record(tmp_path, code=1)
    assert end_of(tmp_path) == ("", 0)
