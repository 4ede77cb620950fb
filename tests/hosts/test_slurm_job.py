"""The rendered job in a real Slurm: a bad node is left out, preemption loses nothing, it ends."""

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from containers.slurm_script import JobRequest, render_script

pytestmark = [pytest.mark.mpi, pytest.mark.slurm, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
INSIDE = "/run/lan"
PROGRAM = (sys.executable, "-m", "invoke", "--search-root", str(PROJECT))
PATIENCE_S = 300


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Return a Slurm of three nodes, of which each job gets two."""
    lan, slurm = (runpy.run_path(str(HERE / f"{n}.py"), run_name=n) for n in ("lan", "slurm"))
    missing = [*lan["missing_tools"](), *slurm["missing_tools"](), *(["root"] * bool(os.geteuid()))]
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")
    with lan["Lan"](tmp_path_factory.mktemp("job") / "lan", "node1", "node2", "node3") as hosts:
        yield slurm["Slurm"](hosts).start()


def wait_for(ready, what, *, slurm):
    deadline = time.monotonic() + PATIENCE_S
    while not (found := ready()):
        if time.monotonic() > deadline:
            logs = {
                p.name: p.read_text(errors="replace")[-3000:]
                for p in slurm.lan.folder.rglob("slurm-*.log")
            }
            pytest.fail(f"waited in vain for {what}: {logs}")
        time.sleep(0.3)
    return found


def job_of(slurm, number):
    """Return what Slurm says of a job, by key."""
    text = slurm.run("scontrol", "show", "job", "--oneliner", number).stdout
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def start_now(slurm, number):
    """Start a job that was queued again, before Slurm's two minutes are over.

    Not within the second in which its last start was revoked: Slurm would refuse the new one.
    """
    time.sleep(3)
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now", check=True)


def test_a_job_leaves_a_bad_node_out_is_preempted_and_finishes(slurm):
    shared = slurm.lan.folder
    source, data, run = shared / "nih", shared / "my data", shared / "run"
    chexnet = [sys.executable, "-m", "chexnet"]
    for words in (["make-sample-data", "--output", source, "--images", "600", "--size", "64"],
                  ["prepare-data", "--source", source, "--output", data, "--size", "64",
                   "--workers", "1"]):  # fmt: skip
        subprocess.run([*chexnet, *map(str, words)], check=True, cwd=PROJECT, capture_output=True)
    # A node that no job must train on: it has another release of a package.
    metadata = next(
        Path(sys.prefix, "lib").glob("python3*/site-packages/numpy-*.dist-info/METADATA")
    )
    slurm.first.plant("Metadata-Version: 2.1\nName: numpy\nVersion: 1.2.3\n", str(metadata))
    request = JobRequest(
        Path(f"{INSIDE}/my data"), Path(f"{INSIDE}/run"), nodes=2, cpus_per_gpu=1, program=PROGRAM,
        settings=("model=tiny", "image_size=32", "crop_size=32", "batch_size=4", "epochs=8"),
    )  # fmt: skip
    (shared / "job.sh").write_text(render_script(request))
    invoke = [*PROGRAM, "submit", f"{INSIDE}/job.sh"]
    said = slurm.run(*invoke, cwd=INSIDE, check=True).stdout
    number = said.split()[-1]

    # 1. node1 fails its check, and the job waits for others.
    wait_for(lambda: job_of(slurm, number)["Restarts"] == "1", "the first requeue", slurm=slurm)
    wait_for(lambda: job_of(slurm, number)["ExcNodeList"] == "node1", "node1 left out", slurm=slurm)
    assert "nodes that failed: node1" in (run / f"slurm-{number}-0.log").read_text()
    start_now(slurm, number)

    # 2. It trains on the two others; Slurm announces the end of its time.
    def trains():
        return (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").read_text()

    wait_for(trains, "the first epoch", slurm=slurm)
    told = slurm.run(*PROGRAM, "status", "--run", f"{INSIDE}/run", "--json", check=True).stdout
    told = json.loads(told)
    assert [(job["id"], job["state"], job["nodes"]) for job in told["jobs"]] == [
        (number, "RUNNING", "2")
    ]
    assert told["progress"]["status"] == "running"
    assert told["progress"]["epochs"] == 8
    slurm.run("scancel", "--signal=USR1", "--batch", number, check=True)
    wait_for(
        lambda: job_of(slurm, number).get("Restarts") == "2", "the second requeue", slurm=slurm
    )
    stopped = json.loads((run / "record.json").read_text())
    assert stopped["status"] == "interrupted"
    assert "stopped: queueing again" in (run / f"slurm-{number}-1.log").read_text()

    # 3. It goes on from there, with the same hosts left out, and finishes.
    start_now(slurm, number)
    wait_for(lambda: job_of(slurm, number)["JobState"] == "COMPLETED", "the end", slurm=slurm)
    record = json.loads((run / "record.json").read_text())
    assert record["status"] == "finished"
    assert record["ranks"] == 2
    assert set(record["hosts"]) == {"node2", "node3"}
    assert record["resumed_from"]
    epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    ended = [line["epoch"] for line in epochs if line["kind"] == "epoch"]
    assert ended == list(range(1, 9))
    assert json.loads((run / "environment.json").read_text())["exit_code"] == 0
    assert [host.strays for host in slurm.lan.hosts.values()] == [[], [], []]
