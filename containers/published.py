"""Holds the scaling model against published tables: fitted on the small rows, it predicts the rest.

Knows how a table is read, three explanations of a loss that are fitted to the rows of one to four
GPUs, and what can be said of a row that an explanation misses. Leaves the model to
``containers.scaling``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from containers.scaling import (
    BANDWIDTH,
    LATENCY,
    Cluster,
    Work,
    model_terms,
    predict,
    wait_for_slowest,
)
from env.errors import UserError, unknown_name

TABLES = Path(__file__).with_name("published_scaling.toml")
FITTED_TO = 4  # GPUs: what one node of every table has
NEAR = 0.05  # of the published rate: closer is called explained
# What each supposes of the loss; the first fits nothing but the step of one GPU.
EXPLANATIONS = {
    "exchange": "nothing but the exchange of gradients costs, and none of it hides",
    "stragglers": "besides, the step of a rank varies; its deviation is fitted",
    "input": "besides the exchange, a node prepares no more films than its fitted rows show",
}


@dataclass(frozen=True)
class Table:
    """A published series.

    Attributes:
        name: its key in the file.
        title: network, films, GPUs, who.
        source: where the rows were read.
        work: batch and gradient; the step of one GPU comes from the first row.
        cluster: the links.
        rates: images/s by GPUs; empty where only efficiencies are published.
        efficiencies: by GPUs.
        note: what the publication leaves open.
    """

    name: str
    title: str
    source: str
    work: Work
    cluster: Cluster
    rates: Mapping[int, float]
    efficiencies: Mapping[int, float]
    note: str


@dataclass(frozen=True)
class Row:
    """One published number and what an explanation makes of it.

    Attributes:
        ranks: GPUs.
        fitted: whether the explanation has seen it.
        published: images/s.
        predicted: images/s.
        reason: why it misses, where it does.
    """

    ranks: int
    fitted: bool
    published: float
    predicted: float
    reason: str

    @property
    def error(self) -> float:
        """Return how much too high the prediction is, as a share of what was published."""
        return self.predicted / self.published - 1


def load_tables(path: Path = TABLES) -> dict[str, Table]:
    """Return every published table by its name.

    Raises:
        UserError: the file is missing or an entry of it is wrong.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: _table(name, entry) for name, entry in data.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "the head of the file says what an entry holds"
        raise UserError("published tables", found=f"{path}: {error!r}", fix=fix) from error


def _table(name: str, entry: Mapping[str, object]) -> Table:
    rates = {int(ranks): float(rate) for ranks, rate in entry.get("rows", ())}
    shares = {int(ranks): float(share) for ranks, share in entry.get("efficiency_rows", ())}
    shares |= {ranks: rate / ranks / rates[1] for ranks, rate in rates.items()}
    batch = entry["work"]["batch"]
    step_ms = 1000 * batch / rates[1] if rates else 1.0
    return Table(
        name, entry["title"], entry["source"], Work(step_ms=step_ms, **entry["work"]),
        Cluster(**entry["cluster"]), rates, shares, entry["note"],
    )  # fmt: skip


def find_table(name: str) -> Table:
    """Return a published table that can be fitted.

    Raises:
        UserError: there is none of that name; those that there are are listed.
    """
    known = {one.name: one for one in load_tables().values() if one.rates}
    if name not in known:
        raise unknown_name("published table", name, known=known)
    return known[name]


def fit(table: Table, *, explanation: str) -> tuple[Work, Cluster]:
    """Return work and cluster as an explanation has them, from the rows up to `FITTED_TO`.

    The links are the publication's: no row on one node says anything of the network.

    Args:
        table: what is to be explained.
        explanation: one of `EXPLANATIONS`.

    Raises:
        UserError: an unknown explanation.
    """
    if explanation not in EXPLANATIONS:
        raise unknown_name("explanation", explanation, known=EXPLANATIONS)
    work, cluster = table.work, table.cluster
    few = {ranks: rate for ranks, rate in table.rates.items() if ranks <= FITTED_TO}
    if explanation == "stragglers":
        late = {ranks: wait_for_slowest(ranks) for ranks in few if ranks > 1}
        rest = {
            ranks: 1000 * work.batch * ranks / few[ranks]
            - predict(ranks, work=work, cluster=cluster).step_ms
            for ranks in late
        }
        # Least squares through zero.
        jitter = sum(late[n] * rest[n] for n in late) / sum(z * z for z in late.values())
        work = replace(work, jitter_ms=max(0.0, jitter))
    elif explanation == "input":
        cluster = replace(cluster, input_images_per_s=max(few.values()))
    return work, cluster


def explain(table: Table, *, explanation: str) -> list[Row]:
    """Return every published row beside what the explanation predicts.

    Raises:
        UserError: an unknown explanation.
    """
    work, cluster = fit(table, explanation=explanation)
    rows = []
    for ranks, published in table.rates.items():
        predicted = predict(ranks, work=work, cluster=cluster).images_per_s
        row = Row(ranks, ranks <= FITTED_TO, published, predicted, "")
        reason = _reason(row, explanation, work, cluster) if abs(row.error) > NEAR else ""
        rows.append(replace(row, reason=reason))
    return rows


def _reason(row: Row, explanation: str, work: Work, cluster: Cluster) -> str:
    """Return what the numbers themselves say of a row that is missed."""
    lost = 1000 * work.batch * row.ranks / row.published - work.step_ms
    terms = model_terms(row.ranks, work=work, cluster=cluster)
    exchange = terms[LATENCY] + terms[BANDWIDTH]
    if row.error > 0 and explanation != "input":
        where = "inside one node" if row.ranks <= cluster.gpus_per_node else "over the network"
        told = (
            f"a step loses {lost:.0f} ms; the exchange {where} takes at most {exchange:.1f} of them"
        )
        if explanation == "stragglers":
            told += f", and a deviation of {work.jitter_ms:.0f} ms is too little for the rest"
        return told
    if explanation == "input":
        most = cluster.input_images_per_s * cluster.nodes(row.ranks)
        if row.error < 0:
            return f"refuted: {row.published:,.0f} images/s where {most:,.0f} would be the most"
        return f"{most:,.0f} images/s of input are more than were reached: not input alone"
    share = work.jitter_ms / work.step_ms
    return f"a deviation of {work.jitter_ms:.0f} ms, {share:.0%} of a step, is too much here"
