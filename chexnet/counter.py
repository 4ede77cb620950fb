"""How far a long piece of work is: a bar on a terminal, a line now and then elsewhere.

Knows how to count. Writes to standard error, so that what a command prints stays whole.
Leaves who may speak to its callers.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class Counter:
    """Shows how many of some things are done; use as a context, and call with the number.

    Args:
        label: what is done, e.g. ``"test films predicted"``.
        total: how many there are.
        enabled: whether to show anything.
        bar: whether a person is watching.
    """

    def __init__(self, label: str, *, total: int, enabled: bool = True, bar: bool = False) -> None:
        self._label, self._total, self._enabled = label, total, enabled
        self._bar: Progress | None = None
        if enabled and bar:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=16))
            self._bar = Progress(
                *columns, MofNCompleteColumn(), TextColumn("{task.fields[rate]:.0f}/s"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(label, total=total, rate=0.0)

    def __enter__(self) -> Counter:
        self._started = self._said = time.monotonic()
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, done: int) -> None:
        """Show that so many are done, if it is time to."""
        now = time.monotonic()
        seconds = now - self._started
        rate = done / max(seconds, 1e-9)
        if self._bar:
            self._bar.update(self._task, completed=done, rate=rate)
        elif self._enabled and (now - self._said > SECONDS_BETWEEN_LINES or done == self._total):
            self._said = now
            left = timedelta(seconds=round(seconds * (self._total - done) / max(done, 1)))
            print(f"{done}/{self._total} {self._label}, {rate:.0f}/s, {left} left",
                  file=sys.stderr, flush=True)  # fmt: skip
