"""GPUs through the command line, as a prolog and a launcher call it, over the fake driver."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from env.probes.processes import probe_processes

PROJECT = Path(__file__).parents[3]


def machine(**changes):
    """Two GPUs; ``changes`` of the second."""
    devices = [
        {"uuid": f"GPU-{n}", "name": "Fake", "minor": n, "pci": f"00000000:0{n + 1}:00.0",
         "memory": {"total": 80 << 30, "used": 0, "reserved": 0}, "compute_mode": 0}
        for n in range(2)
    ]  # fmt: skip
    devices[1] |= changes
    return {"driver": "570.86.10", "cuda": 12080, "devices": devices}


@pytest.fixture
def run(driver):
    """Run ``python -m env …`` beside a fake NVML; returns the finished process."""

    def call(scenario, *argv, **more):
        environ = driver(scenario, "nvml", PYTHONPATH=str(PROJECT), **more)
        command = [sys.executable, "-m", "env", *map(str, argv)]
        return subprocess.run(command, env=environ, capture_output=True, text=True, cwd=PROJECT)

    return call


def statuses(done):
    return {result["id"]: result["status"] for result in json.loads(done.stdout)["results"]}


def test_a_prolog_judges_the_gpus_that_are_there_without_a_stack(run):
    only = ("--node", "--json", "-", "--only", "gpu.present,gpu.lost,gpu.memory,gpu.mode")
    done = run(machine(), *only)
    assert done.returncode == 0, done.stdout
    assert set(statuses(done).values()) == {"PASS"}
    done = run(machine(errors={"*": 15}), *only)
    assert (done.returncode, statuses(done)["gpu.lost"]) == (1, "FAIL")
    assert statuses(done)["gpu.mode"] == "PASS"


def test_a_prolog_drains_no_cpu_node_whose_driver_does_not_answer(run):
    broken = {"errors": {"nvmlInitWithFlags": "crash"}}
    done = run(broken, "--node", "--only", "gpu.present,gpu.lost,gpu.memory")
    assert done.returncode == 0, done.stdout
    assert "NVML could not be asked" in done.stdout


@pytest.mark.parametrize(("masks", "code"), [((None, None), 0), (("0", "1"), 0), (("1", "1"), 1)])
def test_ranks_report_and_are_judged(run, tmp_path, masks, code):
    records = tmp_path / "records"
    for rank, mask in enumerate(masks):
        place = {f"OMPI_COMM_WORLD_{key}": str(rank) for key in ("RANK", "LOCAL_RANK")}
        shown = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
        done = run(machine(), "rank", "--records", records, "--probes", "gpu", **place, **shown)
        assert done.returncode == 0, done.stderr
    judged = run(machine(), "--records", records, "--stack", "cuda12", "--json", "-",
                 "--only", "gpu.one-per-rank,gpu.isolation")  # fmt: skip
    wanted = {"gpu.one-per-rank": "FAIL" if code else "PASS", "gpu.isolation": "PASS"}
    assert (judged.returncode, statuses(judged)) == (code, wanted), judged.stdout


def test_a_namespace_of_processes_for_real():
    code = (
        "import json; from env.probes.processes import probe_processes; "
        "print(json.dumps(probe_processes(pids=[1, 99999]).value))"
    )
    argv = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run([*argv, sys.executable, "-c", code], capture_output=True, text=True,
                          cwd=PROJECT)  # fmt: skip
    told = json.loads(done.stdout)
    assert "namespace of its own" in told["attributable"]
    assert told["known"] == {}
    assert probe_processes(pids=[]).value["known"] == {}
