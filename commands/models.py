"""Networks and runs: weights, presets, what two runs differ in, what limits a training.

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
from env.stack import PROJECT


@command(
    help={
        "model": "densenet121, densenet169, densenet201 or resnet50",
        "from_": "a file that was brought here, or a mirror's address; default: Keras' own",
        "output": "another folder than the one where weights=imagenet looks",
        "dry-run": "print the command line and run nothing",
    }
)
def fetch_weights(
    c: Context,
    model: str = "",
    from_: str = "",
    output: str = "",
    dry_run: bool = False,
) -> int:
    """Put ImageNet weights where trainings look, checked by the hash that Keras publishes."""
    from containers.program import run_program

    required(model=model)
    is_file = bool(from_) and "://" not in from_
    options = [
        "--model", model,
        *(["--from", Path(from_) if is_file else from_] if from_ else []),
        *(["--output", Path(output)] if output else []),
    ]  # fmt: skip
    reads = [Path(from_)] if is_file else []
    writes = [Path(output)] if output else []
    return run_program("fetch-weights", options, reads=reads, writes=writes, dry_run=dry_run)


@command(
    help={
        "json": "print all of it as JSON",
        "markdown": "write docs/presets.md anew",
    }
)
def presets(c: Context, json: bool = False, markdown: bool = False) -> int:
    """Show the training presets side by side: what each is and what to expect of it."""
    from chexnet.__main__ import main

    if markdown:
        return main(["presets", "--markdown", str(PROJECT / "docs" / "presets.md")])
    return main(["presets", *(["--json"] if json else [])])


@command(
    operands=("one", "other"),
    help={
        "one": "a run folder",
        "other": "another",
        "json": "print all of it as JSON",
    },
)
def compare(
    c: Context, one: str | None = None, other: str | None = None, json: bool = False
) -> int:
    """Say what two runs differ in, and what came of it: invoke compare RUN RUN."""
    from chexnet.__main__ import main

    return main(["compare", str(one), str(other), *(["--json"] if json else [])])


@command(
    iterable=["set"],
    help={
        "data": "a folder made by prepare-data",
        "output": "a new folder for profile.json, picture, timeline and trace",
        "ranks": "processes, as of train; all of --hosts",
        "steps": "about so many of each kind are taken",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "image": "profile inside this image",
        "config": "a configuration file (TOML or JSON)",
        "set": "KEY=VALUE, repeatable: one configuration key",
        "oversubscribe": "allow more ranks than cores",
        "dry-run": "print the command lines and run nothing",
    },
)
def profile(
    c: Context,
    data: str = "",
    output: str = "",
    ranks: int = UNSAID,
    steps: int = 200,
    hosts: str = "",
    launcher: str = "auto",
    image: str = "",
    config: str = "",
    set: list[str] | None = None,
    oversubscribe: bool = False,
    dry_run: bool = False,
) -> int:
    """Take some hundred steps and say what limits a training, and what to do about it."""
    from containers.hosts import parse_hosts
    from containers.job import Job
    from containers.profile import Profile
    from containers.profile import profile as start

    required(data=data, output=output)
    at_least(1, steps=steps)
    asked = Profile(
        Path(data),
        Path(output),
        Job(said(ranks), parse_hosts(hosts), launcher, oversubscribe),
        steps=steps,
        image=enterable(image),
        config=optional_path(config),
        settings=tuple(set or ()),
    )
    return start(asked, dry_run=dry_run)
