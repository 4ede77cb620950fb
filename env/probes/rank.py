"""What one rank observes of itself under a launcher.

Knows the order: first what needs no other rank, so that a rank that hangs while joining the
others has reported all the same; then joining them. Leaves which probes are wanted to
``env.validate``, and how a record travels to ``env.records``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from env.facts import Fact, Facts
from env.probes.child import run_child
from env.probes.frameworks import IMPORT_TIMEOUT_S, told_facts
from env.probes.launch import probe_launch

JOIN = Path(__file__).with_name("join.py")
Probe = Callable[[], Mapping[str, Fact]]


@dataclass(frozen=True)
class Look:
    """What a rank is to look at.

    Attributes:
        probes: what every rank observes.
        of_host: what the first rank of a host observes for all of them.
        of_launch: what that rank observes wherever ``of_host`` is not.
        except_boot: the boot id of a host that needs no ``of_host``: somebody has looked there.
        paths: files and folders that every rank should see.
        join: whether to join the other ranks, through Horovod.
        allreduce_mib: with ``join``: sum so many MiB over the ranks; 0 for not.
        timeout_s: seconds to wait for the other ranks.
    """

    probes: tuple[Probe, ...] = ()
    of_host: tuple[Probe, ...] = ()
    of_launch: tuple[Probe, ...] = ()
    except_boot: str | None = None
    paths: tuple[Path, ...] = ()
    join: bool = True
    allreduce_mib: int = 0
    timeout_s: float = IMPORT_TIMEOUT_S
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


def observe_rank(look: Look, *, lock_sha256: Fact) -> Iterator[Facts]:
    """Observe this rank, part after part as each becomes known; later facts win.

    Every part bears ``launch.rank``. Joining happens in a child with a time limit.

    Args:
        look: what to observe.
        lock_sha256: the hash of the lock this rank has before it.
    """
    launch = Facts(probe_launch(environ=look.environ))
    if launch["launch.rank"].value is None:
        launch |= {"launch.rank": Fact(0, "no launcher said another")}
    mine = {"launch.rank": launch["launch.rank"]}
    facts = launch | {"rank.lock": lock_sha256, "rank.time": Fact(time.time(), "clock")}
    facts |= {"rank.paths": Fact({str(p): p.exists() for p in look.paths}, "stat")}
    for probe in look.probes:
        facts |= probe()
    if look.join:
        lost = Fact(None, "hvd.init()", problem="never came back from joining the other ranks")
        facts |= {"frameworks.horovod_init": lost}
    yield facts
    if launch["launch.local_rank"].value in (0, None) and (look.of_host or look.of_launch):
        stands = bool(look.of_host) and facts["host.boot_id"].value != look.except_boot
        of_host = Facts(mine)
        for probe in look.of_host if stands else look.of_launch:
            of_host |= probe()
        yield of_host | {"rank.of_host": Fact(stands, "this rank is its host's first")}
    if look.join:
        yield Facts(mine) | join_ranks(look)


def join_ranks(look: Look) -> dict[str, Fact]:
    """Join the other ranks in a child and return ``frameworks.horovod_init`` and ``rank.*``."""
    environ = {"TF_CPP_MIN_LOG_LEVEL": "3", **look.environ}
    sizes = [str(look.allreduce_mib)] if look.allreduce_mib else []
    # -P: neither the script's folder nor the current one may lend a module.
    argv = [sys.executable, "-P", str(JOIN), *sizes]
    outcome = run_child(argv, environ=environ, timeout_s=look.timeout_s)
    stages = ("horovod_init", "mapped", *(["allreduce", "contexts"] if sizes else []))
    told = told_facts(outcome, stages)
    facts = {"frameworks.horovod_init": told.pop("horovod_init")}
    return facts | {f"rank.{name}": fact for name, fact in told.items()}
