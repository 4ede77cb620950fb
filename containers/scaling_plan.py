"""Shows predicted scaling: a table, JSON, a picture; and what published tables say of the model.

Knows where measured numbers lie in a run folder and in the benchmarks' records. Leaves the
arithmetic to ``containers.scaling``, published rates to ``containers.published`` and drawing to
``containers.scaling_figure``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from containers.published import (
    EXPLANATIONS,
    FITTED_TO,
    Row,
    explain,
    find_table,
    fit,
    load_tables,
)
from containers.published import Table as Published
from containers.scaling import TERMS, Cluster, Prediction, Work, predict, predict_all
from env.errors import UserError

SCHEMA_VERSION = 1
ALL = "all"
LIKE = "resnet50-v100-fp32"  # whose ranks a reader is shown, where none were measured
FEW_STEPS = 20  # an epoch with fewer steps of all ranks trains on very large batches


@dataclass(frozen=True)
class Request:
    """What the user asked of ``plan-scaling``.

    Attributes:
        work: what is trained.
        cluster: what connects and feeds the GPUs.
        numbers: of GPUs.
        json: print JSON instead of the table.
        picture: a ``.png`` or ``.svg`` file to draw.
        sources: which file each measured number came from.
        measured: images/s that runs reached, by their ranks, to hold the plan against.
        given: numbers of the work and the cluster by name that no source is to change.
    """

    work: Work
    cluster: Cluster
    numbers: tuple[int, ...]
    json: bool = False
    picture: Path | None = None
    sources: dict[str, str] = field(default_factory=dict)
    measured: dict[int, float] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Return numbers of GPUs from ``1,2,4`` ; ``…`` between two goes on by doubling.

    Raises:
        UserError: something else than numbers above 0, or more than a million GPUs.
    """
    numbers: list[int] = []
    words = [word.strip() for word in text.replace("...", "…").split(",") if word.strip()]
    wrong = UserError("numbers of GPUs, such as 1,2,4,8 or 1,2,…,512", found=repr(text),
                      fix="correct --gpus")  # fmt: skip
    doubling = False
    for word in words:
        if word == "…" and numbers:
            doubling = True
            continue
        if not word.isascii() or not word.isdigit() or not 0 < int(word) <= 1_000_000:
            raise wrong
        while doubling and numbers[-1] * 2 < int(word):
            numbers.append(numbers[-1] * 2)
        doubling = False
        numbers.append(int(word))
    if not numbers or doubling:
        raise wrong
    return tuple(dict.fromkeys(numbers))


def show_plan(request: Request) -> None:
    """Predict, print, and draw where that was asked for.

    Raises:
        UserError: a number makes no sense, or the picture cannot be written.
    """
    numbers = sorted({*request.numbers, *request.measured})
    found = predict_all(numbers, work=request.work, cluster=request.cluster)
    if request.picture is not None:
        from containers.scaling_figure import draw_prediction, write_figure

        write_figure(draw_prediction(found, measured=request.measured), request.picture)
    if request.json:
        print(render_plan(request, found))
        return
    for name, source in request.sources.items():
        print(f"{name} from {source}")
    print(describe(request.work, request.cluster))
    print(render_table(found, measured=request.measured))
    for line in remarks(found, work=request.work, cluster=request.cluster):
        print(line)


def describe(work: Work, cluster: Cluster) -> str:
    """Return what was assumed, in three lines."""
    feeds = [
        f"{rate:,.0f} images/s {of}"
        for rate, of in (
            (cluster.input_images_per_s, "prepared by a node"),
            (cluster.storage_images_per_s, "from storage for all"),
        )
        if rate
    ]
    return (
        f"a step of {work.step_ms:.1f} ms for {work.batch} films, {work.gradient_mib:.2f} MiB of "
        f"gradients, {work.overlap:.0%} of their exchange beside computing, ranks vary by "
        f"{work.jitter_ms:g} ms\n"
        f"{cluster.gpus_per_node} GPUs a node; between nodes {cluster.bandwidth_gb_s:g} GB/s and "
        f"{cluster.latency_us:g} µs, inside {cluster.intra_bandwidth_gb_s:g} GB/s and "
        f"{cluster.intra_latency_us:g} µs\n"
        f"input: {' and '.join(feeds) or 'taken as never waited for'}"
    )


def remarks(found: Sequence[Prediction], *, work: Work, cluster: Cluster) -> list[str]:
    """Return what a reader should not overlook."""
    lines = []
    if not work.jitter_ms and work.step_ms and len(found) > 1:
        like = fit(find_table(LIKE), explanation="stragglers")[0]
        share = like.jitter_ms / like.step_ms
        last = predict(found[-1].ranks, work=replace(work, jitter_ms=share * work.step_ms),
                       cluster=cluster)  # fmt: skip
        lines.append(
            f"if ranks varied by {share:.1%} of a step, as fitted to {LIKE}: "
            f"{last.efficiency:.1%} on {last.ranks} GPUs (--jitter-ms)"
        )
    few = [one.ranks for one in found if one.steps_per_epoch < FEW_STEPS]
    if few:
        lines.append(
            f"from {min(few)} GPUs on an epoch has fewer than {FEW_STEPS} steps; {max(few)} GPUs "
            f"train on {work.batch * max(few):,} films at once: faster epochs, and more of them "
            "for the same accuracy"
        )
    return lines


def render_plan(request: Request, found: Sequence[Prediction]) -> str:
    """Return the plan as JSON of ``scaling.schema.json``."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "work": dataclasses.asdict(request.work),
        "cluster": dataclasses.asdict(request.cluster),
        "sources": request.sources,
        "measured": {str(ranks): rate for ranks, rate in request.measured.items()},
        "predictions": [dataclasses.asdict(one) for one in found],
    }
    return json.dumps(data, indent=1)


def show_validation(name: str, *, as_json: bool = False, picture: Path | None = None) -> None:
    """Hold the model against a published table, or all of them, and print how far it is off.

    Args:
        name: of the table, or ``ALL``.
        as_json: print JSON instead of tables.
        picture: a ``.png`` or ``.svg`` file to draw one table in.

    Raises:
        UserError: there is no such table, or a picture of all is asked for.
    """
    tables = [one for one in load_tables().values() if one.rates]
    tables = tables if name == ALL else [find_table(name)]
    if picture is not None:
        _draw_table(tables, picture)
    if as_json:
        judged = judge_tables(one.name for one in tables)
        print(json.dumps({"schema_version": SCHEMA_VERSION, "validation": judged}, indent=1))
        return
    for table in tables:
        print(f"\n{table.name}: {table.title}\n{table.source}\n{table.note}")
        for explanation, meaning in EXPLANATIONS.items():
            print(f"\n{explanation}: {meaning}{_fitted(table.name, explanation)}")
            print(_rows(explain(table, explanation=explanation)))


def judge_tables(names: Iterable[str] = ()) -> list[dict[str, object]]:
    """Return what every explanation predicts of every row of published tables.

    Args:
        names: of the tables; all by default.
    """
    chosen = tuple(names) or tuple(one.name for one in load_tables().values() if one.rates)
    found = []
    for table in map(find_table, chosen):
        for explanation in EXPLANATIONS:
            work, cluster = fit(table, explanation=explanation)
            found += [
                {
                    "table": table.name, "explanation": explanation, "gpus": row.ranks,
                    "fitted": row.fitted, "published": row.published,
                    "predicted": round(row.predicted, 2), "error": round(row.error, 4),
                    "reason": row.reason, "jitter_ms": round(work.jitter_ms, 2),
                    "input_images_per_s": cluster.input_images_per_s,
                }
                for row in explain(table, explanation=explanation)
            ]  # fmt: skip
    return found


def _draw_table(tables: Sequence[Published], picture: Path) -> None:
    from containers.scaling_figure import draw_validation, write_figure

    if len(tables) > 1:
        known = ", ".join(one.name for one in tables)
        raise UserError("one table to draw", found=f"--validate {ALL}", fix=f"use one of: {known}")
    (table,) = tables
    predicted = {
        name: {row.ranks: row.predicted for row in explain(table, explanation=name)}
        for name in EXPLANATIONS
    }
    figure = draw_validation(
        table.rates, predicted=predicted, fitted_to=FITTED_TO, title=table.title
    )
    write_figure(figure, picture)


def _fitted(name: str, explanation: str) -> str:
    work, cluster = fit(find_table(name), explanation=explanation)
    if work.jitter_ms:
        return f": {work.jitter_ms:.1f} ms, {work.jitter_ms / work.step_ms:.0%} of a step"
    return f": {cluster.input_images_per_s:,.0f} images/s" if cluster.input_images_per_s else ""


def _rows(rows: Iterable[Row]) -> str:
    lines = [f"{'GPUs':>6} {'published':>11} {'predicted':>11} {'error':>7}"]
    for one in rows:
        seen = "fitted" if one.fitted else ""
        line = f"{one.ranks:>6} {one.published:>11,.1f} {one.predicted:>11,.1f} {one.error:>+7.1%}"
        lines.append(f"{line}  {seen:<6}  {one.reason}".rstrip())
    return "\n".join(lines)


def render_table(
    found: Iterable[Prediction], *, measured: Mapping[int, float] | None = None
) -> str:
    """Return a table of predictions as text: what a step costs beyond computing, and what binds.

    Args:
        found: the predictions.
        measured: images/s by GPUs; they stand behind, with what they are of the predicted.
    """
    lines = [
        f"{'GPUs':>6} {'nodes':>5} {'images/s':>9} {'effic.':>6} {'step ms':>8} "
        f"{'+latency':>8} {'+bytes':>7} {'+slowest':>8} {'steps/epoch':>11} {'hours':>7} "
        f"{'node-h':>7}  bound by"
    ]
    for one in found:
        latency, transfer, slowest = (one.terms_ms[term] for term in TERMS[1:4])
        lines.append(
            f"{one.ranks:>6} {one.nodes:>5} {one.images_per_s:>9,.0f} {one.efficiency:>6.1%} "
            f"{one.step_ms:>8.1f} {latency:>8.2f} {transfer:>7.2f} {slowest:>8.2f} "
            f"{one.steps_per_epoch:>11} {one.hours:>7.3g} {one.node_hours:>7.3g}  {one.bound_by}"
        )
        rate = (measured or {}).get(one.ranks)
        if rate:
            lines[-1] += f"; measured {rate:,.0f} images/s, {rate / one.images_per_s:.0%} of it"
    return "\n".join(lines)
