"""What becomes of a command that runs in front of us when somebody asks us to stop.

Knows which signal makes each kind of command end in its own way, and how long that may take.
Leaves starting it to ``containers.launch`` and what a rank does then to the training program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

# A rank ends its step, writes its checkpoint and leaves; a large network on slow storage takes tens
# of seconds for that, and Slurm gives 120 s by the line of our scripts.
CHECKPOINT_S = 60.0
# From then on the launcher ends its ranks, which Open MPI 4 takes four times its patience for.
END_S = 20.0
_POLL_S = 0.2
_ASKS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


class HandedOn:
    """Hands on what asks to stop as SIGTERM, which ends every program that runs alone.

    ctrl-C is not: the terminal sends it to the child as well, which is waited for.
    """

    asks: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGUSR1)

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: int | None = None

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take the signals over; the old handlers are back afterwards."""
        before = {}
        for number in self.asks:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's HUP stays ignored
                before[number] = signal.signal(number, self._asked)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child and return its exit code; negative where a signal ended it."""
        self._child = child
        if self._early is not None:
            self.stop(self._early)
        while True:
            try:
                return self.poll(child)
            except KeyboardInterrupt:
                continue  # the terminal sent it to the child too: wait for it to stop by itself

    def poll(self, child: subprocess.Popen[bytes]) -> int:
        """Wait without end."""
        return child.wait()

    def stop(self, number: int) -> None:
        """Ask the child to stop."""
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send the child a signal, if it is still there."""
        if self._child is not None and self._child.poll() is None:
            with suppress(ProcessLookupError):
                self._child.send_signal(number)

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        if self._child is None:
            self._early = number  # it came while the child was being started
        else:
            self.stop(number)


class AsRanks(HandedOn):
    """Asks ranks for a checkpoint, and ends them only where they do not leave.

    SIGUSR1 is what mpirun of Open MPI 4 and 5, srun and horovodrun's mpirun hand on to every rank
    and let it answer. At SIGTERM srun kills its ranks at once, and mpirun after its patience. A
    second SIGTERM or ctrl-C, or the end of our own patience, is such an end.
    """

    asks = _ASKS

    def __init__(
        self,
        ask: signal.Signals = signal.SIGUSR1,
        *,
        checkpoint_s: float = CHECKPOINT_S,
        end_s: float = END_S,
    ) -> None:
        super().__init__()
        self._ask = ask
        self._checkpoint_s, self._end_s = checkpoint_s, end_s
        self._deadline: float | None = None
        self._ending = False

    def stop(self, number: int) -> None:
        """Ask for a checkpoint first, for the end of the ranks the second time."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._checkpoint_s
            name = signal.Signals(number).name
            print(f"{name}: asking the ranks for a checkpoint; once more ends them without one",
                  file=sys.stderr, flush=True)  # fmt: skip
            self.send(self._ask)
        elif number != signal.SIGUSR1:
            self._end()

    def poll(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the child until patience ends, then end it."""
        while True:
            with suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=_POLL_S)
            if self._deadline is None or time.monotonic() < self._deadline:
                continue
            if not self._ending:
                print(f"the ranks did not leave within {self._checkpoint_s:g} s: ending them",
                      file=sys.stderr, flush=True)  # fmt: skip
                self._end()
            else:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._deadline = time.monotonic() + self._end_s
            self.send(signal.SIGTERM)
