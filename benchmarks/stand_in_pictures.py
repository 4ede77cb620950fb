"""The record of `benchmarks.stand_in` as pictures: why `old` is flat and the others are not.

    python -m benchmarks.stand_in_pictures --record FILE.json --output docs/pictures

Draws images/s over ranks, what a step is made of, and how long the device has nothing to do.
Says on every picture that the device is a stand-in.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from containers.scaling_figure import number_axis, write_figure

COLOURS = {"old": "#b5442e", "new": "#d79b2d", "fast": "#33658a"}
NOTE = "the device is a stand-in that waits {:g} ms a step and uses no core; one rank at a time"

Row = Mapping[str, object]


def draw_all(record: Mapping[str, object], *, folder: Path) -> list[Path]:
    """Draw the three pictures and return their files.

    Args:
        record: as `benchmarks.stand_in` writes it.
        folder: takes ``stand-in-rate.svg``, ``stand-in-step.svg`` and ``stand-in-idle.svg``.
    """
    rows: Sequence[Row] = record["results"]  # type: ignore[assignment]
    files = []
    for name, draw in (("rate", draw_rates), ("step", draw_steps), ("idle", draw_idle)):
        figure = draw(rows)
        files.append(folder / f"stand-in-{name}.svg")
        write_figure(figure, files[-1])
    return files


def draw_rates(rows: Sequence[Row]) -> Figure:
    """Return images/s of all ranks over their number, with the device's limit."""
    figure, axes = _figure(rows)
    for pipeline, mine in _by_pipeline(rows).items():
        ranks = [int(row["ranks"]) for row in mine]
        axes.plot(ranks, [float(row["value"]) for row in mine], "o-", label=pipeline,
                  color=COLOURS.get(pipeline))  # fmt: skip
        axes.fill_between(ranks, [float(row["slowest"]) for row in mine],
                          [float(row["fastest"]) for row in mine], alpha=0.15,
                          color=COLOURS.get(pipeline))  # fmt: skip
    limit = {int(row["ranks"]): float(row["device_limit"]) for row in rows}
    axes.plot(list(limit), list(limit.values()), "--", color="#888888", label="device limit")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    number_axis(axes.yaxis)
    axes.set_xticks(sorted(limit), map(str, sorted(limit)))
    axes.set_xlabel("ranks")
    axes.set_ylabel("images/s of all ranks")
    axes.set_title("An input pipeline that shards too late gains nothing from ranks", fontsize=11)
    axes.legend()
    return figure


def draw_steps(rows: Sequence[Row]) -> Figure:
    """Return what a step takes: as measured, between full and no overlap of input and device."""
    figure, axes = _figure(rows)
    for place, row in enumerate(rows):
        low, high = float(row["full_overlap_ms"]), float(row["no_overlap_ms"])
        axes.plot([low, high], [place, place], lw=7, color="#d9dde2", solid_capstyle="butt")
        axes.plot(float(row["step_ms"]), place, "o", color=COLOURS.get(str(row["pipeline"])))
    axes.set_yticks(range(len(rows)), [str(row["name"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    number_axis(axes.xaxis)
    axes.set_xlabel("ms a step; grey: from the longer of input and device to their sum")
    axes.set_title("With overlap a step takes the longer of input and device", fontsize=11)
    return figure


def draw_idle(rows: Sequence[Row]) -> Figure:
    """Return the share of the time in which the device has nothing to do."""
    figure, axes = _figure(rows)
    by_pipeline = _by_pipeline(rows)
    ranks = sorted({int(row["ranks"]) for row in rows})
    width = 0.8 / len(by_pipeline)
    for number, (pipeline, mine) in enumerate(by_pipeline.items()):
        places = [ranks.index(int(row["ranks"])) + number * width for row in mine]
        shares = [100 * float(row["device_idle_share"]) for row in mine]
        bars = axes.bar(places, shares, width, label=pipeline, color=COLOURS.get(pipeline))
        axes.bar_label(bars, fmt="%.0f", fontsize=8)
    axes.set_xticks([n + 0.4 - width / 2 for n in range(len(ranks))], map(str, ranks))
    axes.set_ylim(0, 105)
    axes.set_xlabel("ranks")
    axes.set_ylabel("device idle, % of the time")
    axes.set_title("What the device waits for is its input", fontsize=11)
    axes.legend()
    return figure


def _by_pipeline(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["pipeline"]), []).append(row)
    return found


def _figure(rows: Sequence[Row]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(NOTE.format(round(float(rows[0]["device_ms"]))), fontsize=8, color="#555555")
    return figure, axes


def main() -> None:
    """Draw the pictures of a record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stand_in_pictures")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--record", type=Path, default=Path("benchmarks/results/stand-in.json"))
    parser.add_argument("--output", type=Path, default=Path("docs/pictures"))
    options = parser.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    for path in draw_all(record, folder=options.output):
        print(path)


if __name__ == "__main__":
    main()
