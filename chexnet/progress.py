"""What a user sees while it runs: a bar on a terminal, plain lines elsewhere.

Knows how to show; only rank 0 shows anything. Leaves what to say to its callers.

mpirun gives each rank a terminal of its own making, wherever its output really goes. So
under a launcher there is a bar only where $CHEXNET_TERMINAL is 1, set by whoever started
the launcher and knows.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Reporter:
    """Shows progress on rank 0 and nothing on the others; use as a context.

    Attributes:
        enabled: whether this process speaks.
        terminal: whether a person is watching, so that a bar makes sense.
    """

    def __init__(self, *, enabled: bool, total_steps: int = 0, work: str = "training") -> None:
        self.enabled = enabled
        self.terminal = enabled and _is_watched()
        self._console = Console(highlight=False, soft_wrap=True)
        self._total = total_steps
        self._work = work
        self._bar: Progress | None = None

    def __enter__(self) -> Reporter:
        if self.terminal and self._total:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[numbers]}"),
                console=self._console,
            )
            self._task = self._bar.add_task(self._work, total=self._total, numbers="")
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

    def show_step(self, step: int, *, epoch: int) -> None:
        """Move the bar; nothing where there is none."""
        self.show(step, work=f"epoch {epoch}")

    def show(self, step: int, *, work: str) -> None:
        """Move the bar to so many steps and name the work; nothing where there is no bar."""
        if self._bar:
            self._bar.update(self._task, completed=step, description=work)

    def show_window(self, numbers: str, *, where: str) -> None:
        """Show the numbers of the last steps: beside the bar, which tells where, or as a line."""
        if self._bar:
            self._bar.update(self._task, numbers=numbers)
        else:
            self.say(f"{where}  {numbers}")

    def say(self, text: str) -> None:
        """Print a line at once, so that a log read while it grows is whole."""
        if self.enabled:
            self._console.print(text, markup=False)
            sys.stdout.flush()


def _is_watched() -> bool:
    launched = any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"))
    if launched:
        return os.environ.get("CHEXNET_TERMINAL") == "1"
    return sys.stdout.isatty()
