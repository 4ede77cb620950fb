"""Exact command lines, and how a launched command is waited for."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from containers.launch import (
    Site,
    launch_command,
    plan_ranks,
    project_environ,
    run_command,
)
from containers.launchers import Launch, Launcher, find_launcher
from env.binding import HostShare, plan_job
from env.errors import UserError
from env.stack import PROJECT
from env.topology import Core, HostTopology

FOUR = HostTopology("h", tuple(Core((n,)) for n in range(4)), (0, 1, 2, 3), (0, 1, 2, 3))


def test_here_python_is_this_interpreter_and_arguments_stay_tokens():
    assert Site().enter(["python", "-m", "chexnet", "a b; $HOME"]) == [
        sys.executable, "-m", "chexnet", "a b; $HOME",
    ]  # fmt: skip
    assert Site().enter(["true"]) == ["true"]


def test_in_an_image_every_rank_enters_it(tmp_path, monkeypatch):
    for name in ("apptainer", "singularity"):
        stub = tmp_path / name
        stub.write_text("#!/bin/sh\n")
        stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    image = tmp_path / "x.sif"
    image.touch()
    launch = Launch(plan_job([HostShare(FOUR, 2)]))
    line = launch_command(
        launch, command=["python", "-m", "env"], site=Site(image, binds=(tmp_path,))
    )
    launcher = line.index("core") + 1
    assert line[:1] == ["mpirun"]
    assert line[launcher].endswith("apptainer")
    assert line[-4:] == [str(image), "python", "-m", "env"]
    assert any(str(tmp_path) == token.partition(":")[0] for token in line)


def test_more_ranks_than_cores_are_refused_before_anything_runs():
    with pytest.raises(UserError) as caught:
        plan_ranks(10_000)
    assert caught.value.exit_code == 2
    assert "--oversubscribe" in caught.value.fix


@pytest.mark.mpi
def test_ranks_stay_inside_a_mask_that_is_narrower_than_the_control_group(tmp_path):
    one = str(max(os.sched_getaffinity(0)))
    report = tmp_path / "report.json"
    validate = [sys.executable, "-m", "invoke", "validate-env", "--ranks", "1"]
    done = subprocess.run(
        ["taskset", "-c", one, *validate, "--only", "binding.plan", "--json", str(report)],
        env=project_environ(), cwd=PROJECT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(report.read_text())["results"]
    assert (result["status"], result["found"]) == ("PASS", f"rank 0: {one}")


def test_the_project_is_importable_from_any_folder(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import env; print(env.__file__)"],
        env=project_environ({**os.environ, "PYTHONPATH": "/elsewhere"}),
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(PROJECT))
    assert project_environ({"PYTHONPATH": str(PROJECT)})["PYTHONPATH"] == str(PROJECT)


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137)])
def test_exit_codes_come_back(script, code):
    assert run_command(["sh", "-c", script]) == code


def test_a_dry_run_prints_a_line_for_the_shell_and_runs_nothing(tmp_path, capsys):
    assert run_command(["touch", str(tmp_path / "a b")], dry_run=True) == 0
    assert capsys.readouterr().out == f"touch '{tmp_path}/a b'\n"
    assert not (tmp_path / "a b").exists()


def test_a_missing_program_is_named():
    with pytest.raises(UserError, match="no-such-program"):
        run_command(["no-such-program"])


def test_sigterm_is_handed_on_so_that_the_child_ends_in_its_own_way(tmp_path):
    ready = tmp_path / "ready"
    script = f"trap 'exit 7' TERM; touch {ready}; while :; do sleep 0.05; done"

    def stop():
        while not ready.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert run_command(["sh", "-c", script]) == 7


@pytest.mark.mpi
def test_a_real_launch_binds_every_rank_to_its_own_cores(tmp_path):
    plan = plan_ranks(2)
    # Files rather than standard output: a launcher may interleave the lines of two ranks.
    code = (
        "import os, pathlib, sys; "
        "rank = os.environ['OMPI_COMM_WORLD_RANK']; "
        "cores = sorted(os.sched_getaffinity(0)); "
        "pathlib.Path(sys.argv[1], rank).write_text(' '.join(map(str, cores)))"
    )
    command = ["python", "-c", code, str(tmp_path)]
    line = launch_command(Launch(plan, find_launcher(remote=False)), command=command, site=Site())
    assert run_command(line) == 0
    seen = [tuple(map(int, (tmp_path / str(n)).read_text().split())) for n in range(2)]
    assert seen == [rank.cores for rank in plan.ranks]


@pytest.mark.mpi
@pytest.mark.parametrize(
    "launcher",
    [Launcher("local"), Launcher("horovodrun"), Launcher("horovodrun", transport="gloo")],
    ids=["local", "horovodrun with mpi", "horovodrun with gloo"],
)
def test_other_launchers_really_start_a_rank_on_its_cores(tmp_path, launcher):
    code = (
        "import os, pathlib, sys; from env.probes.launch import probe_launch; "
        "rank = probe_launch()['launch.rank'].value; "
        "pathlib.Path(sys.argv[1], 'a b').write_text(f'{rank} {sorted(os.sched_getaffinity(0))}')"
    )
    plan = plan_ranks(1)
    line = launch_command(
        Launch(plan, launcher), command=["python", "-c", code, str(tmp_path)], site=Site()
    )
    assert run_command(line) == 0
    rank, _, cores = (tmp_path / "a b").read_text().partition(" ")
    assert rank == ("None" if launcher.kind == "local" else "0")
    assert cores == str(sorted(plan.ranks[0].cores))
