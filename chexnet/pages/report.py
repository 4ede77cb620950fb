"""The report: one page that shows a run, holds all it shows and asks no one for anything.

Knows which parts a page has and how they are put together. Leaves reading to ``report_data``,
charts to ``report_figures``, and comparing runs to ``report_compare``. Needs no TensorFlow, and
makes a page of whatever a run has left so far.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from chexnet import __version__
from chexnet.errors import UserError
from chexnet.files import write_text
from chexnet.pages.report_binding import draw_binding
from chexnet.pages.report_data import PLOTS, RunFolder, load_folder
from chexnet.pages.report_figures import (
    draw_bar,
    draw_bar_scale,
    draw_calibration,
    draw_curves,
    draw_learning,
    draw_speed,
    start_of_bars,
)
from chexnet.pages.report_origin import (
    STATUSES,
    count_films,
    list_commands,
    list_facts,
    list_settings,
    read_machine,
)
from chexnet.pages.report_scores import Evaluation, Published, Threshold, number
from chexnet.pages.report_text import (
    clean,
    show_bytes,
    show_command,
    show_count,
    show_finding,
    show_interval,
    show_score,
    show_seconds,
    show_share,
    show_threshold,
)
from chexnet.pages.report_verdict import (
    NOT_CLINICAL,
    caution_gallery,
    choose_main,
    describe_split,
    is_of_other_data,
    judge,
)

PAGE = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
# Works with a column of their own; the others stand in the table below.
MOST_COLUMNS = 3
_ODD = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)


def write_report(run: Path, *, output: Path | None = None) -> Path:
    """Write the page of a run, and its plots for slides into ``plots/`` beside the page.

    Args:
        run: the run folder; nothing is written there where the page goes elsewhere.
        output: where the page goes; by default ``report.html`` in the run folder.

    Returns:
        The path of the page.

    Raises:
        UserError: there is no run in that folder, or a folder where the page goes.
    """
    from chexnet.pages.report_plots import write_plots

    folder = load_folder(run)
    page = output or run / PAGE
    make_place(page)
    write_plots(folder, output=page.parent / PLOTS)
    write_text(page, text=render_report(folder))
    return page


def make_place(page: Path) -> None:
    """Make the folder that a page goes into.

    Raises:
        UserError: a folder lies where the page goes.
    """
    if page.is_dir():
        raise UserError(
            "a file, for the page", found=f"a folder: {page}", fix=f"--output {page / PAGE}"
        )
    page.parent.mkdir(parents=True, exist_ok=True)


def render_report(folder: RunFolder) -> str:
    """Return the page of a run as HTML text that is well-formed XML too."""
    notes = list(folder.notes)
    build = _Builder(notes)
    main = choose_main(folder)
    values: dict[str, Any] = {
        "folder": folder,
        "notes": notes,
        "verdict": judge(folder),
        "main": main,
        "others": [_describe_other(one, folder) for one in folder.evaluations if one is not main],
        "gallery_caution": caution_gallery(folder, main),
        "evaluate_command": show_command(["invoke", "evaluate", "--run", folder.path]),
        "learning": build("learning curves", lambda: draw_learning(folder.metrics), []),
        "speed": build("throughput", lambda: draw_speed(folder.metrics), []),
        "totals": build("throughput", lambda: _describe_totals(folder.record), ""),
        "films": build("counts of films", lambda: count_films(folder), []),
        "machine": build("machine", lambda: read_machine(folder), None),
        "binding": draw_binding(folder.plan),
        "facts": build("record", lambda: list_facts(folder), []),
        "settings": list_settings(folder),
        "commands": build("commands", lambda: list_commands(folder), []),
        **(_build_scores(main) if main else {}),
    }
    values["sections"] = _list_sections(values)
    return render_page("report.html.j2", values)


class _Builder:
    """Builds a part of the page; one that cannot be built becomes a note, and the rest stands."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def __call__(self, name: str, build: Callable[[], Any], default: object) -> Any:  # noqa: ANN401
        try:
            return build()
        except _ODD as error:
            self._notes.append(f"{name}: not shown, since a file of the run is odd: {error!r}")
            return default


def _describe_other(one: Evaluation, folder: RunFolder) -> tuple[str, str, Evaluation]:
    """Return which films an evaluation is of, what it may be compared with, and itself."""
    whose = f" of {one.data}" if is_of_other_data(one, folder=folder) else ""
    return f"{one.split}{whose}", describe_split(one), one


def _build_scores(main: Evaluation) -> dict[str, Any]:
    """Return what the templates of scores need."""
    low = start_of_bars(main)
    columns = [work for work in main.published if work.findings][:MOST_COLUMNS]
    rows = []
    for one in main.findings:
        beside = [w.findings[one.finding] for w in main.published if one.finding in w.findings]
        bar = draw_bar(one.auroc, ends=one.auroc_interval, published=beside, low=low)
        rows.append((one, bar))
    means = [work.mean_auroc for work in main.published if work.mean_auroc is not None]
    return {
        "columns": columns,
        "rows": rows,
        "bar_scale": draw_bar_scale(low),
        "mean_bar": draw_bar(main.mean_auroc, ends=main.mean_interval, published=means, low=low),
        "ranking": _rank(main),
        "curves": draw_curves(main),
        "calibration": draw_calibration(main),
        "thresholds": _group_thresholds(main),
        "boxes": _list_boxes(main),
    }


def _rank(main: Evaluation) -> list[tuple[Published, bool]]:
    """Return published results and this one, the best first, each with whether it is this one."""
    ours = Published("this run", "", "", main.mean_auroc, {}, "")
    rows = [*((work, False) for work in main.published), (ours, True)]
    return sorted(rows, key=lambda row: -(row[0].mean_auroc or 0))


def _group_thresholds(main: Evaluation) -> list[tuple[str, list[tuple[str, Threshold]]]]:
    groups: dict[str, list[tuple[str, Threshold]]] = {}
    for one in main.findings:
        for point in one.thresholds:
            groups.setdefault(point.name, []).append((one.finding, point))
    return list(groups.items())


def _list_boxes(main: Evaluation) -> list[dict[str, Any]]:
    """Return a row for each finding that has boxes, and last one for all of them."""
    names = ("num_boxes", "mass_inside", "mass_by_chance", "hit_rate")
    listed = main.boxes.get("findings")
    rows = [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []
    rows.append({**main.boxes, "finding": "all boxes"})
    return [{"finding": row.get("finding")} | {name: number(row.get(name)) for name in names}
            for row in rows if main.boxes]  # fmt: skip


def _describe_totals(record: Mapping[str, Any]) -> str:
    speeds = record.get("throughput") or {}
    rate, seconds = number(speeds.get("images_per_s")), number(speeds.get("seconds"))
    if rate is None:
        return ""
    took = f" Training took {show_seconds(seconds)}." if seconds is not None else ""
    ranks = record.get("ranks", "?")
    placed = "on one rank" if ranks == 1 else f"over all {ranks} ranks"
    return f"{show_count(rate)} films/s in the last epoch {placed}.{took}"


def _list_sections(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {
        "scores": "Scores",
        "published": "Published" if values["main"] else "",
        "curves": "ROC" if values.get("curves") else "",
        "calibration": "Calibration" if values.get("calibration") else "",
        "thresholds": "Thresholds" if values.get("thresholds") else "",
        "boxes": "Boxes" if values.get("boxes") else "",
        "learning": "Learning",
        "speed": "Throughput",
        "gallery": "Heat maps",
        "data": "Data",
        "machine": "Machine",
        "again": "To do it again",
    }
    return [(name, title) for name, title in names.items() if title]


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Return a page of a template; whatever the values hold is escaped.

    Args:
        template: its file in ``templates``.
        values: what it shows. Only `Markup`, which charts return, is taken as HTML.
    """
    css = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    common = {
        "css": Markup(css),
        "css_hash": Markup(f"sha256-{digest}"),
        "not_clinical": NOT_CLINICAL,
        "version": __version__,
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "statuses": STATUSES,
    }
    return _load_templates().get_template(template).render(common | dict(values))


@functools.cache
def _load_templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "score": show_score,
        "interval": show_interval,
        "share": show_share,
        "threshold": show_threshold,
        "count": show_count,
        "bytes": show_bytes,
        "finding": show_finding,
    }
    return environment


def _finalize(value: object) -> object:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
