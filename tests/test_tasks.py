"""The commands as a user types them: help for all, and mistakes told without a traceback."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from env.stack import PROJECT
from tasks import namespace

TASKS = sorted(namespace.task_names)


def invoke(*argv, cwd=None):
    command = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), *argv]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, stdin=subprocess.DEVNULL
    )


def test_the_list_names_every_task():
    listed = invoke("--list").stdout
    assert all(f"  {name} " in listed for name in TASKS)


# What `invoke NAME --help` does, for one task after another.
HELP = """
import sys
from contextlib import suppress
from invoke.main import program
for name in sys.argv[2:]:
    print("TASK", name)
    with suppress(SystemExit):
        program.run(["invoke", "--search-root", sys.argv[1], name, "--help"])
"""


def test_every_task_answers_help_with_every_option_explained():
    done = subprocess.run(
        [sys.executable, "-c", HELP, str(PROJECT), *TASKS], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    told = dict(text.split("\n", 1) for text in done.stdout.split("TASK ")[1:])
    assert set(told) == set(TASKS)
    for name, text in told.items():
        options = [line for line in text.splitlines() if line.startswith("  --")]
        assert options, name
        assert all(len(line.split(None, 1)) == 2 for line in options), options


@pytest.mark.parametrize("typed", [("sbom",), ("compare-images", "a.sif")])
def test_a_task_with_operands_answers_help_wherever_it_stands(typed):
    done = invoke(*typed, "--help")
    assert done.returncode == 0
    assert f"invoke {typed[0]} " in done.stdout


@pytest.mark.parametrize(
    "typed", [("stacks", "--json"), ("recipe", "--stack", "cpu", "--format", "docker")]
)
def test_a_reader_that_has_read_enough_is_no_mistake(typed):
    reader, writer = os.pipe()
    os.close(reader)  # what head does once it has its lines
    command = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), *typed]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE  # as of a program that the signal ends


@pytest.mark.parametrize("closed", [(1,), (0, 1), (0, 1, 2)])
def test_what_was_closed_before_the_start_is_no_mistake(tmp_path, closed):
    shut = " ".join(f"{number}>&-" for number in closed)
    line = f'"$1" -m invoke --search-root "$2" recipe --stack cpu --format docker {shut}'
    told = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, str(PROJECT)], capture_output=True, text=True
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_a_full_disk_is_no_wrong_use():
    command = [sys.executable, "-m", "invoke", "--search-root", str(PROJECT), "stacks", "--json"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "make room there" in done.stderr


# What is typed, the exit code, and words of the message.
MISTAKES = [
    (("recipe",), 2, ["--stack and --format"]),
    (("recipe", "--stack", "cpu11", "--format", "docker"), 2, ["'cpu11'", "cpu, cpu13"]),
    (("recipe", "--stack", "cpu", "--format", "oci"), 2, ["'oci'", "docker, singularity"]),
    (("lock", "--stack", "cuda99"), 2, ["'cuda99'", "cpu, cpu13"]),
    (
        ("build-image", "--stack", "cpu", "--format", "docker", "--engine", "rkt", "--dry-run"),
        2, ["'rkt'", "apptainer, buildah, docker, podman, singularity"],
    ),
    (
        ("build-image", "--stack", "cpu", "--format", "docker", "--base", "moon", "--dry-run"),
        2, ["'moon'", "auto, local, registry"],
    ),
    (("fetch-packages", "--stack", "cpu"), 2, ["--output"]),
    (("fetch-packages", "--stack", "cpu11", "--output", "o"), 2, ["'cpu11'", "cpu, cpu13"]),
    (("fetch-packages", "--stack", "ngc12", "--output", "o"), 2, ["ubuntu", "invoke stacks"]),
    (
        ("build-image", "--stack", "cpu", "--format", "docker", "--packages", "empty",
         "--allow-drift"),
        2, ["--packages and --allow-drift"],
    ),
    (("train", "--data", "nowhere", "--run", "r"), 2, ["nowhere", "prepare-data"]),
    (("train", "--data", "empty", "--run", "r"), 2, ["dataset.json", "prepare-data"]),
    (("train", "--data", "empty", "--run", "r", "--dry-run"), 2, ["dataset.json", "prepare-data"]),
    (("train", "--data", "empty", "--run", "r", "--image", "no.sif"), 2, ["no.sif", "build-image"]),
    (("train", "--data", "empty", "--run", "r", "--ranks", "9999"), 2, ["9999", "--oversubscribe"]),
    (("train", "--data", "empty", "--run", "r", "--ranks", "0"), 2, ["0 ranks"]),
    (
        ("train", "--data", "empty", "--run", "r", "--set", "preset=paper9"),
        2, ["'paper9'", "demo, lab"],
    ),
    (
        ("train", "--data", "empty", "--run", "r", "--set", "pipeline=fastest"),
        2, ["fastest", "old"],
    ),
    (
        ("train", "--data", "empty", "--run", "r", "--set", "batchsize=4"),
        2, ["batchsize", "batch_size"],
    ),
    (("train", "--rank", "2"), 2, ["'--rank'", "write --ranks", "invoke train --help"]),
    (("trian",), 2, ["'trian'", "write train", "invoke --list"]),
    (("train", "data"), 2, ["'data'", "invoke train --help"]),
    (("train", "--data"), 2, ["--data", "needed value"]),
    (("compare", "empty"), 2, ["'other'", "invoke compare --help"]),
    (
        ("slurm-script", "--data", "d", "--run", "r", "--set", "batchsize=4"),
        2, ["batchsize", "batch_size"],
    ),
    (("slurm-script", "--data", "d", "--run", "r", "--config", "no.toml"), 2, ["no.toml"]),
    (("evaluate", "--run", "nowhere"), 2, ["nowhere", "invoke train"]),
    (("evaluate", "--run", "empty"), 2, ["config.json"]),
    (("predict", "--run", "empty"), 2, ["--input"]),
    (("predict", "--run", "empty", "--input", "full"), 2, ["config.json"]),
    (("export", "--run", "nowhere", "--output", "o"), 2, ["nowhere"]),
    (("validate-env", "--ranks", "9999"), 2, ["9999"]),
    (("validate-env", "--image", "no.sif"), 2, ["no.sif"]),
    (("validate-env", "--ranks", "abc"), 2, ["--ranks", "'abc'"]),
    (("validate-env", "--timeout", "abc"), 2, ["--timeout", "'abc'"]),
    (("validate-env", "--timeout=1.5"), 2, ["--timeout", "'1.5'"]),
    (("validate-env", "--timeout", "0"), 2, ["--timeout", "0"]),
    (("validate-env", "--timeout=-3"), 2, ["--timeout", "-3"]),
    (("validate-env", "--allreduce=-1"), 2, ["--allreduce", "-1"]),
    (("validate-env", "--silence", "x"), 2, ["ID=REASON", "'x'"]),
    (("validate-env", "--silence", "no.such=known"), 2, ["no.such", "mpi.library"]),
    (("validate-env", "--image", "full/thesis.txt"), 2, ["full/thesis.txt", "build-image"]),
    (("train", "--data", "empty", "--run", "r", "--timeout", "0"), 2, ["--timeout", "0"]),
    (("validate-env", "--only", "no.such"), 2, ["no.such", "mpi.library"]),
    (("prepare-data", "--source", "nowhere", "--output", "o"), 2, ["nowhere"]),
    (("prepare-data", "--source", "empty", "--output", "o"), 2, ["Data_Entry_2017"]),
    (("make-sample-data", "--output", "o", "--images", "3"), 2, ["--images"]),
    (("demo", "--output", "full"), 2, ["full", "--output"]),
    (("prepare-data", "--source", "empty", "--output", "o", "--max-bad=-5"), 2, ["--max-bad of 0"]),
    (("verify-image", "no.sif"), 2, ["no.sif", "build-image"]),
    (("verify-image", "empty"), 2, ["folder empty", "/etc and /usr"]),
    (("verify-image", "--image", "full/thesis.txt"), 2, ["full/thesis.txt", "by its content"]),
    (("sbom", "no.tar"), 2, ["no.tar", "build-image"]),
    (("sign-image", "full/thesis.txt"), 2, ["full/thesis.txt", "an OCI archive"]),
    (("compare-images", "no.sif", "empty"), 2, ["no.sif"]),
    (("plan-binding", "--svg", "p.gif"), 2, ["p.gif"]),
    (("plan-scaling",), 2, ["--step-ms and --batch", "--from"]),
    (("plan-scaling", "--step-ms", "abc"), 2, ["a number", "--step-ms", "'abc'"]),
    (("plan-scaling", "--step-ms", "9", "--batch", "8", "--gpus", "x"), 2, ["'x'", "1,2,…,512"]),
    (("plan-scaling", "--from", "empty"), 2, ["empty/record.json", "bench-pipeline"]),
    (("plan-scaling", "--validate", "moon"), 2, ["'moon'", "dell"]),
    (("bench-scaling", "--output", "o.json", "--ranks", "9999"), 2, ["9999"]),
    (("bench-scaling", "--output", "o.json", "--input", "cold"), 2, ["'cold'", "synthetic"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "code", "words"),
    MISTAKES,
    ids=[" ".join(mistake[0]) for mistake in MISTAKES],
)
def test_a_mistake_is_told_in_the_one_form(tmp_path, typed, code, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("not yours")
    before = sorted(tmp_path.rglob("*"))
    done = invoke(*typed, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    assert said.count("expected:") == said.count("found:") == said.count("fix:") == 1, said
    assert all(word in said for word in words), said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_prints_every_line_that_would_run_and_runs_none(tmp_path):
    done = invoke(
        "train", "--data", "data", "--run", "runs/a b", "--ranks", "1", "--dry-run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" -m ")[1].split()[0] for line in lines] == [
        "chexnet",
        *["env"] * 3,
        "chexnet",
    ]
    assert lines[-1].startswith("mpirun ")
    assert f"'{tmp_path}/runs/a b'" in lines[-1]
    assert not (tmp_path / "runs").exists()
