"""Who has come to an exchange, so that a rank which has not can be named.

Knows how ranks tell each other, past Horovod, how many exchanges they have come to: by a
datagram a second to rank 0. Horovod ends a training in which a rank does not come, and tells
the others no more than that it has. Leaves dead processes to ``watch``, and when to end to
Horovod's stall settings.
"""

from __future__ import annotations

import json
import platform
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from chexnet.errors import EXIT_FAILED, UserError, name_some

INTERVAL_S = 1.0
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Member:
    """A rank and where its datagrams are taken.

    Attributes:
        rank: which.
        host: where it runs.
        addresses: of that host, IPv4.
        port: of its socket.
    """

    rank: int
    host: str
    addresses: tuple[str, ...]
    port: int


class RollCall:
    """Counts the exchanges of this rank, tells them to another and hears of others'.

    Rank 0 hears all; rank 1 hears rank 0. Where no datagram passes, nothing is known and
    nothing else is wrong.

    Attributes:
        come: how many exchanges this rank has come to.
    """

    def __init__(self) -> None:
        self.come = 0
        self._members: Sequence[Member] = ()
        self._rank = 0
        self._heard: dict[int, int] = {}
        self._socket: socket.socket | None = None

    def open(self, rank: int, *, gather: Callable[[Any], list[Any]]) -> None:
        """Begin to tell and hear; every rank must call this.

        Args:
            rank: this one.
            gather: returns what every rank gives it, in their order.
        """
        self._rank = rank
        port = 0
        with suppress(OSError):
            bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            bound.bind(("", 0))
            bound.settimeout(INTERVAL_S)
            self._socket, port = bound, bound.getsockname()[1]
        self._members = gather(Member(rank, platform.node(), _addresses(), port))
        if self._socket:
            threading.Thread(target=self._talk, name="roll call", daemon=True).start()

    def find_missing(self) -> list[Member]:
        """Return the ranks that are known to have come to fewer exchanges than another."""
        heard = {**self._heard, self._rank: self.come}
        most = max(heard.values())
        return [self._members[rank] for rank, come in sorted(heard.items()) if come < most]

    def _talk(self) -> None:
        """Tell the own number once an interval, and note what comes in between."""
        to = self._members[1 if self._rank == 0 else 0]
        here = to.host == self._members[self._rank].host
        while True:
            text = json.dumps([self._rank, self.come]).encode()
            for address in (LOOPBACK,) if here else to.addresses:
                with suppress(OSError):
                    self._socket.sendto(text, (address, to.port))
            self._hear()

    def _hear(self) -> None:
        """Note what the others tell until nothing has come for an interval."""
        for _ in self._members:
            try:
                text, _ = self._socket.recvfrom(100)
                rank, come = json.loads(text)
                self._heard[int(rank)] = int(come)
            except (OSError, ValueError, TypeError):
                return


_ROLL_CALL = RollCall()


_OPENERS: list[Callable[[], None]] = []


def plan_roll_call(rank: int, *, gather: Callable[[Any], list[Any]]) -> None:
    """Have the roll call begin with the first exchange.

    Not before: gathering computes, and TensorFlow must first be told its device and threads.

    Args:
        rank: this one.
        gather: returns what every rank gives it, in their order.
    """
    _OPENERS.append(lambda: _ROLL_CALL.open(rank, gather=gather))


@contextmanager
def together() -> Iterator[None]:
    """Count an exchange that this rank comes to; where Horovod ends it, say who did not come.

    Raises:
        UserError: Horovod has shut down, since a rank did not come or has ended.
    """
    try:
        while _OPENERS:
            _OPENERS.pop()()
        _ROLL_CALL.come += 1
        yield
    except Exception as error:
        # TensorFlow and Horovod wrap it in classes of their own, by the way it was called.
        if "Horovod has been shut down" not in str(error):
            raise
        raise _describe(_ROLL_CALL.find_missing()) from error


def _describe(missing: Sequence[Member]) -> UserError:
    names = [f"rank {member.rank} on {member.host}" for member in missing]
    found = f"{name_some(names)} did not come" if names else "Horovod ended it, as a rank was lost"
    return UserError(
        "every rank to come to the exchange",
        found=found,
        fix="look there for what holds that rank: its files, its memory, its GPU (the log of rank "
        "0 names what it was waited for); if it is only slow, --set stall_shutdown_s=SECONDS; "
        "continue with --resume",
        exit_code=EXIT_FAILED,
    )


def _addresses() -> tuple[str, ...]:
    """Return this host's addresses that others may reach."""
    with suppress(OSError, ImportError):
        import psutil  # comes with Horovod

        return tuple(
            address.address
            for addresses in psutil.net_if_addrs().values()
            for address in addresses
            if address.family == socket.AF_INET and address.address != LOOPBACK
        )
    return ()
