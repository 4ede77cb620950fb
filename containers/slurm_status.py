"""Submits a job to Slurm, and tells how a job and its run are doing.

Knows sbatch's and squeue's words, and the files of a run folder that tell of progress. Leaves the
script to ``containers.slurm_script`` and what the files mean to the training program.
"""

from __future__ import annotations

import getpass
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from containers.launch import run_command, simplify
from containers.slurm_script import job_name
from env.errors import EXIT_FAILED, EXIT_GOOD, UserError

_FIELDS = ("id", "state", "nodes", "elapsed", "left", "reason", "name")
# %A, the number that the job itself sees, is not %i for a task of an array: 12_4.
_SQUEUE = "%A|%i|%T|%D|%M|%L|%r|%j"
_SACCT = "JobID,State,NNodes,Elapsed,Reason,JobName"
_TIMEOUT_S = 30
_LOG = re.compile(r"slurm-(\d+)-\d+\.log")
# By one of these a folder is a run's: what a training, or `invoke train` before it, writes there.
_OF_A_RUN = frozenset(
    {"config.json", "record.json", "metrics.jsonl", "environment.json", "plan.json"}
)


def submit(script: Path, *, dry_run: bool = False) -> int:
    """Hand a job to Slurm, which says its number.

    Raises:
        UserError: there is no such file, or no sbatch here.
    """
    if not script.is_file():
        raise UserError("a job script", found=f"no file {script}",
                        fix="make one: invoke slurm-script --help")  # fmt: skip
    line = ["sbatch", str(script.resolve())]
    if not dry_run and not shutil.which("sbatch"):
        raise UserError("sbatch on PATH", found="none", exit_code=EXIT_FAILED,
                        fix="call it on a login node of a cluster with Slurm")  # fmt: skip
    return simplify(run_command(line, dry_run=dry_run))


@dataclass(frozen=True)
class SlurmJob:
    """A job as Slurm tells of it, in Slurm's words; of one that has ended nothing is left."""

    id: str
    state: str
    nodes: str
    elapsed: str
    left: str
    reason: str
    name: str


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        run: its folder.
        status: of its record: running, finished, interrupted, failed; "" where it has none yet.
        ranks: how many train together.
        epoch: the epoch it is in, or was last in; 0 before the first.
        epochs: how many there will be; None where its configuration does not say.
        step: optimizer steps done.
        loss: the last that was told.
        images_per_s: over all ranks, the last that was told.
        left_s: seconds that the rest takes at the speed of the last epoch; None where nobody knows.
        error: why it stopped, where it did.
    """

    run: str
    status: str = ""
    ranks: int | None = None
    epoch: int = 0
    epochs: int | None = None
    step: int = 0
    loss: float | None = None
    images_per_s: float | None = None
    left_s: float | None = None
    error: str | None = None


def find_jobs(run: Path | None = None) -> tuple[list[SlurmJob], str]:
    """Return the user's jobs of this project, or of one run, and why Slurm told none, or "".

    Jobs in the queue come from squeue; those of a run that have left it from sacct, if it answers.
    """
    if not shutil.which("squeue"):
        return [], "no squeue here: this machine is not part of a Slurm cluster"
    user = f"--user={getpass.getuser()}"
    rows, trouble = _ask(["squeue", "--noheader", user, f"--format={_SQUEUE}"], 1 + len(_FIELDS))
    jobs = {number: SlurmJob(*row) for number, *row in rows}
    if run is None:
        return [job for job in jobs.values() if job.name.startswith("chexnet")], trouble
    logs = (_LOG.fullmatch(path.name) for path in run.glob("slurm-*.log"))
    known = {match[1] for match in logs if match}
    of_run = [job for n, job in jobs.items() if n in known or job.name == job_name(run)]
    gone = sorted(known - jobs.keys(), key=int)
    if gone and shutil.which("sacct") and not trouble:
        options = ("--noheader", "--allocations", "--parsable2", f"--format={_SACCT}")
        rows, _ = _ask(["sacct", *options, f"--jobs={','.join(gone)}"], len(_FIELDS) - 1)
        of_run += [SlurmJob(*row[:4], "", *row[4:]) for row in rows]
    return of_run, trouble


def _ask(line: Sequence[str], columns: int) -> tuple[list[list[str]], str]:
    """Return what squeue or sacct tells in so many columns, and why it does not answer, or ""."""
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=_TIMEOUT_S, check=False)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"{line[0]} does not answer: {error}"
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return [], f"{line[0]} does not answer: {words[-1]}"
    rows = (text.split("|", columns - 1) for text in done.stdout.splitlines())
    return [row for row in rows if len(row) == columns], ""


def read_progress(run: Path) -> Progress:
    """Return how far a run is, as its files tell; they may be half there."""
    record, config = _read(run / "record.json"), _read(run / "config.json")
    lines = _read_lines(run / "metrics.jsonl")
    last: dict[str, Any] = lines[-1] if lines else {}
    ended = [line for line in lines if line.get("kind") == "epoch"]
    seconds = [line["seconds"] for line in ended if "seconds" in line]
    epochs = config.get("epochs")
    known = isinstance(epochs, int) and seconds and record.get("status") != "finished"
    return Progress(
        str(run), str(record.get("status", "")), record.get("ranks"), int(last.get("epoch", 0)),
        epochs, int(last.get("step", 0)), last.get("loss"), last.get("images_per_s"),
        round(max(0, epochs - len(ended)) * seconds[-1], 1) if known else None,
        record.get("error"),
    )  # fmt: skip


def _need_run(run: Path) -> None:
    """Refuse a folder in which no training was, unless it is empty and one may yet begin.

    Raises:
        UserError: there is no such folder, or what is in it is of no run.
    """
    fix = "give the --run of a training"
    if not run.is_dir():
        raise UserError("a run folder", found=f"no folder {run}", fix=fix)
    names = sorted(path.name for path in run.iterdir() if not path.name.startswith("."))
    if names and not any(name in _OF_A_RUN or _LOG.fullmatch(name) for name in names):
        some = ", ".join(names[:5])
        raise UserError(f"a run folder at {run}", found=f"no run's files, but {some}", fix=fix)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of one a line; a last one that is being written is left out."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for text in texts:
        try:
            one = json.loads(text)
        except ValueError:
            continue
        if isinstance(one, dict):
            found.append(one)
    return found


def show_status(run: Path | None = None, *, as_json: bool = False) -> int:
    """Print the jobs and the progress of a run, or all jobs of this project.

    A job that waits makes its run's folder only once it starts.

    Raises:
        UserError: there is no such run, nor a job that will begin it.
    """
    jobs, trouble = find_jobs(run.resolve() if run else None)
    if run and not jobs:
        _need_run(run)
    progress = read_progress(run) if run else None
    if as_json:
        told = {
            "schema_version": 1,
            "jobs": [asdict(job) for job in jobs],
            "trouble": trouble or None,
            "progress": asdict(progress) if progress else None,
        }
        print(json.dumps(told, indent=1))
        return EXIT_GOOD
    if progress:
        print(render_progress(progress))
    for job in jobs:
        why = "" if job.reason in ("None", "") else f"  ({job.reason})"
        left = f", limit in {job.left}" if job.left else ""
        print(f"job         {job.id}  {job.state}  {job.nodes} nodes  {job.elapsed}{left}  "
              f"{job.name}{why}")  # fmt: skip
    if not jobs:
        print(f"jobs        {trouble or 'none in the queue'}")
    return EXIT_GOOD


def render_progress(progress: Progress) -> str:
    """Return the lines that tell how far a run is."""
    p = progress
    of = f" of {p.epochs}" if p.epochs else ""
    lines = [f"run         {p.run}", f"status      {p.status or 'not begun'}"]
    if p.ranks:
        lines.append(f"ranks       {p.ranks}")
    if p.epoch:
        lines.append(f"epoch       {p.epoch}{of}, step {p.step}")
    if p.loss is not None:
        lines.append(f"loss        {p.loss:.4f}")
    if p.images_per_s is not None:
        lines.append(f"speed       {p.images_per_s:.1f} images/s")
    if p.left_s is not None:
        lines.append(f"time left   {_duration(p.left_s)} at the speed of the last epoch")
    if p.error:
        lines.append(f"error       {_found(p.error)}")
    return "\n".join(lines)


def _found(error: str) -> str:
    """Return the line of a message that tells what happened: of ours the one after ``found:``."""
    lines = error.splitlines()
    told = (line.removeprefix("found:").strip() for line in lines if line.startswith("found:"))
    return next(told, lines[0])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
