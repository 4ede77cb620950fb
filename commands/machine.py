"""The machine: is it right, and which rank gets what of it.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import (
    HOSTS_HELP,
    LAUNCHER_HELP,
    UNSAID,
    at_least,
    command,
    enterable,
    optional_path,
    said,
)


@command(
    help={
        "ranks": "processes to launch and judge together; by default one, or all of --hosts",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "timeout": "seconds after which a launch is given up",
        "allreduce": "also sum so many MiB over the ranks, and time it",
        "image": "validate inside this image",
        "stack": "hold the machine against this stack's lock; by default the image's or host's",
        "device": "auto, cpu or gpu: what training will ask for",
        "only": "comma-separated ids of the checks to run",
        "skip": "comma-separated ids of the checks to leave out",
        "silence": "ID=REASON: tell a known and accepted bad verdict as INFO; may be repeated",
        "see": "a file or folder that every rank must see, which is bound into the image; may be "
        "repeated",
        "explain": "say what this check reads, how it judges and what to do; run nothing",
        "json": "also write the report there",
        "junit": "also write it there as JUnit XML",
        "failed-hosts": "write the failing hosts there, for srun --exclude",
        "site": "hold the machine against this file of what a site expects",
        "record-site": "write such a file of this machine, which is known to be good",
        "fail-fast": "stop at the first failure",
        "oversubscribe": "allow more ranks than cores",
        "dry-run": "print the command lines and run nothing",
    },
    iterable=["silence", "see"],
)
def validate_env(
    c: Context,
    ranks: int = UNSAID,
    hosts: str = "",
    launcher: str = "auto",
    timeout: int = 300,
    allreduce: int = 0,
    image: str = "",
    stack: str = "",
    device: str = "auto",
    only: str = "",
    skip: str = "",
    silence: list[str] | None = None,
    see: list[str] | None = None,
    explain: str = "",
    json: str = "",
    junit: str = "",
    failed_hosts: str = "",
    site: str = "",
    record_site: str = "",
    fail_fast: bool = False,
    oversubscribe: bool = False,
    dry_run: bool = False,
) -> int:
    """Prove this machine: versions, MPI, binding, GPUs, memory; each failure with its fix."""
    from containers.hosts import parse_hosts
    from containers.job import Job
    from containers.preflight import Validation, validate

    if explain:
        from env.cli import main

        return main(["--explain", explain])
    given = {"--stack": stack, "--only": only, "--skip": skip}
    options = [token for name, value in given.items() if value for token in (name, value)]
    options += [token for value in silence or () for token in ("--silence", value)]
    outputs = {
        "--json": json, "--junit": junit, "--failed-hosts": failed_hosts,
        "--record-site": record_site,
    }  # fmt: skip
    at_least(1, timeout=timeout)
    at_least(0, allreduce=allreduce)
    validation = Validation(
        Job(said(ranks), parse_hosts(hosts), launcher, oversubscribe, timeout_s=timeout),
        image=enterable(image),
        device=device,
        outputs={option: Path(file) for option, file in outputs.items() if file},
        expectations=optional_path(site),
        options=(*options, "--fail-fast") if fail_fast else tuple(options),
        paths=tuple(Path(one).resolve() for one in see or ()),
        allreduce_mib=allreduce,
    )
    return validate(validation, dry_run=dry_run)


@command(
    help={
        "ranks": "processes on this machine; by default one a GPU, or one a memory node",
        "topology": "plan for the machine that lstopo --of xml recorded there",
        "device": "auto, cpu (leave the GPUs out) or gpu (there must be some)",
        "json": "also write the plan there; - prints it alone",
        "svg": "also draw sockets, cores, GPUs and ranks there",
    }
)
def plan_binding(
    c: Context,
    ranks: int = 0,
    topology: str = "",
    device: str = "auto",
    json: str = "",
    svg: str = "",
) -> None:
    """Show which cores, memory node and GPU each rank gets: table, picture, JSON."""
    from containers.binding import Request, show_plan

    show_plan(
        Request(
            ranks, optional_path(topology), device, json=optional_path(json), svg=optional_path(svg)
        )
    )
