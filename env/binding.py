"""The binding plan: which GPU, cores and threads each rank gets. Pure arithmetic.

Knows how to deal out a node's cores to its ranks, and the plan's file format.
Leaves reading a machine's topology to the probes and turning a plan into
launcher flags to ``containers.launch``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from env.errors import UserError

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RankBinding:
    """What one rank gets.

    Attributes:
        rank: 0 .. ranks - 1.
        local_rank: its number on its host.
        host: the host's name.
        cores: ids of the logical CPUs it may run on, ascending; empty where nothing is bound.
        gpu: index among the node's GPUs, None on a CPU run.
        threads: how many threads it should compute with, at least 1.
    """

    rank: int
    local_rank: int
    host: str
    cores: tuple[int, ...]
    gpu: int | None
    threads: int


@dataclass(frozen=True)
class BindingPlan:
    """Every rank's share of the machine, in the order of the ranks.

    Attributes:
        ranks: one binding for each rank.
        cores_per_rank: physical cores each rank is bound to; 0 where nothing is bound.
    """

    ranks: tuple[RankBinding, ...]
    cores_per_rank: int


def plan_local(
    ranks: int,
    *,
    host: str,
    cores: Sequence[tuple[int, ...]],
    num_gpus: int = 0,
    share_cores: bool = False,
) -> BindingPlan:
    """Deal one host's cores out to its ranks in equal, contiguous shares.

    Cores left over by the division stay free: unequal ranks would wait for each other.

    Args:
        ranks: how many processes, at least 1.
        host: the host's name.
        cores: the physical cores this job may use, in the order a launcher fills them,
            each with the ids of its logical CPUs.
        num_gpus: GPUs of the host to hand out, one a rank; 0 for a CPU run.
        share_cores: bind nothing, so that there may be more ranks than cores.

    Raises:
        UserError: fewer than one rank, more ranks than cores, or more ranks than GPUs.
    """
    if ranks < 1:
        raise UserError("at least 1 rank", found=f"{ranks} ranks", fix="give --ranks 1 or more")
    if ranks > len(cores) and not share_cores:
        raise UserError(
            f"at most {len(cores)} ranks, one for each core this job may use on {host}",
            found=f"{ranks} ranks",
            fix=f"give --ranks {len(cores)} or fewer, or --oversubscribe to share cores",
        )
    if num_gpus and ranks > num_gpus:
        raise UserError(
            f"at most {num_gpus} ranks, one for each GPU of {host}",
            found=f"{ranks} ranks",
            fix=f"give --ranks {num_gpus} or fewer",
        )
    share = 0 if share_cores else len(cores) // ranks
    bindings = []
    for n in range(ranks):
        mine = cores[n * share : (n + 1) * share]
        bindings.append(
            RankBinding(
                rank=n,
                local_rank=n,
                host=host,
                cores=tuple(sorted(cpu for core in mine for cpu in core)),
                gpu=n if num_gpus else None,
                threads=share or max(1, len(cores) // ranks),
            )
        )
    return BindingPlan(tuple(bindings), cores_per_rank=share)


def render_plan(plan: BindingPlan) -> str:
    """Return the plan as JSON text."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(plan), indent=1) + "\n"


def load_plan(path: Path) -> BindingPlan:
    """Read a plan written by ``render_plan``.

    Raises:
        UserError: the file is missing or is not a plan of this schema.
    """
    fix = "write it anew: run the command that launched this again"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            raise UserError(f"a plan of schema_version {SCHEMA_VERSION}", found=str(path), fix=fix)
        ranks = tuple(
            RankBinding(**{**rank, "cores": tuple(rank["cores"])}) for rank in data["ranks"]
        )
        return BindingPlan(ranks, cores_per_rank=data["cores_per_rank"])
    except OSError as error:
        raise UserError("a plan file", found=f"{path}: {error.strerror}", fix=fix) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError("a binding plan", found=f"{path}: {error!r}", fix=fix) from error
