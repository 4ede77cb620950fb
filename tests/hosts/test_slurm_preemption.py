"""A job preempted by a real Slurm leaves with a checkpoint and comes back; one cancelled stays."""

import os
import runpy
import time
from pathlib import Path

import pytest

from containers.slurm_script import JobRequest, render_script

pytestmark = [pytest.mark.mpi, pytest.mark.slurm]

HERE = Path(__file__).parent
PATIENCE_S = 90
# As the documentation asks of a site.
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""
# Trains until it is told to stop; the second time it has no more to do.
TASKS = """\
#!/bin/bash
echo $1 >> /run/lan/verbs
[ $1 = train ] || exit 0
[ -e /run/lan/checkpoint ] && exit 0
trap 'touch /run/lan/checkpoint; exit 75' TERM
while :; do sleep 0.1; done
"""


def wait_for(ready):
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_preempted_job_writes_a_checkpoint_and_comes_back(tmp_path):
    lan, slurm = (runpy.run_path(str(HERE / f"{n}.py"), run_name=n) for n in ("lan", "slurm"))
    missing = [*lan["missing_tools"](), *slurm["missing_tools"](), *(["root"] * bool(os.geteuid()))]
    if missing:
        pytest.skip(f"missing: {', '.join(missing)}")
    with lan["Lan"](tmp_path / "lan", "node1") as hosts:
        cluster = slurm["Slurm"](hosts, limits=" PriorityTier=1 GraceTime=60", more=PREEMPTION)
        cluster.start()
        shared = hosts.folder
        (shared / "tasks").write_text(TASKS)
        (shared / "tasks").chmod(0o755)
        request = JobRequest(Path("/d"), Path("/run/lan/run"), cpus_per_gpu=os.cpu_count(),
                             program=("/run/lan/tasks",))  # fmt: skip
        (shared / "job.sh").write_text(render_script(request))
        cluster.run("sbatch", "/run/lan/job.sh", cwd="/run/lan", check=True)
        verbs = shared / "verbs"
        wait_for(lambda: verbs.exists() and "train" in verbs.read_text())
        cluster.run("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap",
                    "touch /run/lan/other", cwd="/run/lan", check=True)  # fmt: skip
        wait_for((shared / "other").exists)
        assert (shared / "checkpoint").exists()

        def job():
            return cluster.run("scontrol", "show", "job", "--oneliner", "1").stdout

        wait_for(lambda: "JobState=PENDING" in job())
        assert " Restarts=1 " in job()
        time.sleep(3)  # Slurm refuses a start within the second in which the last was revoked
        cluster.run("scontrol", "update", "JobId=1", "StartTime=now", check=True)
        wait_for(lambda: "JobState=COMPLETED" in job())
        assert verbs.read_text().split() == ["validate-env", "train"] * 2

        # One that its user cancels stays away.
        verbs.unlink()
        (shared / "checkpoint").unlink()
        cluster.run("sbatch", "/run/lan/job.sh", cwd="/run/lan", check=True)
        wait_for(lambda: verbs.exists() and "train" in verbs.read_text())
        cluster.run("scancel", "3", check=True)
        wait_for((shared / "checkpoint").exists)
        wait_for(lambda: not cluster.run("squeue", "--noheader", "--jobs=3").stdout.strip())
        ended = cluster.run("scontrol", "show", "job", "--oneliner", "3").stdout
        assert "JobState=CANCELLED" in ended
        assert " Restarts=0 " in ended
