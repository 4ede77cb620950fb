"""Training, and the demo of the whole chain.

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
    required,
    said,
)


@command(
    iterable=["set"],
    help={
        "data": "a folder made by prepare-data",
        "run": "a new run folder, or with --resume an old one",
        "ranks": "processes: one for each GPU, or for a share of the cores; all of --hosts",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "timeout": "seconds after which a launch of the validation is given up",
        "image": "train inside this image",
        "resume": "go on from the last checkpoint",
        "config": "a configuration file (TOML or JSON)",
        "set": "KEY=VALUE, repeatable: one configuration key",
        "no-validate": "do not prove the machine first",
        "oversubscribe": "allow more ranks than cores",
        "dry-run": "print the command lines and run nothing",
    },
)
def train(
    c: Context,
    data: str = "",
    run: str = "",
    ranks: int = UNSAID,
    hosts: str = "",
    launcher: str = "auto",
    timeout: int = 300,
    image: str = "",
    resume: bool = False,
    config: str = "",
    set: list[str] | None = None,
    no_validate: bool = False,
    oversubscribe: bool = False,
    dry_run: bool = False,
) -> int:
    """Prove the machine, then train CheXNet on it with Horovod."""
    from containers.hosts import parse_hosts
    from containers.job import Job
    from containers.train import Training
    from containers.train import train as start

    required(data=data, run=run)
    at_least(1, timeout=timeout)
    training = Training(
        Path(data),
        Path(run),
        Job(said(ranks), parse_hosts(hosts), launcher, oversubscribe, timeout_s=timeout),
        image=enterable(image),
        config=optional_path(config),
        settings=tuple(set or ()),
        resume=resume,
        validate=not no_validate,
    )
    return start(training, dry_run=dry_run)


@command(
    help={
        "output": "where everything goes; a demo that was interrupted goes on there",
        "ranks": "processes to train with",
        "images": "sample films to make",
        "epochs": "0: as many as the demo preset says",
        "dry-run": "print the command lines and run nothing",
    }
)
def demo(
    c: Context,
    output: str = "runs/demo",
    ranks: int = 2,
    images: int = 4000,
    epochs: int = 0,
    dry_run: bool = False,
) -> int:
    """Show the whole chain on made-up films: sample data, validate, train, evaluate, report."""
    from containers.demo import run_demo

    return run_demo(Path(output), ranks=ranks, num_images=images, epochs=epochs, dry_run=dry_run)
