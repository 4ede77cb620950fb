"""The scaling model beside what others published: rows it has not seen, and a curve to 512 GPUs.

Measures nothing. Every explanation of `containers.published` is fitted to the rows of one to
four GPUs of each table and predicts the rest; the record has every row with its error and, where
it is missed, why. The picture has the curve of DenseNet-121 on the study's own machine to 512
GPUs beside all published points.

    python -m benchmarks.scaling_model --output FILE.json [--picture FILE.png]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.record import write_record
from containers.published import find_table, fit, load_tables
from containers.scaling import Prediction, predict_all
from containers.scaling_figure import draw_prediction, write_figure
from containers.scaling_plan import LIKE, judge_tables

NUMBERS = tuple(2**n for n in range(10))  # 1 to 512 GPUs
MACHINE = "dell"
EXCHANGE_ALONE = "exchange alone"


def describe_rows() -> list[dict[str, object]]:
    """Return every published row with what each explanation predicts of it."""
    return [
        {
            "name": f"{row['table']}, {row['gpus']} GPUs: {row['explanation']}",
            "value": row["predicted"], "unit": "images/s",
            **{key: value for key, value in row.items() if key != "predicted"},
        }
        for row in judge_tables()
    ]  # fmt: skip


def predict_curves() -> dict[str, list[Prediction]]:
    """Return curves to 512 GPUs of the study's network and machine, by what they suppose.

    One with the exchange of gradients alone, one with ranks that vary as those of `LIKE`,
    one with ranks that vary as the study's own.
    """
    table, like = find_table(MACHINE), find_table(LIKE)
    curves = {EXCHANGE_ALONE: table.work}
    for other in (like, table):
        work = fit(other, explanation="stragglers")[0]
        share = work.jitter_ms / work.step_ms
        name = f"ranks vary by {share:.0%} of a step, as fitted to {other.name}"
        curves[name] = replace(table.work, jitter_ms=share * table.work.step_ms)
    return {
        name: predict_all(NUMBERS, work=work, cluster=table.cluster)
        for name, work in curves.items()
    }


def describe_curves(curves: dict[str, list[Prediction]]) -> list[dict[str, object]]:
    """Return one result for each point of each curve."""
    return [
        {
            "name": f"{MACHINE}, {one.ranks} GPUs: {name}", "value": round(one.images_per_s, 1),
            "unit": "images/s", "gpus": one.ranks, "efficiency": round(one.efficiency, 4),
            "bound_by": one.bound_by, "curve": name,
        }
        for name, line in curves.items()
        for one in line
    ]  # fmt: skip


def summarise(rows: Sequence[dict[str, object]]) -> dict[str, float]:
    """Return the largest error of each explanation on rows it has not seen, by table."""
    worst: dict[str, float] = {}
    for row in rows:
        if not row["fitted"]:
            name = f"largest error on unseen rows: {row['table']}, {row['explanation']}"
            worst[name] = max(worst.get(name, 0.0), abs(float(str(row["error"]))))
    return worst


def main() -> None:
    """Write the record, and draw the picture where that was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_model")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--picture", type=Path, metavar="FILE.png")
    options = parser.parse_args()
    rows, curves = describe_rows(), predict_curves()
    ratios = summarise(rows)
    write_record(
        options.output, command=["python", "-m", "benchmarks.scaling_model"], packages=(),
        results=[*rows, *describe_curves(curves)], ratios=ratios,
    )  # fmt: skip
    if options.picture:
        points = {one.title: one.efficiencies for one in load_tables().values()}
        first, *rest = curves.items()
        figure = draw_prediction(first[1], name=first[0], more=dict(rest), published=points,
                                 title="DenseNet-121 on the study's machine")  # fmt: skip
        write_figure(figure, options.picture)
    for name, value in ratios.items():
        print(f"{name}: {value:.1%}")


if __name__ == "__main__":
    main()
