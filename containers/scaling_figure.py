"""Draws predicted scaling beside published points: images/s a GPU count, and efficiency.

Knows axes and colours. Leaves the numbers to ``containers.scaling`` and ``containers.published``.
matplotlib is imported by the functions that draw, and never its pyplot: no display is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from containers.scaling import Prediction
from env.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Distinct for readers who see few colours (Okabe and Ito 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
SUFFIXES = (".png", ".svg")


def new_figure(rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure of so many rows of two panels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.4, 4.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    panels = [figure.add_subplot(rows, 2, place + 1) for place in range(2 * rows)]
    return figure, panels


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure, whole or not at all.

    Raises:
        UserError: the file's name ends with neither ``.png`` nor ``.svg``.
    """
    from matplotlib import rc_context

    if path.suffix not in SUFFIXES:
        raise UserError("a .png or .svg file", found=str(path), fix="give the picture such a name")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    # No date and no names by chance, so that the same numbers give the same file.
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    with rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(partial, dpi=110, metadata=metadata)
    partial.replace(path)


def scale_axis(panel: Axes, numbers: Sequence[int], *, title: str, height: str) -> None:
    """Label a panel whose width is a number of GPUs or ranks, doubling."""
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(numbers), [str(number) for number in numbers])
    panel.minorticks_off()
    panel.set_ylabel(height)
    panel.set_title(title)
    panel.grid(visible=True, alpha=0.3)


def number_axis(axis: Axis) -> None:
    """Part a logarithmic axis at 1, 2 and 5 of each power of ten, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def draw_ideal(panel: Axes, numbers: Sequence[int], *, alone: float) -> None:
    """Draw N times one as the straight line that it is where both axes are logarithmic.

    It lies over what reaches it, which a line below would hide.
    """
    panel.set_yscale("log", base=10)
    number_axis(panel.yaxis)
    panel.plot(numbers, [alone * n for n in numbers], "--", color="black", linewidth=1, zorder=3)


def draw_efficiency(panel: Axes, numbers: Sequence[int]) -> None:
    """Prepare a panel of efficiencies: 0 .. 1, with the ideal; the legend has room in it."""
    scale_axis(panel, numbers, title="efficiency", height="images/s over N times one")
    panel.axhline(1.0, color="black", linestyle="--", linewidth=1, label="ideal")
    panel.set_ylim(0, 1.1)


def draw_prediction(
    found: Sequence[Prediction],
    *,
    name: str = "predicted",
    title: str = "throughput",
    more: Mapping[str, Sequence[Prediction]] | None = None,
    published: Mapping[str, Mapping[int, float]] | None = None,
    measured: Mapping[int, float] | None = None,
) -> Figure:
    """Draw images/s and efficiency by GPUs.

    Args:
        found: the predictions.
        name: what their line is called.
        title: of the panel of rates.
        more: further ones, by what their line is called.
        published: efficiencies by GPUs, by what the points are called.
        measured: images/s by GPUs; efficiency is against the predicted rate of one.
    """
    figure, (rates, shares) = new_figure()
    lines = {name: found, **(more or {})}
    numbers = [one.ranks for one in found]
    alone = found[0].images_per_s / found[0].ranks / found[0].efficiency
    scale_axis(rates, numbers, title=title, height="images/s")
    draw_ideal(rates, numbers, alone=alone)
    draw_efficiency(shares, numbers)
    for (label, line), colour in zip(lines.items(), COLOURS, strict=False):
        xs = [one.ranks for one in line]
        rates.plot(xs, [one.images_per_s for one in line], color=colour)
        shares.plot(xs, [one.efficiency for one in line], color=colour, label=label)
    rest = COLOURS[len(lines) :]
    for (label, points), colour, mark in zip((published or {}).items(), rest, MARKS, strict=False):
        shares.plot(list(points), list(points.values()), mark, color=colour, label=label)
    if measured:
        xs, ys = list(measured), list(measured.values())
        rates.plot(xs, ys, "o", color="black")
        efficiencies = [rate / n / alone for n, rate in measured.items()]
        shares.plot(xs, efficiencies, "o", color="black", label="measured")
    shares.legend(loc="lower left", fontsize="small")
    for panel in (rates, shares):
        panel.set_xlabel("GPUs")
    return figure


def draw_validation(
    published: Mapping[int, float],
    *,
    predicted: Mapping[str, Mapping[int, float]],
    fitted_to: int,
    title: str,
) -> Figure:
    """Draw what explanations predict of a published table, and where their fit ends.

    Args:
        published: images/s by GPUs.
        predicted: images/s by GPUs, by explanation.
        fitted_to: the largest number of GPUs that a fit has seen.
        title: of the table.
    """
    figure, (rates, shares) = new_figure()
    numbers = list(published)
    scale_axis(rates, numbers, title=title, height="images/s")
    draw_efficiency(shares, numbers)
    alone = published[numbers[0]] / numbers[0]
    draw_ideal(rates, numbers, alone=alone)
    for (name, line), colour in zip(predicted.items(), COLOURS, strict=False):
        rates.plot(list(line), list(line.values()), color=colour)
        shares.plot(list(line), [rate / n / alone for n, rate in line.items()], color=colour,
                    label=name)  # fmt: skip
    rates.plot(numbers, list(published.values()), "o", color="black")
    shares.plot(numbers, [rate / n / alone for n, rate in published.items()], "o", color="black",
                label="published")  # fmt: skip
    for panel in (rates, shares):
        panel.axvspan(numbers[0], fitted_to, color="grey", alpha=0.12, label="fitted")
        panel.set_xlabel("GPUs")
    shares.legend(loc="lower left", fontsize="small")
    return figure
