"""Stopping on SIGTERM, SIGUSR1 and ctrl-C, at a point where nothing is half done.

Knows which signals ask for a stop. SIGUSR1 is what schedulers can send some time before they
end a job, and what mpirun hands on to every rank without ending them itself. Leaves when to
look, and what is kept, to ``epochs``.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from chexnet.errors import EXIT_REQUEUE, UserError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interrupted(UserError):
    """The user or the scheduler stopped the run; it can be continued."""


class StopSignal:
    """Remembers that a stop was asked for; a context that puts the old handlers back."""

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> StopSignal:
        self._before = {number: signal.signal(number, self._remember) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def interrupt(self, where: str) -> Interrupted:
        """Return the error that ends the run.

        Args:
            where: what was going on and what is kept, for the message.
        """
        by = self.received or "a signal to another rank"
        return Interrupted(
            "to train to the end",
            found=f"stopped by {by} {where}",
            fix="continue with --resume",
            exit_code=EXIT_REQUEUE,
        )

    def check(self, where: str) -> None:
        """Stop here if a stop was asked for, without asking the other ranks.

        Args:
            where: what was going on, for the message.

        Raises:
            Interrupted: a signal has come.
        """
        if self.received:
            raise self.interrupt(where)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
