"""A rank whose process has gone is seen, named and recorded by those beside it."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chexnet.training.run_record import RunRecord, write_record
from chexnet.training.watch import describe_process, is_alive

RECORD = RunRecord(
    status="running", command=("train",), started="2026-01-02T03:04:05+00:00", ranks=2,
    hosts=("a", "a"), device="cpu", data="/data", data_sha256="0" * 64, lock_sha256=None,
    git_revision=None, versions={}, horovod={},
)  # fmt: skip

# Rank 0 is this program, rank 1 the process whose number it is given.
PROGRAM = """
import dataclasses, sys, time
from pathlib import Path
from chexnet.training import watch
me = watch.describe_process(0)
pid = int(sys.argv[2])
other = dataclasses.replace(me, rank=1, pid=pid, started=watch._started(pid))
far = dataclasses.replace(other, rank=2, host="elsewhere", pid=1, started="0")
with watch.Watch([me, other, far], rank=0, folder=Path(sys.argv[1])):
    print("watching", flush=True)
    sys.stdin.readline()
    time.sleep(float(sys.argv[3]))
print("left", flush=True)
"""


@pytest.fixture
def watching(tmp_path):
    """Return a program that watches over a process, that process, and the run folder."""
    write_record(tmp_path, record=RECORD)
    with (
        subprocess.Popen(["sleep", "100"]) as watched,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(watched.pid), "60"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=Path(__file__).parents[3],
        ) as program,
    ):  # fmt: skip
        assert program.stdout.readline() == "watching\n"
        yield program, watched, tmp_path
        program.kill()
        watched.kill()


def read_record(folder):
    return json.loads((folder / "record.json").read_text())


def test_the_dead_is_named_and_the_one_beside_it_ends(watching):
    program, watched, folder = watching
    os.kill(watched.pid, signal.SIGKILL)  # nobody waits for it yet: a zombie is dead too
    _, err = program.communicate("", timeout=30)
    assert program.returncode == 1
    assert f"rank 1 ended: process {watched.pid} on " in err
    assert "rank 2" not in err
    record = read_record(folder)
    assert record["status"] == "failed"
    assert f"rank 1 ended: process {watched.pid} on " in record["error"]


def test_what_the_rank_itself_said_stays(watching):
    program, watched, folder = watching
    write_record(folder, record=dataclasses.replace(RECORD, status="failed", error="a bad film"))
    os.kill(watched.pid, signal.SIGKILL)
    _, err = program.communicate("", timeout=30)
    assert program.returncode == 1
    assert err == ""
    assert read_record(folder)["error"] == "a bad film"


def test_a_number_that_is_used_again_is_not_the_rank():
    me = describe_process(0)
    assert is_alive(me)
    assert not is_alive(dataclasses.replace(me, started=str(int(me.started) - 1)))
