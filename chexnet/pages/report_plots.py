"""Plots as PNG files, for slides: ROC, learning curves, calibration.

Knows how Matplotlib is asked without a screen and without its global state. The page itself
has charts of its own (``report_figures``), which follow its colours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chexnet.pages.report_data import RunFolder
from chexnet.pages.report_scores import Evaluation, FindingScores
from chexnet.pages.report_text import clean, show_finding, show_score
from chexnet.pages.report_verdict import NOT_CLINICAL, choose_main

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROC, LEARNING, CALIBRATION = "roc.png", "learning.png", "calibration.png"
_DPI, _COLUMNS = 110, 5
_BLUE, _ORANGE, _GREY = "#0b62a4", "#c2500a", "#8a929b"


def write_plots(folder: RunFolder, *, output: Path) -> list[Path]:
    """Write the plots that the run has numbers for, and return their paths.

    Args:
        folder: what the run has left.
        output: the folder for them, which is made if need be.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    main = choose_main(folder)
    figures = {
        LEARNING: _plot_learning(folder),
        ROC: _plot_roc(main) if main else None,
        CALIBRATION: _plot_calibration(main) if main else None,
    }
    written = []
    for name, figure in figures.items():
        if figure is None:
            continue
        path = output / name
        path.parent.mkdir(exist_ok=True)
        partial = path.with_name(f".{name}.partial")
        with partial.open("wb") as file:
            FigureCanvasAgg(figure).print_png(file)
        partial.replace(path)
        written.append(path)
    return written


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI)
    figure.supxlabel(NOT_CLINICAL, fontsize=8, color=_GREY, x=0.99, ha="right")
    return figure


def _plot_learning(folder: RunFolder) -> Figure | None:
    curves = [
        ("loss", [("steps", "loss", _BLUE), ("epoch", "validation_loss", _ORANGE)]),
        ("validation AUROC", [("epoch", "validation_auroc", _ORANGE)]),
        ("learning rate", [("steps", "lr", _BLUE)]),
        ("films/s", [("steps", "images_per_s", _BLUE)]),
    ]
    if not folder.metrics.steps and not folder.metrics.epochs:
        return None
    figure = _new_figure(11, 6)
    figure.suptitle(_plain(folder.name))
    for axes, (title, lines) in zip(figure.subplots(2, 2).flat, curves, strict=True):
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("epochs", fontsize=9)
        axes.grid(alpha=0.3)
        for kind, key, colour in lines:
            points = folder.metrics.curve(kind, key)
            marker = "o" if kind == "epoch" else None
            label = "validation" if key == "validation_loss" else "training"
            axes.plot(*_split(points), color=colour, marker=marker, markersize=4, label=label)
        if title == "films/s":
            axes.set_ylim(bottom=0)
        if len(lines) > 1:
            axes.legend(fontsize=8, frameon=False)
    figure.subplots_adjust(left=0.07, right=0.98, top=0.9, bottom=0.11, hspace=0.4, wspace=0.18)
    return figure


def _plot_roc(main: Evaluation) -> Figure | None:
    def draw(axes: Axes, one: FindingScores) -> None:
        axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1)
        axes.plot(*_split(one.roc), color=_BLUE)
        axes.set_title(f"{_plain(show_finding(one.finding))} {show_score(one.auroc)}", fontsize=9)

    shown = [one for one in main.findings if one.roc]
    title = (
        f"True over false positives, {main.num_examples:,} {main.split} films: "
        f"mean AUROC {show_score(main.mean_auroc)}"
    )
    return _small_multiples(shown, draw, title=title, x="false positives", y="true positives")


def _plot_calibration(main: Evaluation) -> Figure | None:
    def draw(axes: Axes, one: FindingScores) -> None:
        top = max(max(point) for point in one.calibration) or 1.0
        axes.plot([0, top], [0, top], color=_GREY, linestyle="--", linewidth=1)
        axes.plot(*_split(one.calibration), color=_BLUE, marker="o", markersize=3)
        axes.set_title(_plain(show_finding(one.finding)), fontsize=9)

    shown = [one for one in main.findings if one.calibration]
    method = main.calibration.get("method", "none")
    title = f"Observed over predicted share, {main.split} films (calibration: {_plain(method)})"
    return _small_multiples(shown, draw, title=title, x="predicted", y="observed")


def _small_multiples(
    shown: Sequence[FindingScores],
    draw: Callable[[Axes, FindingScores], None],
    *,
    title: str,
    x: str,
    y: str,
) -> Figure | None:
    if not shown:
        return None
    rows = -(-len(shown) // _COLUMNS)
    height = 2.4 * rows + 1.2
    figure = _new_figure(11, height)
    figure.suptitle(title, fontsize=11)
    places = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for axes, one in zip(places, shown, strict=False):
        draw(axes, one)
        axes.tick_params(labelsize=7)
        axes.set_xlabel(x, fontsize=7, labelpad=1)
        axes.set_ylabel(y, fontsize=7, labelpad=1)
        axes.set_box_aspect(1)
    for axes in list(figure.axes)[len(shown) :]:
        axes.set_axis_off()
    # Not "constrained": arranging 15 frames takes longer than drawing them.
    figure.subplots_adjust(left=0.05, right=0.98, top=1 - 0.7 / height, bottom=0.6 / height,
                           hspace=0.4, wspace=0.3)  # fmt: skip
    return figure


def _split(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _plain(text: object) -> str:
    # Matplotlib reads what stands between dollars as a formula.
    return clean(text).replace("$", r"\$").replace("\n", " ")
