"""A comparison of two runs, in words, as a table and as JSON.

Knows how to say that little differs. Leaves finding it to ``compare``.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from chexnet.results.compare import SCHEMA_VERSION, Comparison, Losses

FEW = 3
_HASH = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as an object; its schema lies in ``compare.schema.json``."""
    values = {"schema_version": SCHEMA_VERSION} | asdict(comparison)
    return _plain(values | {"verdict": tell_verdict(comparison)})


def tell_verdict(comparison: Comparison) -> str:
    """Return in one sentence what the runs differ in."""
    unknown = sorted({name for names in comparison.missing for name in names})
    limits = f"; not compared for want of files: {', '.join(unknown)}" if unknown else ""
    names = [cause.name for cause in comparison.causes]
    if not comparison.compared:
        return f"nothing that went into the runs can be compared{limits}"
    if not names:
        parts = ", ".join(comparison.compared)
        return f"nothing differs of what went in ({parts}){limits}"
    if len(names) <= FEW:
        return f"nothing differs but {' and '.join(names)}{limits}"
    parts = dict.fromkeys(cause.part for cause in comparison.causes)
    counts = [f"{sum(c.part == part for c in comparison.causes)} in {part}" for part in parts]
    return f"{len(names)} things differ: {', '.join(counts)}{limits}"


def tell_losses(losses: Losses) -> str:
    """Return in one sentence how far the training losses agree; "" where none are shared."""
    if not losses.shared:
        return ""
    if losses.first is None:
        return f"losses: the same to the last digit in all {losses.shared} windows of steps"
    far = "" if losses.largest is None else f", by at most {losses.largest:.3g}"
    return (
        f"losses: differ from step {losses.first} on ({losses.shared - losses.equal} of "
        f"{losses.shared} windows){far}"
    )


def print_comparison(comparison: Comparison, *, console: Console) -> None:
    """Print the verdict, what differs, and what came out."""
    for letter, run, missing in zip("AB", comparison.runs, comparison.missing, strict=True):
        lacking = f"  (without {', '.join(missing)})" if missing else ""
        console.print(f"{letter}: {run}{lacking}", markup=False, highlight=False, soft_wrap=True)
    console.print(tell_verdict(comparison), style="bold", highlight=False, markup=False)
    if comparison.causes:
        table = Table("", "what went in", "A", "B", box=None, pad_edge=False)
        part = ""
        for cause in comparison.causes:
            table.add_row(cause.part if cause.part != part else "", cause.name,
                          *(_show(value) for value in cause.values))  # fmt: skip
            part = cause.part
        console.print(table)
    if comparison.outcomes:
        table = Table("what came out", "A", "B", "B - A", box=None, pad_edge=False)
        for one in comparison.outcomes:
            table.add_row(one.name, *(_show(value) for value in one.values), _gap(*one.values))
        console.print(table)
    losses = tell_losses(comparison.losses)
    if losses:
        console.print(losses, highlight=False)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON can hold it, which has no infinity and nothing that is no number."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _show(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(str(one) for one in value)
    if isinstance(value, str):
        return _HASH.sub(lambda found: found[0][:12], value)  # the beginning of a hash tells
    return "not said" if value is None else str(value)


def _gap(one: object, other: object) -> str:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (one, other))
    if not numbers:
        return ""
    gap = other - one
    share = f" ({gap / one:+.1%})" if one else ""
    return f"{gap:+.4g}{share}" if gap else "0"
