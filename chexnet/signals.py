"""Stopping on SIGTERM and ctrl-C, at a point where nothing is half done.

Knows which signals ask for a stop. Leaves when to look to ``train``.
"""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from chexnet.errors import EXIT_FAILED, UserError

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(UserError):
    """The user or the scheduler stopped the run."""


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

    def check(self, where: str) -> None:
        """Stop here if a stop was asked for.

        Args:
            where: what was going on, for the message.

        Raises:
            Interrupted: a signal has come.
        """
        if self.received:
            raise Interrupted(
                "to train to the end",
                found=f"stopped by {self.received} {where}",
                fix="continue from the last complete epoch with --resume",
                exit_code=EXIT_FAILED,
            )

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
