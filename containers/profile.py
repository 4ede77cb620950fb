"""Profiles a training under the launcher line that it would have.

Knows how the program, the plan and the image go together. Leaves what is measured to ``chexnet``,
which is only ever started as a child, and proving the machine to ``containers.preflight``: a
profile may be just what is wanted where a check fails.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from containers.job import FOLDER_PREFIX, Job, refuse_misfit
from containers.launch import Site, launch_command, run_command, simplify
from containers.launchers import Launch
from containers.preflight import prepare_launch
from containers.process import stoppable
from containers.program import require
from containers.site import sees_gpus
from containers.train import ask_device, lend_files
from containers.weights import settings_with_file, weights_folders
from env.atomic import write_text
from env.binding import render_plan
from env.errors import EXIT_GOOD

PLAN = "plan.json"


@dataclass(frozen=True)
class Profile:
    """What the user asked of ``profile``.

    Attributes:
        data: a prepared data folder.
        output: a new folder, made by the program.
        job: the ranks, and where they run.
        steps: about so many of each kind.
        image: run inside this image, None for this environment.
        config: a configuration file.
        settings: configuration keys as ``key=value``.
    """

    data: Path
    output: Path
    job: Job = field(default_factory=Job)
    steps: int = 200
    image: Path | None = None
    config: Path | None = None
    settings: tuple[str, ...] = ()


def profile(asked: Profile, *, dry_run: bool = False) -> int:
    """Take some steps on every rank and say what limits them.

    Returns:
        The exit code of the program.

    Raises:
        UserError: the data folder or the image is missing, or the ranks do not fit.
    """
    data, output = asked.data.resolve(), asked.output.resolve()
    refuse_misfit(asked.job)
    if not dry_run:
        require(data, what="a prepared data folder", fix="make one: invoke prepare-data --help")
        output.parent.mkdir(parents=True, exist_ok=True)
    configs = [asked.config.resolve().parent] if asked.config else []
    weights = weights_folders(asked.config, asked.settings)
    shared = tuple(dict.fromkeys((data, output.parent, *configs, *weights)))
    with stoppable(), tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        site = Site(asked.image, binds=(*shared, folder))
        check = [*_program(asked), "--check"]
        code, device = ask_device(check, site=site, data=data, dry_run=dry_run)
        if code != EXIT_GOOD:
            return code
        site = replace(site, gpu=sees_gpus(device))
        launch, code = prepare_launch(
            asked.job, site=site, folder=folder, device=device, dry_run=dry_run
        )
        if launch is None:
            return code
        return _start(asked, launch, site=site, folder=folder, dry_run=dry_run)


def _start(asked: Profile, launch: Launch, *, site: Site, folder: Path, dry_run: bool) -> int:
    """Start the ranks under a plan."""
    plan = folder / PLAN
    if not dry_run:
        write_text(plan, render_plan(launch.plan))
        for path, text in launch.files().items():
            write_text(path, text)
    with lend_files(
        {"--plan": plan}, launch=launch, site=site, output=asked.output.resolve(), dry_run=dry_run
    ) as (options, there):  # fmt: skip
        line = launch_command(launch, command=[*_program(asked), *options], site=there)
        return simplify(run_command(line, dry_run=dry_run))


def _program(asked: Profile) -> list[str]:
    """Return what every rank runs, with absolute paths: a site has a current folder of its own."""
    program = [
        "python", "-m", "chexnet", "profile", "--data", str(asked.data.resolve()),
        "--output", str(asked.output.resolve()), "--steps", str(asked.steps),
    ]  # fmt: skip
    if asked.config is not None:
        program += ["--config", str(asked.config.resolve())]
    for setting in settings_with_file(asked.config, asked.settings):
        program += ["--set", setting]
    return program
