"""Submitting a job, and telling of jobs and progress, with Slurm's commands played by others."""

import json
from pathlib import Path

import jsonschema
import pytest

from containers.slurm_status import (
    find_jobs,
    read_progress,
    render_progress,
    show_status,
    submit,
)
from env.errors import UserError

SCHEMA = json.loads((Path(__file__).parents[2] / "containers/status.schema.json").read_text())
QUEUE = (
    "12|12|RUNNING|2|1:02|58:58|None|chexnet-run1\\n"
    "13|13|PENDING|2|0:00|1:00:00|Priority|chexnet-b|c\\n"
    "14|14|RUNNING|1|0:05|1:00|None|other\\n"
)


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Replace what is on PATH by programs that print a text and note their arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def plant(name, text="", code=0):
        (folder / name).write_text(
            f"#!/bin/sh\necho \"$@\" >> {folder}/{name}.args\nprintf '{text}'\nexit {code}\n"
        )
        (folder / name).chmod(0o755)
        return folder / f"{name}.args"

    return plant


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run1"
    folder.mkdir()
    (folder / "record.json").write_text(json.dumps({"status": "running", "ranks": 8}))
    (folder / "config.json").write_text(json.dumps({"epochs": 10}))
    lines = [
        {"kind": "epoch", "epoch": n, "step": 50 * n, "loss": 0.5 / n, "images_per_s": 90.0,
         "seconds": 60.0 + n} for n in (1, 2, 3)
    ]  # fmt: skip
    lines.append({"kind": "steps", "epoch": 4, "step": 160, "loss": 0.125, "images_per_s": 100.5})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + '{"kind": "st')  # being written
    return folder


def test_progress_is_what_the_files_say(run):
    progress = read_progress(run)
    assert (progress.status, progress.ranks) == ("running", 8)
    assert (progress.epoch, progress.epochs, progress.step) == (4, 10, 160)
    assert (progress.loss, progress.images_per_s) == (0.125, 100.5)
    assert progress.left_s == 7 * 63.0
    text = render_progress(progress)
    assert "epoch       4 of 10, step 160" in text
    assert "time left   7 min 21 s" in text


def test_a_run_that_has_not_begun_or_is_over_promises_nothing(run):
    (run / "record.json").write_text(json.dumps({"status": "finished", "ranks": 8}))
    assert read_progress(run).left_s is None
    for path in run.iterdir():
        path.unlink()
    progress = read_progress(run)
    assert (progress.status, progress.epoch, progress.left_s) == ("", 0, None)
    assert "not begun" in render_progress(progress)


def test_a_folder_of_no_run_is_refused_and_an_empty_one_has_not_begun(commands, tmp_path, capsys):
    with pytest.raises(UserError, match=r"no folder .*no-such"):
        show_status(tmp_path / "no-such")
    films = tmp_path / "films"
    films.mkdir()
    assert show_status(films) == 0
    assert "status      not begun" in capsys.readouterr().out
    (films / "Data_Entry_2017.csv").touch()
    with pytest.raises(UserError, match=r"no run's files, but Data_Entry_2017\.csv") as caught:
        show_status(films)
    assert caught.value.exit_code == 2
    (films / "slurm-7-0.log").touch()  # of a job that proves its nodes and has not trained yet
    assert show_status(films) == 0


def test_a_job_that_waits_is_told_before_its_run_has_a_folder(commands, tmp_path, capsys):
    """As docs/first-run.md has it: submit, then ask."""
    commands("squeue", QUEUE)
    assert show_status(tmp_path / "run1") == 0
    told = capsys.readouterr().out
    assert "status      not begun" in told
    assert "job         12  RUNNING" in told
    with pytest.raises(UserError, match="no folder"):
        show_status(tmp_path / "run2")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("expected: to train to the end\nfound:    stopped by SIGTERM in epoch 2\nfix:      resume",
         "stopped by SIGTERM in epoch 2"),
        ("MemoryError", "MemoryError"),
    ],
)  # fmt: skip
def test_the_error_of_a_run_is_told_by_what_happened(run, error, told):
    (run / "record.json").write_text(json.dumps({"status": "failed", "error": error}))
    assert f"error       {told}" in render_progress(read_progress(run)).splitlines()


def test_the_jobs_of_this_project_are_told(commands, run):
    args = commands("squeue", QUEUE)
    jobs, trouble = find_jobs()
    assert not trouble
    assert [(job.id, job.state, job.reason, job.name) for job in jobs] == [
        ("12", "RUNNING", "None", "chexnet-run1"), ("13", "PENDING", "Priority", "chexnet-b|c"),
    ]  # fmt: skip
    assert "--user=" in args.read_text()


def test_a_runs_jobs_are_found_by_name_and_by_its_logs_and_asked_of_sacct(commands, run, capsys):
    commands("squeue", QUEUE)
    args = commands("sacct", "9|TIMEOUT|2|1:00:00|None|chexnet-run1\\n")
    for name in ("slurm-9-0.log", "slurm-9-1.log", "slurm-14-0.log", "other.log"):
        (run / name).touch()
    jobs, _ = find_jobs(run)
    assert [(job.id, job.state, job.left) for job in jobs] == [
        ("12", "RUNNING", "58:58"), ("14", "RUNNING", "1:00"), ("9", "TIMEOUT", "")
    ]  # fmt: skip
    assert "--jobs=9" in args.read_text()
    assert "--format=JobID,State,NNodes,Elapsed,Reason,JobName" in args.read_text()
    assert show_status(run) == 0
    assert "TIMEOUT  2 nodes  1:00:00  chexnet-run1" in capsys.readouterr().out


def test_a_task_of_an_array_is_found_by_the_log_in_its_own_folder(commands, run):
    """Its script knows itself as job 16, which squeue calls 15_4."""
    commands("squeue", "16|15_4|RUNNING|2|1:02|58:58|None|chexnet-study\\n"
             "15|15_[8]|PENDING|2|0:00|1:00|None|chexnet-study\\n")  # fmt: skip
    args = commands("sacct")
    (run / "slurm-16-0.log").touch()
    jobs, _ = find_jobs(run)
    assert [(job.id, job.state) for job in jobs] == [("15_4", "RUNNING")]
    assert not args.exists()


@pytest.mark.parametrize("way", ["none", "silent"])
def test_without_an_answer_of_slurms_progress_is_told_all_the_same(commands, run, way, capsys):
    if way == "silent":
        commands("squeue", code=1)
    assert show_status(run) == 0
    text = capsys.readouterr().out
    assert "epoch       4 of 10" in text
    assert ("no squeue here" if way == "none" else "squeue does not answer: exit code 1") in text


@pytest.mark.parametrize("of_run", [True, False])
def test_json_keeps_to_its_schema(commands, run, capsys, of_run):
    commands("squeue", QUEUE)
    assert show_status(run if of_run else None, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, SCHEMA)
    assert (told["progress"] is not None) == of_run


def test_submitting_hands_the_file_to_sbatch(commands, tmp_path, capsys):
    script = tmp_path / "a job.sh"
    with pytest.raises(UserError, match="a job script"):
        submit(script)
    script.write_text("#!/bin/bash\n")
    with pytest.raises(UserError, match="sbatch on PATH"):
        submit(script)
    assert submit(script, dry_run=True) == 0
    assert capsys.readouterr().out == f"sbatch '{script}'\n"
    args = commands("sbatch")
    assert submit(script) == 0
    assert args.read_text() == f"{script}\n"
