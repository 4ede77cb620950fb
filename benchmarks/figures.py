"""The pictures of measured scaling: images/s and efficiency over ranks, with their spread.

Knows how a series lies in a record. Leaves axes and files to ``containers.scaling_figure``,
measuring to `benchmarks.scaling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from containers.scaling_figure import draw_efficiency, draw_ideal, new_figure, scale_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "old": "#b5442e", "new": "#d79b2d", "dali": "#5a8f5a", "fast": "#33658a",
    "synthetic": "#666666",
}  # fmt: skip
STYLES = {"cached": "-", "real": ":", "synthetic": "-."}

Row = Mapping[str, Any]


def draw_series(results: Sequence[Row], *, stand_in: Sequence[Row] = ()) -> Figure:
    """Draw real training, and below it the series with a stand-in device.

    Args:
        results: of a record of `benchmarks.scaling`.
        stand_in: of a record of `benchmarks.stand_in`; none for one row of panels only.
    """
    figure, panels = new_figure(2 if stand_in else 1)
    cores, note = results[0]["cores_per_rank"], results[0]["note"]
    title = (
        f"{results[0]['model']} on {results[0]['device']}, {cores} core{'s' * (cores != 1)} a rank"
    )
    title += f"\n{note}" if note else ""
    _draw_pair(panels[:2], results, title=title)
    if stand_in:
        rows = [{**row, "input": "cached"} for row in stand_in]
        _draw_pair(panels[2:], rows, title="stand-in device, each rank measured alone")
    return figure


def _draw_pair(panels: Sequence[Axes], results: Sequence[Row], *, title: str) -> None:
    """Draw rates and efficiencies of one series into two panels."""
    numbers = sorted({row["ranks"] for row in results})
    rates, shares = panels
    scale_axis(rates, numbers, title=title, height="images/s of all ranks")
    draw_efficiency(shares, numbers)
    best = 0.0
    for (pipeline, kind), rows in group_cases(results).items():
        xs = [row["ranks"] for row in rows]
        each = rows[0]["value"] / rows[0]["ranks"]
        best = max(best, each)
        name = pipeline if pipeline == kind else f"{pipeline}, {kind}"
        look = {"color": COLOURS[pipeline], "linestyle": STYLES[kind], "label": name, "capsize": 3}
        rates.errorbar(xs, [row["value"] for row in rows], yerr=spread(rows, [1.0] * len(xs)),
                       marker="o", markersize=4, **look)  # fmt: skip
        ideal = [each * ranks for ranks in xs]
        shares.errorbar(xs, [row["value"] / most for row, most in zip(rows, ideal, strict=True)],
                        yerr=spread(rows, ideal), marker="o", markersize=4, **look)  # fmt: skip
    draw_ideal(rates, numbers, alone=best)
    shares.set_ylim(0, max(1.1, shares.get_ylim()[1]))
    shares.legend(loc="lower left", fontsize="small")
    for panel in panels:
        panel.set_xlabel("ranks")


def group_cases(results: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each pipeline and input, by rising number of ranks."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(results, key=lambda row: row["ranks"]):
        cases.setdefault((row["pipeline"], row["input"]), []).append(row)
    return cases


def spread(rows: Sequence[Row], over: Sequence[float]) -> list[list[float]]:
    """Return how far the slowest and the fastest round lie from the median, each over a number."""
    down = [(row["value"] - row["slowest"]) / by for row, by in zip(rows, over, strict=True)]
    up = [(row["fastest"] - row["value"]) / by for row, by in zip(rows, over, strict=True)]
    return [down, up]
