"""A picture of which CPUs and GPU each rank of a run was given, from its plan.json.

Knows the plan's fields. A rank is a row, a CPU a column, so that a hundred ranks still fit;
the picture of one machine with its sockets and memory nodes is ``invoke plan-binding``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import escape

from chexnet.pages.charts import COLOURS, draw_text, wrap_svg
from chexnet.pages.report_figures import Figure
from chexnet.pages.report_text import clean

_WIDTH, _ROW, _LEFT, _RIGHT = 400, 20, 56, 108
_MOST_HOSTS = 8


def draw_binding(plan: Mapping[str, Any]) -> list[Figure]:
    """Return a picture of each host's ranks, of the first hosts where there are many.

    Args:
        plan: what ``plan.json`` holds; an empty one, or one of another form, has no picture.
    """
    try:
        hosts: dict[str, list[Mapping[str, Any]]] = {}
        for rank in plan["ranks"]:
            hosts.setdefault(str(rank["host"]), []).append(rank)
        shown = list(hosts.items())[:_MOST_HOSTS]
        figures = [_draw_host(host, ranks) for host, ranks in shown]
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return []
    more = len(hosts) - len(shown)
    if more and figures:
        last = figures.pop()
        figures.append(Figure(last.title, last.svg, f"{more} more hosts are in plan.json"))
    return figures


def _draw_host(host: str, ranks: Sequence[Mapping[str, Any]]) -> Figure:
    last = max((int(cpu) for rank in ranks for cpu in rank["cores"]), default=0)
    cell = (_WIDTH - _LEFT - _RIGHT) / (last + 1)
    parts = []
    for number, rank in enumerate(ranks):
        y = number * _ROW + 4
        cores = [int(cpu) for cpu in rank["cores"]]
        parts.append(draw_text(f"rank {rank['rank']}", _LEFT - 6, y + 12, css="end"))
        parts.append(f'<path class="grid" d="M{_LEFT} {y + 8}H{_WIDTH - _RIGHT}"/>')
        for first, end in find_runs(cores):
            told = f"rank {rank['rank']}: CPUs {first} to {end}, {rank.get('threads')} threads"
            parts.append(
                f'<rect class="fill c{number % COLOURS}" x="{_LEFT + first * cell:.1f}" y="{y}" '
                f'width="{max(1.5, (end - first + 1) * cell - 1):.1f}" height="15" rx="2">'
                f"<title>{escape(clean(told))}</title></rect>"
            )
        parts.append(draw_text(_tell(rank), _WIDTH - _RIGHT + 8, y + 12))
    y = len(ranks) * _ROW + 18
    parts.append(draw_text("CPU 0", _LEFT, y, css="soft"))
    parts.append(draw_text(f"CPU {last}", _WIDTH - _RIGHT, y, css="soft end"))
    title = f"{host}: {len(ranks)} ranks" if len(ranks) > 1 else f"{host}: one rank"
    return Figure(title, wrap_svg("".join(parts), size=(_WIDTH, y + 6), title=title))


def _tell(rank: Mapping[str, Any]) -> str:
    gpu = "" if rank.get("gpu") is None else f"GPU {rank['gpu']}, "
    count = len(rank["cores"])
    cores = f"{count} CPU{'s' * (count > 1)}" if count else "not bound"
    return f"{gpu}{cores}"


def find_runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return first and last of each stretch of numbers that follow each other."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
