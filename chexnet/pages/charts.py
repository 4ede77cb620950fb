"""Line charts as SVG text that lies inside a page and follows its colours.

Knows axes, ticks, lines and their legend. Colours are classes (``c0`` .. ``c7``) that the page's
style sheet fills in for light, dark and print. Leaves what is drawn to ``report_figures``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from chexnet.pages.report_text import clean

COLOURS = 8
_LABEL, _RIGHT, _TOP, _BOTTOM, _LEGEND = 24, 12, 8, 36, 18
_LETTER = 6.2  # px of a letter of 11 px, on the wide side
MOST_POINTS = 400


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: for the legend; empty for none.
        points: (x, y).
        colour: which of the page's colours.
        kind: ``line``, ``dashed``, ``thin``, ``dots`` or ``marked`` (a line with dots).
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    kind: str = "line"


@dataclass(frozen=True)
class Axis:
    """An axis: what it says, where it begins and ends, how its numbers read.

    Attributes:
        label: with the unit.
        low: where it begins; None follows the data.
        high: where it ends; None follows the data.
        percent: whether numbers are shares to show in percent.
        ticks: about how many numbers stand at it.
    """

    label: str
    low: float | None = None
    high: float | None = None
    percent: bool = False
    ticks: int = 5


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def render_chart(
    lines: Sequence[Line], *, x: Axis, y: Axis, title: str, size: tuple[int, int] = (360, 230)
) -> Markup:
    """Return a chart as an ``<svg>`` element.

    Args:
        lines: what to draw, the first at the bottom.
        x: the axis below.
        y: the axis at the left.
        title: for those who cannot see it, and under the pointer.
        size: width and height, px; the page may scale it.
    """
    width, height = size
    bottom, right = height - _BOTTOM, width - _RIGHT
    rows = _legend_rows([line for line in lines if line.name], right - 2 * _LABEL)
    y_scale = _make_scale(y, [p[1] for line in lines for p in line.points],
                          start=bottom, end=_TOP + _LEGEND * len(rows))  # fmt: skip
    numbers = _number_ticks(y, y_scale)
    left = _LABEL + _LETTER * max((len(text) for _, text in numbers), default=0)
    x_scale = _make_scale(x, [p[0] for line in lines for p in line.points],
                          start=left, end=right, tight=True)  # fmt: skip
    parts = [
        _draw_y(y, y_scale, numbers, left=left, right=right),
        _draw_x(x, x_scale, bottom=bottom, end=height),
        *(_draw_line(line, x_scale, y_scale) for line in lines),
        _draw_legend(rows, left=left),
    ]
    return wrap_svg("".join(parts), size=size, title=title)


def wrap_svg(inside: str, *, size: tuple[int, int], title: str) -> Markup:
    """Return an ``<svg>`` element with a title, around elements that are escaped already."""
    width, height = size
    name = escape(clean(title))
    return Markup(
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{name}"><title>{name}</title>{inside}</svg>'
    )


def draw_text(text: object, x: float, y: float, *, css: str = "") -> str:
    """Return a ``<text>`` element, its text escaped."""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(clean(text))}</text>'


def make_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers between two others: steps of 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / max(1, count)
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def show_tick(value: float, *, step: float, percent: bool = False) -> str:
    """Return the number at a tick with as many digits as the step between ticks needs."""
    if percent:
        value, step = 100 * value, 100 * step
    if step < 1e-4 and value:
        return f"{value:.1e}".replace("e-0", "e-").replace(".0e", "e")
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    rounded = round(step * 10**digits, 6)
    digits += 0 if rounded == int(rounded) else 1  # steps of 2.5
    return f"{value:,.{digits}f}" + ("%" if percent else "")


def _make_scale(
    axis: Axis, values: Sequence[float], *, start: float, end: float, tight: bool = False
) -> _Scale:
    low = min(values, default=0.0) if axis.low is None else axis.low
    high = max(values, default=1.0) if axis.high is None else axis.high
    if high - low <= 1e-9 * max(abs(high), abs(low)):  # one value: room around it
        room = abs(high) / 2 or 1.0
        low = low if axis.low is not None else low - (0 if tight else room)
        high = low + max(2 * room, high - low)
    elif not tight:
        room = (high - low) * 0.06
        low = low if axis.low is not None else low - room
        high = high if axis.high is not None else high + room
    return _Scale(low, high, start, end)


def _number_ticks(axis: Axis, scale: _Scale) -> list[tuple[float, str]]:
    """Return each tick's value and text."""
    ticks = make_ticks(scale.low, scale.high, axis.ticks)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else scale.high - scale.low
    return [(tick, show_tick(tick, step=step, percent=axis.percent)) for tick in ticks]


def _draw_y(
    axis: Axis,
    scale: _Scale,
    numbers: Sequence[tuple[float, str]],
    *,
    left: float,
    right: float,
) -> str:
    parts = []
    for tick, text in numbers:
        at = scale(tick)
        parts.append(f'<path class="grid" d="M{left:.1f} {at:.1f}H{right}"/>')
        parts.append(draw_text(text, left - 5, at + 3.5, css="end"))
    middle = (scale.start + scale.end) / 2
    turned = f'transform="rotate(-90 10 {middle:.1f})"'
    label = escape(clean(axis.label))
    parts.append(f'<text class="mid soft" {turned} x="10" y="{middle:.1f}">{label}</text>')
    return "".join(parts)


def _draw_x(axis: Axis, scale: _Scale, *, bottom: float, end: float) -> str:
    parts = [f'<path class="axis" d="M{scale.start:.1f} {bottom:.1f}H{scale.end:.1f}"/>']
    for tick, text in _number_ticks(axis, scale):
        at = scale(tick)
        parts.append(f'<path class="axis" d="M{at:.1f} {bottom:.1f}v3"/>')
        # A number at the end would be cut by the picture's edge.
        last = at > scale.end - 8
        parts.append(draw_text(text, at + 8 * last, bottom + 14, css="end" if last else "mid"))
    middle = (scale.start + scale.end) / 2
    return "".join(parts) + draw_text(axis.label, middle, end - 5, css="mid soft")


def _draw_line(line: Line, x: _Scale, y: _Scale) -> str:
    if not line.points:
        return ""
    colour = f"c{line.colour % COLOURS}"
    places = [(x(a), y(b)) for a, b in thin_out(line.points)]
    name = f"<title>{escape(clean(line.name))}</title>" if line.name else ""
    drawn = ""
    if line.kind != "dots":
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        drawn = f'<path class="line {line.kind} {colour}" d="{path}">{name}</path>'
    if line.kind in ("dots", "marked") or len(places) == 1:
        drawn += "".join(
            f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="3">{name}</circle>'
            for a, b in places
        )
    return drawn


def thin_out(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MOST_POINTS` points that show the same: of each stretch both extremes."""
    if len(points) <= MOST_POINTS:
        return list(points)
    stretch = math.ceil(2 * len(points) / (MOST_POINTS - 2))
    kept = [points[0]]
    for first in range(0, len(points), stretch):
        part = points[first : first + stretch]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [*kept, points[-1]]


def _legend_rows(lines: Sequence[Line], width: float) -> list[list[tuple[float, Line]]]:
    rows: list[list[tuple[float, Line]]] = []
    at = width
    for line in lines:
        need = 24 + _LETTER * len(line.name) + 10
        if at + need > width or not rows:
            rows.append([])
            at = 0.0
        rows[-1].append((at, line))
        at += need
    return rows


def _draw_legend(rows: Sequence[Sequence[tuple[float, Line]]], *, left: float) -> str:
    parts = []
    for number, row in enumerate(rows):
        y = _TOP + _LEGEND * number + 6
        for at, line in row:
            x, colour = left + at, f"c{line.colour % COLOURS}"
            if line.kind == "dots":
                parts.append(f'<circle class="dot {colour}" cx="{x + 9:.1f}" cy="{y}" r="3"/>')
            else:
                path = f"M{x:.1f} {y}h18"
                parts.append(f'<path class="line {line.kind} {colour}" d="{path}"/>')
            parts.append(draw_text(line.name, x + 23, y + 4))
    return "".join(parts)
