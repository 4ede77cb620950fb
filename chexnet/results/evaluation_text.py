"""An evaluation as tables that a person can read on a terminal.

Knows what is shown of evaluation.json. Leaves the numbers to ``evaluation``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from chexnet.results.overlap import caution
from chexnet.results.thresholds import YOUDEN

Values = Mapping[str, Any]


def print_evaluation(values: Values, *, console: Console, where: str) -> None:
    """Print scores, thresholds, agreement with boxes and published results, as far as there are.

    Args:
        values: what evaluation.json holds.
        console: where to.
        where: the run and the checkpoint.
    """
    seen = caution(values["trained_on_patients"])
    if seen:
        said = f"No result: {seen}."
        console.print(said, style="bold red", markup=False, highlight=False, soft_wrap=True)
    console.print(_scores(values, where=where))
    console.print(_notes(values), markup=False, highlight=False)
    if any(row["thresholds"] for row in values["findings"]):
        console.print(_thresholds(values))
    if values["boxes"]:
        console.print(_boxes(values["boxes"]))
    if values["published"]["comparable"]:
        console.print(_published(values))
    console.print(values["published"]["refused"], markup=False, highlight=False, soft_wrap=True)


def _scores(values: Values, *, where: str) -> Table:
    table = _table(f"{values['split_title']} ({where})", "finding")
    for name in ("with", "AUROC", "interval", "AUPRC", "Brier", "ECE"):
        table.add_column(name, justify="right")
    for row in values["findings"]:
        table.add_row(
            row["finding"], str(row["num_positives"]), _share(row["auroc"]),
            _interval(row["auroc_interval"]), _share(row["auprc"]), _share(row["brier"]),
            _share(row["expected_error"]),
        )  # fmt: skip
    table.add_section()
    table.add_row(
        f"mean of {values['num_defined']} defined", "", _share(values["mean_auroc"]),
        _interval(values["mean_auroc_interval"]), _share(values["mean_auprc"]), "", "",
    )  # fmt: skip
    return table


def _notes(values: Values) -> str:
    bootstrap, calibration = values["bootstrap"], values["calibration"]
    films = f"{values['num_examples']:,} films of {values['num_patients']:,} patients"
    intervals = (
        f"{bootstrap['level']:.0%} intervals from {bootstrap['resamples']:,} resamples of patients"
        if bootstrap["resamples"]
        else "no intervals"
    )
    if bootstrap["refused"]:
        intervals = f"no intervals: {bootstrap['refused']}"
    probabilities = (
        "probabilities are the network's own, not calibrated"
        if calibration["method"] == "none"
        else f"probabilities calibrated by {calibration['method']}, fitted on validation"
    )
    notes = [films, intervals, "ECE: expected calibration error", probabilities]
    if values["num_defined"] < len(values["findings"]):
        notes.append("-: undefined, for want of films with the finding or of films without it")
    if values["split"] == "validation":
        notes.append("these films chose checkpoint and thresholds: on others expect less")
        if calibration["method"] != "none":
            notes.append(
                "the calibration was fitted on these films: Brier and ECE are in-sample, and say "
                "nothing of others"
            )
    return "; ".join(notes)


def _thresholds(values: Values) -> Table:
    title = f"Thresholds of the best sum (Youden), chosen on {values['thresholds_chosen_on']}, "
    table = _table(f"{title}here on {values['split']}; others are in the file", "finding")
    for name in ("threshold", "sensitivity", "specificity", "PPV", "NPV"):
        table.add_column(name, justify="right")
    for row in values["findings"]:
        for one in row["thresholds"]:
            if one["name"] == YOUDEN:
                shares = (one[key] for key in ("sensitivity", "specificity", "ppv", "npv"))
                table.add_row(
                    row["finding"], f"{one['threshold']:.3g}", *(_percent(x) for x in shares)
                )
    return table


def _boxes(boxes: Values) -> Table:
    table = _table(f"Heat maps ({boxes['method']}) and the boxes of {boxes['file']}", "finding")
    for name in ("boxes", "heat inside", "by chance", "peak inside"):
        table.add_column(name, justify="right")
    for row in boxes["findings"]:
        table.add_row(row["finding"], *_agreement(row))
    table.add_section()
    table.add_row("all", *_agreement(boxes))
    return table


def _agreement(row: Values) -> tuple[str, ...]:
    shares = (row[key] for key in ("mass_inside", "mass_by_chance", "hit_rate"))
    return (str(row["num_boxes"]), *(_percent(share) for share in shares))


def _published(values: Values) -> Table:
    table = _table(f"Published on the same films: {values['split_title']}", "work")
    for name in ("network", "px"):
        table.add_column(name)
    table.add_column("mean AUROC", justify="right")
    ours = ("this run", "", "", _share(values["mean_auroc"]))
    rows = [
        (one["work"], one["network"], str(one["px"] or ""), f"{one['mean_auroc']:.4g}")
        for one in values["published"]["comparable"]
    ]
    for row in sorted([ours, *rows], key=lambda row: row[-1]):
        table.add_row(*row, style="bold" if row is ours else None)
    return table


def _table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="")
    table.add_column(first, no_wrap=True)
    return table


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f}-{ends[1]:.3f}"
