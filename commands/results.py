"""What a run has become: scores, predictions, pages.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import command, optional_path, required


@command(
    help={
        "run": "a run folder",
        "split": "test, validation or train",
        "data": "prepared data, if not the run's own",
        "image": "evaluate inside this image",
        "dry-run": "print the command line and run nothing",
    }
)
def evaluate(
    c: Context,
    run: str = "",
    split: str = "test",
    data: str = "",
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Score a run's best checkpoint: AUROC of each finding, and their mean."""
    from containers.train import evaluate as score

    required(run=run)
    return score(
        Path(run),
        split=split,
        data=optional_path(data),
        image=optional_path(image),
        dry_run=dry_run,
    )
