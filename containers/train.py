"""Starts a training under a launcher, once the machine has been proved.

Knows how the program, the plan, the report and the image go together on one command
line. Leaves what training is to ``chexnet``, which is only ever started as a child.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from containers.job import FOLDER_PREFIX, Job, refuse_misfit
from containers.launch import Site, launch_command, project_environ, run_command, simplify
from containers.preflight import Preflight, prepare_launch, run_preflight
from containers.process import stoppable
from containers.program import require
from containers.run_end import INTERRUPTED, close_record, end_of
from containers.site import sees_gpus
from env.atomic import write_text
from env.errors import EXIT_GOOD, EXIT_REQUEUE


@dataclass(frozen=True)
class Training:
    """What the user asked of ``train``.

    Attributes:
        data: a prepared data folder.
        run: the run folder, made by training.
        job: the ranks, and where they run.
        image: run inside this image, None for this environment.
        config: a configuration file.
        settings: configuration keys as ``key=value``.
        resume: go on from the run's last checkpoint.
        validate: whether to prove the machine first.
    """

    data: Path
    run: Path
    job: Job = field(default_factory=Job)
    image: Path | None = None
    config: Path | None = None
    settings: tuple[str, ...] = ()
    resume: bool = False
    validate: bool = True


def train(training: Training, *, dry_run: bool = False) -> int:
    """Prove the machine, then train on it.

    The configuration and the data are looked at before anything is launched, so that a
    mistake is told once and at once rather than by every rank.

    Returns:
        The exit code: that of the check that refused, or training's own; 75 where it was stopped
        by a signal and left a checkpoint.

    Raises:
        UserError: the data folder or the image is missing, or the ranks do not fit.
    """
    data, run = training.data.resolve(), training.run.resolve()
    if not dry_run:
        require(data, what="a prepared data folder", fix="make one: invoke prepare-data --help")
    refuse_misfit(training.job)
    if not dry_run:
        run.parent.mkdir(parents=True, exist_ok=True)
    configs = [training.config.resolve().parent] if training.config else []
    shared = tuple(dict.fromkeys((data, run.parent, *configs, *_weights_folders(training))))
    with stoppable(), tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        site = Site(training.image, binds=(*shared, folder))
        code, device = ask_device(site.enter([*_program(training), "--check"]), dry_run=dry_run)
        if code != EXIT_GOOD:
            return code
        site = replace(site, gpu=sees_gpus(device))
        launch, code = prepare_launch(
            training.job, site=site, folder=folder, device=device, dry_run=dry_run
        )
        if launch is None:
            return code
        preflight = Preflight(
            launch, site, folder, device=device, paths=shared, timeout_s=training.job.timeout_s
        )
        if not dry_run:
            preflight.write_files()
        if training.validate:
            code = run_preflight(preflight, dry_run=dry_run)
        if code != EXIT_GOOD:
            return code
        return _start(training, preflight, dry_run=dry_run)


def _start(training: Training, preflight: Preflight, *, dry_run: bool) -> int:
    """Start the training itself, as it was just tried."""
    program, site = _program(training), preflight.site
    files = {"--plan": preflight.plan_file}
    if training.validate:
        files["--environment"] = preflight.report_file
    if preflight.launch.hosts:
        # Other hosts see the run's folder; the files of this proof lie on this one alone.
        site = replace(site, binds=tuple(b for b in site.binds if b != preflight.folder))
        run = training.run.resolve()
        for path in files.values() if not dry_run else ():
            write_text(run / path.name, path.read_text(encoding="utf-8"))
        files = {option: run / path.name for option, path in files.items()}
    for option, path in files.items():
        program += [option, str(path)]
    line = launch_command(preflight.launch, command=program, site=site)
    before = end_of(training.run)
    code = simplify(
        run_command(line, dry_run=dry_run, ask_ranks=preflight.launch.launcher.checkpoint_signal)
    )
    if code and not dry_run:
        close_record(training.run, code=code)
    # Launchers end what is left once a rank leaves, and may return that rank's code instead.
    stopped = end_of(training.run)
    return EXIT_REQUEUE if code and stopped != before and stopped[0] == INTERRUPTED else code


def _program(training: Training) -> list[str]:
    """Return what every rank runs, with absolute paths: a site has a current folder of its own."""
    data, run = training.data.resolve(), training.run.resolve()
    program = ["python", "-m", "chexnet", "train", "--data", str(data), "--run", str(run)]
    if training.config is not None:
        program += ["--config", str(training.config.resolve())]
    for setting in training.settings:
        program += ["--set", _with_absolute_file(setting)]
    return [*program, "--resume"] if training.resume else program


def _with_absolute_file(setting: str) -> str:
    """Return a configuration key as given, but the file that it may name by its whole path."""
    key, _, value = setting.partition("=")
    is_file = key == "weights" and Path(value).is_file()
    return f"{key}={Path(value).resolve()}" if is_file else setting


def _weights_folders(training: Training) -> list[Path]:
    """Return the folders of weights that the program may look into."""
    given = [word.partition("=")[2] for word in training.settings if word.startswith("weights=")]
    files = [Path(value).resolve() for value in given if value not in ("none", "imagenet")]
    folder = os.environ.get("CHEXNET_WEIGHTS")  # as chexnet.networks.weights reads it
    folders = [*(file.parent for file in files), *([Path(folder).resolve()] if folder else [])]
    return [folder for folder in folders if folder.is_dir()]


def ask_device(argv: list[str], *, dry_run: bool) -> tuple[int, str]:
    """Let the program look at its configuration; return its exit code and the device it wants."""
    if dry_run:
        return run_command(argv, dry_run=True), "auto"
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=project_environ(), check=False
    )
    device = json.loads(done.stdout)["device"] if done.returncode == EXIT_GOOD else ""
    return simplify(done.returncode), device
