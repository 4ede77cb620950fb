"""What a user sees of a prediction: a table of few films, and how it went.

Knows the words. Leaves the files to ``prediction_files``.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chexnet.errors import EXIT_FAILED, UserError, name_some
from chexnet.labels import FINDINGS
from chexnet.predict import Options, Outcome, describe_calibration
from chexnet.prediction.choice import Choice
from chexnet.prediction.film_stream import FEW
from chexnet.prediction.overlay import NOT_CLINICAL

_MOST_NAMED = 10


def show_outcome(outcome: Outcome, *, options: Options, console: Console) -> None:
    """Print the films where they are few, where the files are, and how fast it went."""
    if outcome.num_films == 1:
        console.print(Text(outcome.films[0].file), soft_wrap=True)
    if outcome.num_films <= FEW:
        table = _one(outcome) if outcome.num_films == 1 else _some(outcome, options.choice)
        console.print(table)
    for film in outcome.films if outcome.num_films <= FEW else ():
        for warning in film.warnings:
            console.print(Text(f"warning: {film.file}: {warning}"), soft_wrap=True)
    for file, reason in outcome.unreadable[:_MOST_NAMED]:
        console.print(Text(f"left out: {file}: {reason}"), soft_wrap=True)
    for line in _ending(outcome, options):
        console.print(Text(line), soft_wrap=True)


def require_all(outcome: Outcome, *, options: Options) -> None:
    """Raise where files had to be left out, once all is written.

    Raises:
        UserError: naming some (exit code 1).
    """
    if outcome.unreadable:
        listed = name_some([file for file, _ in outcome.unreadable])
        total = len(outcome.unreadable) + outcome.num_films
        where = f"{options.output}/predictions.json lists all" if options.output else "listed above"
        raise UserError(
            "films alone",
            found=f"{len(outcome.unreadable)} of {total} files are none: {listed}",
            fix=f"the rest is done; correct or remove these, {where}",
            exit_code=EXIT_FAILED,
        )


def _ending(outcome: Outcome, options: Options) -> list[str]:
    lines = []
    if outcome.num_warned and outcome.num_films > FEW:
        lines.append(f"warnings on {outcome.num_warned} films: see the files")
    lines.append(describe_calibration(outcome.calibration))
    if options.output:
        lines.append(f"wrote {options.output}/predictions.csv and predictions.json")
    if options.heatmap:
        lines.append(f"wrote heat maps ({options.method}) to {options.heatmap}")
    films = "1 film" if outcome.num_films == 1 else f"{outcome.num_films} films"
    lines.append(
        f"{films} in {outcome.seconds:.1f} s, {outcome.images_per_s:.1f} "
        f"images/s, by {outcome.loaded.path}"
    )
    lines.append(f"{NOT_CLINICAL}.")
    return lines


def _one(outcome: Outcome) -> Table:
    [film] = outcome.films
    table = Table()
    table.add_column("finding")
    table.add_column("probability", justify="right")
    rows = zip(FINDINGS, film.probabilities, strict=True)
    for finding, probability in sorted(rows, key=lambda row: -row[1]):
        table.add_row(finding, f"{probability:.3f}")
    return table


def _some(outcome: Outcome, choice: Choice) -> Table:
    table = Table()
    table.add_column("film", overflow="fold")
    table.add_column("findings")
    for film in outcome.films:
        shown = choice.pick(np.array(film.probabilities))
        said = ", ".join(f"{FINDINGS[index]} {film.probabilities[index]:.3f}" for index in shown)
        table.add_row(Text(film.file), said)
    return table
