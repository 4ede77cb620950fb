"""A picture of where a step's time goes.

Knows how it is drawn, in colours that differ in brightness too. Leaves the numbers to
``bottleneck``.
"""

from __future__ import annotations

from pathlib import Path

from chexnet.profiling.bottleneck import Times, Verdict

COLOURS = {"input": "#d55e00", "exchange": "#0072b2", "fixed": "#cc79a7", "compute": "#009e73"}
_LEAST_LABEL = 0.06  # of the width: a narrower part is named in the legend alone


def draw_shares(path: Path, *, times: Times, verdict: Verdict) -> None:
    """Draw one bar whose parts are what a step's time goes to.

    Args:
        path: the PNG file to write.
        times: what was measured.
        verdict: what they mean.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    left = 0.0
    for name, colour in COLOURS.items():
        share = getattr(verdict.shares, name)
        width = 1000 * share * times.step_s
        axes.barh(0, width, left=left, color=colour, label=f"{name} {share:.0%}")
        if share >= _LEAST_LABEL:
            axes.text(left + width / 2, 0, f"{share:.0%}", ha="center", va="center",
                      color="white", fontweight="bold")  # fmt: skip
        left += width
    axes.set_xlim(0, max(left, 1e-9))
    axes.set_yticks([])
    axes.set_xlabel("one step, ms")
    axes.set_title(
        f"{verdict.kind}: {times.images_per_s:.4g} images/s with batches of {times.batch_size}, "
        f"ranks: {times.ranks} ({times.device})",
        loc="left",
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=120)
