"""Several runs on one page: scores, curves, speed, and what differed in their configuration.

Knows which runs may stand in one table: those that were scored on the same films. Others get a
table of their own. Leaves reading to ``report_data`` and a run's own page to ``report``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from chexnet.errors import UserError
from chexnet.files import write_text
from chexnet.pages.charts import COLOURS, Axis, Line, render_chart, wrap_svg
from chexnet.pages.report import make_place, render_page
from chexnet.pages.report_data import RunFolder, load_folder
from chexnet.pages.report_figures import Figure
from chexnet.pages.report_scores import Evaluation, number
from chexnet.pages.report_text import NONE, show_count, show_finding, show_seconds
from chexnet.pages.report_verdict import choose_main, describe_films, describe_split
from chexnet.results.compare import flatten, without_places

_SOFTWARE = ("data_sha256", "weights_sha256", "device", "ranks", "lock_sha256", "git_revision",
             "versions", "horovod", "effective")  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """One of the runs.

    Attributes:
        name: as short as tells it from the others.
        colour: of its curves.
        folder: what it left.
        key: a piece of its line, for the list of runs.
        facts: what the table of runs shows of it, by column.
    """

    name: str
    colour: int
    folder: RunFolder
    key: Markup
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Group:
    """Runs that were scored on the same films: their scores may stand side by side.

    Attributes:
        films: which films, in words.
        comparable: what else they may be compared with.
        runs: each with its evaluation.
        rows: each finding's name and every run's scores, in the order of the runs.
        curves: ROC of each finding, all runs together.
    """

    films: str
    comparable: str
    runs: tuple[tuple[Compared, Evaluation], ...]
    rows: tuple[tuple[str, tuple[Any, ...]], ...]
    curves: tuple[Figure, ...]


def write_comparison(runs: Sequence[Path], *, output: Path) -> Path:
    """Write the page that shows several runs side by side, and return its path.

    Args:
        runs: two or more run folders.
        output: where the page goes.

    Raises:
        UserError: fewer than two, one named twice, or one that is no run folder; or a folder
            where the page goes.
    """
    places = [run.resolve() for run in runs]
    if len(places) < 2 or len(set(places)) < len(places):
        raise UserError(
            "two or more different run folders to compare",
            found=", ".join(str(run) for run in runs) or "none",
            fix="name each once: --compare DIR DIR ...",
        )
    page = render_comparison([load_folder(run) for run in runs])
    make_place(output)
    write_text(output, text=page)
    return output


def render_comparison(folders: Sequence[RunFolder]) -> str:
    """Return the page as HTML text that is well-formed XML too."""
    runs = [
        Compared(name, number, folder, _draw_key(number), _list_facts(folder))
        for number, (name, folder) in enumerate(zip(name_runs(folders), folders, strict=True))
    ]
    values = {
        "runs": runs,
        "groups": group_runs(runs),
        "unscored": [run.name for run in runs if choose_main(run.folder) is None],
        "data_note": _note_data(folders),
        "learning": _draw_learning(runs),
        "speed": _draw_speed(runs),
        "differences": find_differences([run.folder.config for run in runs]),
        "software": find_differences([_list_software(run.folder) for run in runs]),
        "notes": [f"{run.name}: {note}" for run in runs for note in run.folder.notes],
    }
    return render_page("compare.html.j2", values)


def name_runs(folders: Sequence[RunFolder]) -> list[str]:
    """Return the shortest ends of the folders' paths that tell them apart."""
    parts = [folder.path.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def group_runs(runs: Sequence[Compared]) -> list[Group]:
    """Return the runs by the films that they were scored on and had not seen, in their order."""
    scored: dict[tuple[object, ...], list[tuple[Compared, Evaluation]]] = {}
    for run in runs:
        one = choose_main(run.folder)
        if one:
            # A run that was trained on patients of these films says something else of them.
            films = (
                one.split, one.split_kind, one.data_sha256, one.num_examples, describe_split(one),
            )  # fmt: skip
            scored.setdefault(films, []).append((run, one))
    groups = []
    for members in scored.values():
        _, first = members[0]
        groups.append(
            Group(
                films=describe_films(first),
                comparable=describe_split(first),
                runs=tuple(members),
                rows=_list_rows(members),
                curves=_draw_curves(members),
            )
        )
    return groups


def _note_data(folders: Sequence[RunFolder]) -> str:
    """Return what keeps losses and validation scores from standing side by side, if anything."""
    hashes = [str(folder.record.get("data_sha256") or "") for folder in folders]
    known = {one for one in hashes if one}
    if len(known) > 1:
        return (
            "These runs were trained on different data: their losses and validation AUROC are of "
            "different films and not comparable."
        )
    if known and "" in hashes:
        return (
            "Not every run says which data it was trained on: whether losses and validation AUROC "
            "are of the same films cannot be told."
        )
    return ""


def find_differences(facts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Return each name whose value is not the same in all runs, with the values.

    Args:
        facts: of each run, by name.
    """
    rows = []
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [one.get(name, NONE) for one in facts]
        if any(value != values[0] for value in values):
            rows.append((str(name), [str(value) for value in values]))
    return rows


def _list_software(folder: RunFolder) -> dict[str, Any]:
    """Return what the record tells of data, software and machine, by flat names."""
    facts = {key: folder.record[key] for key in _SOFTWARE if key in folder.record}
    return without_places(flatten(facts))


def _list_rows(
    members: Sequence[tuple[Compared, Evaluation]],
) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    scores = [{one.finding: one for one in e.findings} for _, e in members]
    names = dict.fromkeys(name for by_name in scores for name in by_name)
    return tuple((name, tuple(by_name.get(name) for by_name in scores)) for name in names)


def _list_facts(folder: RunFolder) -> dict[str, str]:
    record, ends = folder.record, folder.metrics.epochs
    speeds = record.get("throughput") if isinstance(record.get("throughput"), Mapping) else {}
    aurocs = [number(line.get("validation_auroc")) for line in ends]
    best = max((value for value in aurocs if value is not None), default=None)
    hosts = record.get("hosts") if isinstance(record.get("hosts"), list) else []
    return {
        "status": str(record.get("status", NONE)),
        "epochs": str(len(ends)),
        "ranks": str(record.get("ranks", NONE)),
        "hosts": str(len(set(map(str, hosts))) or NONE),
        "device": str(record.get("device", NONE)),
        "films/s": show_count(number(speeds.get("images_per_s"))),
        "training took": show_seconds(number(speeds.get("seconds"))),
        "best validation AUROC": NONE if best is None else f"{best:.4f}",
        "revision": str(record.get("git_revision") or NONE)[:12],
    }


def _draw_key(colour: int) -> Markup:
    path = f'<path class="line c{colour % COLOURS}" d="M0 5h26"/>'
    return wrap_svg(path, size=(26, 10), title="its line")


def _overlay(
    title: str, runs: Sequence[Compared], *, kind: str, key: str, y: Axis
) -> Figure | None:
    style = "marked" if kind == "epoch" else "line"
    lines = [Line("", run.folder.metrics.curve(kind, key), run.colour, style) for run in runs]
    if not any(line.points for line in lines):
        return None
    return Figure(title, render_chart(lines, x=Axis("epochs", low=0), y=y, title=title))


def _draw_learning(runs: Sequence[Compared]) -> list[Figure]:
    figures = (
        _overlay("Training loss", runs, kind="epoch", key="loss", y=Axis("binary cross-entropy")),
        _overlay("Validation AUROC", runs, kind="epoch", key="validation_auroc",
                 y=Axis("mean AUROC")),
        _overlay("Learning rate", runs, kind="steps", key="lr", y=Axis("learning rate", low=0)),
    )  # fmt: skip
    return [figure for figure in figures if figure]


def _draw_speed(runs: Sequence[Compared]) -> list[Figure]:
    figures = (
        _overlay("Throughput", runs, kind="epoch", key="images_per_s",
                 y=Axis("films/s, all ranks", low=0)),
        _overlay("Input wait", runs, kind="epoch", key="input_wait_fraction",
                 y=Axis("share of the time", low=0, percent=True)),
    )  # fmt: skip
    return [figure for figure in figures if figure]


def _draw_curves(members: Sequence[tuple[Compared, Evaluation]]) -> tuple[Figure, ...]:
    figures = []
    for name, scores in _list_rows(members):
        pairs = zip(members, scores, strict=True)
        lines = [Line("", one.roc, run.colour) for (run, _), one in pairs if one and one.roc]
        if lines:
            x, y = (Axis(f"{what} positives", low=0, high=1, ticks=2) for what in ("false", "true"))
            title = f"ROC of {show_finding(name)}"
            chart = render_chart(lines, x=x, y=y, title=title, size=(200, 196))
            figures.append(Figure(show_finding(name), chart))
    return tuple(figures)
