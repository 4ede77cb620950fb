"""Gates a run: proves the machine with the very launcher line that training will use.

Knows the order (static phase, ranks, verdict) and where the records lie between.
Leaves observing and judging to ``env``, which runs as a child at the site: in the
image when there is one, since that is where the libraries are.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from containers.job import (
    FOLDER_PREFIX,
    Job,
    Survey,
    choose_launcher,
    find_lost,
    launch_here,
    launch_there,
    look_at_hosts,
    show_survey,
)
from containers.launch import Site, launch_command, run_command
from containers.launchers import Launch
from containers.ranks import start_ranks
from containers.site import sees_gpus
from env.atomic import write_text
from env.binding import render_plan
from env.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_GOOD, EXIT_WRONG_USE, UserError
from env.probes.host import probe_host
from env.site import load_site

# Files that a validation can leave, and their names while it runs.
OUTPUTS = {
    "--json": "environment.json", "--junit": "junit.xml", "--failed-hosts": "failed-hosts",
    "--record-site": "recorded-site.json",
}  # fmt: skip
_SITE = "site.json"
# Ranks give up joining before the launch is given up, so that they can say so.
_JOIN_SHARE = 0.8


@dataclass(frozen=True)
class Preflight:
    """What is to be proved, and where its files go.

    Attributes:
        launch: the ranks and what starts them.
        site: this environment or an image.
        folder: takes the plan, the ranks' records and the report.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``: what training will ask for.
        options: further options of ``python -m env``, e.g. ``("--skip", "shm")``.
        paths: files and folders that every rank needs.
        allreduce_mib: sum so many MiB over the ranks; 0 for not.
        timeout_s: seconds that the ranks may take.
        static: judge the static phase alone, on every host; the ranks join nobody.
    """

    launch: Launch
    site: Site
    folder: Path
    device: str = "auto"
    options: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    allreduce_mib: int = 0
    timeout_s: float = field(default=Job.timeout_s)
    static: bool = False

    @property
    def names_hosts(self) -> bool:
        """Return whether somebody wants to know of every host whether it failed."""
        return bool(self.launch.hosts) and "--failed-hosts" in self.options

    @property
    def plan_file(self) -> Path:
        """Return where the plan lies for the judge to read."""
        return self.folder / "plan.json"

    @property
    def report_file(self) -> Path:
        """Return where the validation report is written."""
        return self.folder / OUTPUTS["--json"]

    def write_files(self) -> None:
        """Write the plan, and what the launcher reads."""
        write_text(self.plan_file, render_plan(self.launch.plan))
        for path, text in self.launch.files().items():
            write_text(path, text)

    def host_commands(self) -> list[list[str]]:
        """Return what is judged outside the image: the launcher that starts ranks in it."""
        if self.site.image is None:
            return []
        judge = ["python", "-m", "env", "--only", "mpi.launcher", "--quiet-pass"]
        return [Site().enter(judge)]

    def commands(self) -> tuple[list[str], list[str], list[str]]:
        """Return the three command lines: static phase, ranks, verdict over both."""
        facts, records = str(self.folder / "static.json"), str(self.folder / "ranks")
        judge = [
            "python", "-m", "env", "--ranks", str(len(self.launch.plan.ranks)), "--plan",
            str(self.plan_file), "--device", self.device, "--json", str(self.report_file),
            *self.options,
        ]  # fmt: skip
        labelled = replace(self.launch, label=True)
        # Ranks print what they see: on other hosts there is no such folder.
        binds = tuple(bind for bind in self.site.binds if bind != self.folder)
        return (
            self.site.enter([*judge, "--quiet-pass", "--save-facts", facts]),
            launch_command(labelled, command=self._rank(), site=replace(self.site, binds=binds)),
            self.site.enter([*judge, *self._static(), "--facts", facts, "--records", records]),
        )

    def _rank(self) -> list[str]:
        """Return what every rank runs: it looks at what the checks will ask for, no more."""
        rank = ["python", "-m", "env", "rank", "--time-limit", f"{_JOIN_SHARE * self.timeout_s:g}"]
        rank += self._static()
        for name, value in zip(self.options, self.options[1:], strict=False):
            if name in ("--only", "--skip"):
                rank += [name, value]
        for path in self.paths:
            rank += ["--see", str(path)]
        if self.allreduce_mib and not self.static:
            rank += ["--allreduce", str(self.allreduce_mib)]
        if self.launch.hosts:  # the static phase looks at this host, ranks at the others
            rank += ["--hosts-but", str(probe_host()["host.boot_id"].value)]
        return rank

    def _static(self) -> list[str]:
        return ["--static"] if self.static else []


def run_preflight(preflight: Preflight, *, dry_run: bool = False) -> int:
    """Prove the machine.

    The ranks are launched only where the static phase found nothing wrong: a launch
    that must fail would only bury the reason. Where the hosts that failed are to be named, ranks
    look at the others for the static phase first: what is wrong here may be wrong everywhere. How
    ranks differ is not asked then, since it may be the good ones that are odd. What the launcher
    itself returns is for the verdict, which has its words.

    Returns:
        0 good, 1 a check failed, 2 wrong use, 3 a required check could not tell.
    """
    records = preflight.folder / "ranks"
    if not dry_run:
        records.mkdir(exist_ok=True)
    static, ranks, verdict = preflight.commands()
    for line in preflight.host_commands():
        code = run_command(line, dry_run=dry_run)
        if code != EXIT_GOOD:
            return _known(code)
    code = run_command(static, dry_run=dry_run)
    if code == EXIT_FAILED and preflight.names_hosts:
        _, ranks, verdict = replace(preflight, static=True).commands()
    elif code != EXIT_GOOD:
        return _known(code)
    if dry_run:
        run_command(ranks, dry_run=True)
    elif not start_ranks(ranks, folder=records, timeout_s=preflight.timeout_s) and code:
        return code  # nobody told anything: what is wrong here is what is known
    return _known(run_command(verdict, dry_run=dry_run))


def prepare_launch(
    job: Job, *, site: Site, folder: Path, device: str, report: Path | None = None,
    failed: Path | None = None, dry_run: bool = False,
) -> tuple[Launch | None, int]:  # fmt: skip
    """Return how the job's ranks are started, or None and the exit code where hosts are lost.

    Args:
        job: what was asked for.
        site: this environment or an image.
        folder: takes the files that the launcher reads.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``: what training will ask for.
        report: where to leave the report on hosts that are lost.
        failed: where to leave the names of those that do not answer alone either.
        dry_run: look at nothing, print how it would be done.

    Raises:
        UserError: there is no launcher, or the ranks do not fit.
    """
    launcher = choose_launcher(job)
    if not job.hosts:
        return launch_here(job, launcher=launcher, folder=folder, device=device), EXIT_GOOD
    if dry_run:
        run_command(show_survey(job, launcher=launcher, site=site, folder=folder), dry_run=True)
        survey = None
    else:
        bare = replace(site, binds=tuple(bind for bind in site.binds if bind != folder))
        survey = look_at_hosts(job, launcher=launcher, site=bare, folder=folder / "survey")
        if survey.shares is None:
            code = _judge_survey(survey, site=site, report=report)
            if failed:
                lost = find_lost(job, survey, launcher=launcher, site=bare)
                write_text(failed, ",".join(lost) + "\n")
            return None, code
    launch = launch_there(job, survey, launcher=launcher, folder=folder, device=device)
    return launch, EXIT_GOOD


def _judge_survey(survey: Survey, *, site: Site, report: Path | None) -> int:
    """Say which hosts did not answer, and what the launcher said; return the exit code."""
    line: Sequence[str] = [
        "python", "-m", "env", "--only", "launch.ended,ranks.reported", "--records",
        str(survey.folder), "--plan", str(survey.folder / "plan.json"),
        *(["--json", str(report)] if report else []),
    ]  # fmt: skip
    code = run_command(site.enter(line))
    return EXIT_FAILED if code == EXIT_GOOD else _known(code)


@dataclass(frozen=True)
class Validation:
    """What the user asked of ``validate-env``.

    Attributes:
        job: the ranks to launch and judge together.
        image: validate inside this image, None for this environment.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        outputs: files to leave, by the option of ``python -m env`` that writes each: a key
            of ``OUTPUTS``.
        expectations: a site file to hold the machine against, None for none.
        options: further options of ``python -m env``.
        paths: files and folders that every rank needs, by their whole paths.
        allreduce_mib: sum so many MiB over the ranks; 0 for not.
    """

    job: Job = field(default_factory=Job)
    image: Path | None = None
    device: str = "auto"
    outputs: Mapping[str, Path] = field(default_factory=dict)
    expectations: Path | None = None
    options: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    allreduce_mib: int = 0


def validate(validation: Validation, *, dry_run: bool = False) -> int:
    """Prove the machine for so many ranks and leave the files that were asked for.

    Raises:
        UserError: the ranks do not fit this machine, the image or the site file is missing, or
            there is no folder for a file.
    """
    for option, path in validation.outputs.items():
        if not path.absolute().parent.is_dir():
            raise UserError("a folder for the report", found=f"no {path.parent}",
                            fix=f"make it first, or name another {option} FILE")  # fmt: skip
    if validation.expectations is not None:
        load_site(validation.expectations)  # what is wrong with it is told before the work
    job = validation.job
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name:
        folder = Path(name)
        binds = (*validation.paths, folder)
        site = Site(validation.image, binds, sees_gpus(validation.device))
        report = folder / OUTPUTS["--json"]
        asked = "--failed-hosts" in validation.outputs
        launch, code = prepare_launch(
            job, site=site, folder=folder, device=validation.device, report=report, dry_run=dry_run,
            failed=folder / OUTPUTS["--failed-hosts"] if asked else None,
        )  # fmt: skip
        if launch is not None:
            preflight = Preflight(
                launch, site, folder, validation.device, _options(validation, folder),
                validation.paths, allreduce_mib=validation.allreduce_mib, timeout_s=job.timeout_s,
            )  # fmt: skip
            if not dry_run:
                preflight.write_files()
                if validation.expectations is not None:
                    shutil.copyfile(validation.expectations, folder / _SITE)
            code = run_preflight(preflight, dry_run=dry_run)
        for option, path in validation.outputs.items():
            if (folder / OUTPUTS[option]).exists():
                write_text(path, (folder / OUTPUTS[option]).read_text(encoding="utf-8"))
        return code


def _options(validation: Validation, folder: Path) -> tuple[str, ...]:
    """Return the options with files in the folder, which an image can read and write."""
    options = list(validation.options)
    for option in validation.outputs.keys() - {"--json"}:  # that one is always written
        options += [option, str(folder / OUTPUTS[option])]
    if validation.expectations is not None:
        options += ["--site", str(folder / _SITE)]
    return tuple(options)


def _known(code: int) -> int:
    """Return the exit code, or 1 where the child was ended by something else."""
    known = (EXIT_GOOD, EXIT_FAILED, EXIT_WRONG_USE, EXIT_CANNOT_TELL)
    return code if code in known else EXIT_FAILED
