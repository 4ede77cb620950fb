"""Pages about runs.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import command, enterable, one_of, required


@command(
    several=("compare",),
    iterable=["compare"],
    help={
        "run": "a run folder",
        "compare": "two or more run folders, side by side on one page: DIR DIR …",
        "output": "where the page goes; of one run by default report.html in its folder",
        "image": "make it inside this image",
        "dry-run": "print the command line and run nothing",
    },
)
def report(
    c: Context,
    run: str = "",
    compare: tuple[str, ...] = (),
    output: str = "",
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Write a run's page: scores, curves, heat maps, machine, and how to do it again."""
    from containers.program import data_of, run_program

    one_of(run=run, compare=compare)
    if not compare:
        required(run=run)
    runs = [Path(one) for one in ([run] if run else compare)]
    options = [
        *(["--run", *runs] if run else ["--compare", *runs]),
        *(["--output", Path(output)] if output else []),
    ]
    return run_program(
        "report",
        options,
        image=enterable(image),
        reads=[*runs, *(data for one in runs for data in data_of(one))],
        writes=[Path(output).parent] if output else [],
        dry_run=dry_run,
    )
