"""Launches inside a real Slurm of two nodes: those that work, and those that cannot."""

import os
import re
import shlex
import sys
import time
from pathlib import Path

import pytest

from containers.hosts import HostSlots
from containers.launch_lines import render_launch
from containers.launchers import Launch, Launcher
from containers.slurm_script import JobRequest, render_script
from env.binding import CORES, BindingPlan, RankBinding

pytestmark = [pytest.mark.mpi, pytest.mark.slurm]

PROJECT = Path(__file__).resolve().parents[2]
VALIDATE = f"cd {PROJECT}; {sys.executable} -m invoke validate-env"
RANK = f"{sys.executable} -m env rank"
LAUNCHED = "launch.ended,ranks.reported,ranks.alike,hosts.network,binding.plan"


@pytest.mark.parametrize(
    ("launcher", "line"), [("auto", "srun --mpi=pmix"), ("mpirun", "mpirun --allow-run-as-root")]
)
def test_a_batch_job_passes_with_either_launcher(slurm, launcher, line):
    options = f"--hosts slurm --launcher {launcher} --only {LAUNCHED},mpi.size"
    job = ("--nodes=2", "--ntasks-per-node=1")
    script = f"{VALIDATE} {options} --dry-run && {VALIDATE} {options}"
    code, text = slurm.batch(script, *job)
    assert code == 0, text
    assert line in text
    assert "6 checks of node1, node2 (stack cpu" in text
    assert ": 6 PASS" in text
    assert [host.strays for host in slurm.lan.hosts.values()] == [[], []]


def test_hosts_with_unequal_numbers_of_ranks(slurm):
    script = f"{VALIDATE} --hosts node1:1,node2:2 --only ranks.reported,binding.plan"
    code, text = slurm.batch(script, "--nodes=2", "--ntasks-per-node=2")
    assert code == 0, text
    assert ": 2 PASS" in text


def test_ranks_of_hosts_that_gave_other_cpus_run_where_the_plan_puts_them(slurm):
    cpus = sorted(os.sched_getaffinity(0))
    places = [("node1", cpus[0]), ("node2", cpus[-1])]
    ranks = (RankBinding(n, 0, host, (cpu,), None, 1) for n, (host, cpu) in enumerate(places))
    hosts = tuple(HostSlots(host, 1) for host, _ in places)
    launch = Launch(
        BindingPlan(tuple(ranks), 1, mapping=CORES), Launcher("srun"), hosts, label=True
    )
    line = render_launch(launch, command=["grep", "Cpus_allowed_list", "/proc/self/status"])
    code, text = slurm.batch(shlex.join(line), "--nodes=2", "--ntasks-per-node=1")
    assert code == 0, text
    told = [f"{n}: Cpus_allowed_list:\t{cpu}" for n, (_, cpu) in enumerate(places)]
    assert sorted(text.splitlines()) == told


def test_mpirun_under_srun_is_refused_before_it_hangs(slurm):
    script = f"{VALIDATE} --hosts node1:1,node2:1 --launcher mpirun"
    code, text = slurm.batch(f"srun -N1 -n1 sh -c '{script}'", "--nodes=2", "--ntasks=2")
    assert code == 1, text
    assert "a place outside a Slurm step" in text
    assert "without srun before it" in text


@pytest.mark.slow
def test_mpirun_under_srun_that_hangs_all_the_same_is_given_up(slurm):
    script = f"{VALIDATE} --hosts node1:1,node2:1 --launcher mpirun --timeout 8"
    # A step that holds both nodes; its number is hidden from us, not from Slurm.
    task = f"if [ $SLURM_PROCID = 0 ]; then {script}; else sleep 12; fi"
    (slurm.lan.folder / "task.sh").write_text(task)
    line = "srun -N2 -n2 env -u SLURM_STEP_ID sh /run/lan/task.sh"
    code, text = slurm.batch(line, "--nodes=2", "--ntasks-per-node=1")
    assert code == 1, text
    assert "no end within 8 s" in text
    assert "it said nothing" in text
    assert "did not report" in text
    assert [host.strays for host in slurm.lan.hosts.values()] == [[], []]


def test_srun_without_pmi_joins_nobody_and_is_told(slurm):
    records = "/run/lan/records"
    script = (
        f"cd {PROJECT}; srun --mpi=none -N2 -n2 {RANK} --records {records} --only mpi.size; "
        f"{sys.executable} -m env --records {records} --ranks 2 --only mpi.size"
    )
    code, text = slurm.batch(script, "--nodes=2", "--ntasks-per-node=1")
    assert code == 1, text
    assert "FAIL    mpi.size" in text


# The first proof of the array's second task finds node1 bad; all else is well.
TASKS = """\
#!/bin/bash
[ $1.$SLURM_ARRAY_TASK_ID.$SLURM_RESTART_COUNT = validate-env.2. ] || exit 0
while [ $1 != --failed-hosts ]; do shift; done
echo node1 > "$2"; exit 1
"""


def test_the_last_task_of_an_array_is_queued_again_alone(slurm):
    """Its number is that of the whole array: Slurm would requeue the finished ones as well."""
    shared = slurm.lan.folder
    (shared / "tasks").write_text(TASKS)
    (shared / "tasks").chmod(0o755)
    request = JobRequest(Path("/d"), Path("/run/lan/study"), ranks_per_node=2, cpus_per_gpu=1,
                         array="1,2", program=("/run/lan/tasks",))  # fmt: skip
    (shared / "job.sh").write_text(render_script(request))
    number = slurm.run("sbatch", "--parsable", "/run/lan/job.sh", cwd="/run/lan").stdout.strip()
    deadline, states = time.monotonic() + 60, {}
    # It is completing for a while before it waits in the queue again.
    while states.get("2") != ("PENDING", "1", "node1"):
        assert time.monotonic() < deadline, states
        time.sleep(0.3)
        text = slurm.run("scontrol", "show", "job", "--oneliner", number).stdout
        keys = ("ArrayTaskId", "JobState", "Restarts", "ExcNodeList")
        rows = (
            [re.search(rf"\b{key}=(\S*)", line)[1] for key in keys] for line in text.splitlines()
        )
        states = {task: tuple(told) for task, *told in rows}
    slurm.run("scancel", number, check=True)
    assert states == {"1": ("COMPLETED", "0", "(null)"), "2": ("PENDING", "1", "node1")}
