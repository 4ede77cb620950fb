"""Evaluates a run, in one process or under the launcher line that a training would have.

Knows the program's options and which folders it must see. Leaves what is computed to
``chexnet``, which is only ever started as a child; the machine was proved by the training, so
nothing is proved again.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from containers.job import FOLDER_PREFIX, Job, refuse_misfit
from containers.launch import Site, launch_command, run_command, simplify
from containers.launchers import Launch
from containers.preflight import prepare_launch
from containers.process import stoppable
from containers.program import data_of, require, run_program
from containers.site import sees_gpus
from env.atomic import write_text
from env.binding import render_plan

PLAN = ".evaluation-plan.json"


@dataclass(frozen=True)
class Evaluation:
    """What the user asked of ``evaluate``.

    Attributes:
        run: the run folder.
        split: ``"test"``, ``"validation"`` or ``"train"``.
        data: prepared data, None for the run's own.
        boxes: NIH's list of boxes, None for that in the data folder, if there is one.
        checkpoint: ``"best"``, ``"last"`` or a file.
        options: further words for the program, e.g. ``("--calibrate", "platt")``.
        job: the ranks, and where they run; None for one process, without a launcher.
        image: run inside this image, None for this environment.
        device: ``"auto"``, ``"gpu"`` or ``"cpu"``, None for that of the run.
    """

    run: Path
    split: str = "test"
    data: Path | None = None
    boxes: Path | None = None
    checkpoint: str = "best"
    options: tuple[str, ...] = ()
    job: Job | None = None
    image: Path | None = None
    device: str | None = None


def options_of(**values: str | bool) -> tuple[str, ...]:
    """Return options of the program by their names; those that say nothing are left out."""
    words: list[str] = []
    for name, value in values.items():
        if value:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return tuple(words)


def evaluate(asked: Evaluation, *, dry_run: bool = False) -> int:
    """Score a checkpoint of a run on one side of the data.

    Returns:
        The exit code of the program.

    Raises:
        UserError: the run folder, something else to read or the image is missing, or the ranks
            do not fit.
    """
    if not dry_run:
        require(asked.run, what="a run folder", fix="train first: invoke train --help")
    words, reads = _words(asked)
    if asked.job is None:
        return run_program("evaluate", words, image=asked.image, reads=reads, dry_run=dry_run)
    refuse_misfit(asked.job)
    for path in reads if not dry_run else ():
        require(path, what="a file or folder to read", fix="correct the path")
    device = asked.device or _device_of(asked.run)
    binds = tuple(dict.fromkeys(path.resolve() for path in reads))
    with stoppable(), tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        site = Site(asked.image, binds=(*binds, folder), gpu=sees_gpus(device))
        launch, code = prepare_launch(
            asked.job, site=site, folder=folder, device=device, dry_run=dry_run
        )
        if launch is None:
            return code
        return _start(asked, launch, site=site, folder=folder, dry_run=dry_run)


def _start(asked: Evaluation, launch: Launch, *, site: Site, folder: Path, dry_run: bool) -> int:
    """Start the ranks. Those of other hosts see the run folder, and not the folder here."""
    plan = folder / PLAN
    if launch.hosts:
        plan = asked.run.resolve() / PLAN
        site = replace(site, binds=tuple(bind for bind in site.binds if bind != folder))
    if not dry_run:
        write_text(plan, render_plan(launch.plan))
        for path, text in launch.files().items():
            write_text(path, text)
    words = [str(one.resolve()) if isinstance(one, Path) else one for one in _words(asked)[0]]
    program = ["python", "-m", "chexnet", "evaluate", *words, "--plan", str(plan)]
    try:
        line = launch_command(launch, command=program, site=site)
        return simplify(run_command(line, dry_run=dry_run))
    finally:
        plan.unlink(missing_ok=True)


def _words(asked: Evaluation) -> tuple[list[str | Path], tuple[Path, ...]]:
    """Return the program's options, and what it has to see."""
    words: list[str | Path] = ["--run", asked.run, "--split", asked.split]
    # Of other data, too, its own tell which patients the run has seen.
    reads = [asked.run, *data_of(asked.run)]
    if asked.data:
        words += ["--data", asked.data]
        reads.append(asked.data)
    if asked.boxes:
        words += ["--boxes", asked.boxes]
        reads.append(asked.boxes.parent)
    named, folders = find_checkpoint(asked.checkpoint)
    words += ["--checkpoint", named]
    reads += folders
    if asked.device:
        words += ["--device", asked.device]
    return [*words, *asked.options], tuple(reads)


def find_checkpoint(name: str) -> tuple[str | Path, tuple[Path, ...]]:
    """Return the word that names a checkpoint to the program, and the folders it has to see.

    A file may be named by its path, or by its name in the run's folder of checkpoints.
    """
    path = Path(name)
    return (path, (path.parent,)) if path.is_file() else (name, ())


def _device_of(run: Path) -> str:
    """Return the device that a run's configuration asks for."""
    try:
        return json.loads((run / "config.json").read_text(encoding="utf-8"))["device"]
    except (OSError, ValueError, KeyError, TypeError):
        return "auto"  # the program itself says what is wrong with the run
