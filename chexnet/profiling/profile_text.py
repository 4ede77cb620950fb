"""A profile as a table and in words.

Knows how times and verdict are shown. Leaves both to ``profile`` and ``bottleneck``.
"""

from __future__ import annotations

from collections.abc import Callable

from chexnet.profiling.bottleneck import Times, Verdict

Say = Callable[[str], None]
BAR_WIDTH = 32
SHARES = (
    ("input", "waiting for films, and cores that input takes"),
    ("exchange", "adding up gradients over the ranks"),
    ("fixed", "starting operations: does not grow with the batch"),
    ("compute", "computing: grows with the batch"),
)


def print_profile(times: Times, *, verdict: Verdict, say: Say) -> None:
    """Say where the time goes, the verdict, and what to do."""
    for line in render_profile(times, verdict=verdict):
        say(line)


def render_profile(times: Times, *, verdict: Verdict) -> list[str]:
    """Return the lines of the table, the verdict and the next steps."""
    lines = [
        f"a step of {1000 * times.step_s:.4g} ms, {times.images_per_s:.4g} images/s, "
        f"ranks: {times.ranks}"
    ]
    for name, meaning in SHARES:
        share = getattr(verdict.shares, name)
        bar = "#" * round(share * BAR_WIDTH)
        time_ms = 1000 * share * times.step_s
        lines.append(f"  {name:<9}{share:>4.0%} {time_ms:>9.4g} ms  {bar:<{BAR_WIDTH}}  {meaning}")
    lines.append(
        f"measured: films in memory {1000 * times.memory_step_s:.4g} ms; {times.other_batch_size} "
        f"instead of {times.batch_size} films {1000 * times.other_step_s:.4g} ms; exchange alone "
        f"{1000 * times.exchange_s:.4g} ms"
    )
    if times.gpu_use is not None:
        lines.append(f"GPUs in use {times.gpu_use:.0%} of the time")
    lines += ["", f"{verdict.kind}: {verdict.reason}"]
    lines += [f"  {n}. {text}" for n, text in enumerate(verdict.next_steps, start=1)]
    return lines
