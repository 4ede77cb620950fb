"""Which hosts a job has lost; starting a process on one of them is played, as is its answer."""

import os
import threading

import pytest

from containers import job as module
from containers.hosts import parse_hosts
from containers.job import Job, Survey, choose_launcher, find_lost, launch_there
from containers.launch import Site
from containers.launchers import Launcher
from containers.ranks import start_ranks
from containers.survey import survey_launch
from env.errors import UserError

LAUNCHER = Launcher("mpirun")
JOB = Job(hosts=parse_hosts("a:1,b:1,c:1,d:1", resolve=False))


@pytest.mark.parametrize(
    ("answering", "lost"),
    [({"b", "c", "d"}, []), ({"b"}, ["c", "d"]), (set(), ["b", "c", "d"])],
)
def test_those_that_do_not_answer_alone_are_lost(tmp_path, monkeypatch, answering, lost):
    """Three were silent, and all are asked before one answers."""
    together = threading.Barrier(3)

    def ask(launch, *, site, folder, timeout_s):
        together.wait(timeout=30)
        assert folder.is_dir()
        assert timeout_s == 20
        (host,) = launch.hosts
        return {0: "facts"} if host.name in answering else {}

    monkeypatch.setattr(module, "survey_hosts", ask)
    launch = survey_launch(JOB.hosts, launcher=LAUNCHER, folder=tmp_path)
    survey = Survey(launch, tmp_path, {0: "facts"}, None)
    assert find_lost(JOB, survey, launcher=LAUNCHER, site=Site()) == lost


def test_ranks_elsewhere_get_the_folder_of_this_project_whoever_calls(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    survey = survey_launch(JOB.hosts, launcher=LAUNCHER, folder=tmp_path)
    launch = launch_there(JOB, None, launcher=LAUNCHER, folder=tmp_path, device="cpu")
    assert "PYTHONPATH" in survey.forward
    assert "PYTHONPATH" in launch.forward


def test_ranks_without_hosts_stay_off_the_other_nodes_of_a_slurm_job():
    job = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_NNODES": "2"}
    with pytest.raises(UserError, match="a Slurm job of 2 nodes") as error:
        choose_launcher(Job(ranks=2, oversubscribe=True), environ=job)
    assert "--hosts slurm" in error.value.fix
    assert choose_launcher(Job(ranks=1), environ=job).kind == "mpirun"
    alone = {**job, "SLURM_NNODES": "1"}
    assert choose_launcher(Job(ranks=2, oversubscribe=True), environ=alone).kind == "mpirun"


def test_ranks_are_started_from_another_thread_too(tmp_path):
    """Only the main one may take signals over."""
    ended = []

    def work():
        ended.append(start_ranks(["true"], folder=tmp_path, timeout_s=30))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert ended == [{}]
