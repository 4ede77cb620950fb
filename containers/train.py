"""Starts a training under a launcher, once the machine has been proved.

Knows how the program, the plan, the report and the image go together on one command
line. Leaves what training is to ``chexnet``, which is only ever started as a child.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from containers.job import FOLDER_PREFIX, Job, refuse_misfit
from containers.launch import (
    Site,
    launch_command,
    missing_program,
    project_environ,
    run_command,
    simplify,
)
from containers.launchers import Launch
from containers.preflight import Preflight, prepare_launch, run_preflight
from containers.process import stop_later, stoppable
from containers.program import require
from containers.run_end import INTERRUPTED, close_record, end_of
from containers.site import sees_gpus
from containers.weights import settings_with_file, weights_folders
from env.errors import EXIT_FAILED, EXIT_GOOD, EXIT_REQUEUE, UserError

# An engine without rights may unpack the whole image first.
CHECK_S = 600.0


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
        by a signal and may be resumed.

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
    weights = weights_folders(training.config, training.settings)
    shared = tuple(dict.fromkeys((data, run.parent, *configs, *weights)))
    with stoppable(), tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        site = Site(training.image, binds=(*shared, folder))
        check = [*_program(training), "--check"]
        code, device = ask_device(check, site=site, data=data, dry_run=dry_run)
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
    launch, files = preflight.launch, {"--plan": preflight.plan_file}
    if training.validate:
        files["--environment"] = preflight.report_file
    before, run = end_of(training.run), training.run.resolve()
    with lend_files(
        files, launch=launch, site=preflight.site, output=run, dry_run=dry_run
    ) as (options, site):  # fmt: skip
        line = launch_command(launch, command=[*_program(training), *options], site=site)
        asked = launch.launcher.checkpoint_signal
        code = simplify(run_command(line, dry_run=dry_run, ask_ranks=asked))
    if code and not dry_run:
        close_record(training.run, code=code)
    # Launchers end what is left once a rank leaves, and may return that rank's code instead.
    stopped = end_of(training.run)
    if not code or stopped == before or stopped[0] != INTERRUPTED:
        return code
    # The launcher's last words are of an error, whatever the ranks said before.
    print(f"stopped: {run}; continue with --resume", file=sys.stderr)
    return EXIT_REQUEUE


def _program(training: Training) -> list[str]:
    """Return what every rank runs, with absolute paths: a site has a current folder of its own."""
    data, run = training.data.resolve(), training.run.resolve()
    program = ["python", "-m", "chexnet", "train", "--data", str(data), "--run", str(run)]
    if training.config is not None:
        program += ["--config", str(training.config.resolve())]
    for setting in settings_with_file(training.config, training.settings):
        program += ["--set", setting]
    return [*program, "--resume"] if training.resume else program


@contextmanager
def lend_files(
    files: Mapping[str, Path], *, launch: Launch, site: Site, output: Path, dry_run: bool = False
) -> Iterator[tuple[list[str], Site]]:
    """Let all ranks read files of this host, as long as they run.

    Other hosts do not see the folder here, but that in which the output lies: copies lie beside the
    output for so long. Into it writes the program alone, once it knows that no other does.

    Args:
        files: by the program's option for each; all in one folder.
        launch: whose ranks read them.
        site: where these run.
        output: the folder that the program makes.
        dry_run: name the copies, make none.

    Yields:
        The options with their files, and the site as the ranks have it.
    """
    places: dict[Path, Path] = {}
    if launch.hosts:
        folders = {path.parent for path in files.values()}
        site = replace(site, binds=tuple(bind for bind in site.binds if bind not in folders))
        prefix = f".{output.name}-{os.getpid()}-"
        places = {path: output.with_name(prefix + path.name) for path in files.values()}
    copies = {} if dry_run else places
    try:
        for path, copy in copies.items():
            shutil.copyfile(path, copy)
        given = [(option, str(places.get(path, path))) for option, path in files.items()]
        yield [word for pair in given for word in pair], site
    finally:
        for copy in copies.values():
            copy.unlink(missing_ok=True)


def ask_device(program: Sequence[str], *, site: Site, data: Path, dry_run: bool) -> tuple[int, str]:
    """Let the program look at its configuration; return its exit code and the device it wants.

    It only reads: a dry run prints the line, and runs it as well so that it can show what follows.
    Where there is no data, or Slurm would start it, the device stays ``"auto"`` there.

    Args:
        program: what looks.
        site: where it runs.
        data: the prepared data.
        dry_run: whether nothing else is run.

    Raises:
        UserError: there is no such program, or it gives no answer in time.
    """
    line = site.enter(program)
    if dry_run:
        run_command(line, dry_run=True)
        if site.by_srun or not data.exists():
            return EXIT_GOOD, "auto"
    code, told = _listen(line)
    device = json.loads(told)["device"] if code == EXIT_GOOD else ""
    return simplify(code), device


def _listen(line: Sequence[str]) -> tuple[int, bytes]:
    """Run a command line and return its exit code and what it printed."""
    child = None
    try:
        with stop_later():
            child = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     env=project_environ(), process_group=0)  # fmt: skip
        told, _ = child.communicate(timeout=CHECK_S)
    except FileNotFoundError as error:
        raise missing_program(line[0]) from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"a look at the configuration within {CHECK_S:g} s", found=f"no end of {line[0]}",
            fix="look whether the storage of the data, the run or the image hangs",
            exit_code=EXIT_FAILED,
        ) from error  # fmt: skip
    finally:
        if child and child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return child.returncode, told
