"""Networks and runs: weights, presets, what two runs differ in.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import command, enterable, required
from env.stack import PROJECT


@command(
    help={
        "model": "densenet121, densenet169, densenet201 or resnet50",
        "from_": "a file that was brought here, or a mirror's address; default: Keras' own",
        "output": "another folder than the one where weights=imagenet looks",
        "image": "do it with the program of this image",
        "dry-run": "print the command line and run nothing",
    }
)
def fetch_weights(
    c: Context,
    model: str = "",
    from_: str = "",
    output: str = "",
    image: str = "",
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
    return run_program(
        "fetch-weights", options, image=enterable(image), reads=reads, writes=writes,
        dry_run=dry_run,
    )  # fmt: skip


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
