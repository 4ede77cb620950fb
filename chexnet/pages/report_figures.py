"""Which charts a run gets: learning, speed, ROC, precision-recall, calibration, intervals.

Knows what each chart shows of which numbers. Leaves drawing to ``charts`` and the page to
``report``. A chart without numbers is not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chexnet.pages.charts import Axis, Line, draw_text, render_chart, wrap_svg
from chexnet.pages.report_data import Metrics
from chexnet.pages.report_scores import Evaluation, FindingScores, Interval
from chexnet.pages.report_text import show_finding, show_interval, show_score

BLUE, ORANGE, GREY = 0, 1, 7
_EPOCHS = "epochs"
_PANEL = (200, 196)
_BAR_WIDTH, _BAR_HEIGHT, _BAR_EDGE = 200, 20, 12


@dataclass(frozen=True)
class Figure:
    """A chart with what stands above and below it."""

    title: str
    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Card:
    """The charts of one finding."""

    scores: FindingScores
    charts: tuple[Markup, ...]


def draw_learning(metrics: Metrics) -> list[Figure]:
    """Return the loss, the validation AUROC and the learning rate over the epochs."""
    ends = metrics.curve("epoch", "validation_auroc")
    losses = [
        Line("", metrics.curve("steps", "loss"), BLUE, "thin"),
        Line("training", metrics.curve("epoch", "loss"), BLUE, "marked"),
        Line("validation", metrics.curve("epoch", "validation_loss"), ORANGE, "marked"),
    ]
    rates = metrics.curve("steps", "lr") or metrics.curve("epoch", "lr")
    drawn = [
        _over_epochs("Loss", losses, y=Axis("binary cross-entropy")),
        _over_epochs("Validation AUROC", [Line("", ends, ORANGE, "marked")], y=Axis("mean AUROC"),
                     caption=_describe_best(ends)),
        _over_epochs("Learning rate", [Line("", rates)], y=Axis("learning rate", low=0)),
    ]  # fmt: skip
    return [figure for figure in drawn if figure]


def draw_speed(metrics: Metrics) -> list[Figure]:
    """Return films a second and the share of the time spent waiting for input, over the epochs."""
    speed = [
        Line("", metrics.curve("steps", "images_per_s"), BLUE, "thin"),
        Line("", metrics.curve("epoch", "images_per_s"), ORANGE, "marked"),
    ]
    waits = metrics.curve("steps", "input_wait_fraction")
    most = max((y for _, y in waits), default=0.0)
    top = max(0.1, min(1.0, most * 1.1))
    drawn = [
        _over_epochs("Throughput", speed, y=Axis("films/s, all ranks", low=0),
                     caption="thin: windows of steps; dots: whole epochs"),
        _over_epochs("Input wait", [Line("", waits, BLUE, "thin")],
                     y=Axis("share of the time", low=0, high=top, percent=True)),
    ]  # fmt: skip
    return [figure for figure in drawn if figure]


def _over_epochs(title: str, lines: Sequence[Line], *, y: Axis, caption: str = "") -> Figure | None:
    lines = [line for line in lines if line.points]
    if not lines:
        return None
    return Figure(title, render_chart(lines, x=Axis(_EPOCHS, low=0), y=y, title=title), caption)


def _describe_best(ends: Sequence[tuple[float, float]]) -> str:
    if not ends:
        return ""
    epoch, best = max(ends, key=lambda end: end[1])
    return (
        f"best {best:.4f} after epoch {round(epoch)}; it chooses the checkpoint, and is no result"
    )


def draw_curves(evaluation: Evaluation) -> list[Card]:
    """Return the ROC and the precision-recall curve of each finding that has them."""
    cards = []
    for one in evaluation.findings:
        if not one.roc and not one.pr:
            continue
        cards.append(Card(one, tuple(chart for chart in (_roc(one), _pr(one)) if chart)))
    return cards


def draw_calibration(evaluation: Evaluation) -> list[Card]:
    """Return the calibration curve of each finding that has one."""
    return [Card(one, (_calibration(one),)) for one in evaluation.findings if one.calibration]


def _roc(one: FindingScores) -> Markup | None:
    if not one.roc:
        return None
    lines = [Line("", ((0, 0), (1, 1)), GREY, "dashed"), Line("", one.roc, BLUE)]
    title = f"ROC of {show_finding(one.finding)}: AUROC {show_score(one.auroc)}"
    return render_chart(lines, x=_share("false positives"), y=_share("true positives"),
                        title=title, size=_PANEL)  # fmt: skip


def _pr(one: FindingScores) -> Markup | None:
    if not one.pr:
        return None
    base = one.prevalence or 0
    lines = [
        Line("", ((0, base), (1, base)), GREY, "dashed"),
        Line("", hold_precision(one.pr), ORANGE),
    ]
    title = f"Precision and recall of {show_finding(one.finding)}: AUPRC {show_score(one.auprc)}"
    return render_chart(lines, x=_share("recall"), y=_share("precision"), title=title,
                        size=_PANEL)  # fmt: skip


def hold_precision(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the steps below which lies the average precision: recall is gained at a precision.

    A line from point to point would promise what no threshold between them gives (Davis and
    Goadrich 2006), and more area than the AUPRC that stands beneath.
    """
    steps: list[tuple[float, float]] = []
    before = 0.0
    for recall, precision in points:
        if recall > before:
            steps += [(before, precision), (recall, precision)]
            before = recall
    return tuple(steps)


def _share(label: str) -> Axis:
    return Axis(label, low=0, high=1, ticks=2)


def _calibration(one: FindingScores) -> Markup:
    # Rare findings have small probabilities: the same scale for all would show a dot.
    top = min(1.0, 1.05 * max(max(point) for point in one.calibration) or 1.0)
    lines = [
        Line("", ((0, 0), (top, top)), GREY, "dashed"),
        Line("", one.calibration, BLUE, "marked"),
    ]
    title = f"Calibration of {show_finding(one.finding)}"
    x = Axis("predicted", low=0, high=top, ticks=3)
    y = Axis("observed", low=0, high=top, ticks=3)
    return render_chart(lines, x=x, y=y, title=title, size=_PANEL)


def start_of_bars(evaluation: Evaluation) -> float:
    """Return where the bars of intervals begin: the tenth below everything that they show."""
    shown = [end for one in evaluation.findings for end in one.auroc_interval or ()]
    shown += [one.auroc for one in evaluation.findings if one.auroc is not None]
    shown += [value for work in evaluation.published for value in work.findings.values()]
    return max(0.0, math.floor(10 * min([0.9, *shown])) / 10)


def draw_bar(
    value: float | None, *, ends: Interval | None, published: Sequence[float], low: float
) -> Markup:
    """Return a score as a dot with its interval, those of others as diamonds, for a table's cell.

    Args:
        value: AUROC, 0 .. 1; None draws the scale alone.
        ends: its interval.
        published: AUROC of others.
        low: where the scale begins; it ends at 1.
    """
    middle = _BAR_HEIGHT / 2
    at = _bar_scale(low)
    marks = [0.5] if low <= 0.5 else []  # chance
    parts = [f'<path class="grid" d="M{at(low):.1f} {middle}H{at(1):.1f}"/>']
    parts += [f'<path class="axis" d="M{at(mark):.1f} 3V{_BAR_HEIGHT - 3}"/>' for mark in marks]
    for other in published:
        x = at(other)
        parts.append(f'<path class="diamond c1" d="M{x:.1f} {middle - 5}l4 5l-4 5l-4 -5z"/>')
    if ends:
        parts.append(
            f'<path class="whisker c0" d="M{at(ends[0]):.1f} {middle}H{at(ends[1]):.1f}"/>'
        )
    if value is not None:
        parts.append(f'<circle class="dot c0" cx="{at(value):.1f}" cy="{middle}" r="3.5"/>')
    said = f"AUROC {show_score(value)}" + (f", {show_interval(ends)}" if ends else "")
    return wrap_svg("".join(parts), size=(_BAR_WIDTH, _BAR_HEIGHT), title=said)


def draw_bar_scale(low: float) -> Markup:
    """Return the numbers above the bars."""
    at = _bar_scale(low)
    marks = (low, round((low + 1) / 2, 2), 1.0)
    texts = (draw_text(f"{mark:g}", at(mark), 14, css="mid") for mark in marks)
    title = f"scale from {low:g} to 1"
    return wrap_svg("".join(texts), size=(_BAR_WIDTH, _BAR_HEIGHT), title=title)


def _bar_scale(low: float) -> Callable[[float], float]:
    def place(value: float) -> float:
        share = (min(1.0, max(low, value)) - low) / (1 - low)
        return _BAR_EDGE + share * (_BAR_WIDTH - 2 * _BAR_EDGE)

    return place
