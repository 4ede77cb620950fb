"""The command lines of an evaluation: one process, ranks, and inside an image."""

import json
import os
import shlex

import pytest
from invoke import Context

from commands.predictions import export, predict
from containers.evaluate import Evaluation, evaluate, options_of
from containers.job import Job
from env.errors import UserError


@pytest.fixture
def run(tmp_path):
    """Return a run folder whose record names its data."""
    folder, data = tmp_path / "run", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    (folder / "record.json").write_text(json.dumps({"data": str(data)}))
    (folder / "config.json").write_text(json.dumps({"device": "cpu"}))
    return folder


def printed(capsys):
    return shlex.split(capsys.readouterr().out)


def test_one_process_needs_no_launcher(run, capsys):
    asked = Evaluation(run, "validation", options=options_of(calibrate="platt", json=True, seed=""))
    assert evaluate(asked, dry_run=True) == 0
    line = printed(capsys)
    assert line[1:5] == ["-m", "chexnet", "evaluate", "--run"]
    assert "mpirun" not in line
    assert line[-6:] == ["validation", "--checkpoint", "best", "--calibrate", "platt", "--json"]


def test_a_device_can_be_named_for_the_program_and_for_its_image(run, capsys, tmp_path):
    assert evaluate(Evaluation(run, device="gpu"), dry_run=True) == 0
    line = printed(capsys)
    assert line[line.index("--device") + 1] == "gpu"


def test_ranks_are_launched_by_a_plan_that_the_program_reads(run, capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith(("SLURM_", "OMPI_"))]:
        monkeypatch.delenv(name)
    assert evaluate(Evaluation(run, job=Job(1, launcher="mpirun")), dry_run=True) == 0
    line = printed(capsys)
    assert line[line.index("-np") + 1] == "1"
    assert line[line.index("--run") + 1] == str(run)
    assert line[line.index("--plan") + 1].endswith("plan.json")


@pytest.fixture
def image(tmp_path, monkeypatch):
    """Return an image, of a runtime that does nothing."""
    stub = tmp_path / "apptainer"
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "x.sif").write_bytes(bytes(32) + b"SIF_MAGIC")
    return tmp_path / "x.sif"


def bound(line):
    return {line[n + 1].partition(":")[0] for n, token in enumerate(line) if token == "--bind"}


def test_an_image_sees_run_data_boxes_and_checkpoint(run, image, tmp_path, capsys):
    for name in ("boxes", "elsewhere", "other"):
        (tmp_path / name).mkdir()
    boxes, checkpoint = tmp_path / "boxes" / "list.csv", tmp_path / "elsewhere" / "epoch-0001.npz"
    checkpoint.touch()
    asked = Evaluation(run, boxes=boxes, checkpoint=str(checkpoint), image=image)
    assert evaluate(asked, dry_run=True) == 0
    line = printed(capsys)
    assert bound(line) == {str(tmp_path / name) for name in ("run", "data", "boxes", "elsewhere")}
    assert line[line.index("--boxes") + 1] == str(boxes)
    # The run's own data tell which patients of other data it has seen.
    assert evaluate(Evaluation(run, data=tmp_path / "other", image=image), dry_run=True) == 0
    assert bound(printed(capsys)) == {str(tmp_path / name) for name in ("run", "data", "other")}


@pytest.mark.parametrize(
    ("task", "words"),
    [(predict, {"input": ["run"]}), (export, {"output": "exported"})],
)
def test_a_checkpoint_elsewhere_is_seen_too(run, image, tmp_path, monkeypatch, capsys, task, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "epoch-0001.npz").touch()
    named = "elsewhere/epoch-0001.npz"
    options = {"run": str(run), "checkpoint": named, "image": str(image), "dry_run": True}
    assert task.body.__wrapped__(Context(), **options, **words) == 0
    line = printed(capsys)
    assert line[line.index("--checkpoint") + 1] == str(tmp_path / named)
    assert str(tmp_path / "elsewhere") in bound(line)


def test_a_missing_run_is_named(tmp_path):
    with pytest.raises(UserError, match="no-run"):
        evaluate(Evaluation(tmp_path / "no-run"))
