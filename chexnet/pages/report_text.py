"""Numbers and names as a page shows them: rounded, with a dash where there is none.

Knows how each kind of value reads, and that nothing but printable text reaches a page. Leaves
escaping to Jinja and to ``charts``.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

NONE = "–"
# What neither HTML nor XML may hold: controls, halves of letters and non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: object) -> str:
    """Return a text with a mark for each character that a page may not hold."""
    return _UNPRINTABLE.sub("�", str(text))


def show_score(value: float | None) -> str:
    """Return a score, 0 .. 1, with three digits."""
    return NONE if value is None else f"{value:.3f}"


def show_threshold(value: float | None) -> str:
    """Return a probability to decide at, with three digits that count: 0.500, 0.00031."""
    if value is None:
        return NONE
    if not value or abs(value) >= 0.1:
        return f"{value:.3f}"
    if abs(value) < 1e-6:
        return f"{value:.2e}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def show_interval(ends: Sequence[float] | None) -> str:
    """Return an interval of scores, such as ``0.806 to 0.818``."""
    return NONE if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def show_share(value: float | None) -> str:
    """Return a share, 0 .. 1, in percent: one digit after the point below ten."""
    if value is None:
        return NONE
    return f"{value:.1%}" if abs(value) < 0.0995 else f"{value:.0%}"


def show_count(value: float | None) -> str:
    """Return a count with commas."""
    return NONE if value is None else f"{value:,.0f}"


def show_bytes(value: float) -> str:
    """Return bytes in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def show_seconds(value: float | None) -> str:
    """Return seconds as hours, minutes and seconds, as far as they matter."""
    if value is None:
        return NONE
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def show_finding(name: object) -> str:
    """Return the name of a finding as people write it: without underscores."""
    return str(name).replace("_", " ")


def show_command(words: Sequence[object]) -> str:
    """Return a command line that a shell reads as these words."""
    return shlex.join(str(word) for word in words)
