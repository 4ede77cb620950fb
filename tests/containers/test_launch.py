"""Exact command lines, and how a launched command is waited for."""

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
    mpirun_command,
    plan_ranks,
    project_environ,
    run_command,
)
from env.binding import plan_local
from env.errors import UserError
from env.stack import PROJECT

FOUR = tuple((n,) for n in range(4))


@pytest.mark.parametrize(
    ("ranks", "share", "as_root", "expected"),
    [
        (2, False, False, "mpirun MCA -np 2 --map-by slot:PE=2 --bind-to core prog"),
        (
            4,
            False,
            True,
            "mpirun --allow-run-as-root MCA -np 4 --map-by slot:PE=1 --bind-to core prog",
        ),
        (1, False, False, "mpirun MCA -np 1 --map-by slot:PE=4 --bind-to core prog"),
        (6, True, False, "mpirun MCA -np 6 --map-by slot:OVERSUBSCRIBE --bind-to none prog"),
    ],
)
def test_mpirun_lines(ranks, share, as_root, expected):
    plan = plan_local(ranks, host="h", cores=FOUR, share_cores=share)
    assert (
        mpirun_command(plan, command=["prog"], as_root=as_root)
        == expected.replace("MCA", "--mca odls_base_sigkill_timeout 5").split()
    )


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
    plan = plan_local(2, host="h", cores=FOUR)
    line = launch_command(
        plan, command=["python", "-m", "env"], site=Site(image, binds=(tmp_path,))
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


def test_a_mask_narrower_than_the_control_group_is_kept_rather_than_left():
    code = "from containers.launch import plan_ranks; print(plan_ranks(1).cores_per_rank)"
    one = str(max(os.sched_getaffinity(0)))
    done = subprocess.run(
        ["taskset", "-c", one, sys.executable, "-c", code],
        env=project_environ(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "0\n"


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
    line = launch_command(plan, command=["python", "-c", code, str(tmp_path)], site=Site())
    assert run_command(line) == 0
    seen = [tuple(map(int, (tmp_path / str(n)).read_text().split())) for n in range(2)]
    assert seen == [rank.cores for rank in plan.ranks]
