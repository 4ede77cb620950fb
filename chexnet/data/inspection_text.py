"""An inspection as tables for people. Leaves what was found to `inspection`."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from chexnet.data.inspection import Inspection
from chexnet.labels import FINDINGS

_WIDE = 130  # columns that the matrix of findings needs


def print_inspection(inspection: Inspection, *, console: Console) -> None:
    """Print counts by finding and side, by view, and what is odd or wrong."""
    console.print(
        f"{inspection.folder} ({inspection.kind}): {inspection.num_films:,} films of "
        f"{inspection.num_patients:,} patients",
        highlight=False,
    )
    console.print(_counts("finding", inspection.findings))
    console.print(_counts("view", inspection.views))
    if console.width >= _WIDE:
        console.print(_together(inspection))
    for name, counts in (("images", inspection.images), ("boxes", inspection.boxes)):
        if counts:
            console.print(_counts(name, {"number": counts}))
    for line in inspection.odd:
        console.print(f"odd:   {line}", markup=False, highlight=False, style="yellow")
    for line in inspection.wrong:
        console.print(f"wrong: {line}", markup=False, highlight=False, style="red")


def _counts(name: str, by_side: dict[str, dict[str, int]]) -> Table:
    table = Table(name)
    for side in by_side:
        table.add_column(side, justify="right")
    rows = dict.fromkeys(key for counts in by_side.values() for key in counts)
    for row in rows:
        numbers = (counts.get(row, 0) for counts in by_side.values())
        table.add_row(row or "not said", *(f"{number:,}" for number in numbers))
    return table


def _together(inspection: Inspection) -> Table:
    table = Table("films with both", title="Findings that come together", title_justify="left")
    for finding in FINDINGS:
        table.add_column(finding[:6], justify="right")
    for finding, counts in zip(FINDINGS, inspection.together, strict=True):
        table.add_row(finding, *map(str, counts))
    return table
