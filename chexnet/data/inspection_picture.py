"""An inspection as a picture: how often each finding is there, and which come together.

Leaves what was found to `inspection`. Draws to a file without any screen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from chexnet.data.inspection import Inspection
from chexnet.errors import UserError
from chexnet.labels import FINDINGS

PICTURES = (".png", ".svg", ".pdf")


def check_picture(output: Path) -> None:
    """Refuse the name of a picture of an unknown kind, before long work.

    Raises:
        UserError: it ends in none of `PICTURES`.
    """
    if output.suffix not in PICTURES:
        raise UserError(
            f"a picture: a file that ends in {', '.join(PICTURES)}",
            found=str(output),
            fix="name it so, e.g. findings.png",
        )


def draw_inspection(inspection: Inspection, *, output: Path) -> None:
    """Draw counts by finding beside the share of films that have another finding as well.

    The colour of a square is the share of its row's films that have its column's finding too:
    counts of common findings would drown those of rare ones. The number in it counts films.

    Args:
        inspection: what was found.
        output: a ``.png``, ``.svg`` or ``.pdf`` file.
    """
    from matplotlib.figure import Figure

    together = np.array(inspection.together)
    alone = np.diag(together)
    share = together / np.maximum(alone[:, None], 1)
    np.fill_diagonal(share, np.nan)  # blank: each film of a finding has it
    highest = float(np.nanmax(share))
    figure = Figure(figsize=(13, 6.5), layout="constrained")
    bars, matrix = figure.subplots(1, 2, width_ratios=(1, 2.2))
    names = [finding.replace("_", " ") for finding in FINDINGS]
    places = np.arange(len(names))
    bars.barh(places, alone, color="#33658a")
    bars.set_yticks(places, names)
    bars.invert_yaxis()
    bars.set_xlabel("films")
    bars.spines[["top", "right"]].set_visible(False)
    for place, count in zip(places, alone.tolist(), strict=True):
        bars.annotate(f" {count:,}", (count, place), va="center", fontsize=8)
    bars.margins(x=0.18)
    shown = matrix.imshow(share, cmap="cividis", vmin=0, vmax=max(0.01, highest))
    matrix.set_xticks(places, names, rotation=50, ha="right", fontsize=8)
    matrix.set_yticks(places, names, fontsize=8)
    for row in places:
        for column in places:
            if row != column and together[row, column]:
                dark = share[row, column] < highest / 2
                matrix.text(column, row, f"{together[row, column]:,}", ha="center", va="center",
                            fontsize=6, color="white" if dark else "black")  # fmt: skip
    matrix.set_title("films that have both; colour: share of the row's films", fontsize=10)
    figure.colorbar(shown, ax=matrix, shrink=0.8, format=lambda value, _: f"{value:.0%}")
    figure.suptitle(
        f"{Path(inspection.folder).name}: {inspection.num_films:,} films of "
        f"{inspection.num_patients:,} patients"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120)
