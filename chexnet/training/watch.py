"""A rank that dies is noticed by those beside it, and named.

Knows how a rank sees that the process of another on its host is gone, while it waits for that
one in an exchange and can do nothing else. Leaves ending the ranks of other hosts to the launcher,
which does so when the ranks here end.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from chexnet.errors import EXIT_FAILED, UserError
from chexnet.training.ending import end_now
from chexnet.training.run_record import FAILED, end_record

INTERVAL_S = 0.2
# So long the lower ranks of a host are left to speak first.
TURN_S = 0.1


@dataclass(frozen=True)
class Peer:
    """The process of a rank.

    Attributes:
        rank: which.
        host: where.
        pid: its number there.
        started: when, in the kernel's ticks, since numbers are used again.
        space: in which list of processes the number counts; containers may have their own.
    """

    rank: int
    host: str
    pid: int
    started: str
    space: str


def describe_process(rank: int) -> Peer:
    """Return this process, for the others."""
    pid = os.getpid()
    return Peer(rank, platform.node(), pid, _started(pid) or "", _space())


class Watch:
    """Looks after the other ranks of this host from a thread; use as a context.

    Where one of them is gone, this process says so, notes it in the run's record and ends.

    Args:
        peers: all ranks.
        rank: this one.
        folder: the run folder.
    """

    def __init__(self, peers: Sequence[Peer], *, rank: int, folder: Path) -> None:
        me = peers[rank]
        self._beside = [
            peer
            for peer in peers
            if (peer.host, peer.space) == (me.host, me.space) and peer.rank != rank
        ]
        self._rank = rank
        self._folder = folder
        self._over = threading.Event()

    def __enter__(self) -> Watch:
        # Those that are seen now; a process that another user's /proc hides is none to miss.
        self._beside = [peer for peer in self._beside if is_alive(peer)]
        if self._beside:
            threading.Thread(target=self._look, name="watch", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(INTERVAL_S):
            gone = [peer for peer in self._beside if not is_alive(peer)]
            if gone:
                self._end(gone)

    def _end(self, gone: Sequence[Peer]) -> None:
        """Name the dead and end this process: it waits for them in vain."""
        lost = {peer.rank for peer in gone}
        before = sum(p.rank < self._rank and p.rank not in lost for p in self._beside)
        if self._over.wait(TURN_S * (1 + before)):
            return
        error = UserError(
            "every rank to go on",
            found="; ".join(f"rank {p.rank} ended: process {p.pid} on {p.host}" for p in gone),
            fix="the launcher names the signal (9 is often the kernel, out of memory: see dmesg); "
            "continue with --resume",
            exit_code=EXIT_FAILED,
        )
        try:
            is_news = end_record(self._folder, status=FAILED, error=str(error))
        except (OSError, UserError):
            is_news = True
        if is_news:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        time.sleep(TURN_S)  # so that what was said passes the launcher
        end_now(EXIT_FAILED)


def is_alive(peer: Peer) -> bool:
    """Return whether a rank's process on this host has not ended."""
    return _started(peer.pid) == peer.started


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since the machine did; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before may hold anything, brackets too; see proc(5), fields 3 and 22.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
