"""Gates a run: proves the machine with the very launcher line that training will use.

Knows the order (static phase, ranks, verdict) and where the records lie between.
Leaves observing and judging to ``env``, which runs as a child at the site: in the
image when there is one, since that is where the libraries are.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from containers.launch import Site, launch_command, plan_ranks, run_command
from env.atomic import write_text
from env.binding import BindingPlan, render_plan
from env.errors import EXIT_CANNOT_TELL, EXIT_FAILED, EXIT_GOOD, EXIT_WRONG_USE, UserError


@dataclass(frozen=True)
class Preflight:
    """What is to be proved, and where its files go.

    Attributes:
        plan: the ranks.
        site: this environment or an image.
        folder: takes the plan, the ranks' records and the report.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``: what training will ask for.
        options: further options of ``python -m env``, e.g. ``("--skip", "shm")``.
    """

    plan: BindingPlan
    site: Site
    folder: Path
    device: str = "auto"
    options: tuple[str, ...] = ()

    @property
    def plan_file(self) -> Path:
        """Return where the plan lies for the ranks to read."""
        return self.folder / "plan.json"

    @property
    def report_file(self) -> Path:
        """Return where the validation report is written."""
        return self.folder / "environment.json"

    def write_plan(self) -> None:
        """Write the plan for the ranks to read."""
        self.plan_file.write_text(render_plan(self.plan), encoding="utf-8")

    def host_commands(self) -> list[list[str]]:
        """Return what is judged outside the image: the launcher that starts ranks in it."""
        if self.site.image is None:
            return []
        judge = ["python", "-m", "env", "--only", "mpi.launcher", "--quiet-pass"]
        return [Site().enter(judge)]

    def commands(self) -> tuple[list[str], list[str], list[str]]:
        """Return the three command lines: static phase, ranks, verdict over both."""
        facts = str(self.folder / "static.json")
        records = str(self.folder / "ranks")
        rank = ["python", "-m", "env", "rank", "--records", records]
        judge = [
            "python", "-m", "env", "--ranks", str(len(self.plan.ranks)), "--plan",
            str(self.plan_file), "--device", self.device, "--json", str(self.report_file),
            *self.options,
        ]  # fmt: skip
        return (
            self.site.enter([*judge, "--quiet-pass", "--save-facts", facts]),
            launch_command(self.plan, command=rank, site=self.site),
            self.site.enter([*judge, "--facts", facts, "--records", records]),
        )


def run_preflight(preflight: Preflight, *, dry_run: bool = False) -> int:
    """Prove the machine.

    The ranks are launched only where the static phase found nothing wrong: a launch
    that must fail would only bury the reason. What the launcher itself returns is not
    judged here, since a rank that did not report is what the verdict is about.

    Returns:
        0 good, 1 a check failed, 2 wrong use, 3 a required check could not tell.
    """
    if not dry_run:
        preflight.write_plan()
        (preflight.folder / "ranks").mkdir(exist_ok=True)
    static, ranks, verdict = preflight.commands()
    for line in (*preflight.host_commands(), static):
        code = run_command(line, dry_run=dry_run)
        if code != EXIT_GOOD:
            return _known(code)
    run_command(ranks, dry_run=dry_run)
    return _known(run_command(verdict, dry_run=dry_run))


@dataclass(frozen=True)
class Validation:
    """What the user asked of ``validate-env``.

    Attributes:
        ranks: processes to launch and judge together.
        image: validate inside this image, None for this environment.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``.
        report: where to leave the report as JSON, None for nowhere.
        options: further options of ``python -m env``.
        oversubscribe: allow more ranks than cores, bound to nothing.
    """

    ranks: int = 1
    image: Path | None = None
    device: str = "auto"
    report: Path | None = None
    options: tuple[str, ...] = ()
    oversubscribe: bool = False


def validate(validation: Validation, *, dry_run: bool = False) -> int:
    """Prove the machine for so many ranks and leave the report where it was asked for.

    Raises:
        UserError: the ranks do not fit this machine, or the image is missing.
    """
    if validation.report is not None and not validation.report.absolute().parent.is_dir():
        raise UserError(
            "a folder for the report",
            found=f"no {validation.report.parent}",
            fix="make it first, or name another --json FILE",
        )
    plan = plan_ranks(validation.ranks, oversubscribe=validation.oversubscribe)
    with tempfile.TemporaryDirectory(prefix="chexnet-preflight-") as name:
        site = Site(validation.image, binds=(Path(name),))
        preflight = Preflight(plan, site, Path(name), validation.device, validation.options)
        code = run_preflight(preflight, dry_run=dry_run)
        if validation.report is not None and preflight.report_file.exists():
            write_text(validation.report, preflight.report_file.read_text(encoding="utf-8"))
        return code


def _known(code: int) -> int:
    """Return the exit code, or 1 where the child was ended by something else."""
    known = (EXIT_GOOD, EXIT_FAILED, EXIT_WRONG_USE, EXIT_CANNOT_TELL)
    return code if code in known else EXIT_FAILED
