"""A job: how many ranks on which hosts, and the launch that follows from it.

Knows the order: find the launcher, look at the hosts, plan. What the hosts say decides the
plan, so nothing is started on them before they were looked at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from containers.hosts import HostSlots, total_ranks
from containers.launch import Site, plan_on, plan_ranks, project_environ
from containers.launchers import (
    AUTO,
    LOCAL,
    MPIRUN,
    Launch,
    Launcher,
    find_launcher,
    forwarded,
    in_foreign_step,
    require_agent,
)
from containers.process import stoppable
from containers.survey import (
    route_between,
    share_hosts,
    survey_command,
    survey_hosts,
    survey_launch,
)
from env.binding import HostShare, render_plan
from env.errors import EXIT_FAILED, UserError
from env.facts import Facts
from env.probes.topology import probe_topology

TIMEOUT_S = 300.0
_ALONE_S = 20.0
_AT_ONCE = 16
# Without "-": Open MPI 5 reads no rankfile from a path that has one in it.
FOLDER_PREFIX = "chexnet_preflight_"


@dataclass(frozen=True)
class Job:
    """What the user asked for.

    Attributes:
        ranks: processes; None for one, or as many as the hosts are to have.
        hosts: where they run; none for this machine alone.
        launcher: one of ``containers.launchers.LAUNCHERS``.
        oversubscribe: allow more ranks than cores, bound to nothing.
        timeout_s: seconds that a launch of the validation may take.
    """

    ranks: int | None = None
    hosts: tuple[HostSlots, ...] = ()
    launcher: str = AUTO
    oversubscribe: bool = False
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True)
class Survey:
    """A look at a job's hosts.

    Attributes:
        launch: the launch of one process on each.
        folder: where what they told lies, with how the launch went.
        told: what each host told, by its place among the hosts.
        shares: the hosts with their topology; None where one did not tell its own.
    """

    launch: Launch
    folder: Path
    told: Mapping[int, Facts]
    shares: list[HostShare] | None


def refuse_misfit(job: Job) -> None:
    """Refuse what can be seen to be wrong before anything is started.

    Raises:
        UserError: --ranks and --hosts disagree, or the ranks do not fit this machine.
    """
    ranks = total_ranks(job.hosts, ranks=job.ranks)
    if not job.hosts:
        plan_ranks(ranks, oversubscribe=job.oversubscribe, device="cpu")


def choose_launcher(job: Job, *, environ: Mapping[str, str] = os.environ) -> Launcher:
    """Return what starts the job's ranks.

    Raises:
        UserError: there is none, or this is no place to start it from.
    """
    refuse_misfit(job)
    launcher = find_launcher(job.launcher, remote=bool(job.hosts), environ=environ)
    if launcher.kind == LOCAL and job.ranks not in (None, 1):
        raise UserError("one rank, which needs no launcher", found=f"--ranks {job.ranks}",
                        fix="use --launcher mpirun, or leave --ranks out")  # fmt: skip
    nodes = environ.get("SLURM_NNODES", "1")
    if not job.hosts and job.ranks not in (None, 1) and nodes != "1":
        raise UserError(
            f"hosts for {job.ranks} ranks in a Slurm job of {nodes} nodes, of which launchers take "
            "all that there are", found="no --hosts",
            fix=f"use --hosts slurm for all of its tasks, --hosts slurm:{job.ranks} for the first, "
            "or --hosts NAME:RANKS for a node of it",
        )  # fmt: skip
    if job.hosts:
        require_agent(launcher, environ=environ)
    if in_foreign_step(environ) and job.hosts:
        copies = environ.get("SLURM_STEP_NUM_TASKS", "1")
        if launcher.kind == MPIRUN or copies != "1":
            raise UserError(
                "a place outside a Slurm step to launch ranks from",
                found=f"step {environ['SLURM_STEP_ID']} of job {environ.get('SLURM_JOB_ID')}, of "
                f"{copies} tasks, which holds what mpirun would wait for without end",
                fix="call it from the batch script or from salloc, without srun before it",
                exit_code=EXIT_FAILED,
            )
    return launcher


def look_at_hosts(job: Job, *, launcher: Launcher, site: Site, folder: Path) -> Survey:
    """Look at the job's hosts, one process on each."""
    folder.mkdir(exist_ok=True)
    launch = survey_launch(job.hosts, launcher=launcher, folder=folder)
    (folder / "plan.json").write_text(render_plan(launch.plan), encoding="utf-8")
    told = survey_hosts(launch, site=site, folder=folder, timeout_s=job.timeout_s)
    return Survey(launch, folder, told, share_hosts(job.hosts, told))


def find_lost(job: Job, survey: Survey, *, launcher: Launcher, site: Site) -> list[str]:
    """Return the hosts that do not answer alone either, of those that did not in a survey.

    mpirun starts nothing anywhere where one host cannot be reached: who of them it was, each tells
    by itself. They are asked at the same time. None is lost where all of them answer alone, as
    hosts do that cannot reach each other.
    """
    silent = [host for number, host in enumerate(job.hosts) if number not in survey.told]
    timeout_s = min(job.timeout_s, _ALONE_S)

    def answers(number: int) -> bool:
        folder = survey.folder / f"alone{number}"
        folder.mkdir()
        launch = survey_launch((silent[number],), launcher=launcher, folder=folder)
        return bool(survey_hosts(launch, site=site, folder=folder, timeout_s=timeout_s))

    with stoppable(), ThreadPoolExecutor(_AT_ONCE) as pool:
        told = list(pool.map(answers, range(len(silent))))
    return [host.name for host, answer in zip(silent, told, strict=True) if not answer]


def show_survey(job: Job, *, launcher: Launcher, site: Site, folder: Path) -> list[str]:
    """Return the command line by which the hosts would be looked at."""
    launch = survey_launch(job.hosts, launcher=launcher, folder=folder)
    return survey_command(launch, site=site)


def launch_here(job: Job, *, launcher: Launcher, folder: Path, device: str) -> Launch:
    """Return the launch of a job on this machine alone.

    Raises:
        UserError: the ranks do not fit this machine.
    """
    ranks = total_ranks((), ranks=job.ranks)
    plan = plan_ranks(ranks, oversubscribe=job.oversubscribe, device=device)
    return Launch(plan, launcher, folder=folder)


def launch_there(
    job: Job, survey: Survey | None, *, launcher: Launcher, folder: Path, device: str
) -> Launch:
    """Return the launch of a job on its hosts.

    Args:
        job: what was asked for.
        survey: a look at the hosts, of which all told their topology; None plans for hosts that are
            like this machine, which does for showing a command line.
        launcher: what starts the ranks.
        folder: takes the files that the launcher reads.
        device: ``"auto"``, ``"cpu"`` or ``"gpu"``.

    Raises:
        UserError: the ranks do not fit the hosts.
    """
    if survey is None:
        print("# cores and networks as if every host were like this one", file=sys.stderr)
        here = probe_topology()
        shares = [HostShare(replace(here, host=host.name), host.ranks) for host in job.hosts]
        told: Mapping[int, Facts] = {}
    else:
        shares, told = survey.shares or [], survey.told
    plan = plan_on(shares, oversubscribe=job.oversubscribe, device=device)
    names = forwarded(project_environ())
    return Launch(plan, launcher, job.hosts, route_between(told), names, folder=folder)
