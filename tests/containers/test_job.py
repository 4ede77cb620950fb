"""Which hosts a job has lost; starting a process on one of them is played, as is its answer."""

import threading

import pytest

from containers import job as module
from containers.hosts import parse_hosts
from containers.job import Job, Survey, find_lost
from containers.launch import Site
from containers.launchers import Launcher
from containers.ranks import start_ranks
from containers.survey import survey_launch

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


def test_ranks_are_started_from_another_thread_too(tmp_path):
    """Only the main one may take signals over."""
    ended = []

    def work():
        ended.append(start_ranks(["true"], folder=tmp_path, timeout_s=30))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert ended == [{}]
