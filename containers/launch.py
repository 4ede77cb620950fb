"""Turns a binding plan into a launcher's command line, and runs it.

Leaves the plan to ``env.binding``, the launchers' flags to ``containers.launch_lines``, the prefix
that enters an image to ``containers.site`` and signals to ``containers.stopping``. The same command
line carries the validation's ranks and the training's, so that what was checked is what runs.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from containers.launch_lines import render_launch
from containers.launchers import SRUN, Launch
from containers.site import Site
from containers.stopping import AsRanks, HandedOn
from env.binding import BindingPlan, HostShare, plan_job
from env.errors import EXIT_FAILED, EXIT_GOOD, EXIT_REQUEUE, EXIT_WRONG_USE, UserError
from env.probes.topology import probe_topology
from env.stack import PROJECT


def plan_ranks(ranks: int, *, oversubscribe: bool = False, device: str = "auto") -> BindingPlan:
    """Return the plan for this machine.

    Raises:
        UserError: as ``plan_on``.
    """
    shares = [HostShare(probe_topology(), ranks)]
    return plan_on(shares, oversubscribe=oversubscribe, device=device)


def plan_on(
    shares: Sequence[HostShare], *, oversubscribe: bool = False, device: str = "auto"
) -> BindingPlan:
    """Return the plan for hosts whose topology is known.

    Args:
        shares: the hosts in the order in which ranks fill them.
        oversubscribe: bind nothing, so that there may be more ranks than cores.
        device: ``"gpu"`` gives each rank a GPU and cores near it, ``"cpu"`` none; ``"auto"``
            does so where there are as many GPUs as ranks: no harm to ranks that compute on
            the CPU.

    Raises:
        UserError: there are more ranks than cores and ``oversubscribe`` is off, or more
            ranks than GPUs.
    """
    enough = all(len(share.topology.gpus) >= share.ranks for share in shares)
    use_gpus = device == "gpu" or (device == "auto" and enough)
    return plan_job(shares, use_gpus=use_gpus, share_cores=oversubscribe)


def launch_command(launch: Launch, *, command: Sequence[str], site: Site) -> list[str]:
    """Return the command line that runs ``command`` on every rank of a launch, at a site.

    Raises:
        UserError: the launcher cannot enter this image.
    """
    if site.by_srun and launch.launcher.kind != SRUN:
        raise UserError(
            f"srun, whose plugin enters {site.image}", found=f"ranks of {launch.launcher.kind}",
            fix="run it inside a Slurm job with --hosts slurm, or use a .sif file",
        )  # fmt: skip
    launch = replace(launch, options=(*launch.options, *site.srun_options()))
    return render_launch(launch, command=site.enter(command, rank=True))


def project_environ(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a child's variables: ``python -m env`` is ours from any folder, progress as here."""
    others = [p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    folders = [str(PROJECT), *(p for p in others if p != str(PROJECT))]
    # mpirun gives its ranks a pseudo-terminal of its own: only we know whether somebody looks.
    terminal = {"CHEXNET_TERMINAL": "1"} if sys.stdout.isatty() else {}
    return {**environ, "PYTHONPATH": os.pathsep.join(folders), **terminal}


def run_command(
    argv: Sequence[str], *, dry_run: bool = False, ask_ranks: signal.Signals | None = None
) -> int:
    """Run a command line, its output ours, and return its exit code.

    SIGTERM and SIGUSR1 are handed on as SIGTERM, so that the command stops in its own way; ctrl-C
    reaches it from the terminal by itself. Ranks are stopped as ``containers.stopping`` says. With
    ``dry_run`` the line is printed and 0 returned.

    Args:
        argv: the command line.
        dry_run: print it, run nothing.
        ask_ranks: what makes it ask its ranks for a checkpoint, where it is their launcher.

    Returns:
        The exit code; 128 + n where signal n ended the command.

    Raises:
        UserError: the program is not there.
    """
    if dry_run:
        print(shlex.join(argv))
        return 0
    stopping = AsRanks(ask_ranks) if ask_ranks else HandedOn()
    with stopping.signals():
        try:
            # A group of its own: ctrl-C is then ours alone to hand on.
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=project_environ(),
                                     process_group=0 if ask_ranks else None)  # fmt: skip
        except FileNotFoundError as error:
            raise missing_program(argv[0]) from error
        code = stopping.wait(child)
    return code if code >= 0 else 128 - code


def missing_program(name: str) -> UserError:
    """Return the error for a program that is not on PATH."""
    return UserError(
        f"the program {name!r} on PATH",
        found="none",
        fix="run through env/bootstrap.sh, or inside the image",
        exit_code=EXIT_FAILED,
    )


def simplify(code: int) -> int:
    """Return an exit code of ours for a program's: its own where it is one of ours, else 1."""
    return code if code in (EXIT_GOOD, EXIT_WRONG_USE, EXIT_REQUEUE) else EXIT_FAILED
