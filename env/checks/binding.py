"""Where the ranks run: their affinity masks, held against each other and the plan.

Only ranks of one host can be in each other's way. Two logical CPUs of one core are
told apart by the plan, which deals out one id a core.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from env.binding import RankBinding
from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.cpulist import render_cpu_list
from env.result import Finding, Status

_READS = ("host.affinity", "host.name")


@check(
    "binding.same-core",
    title="the ranks of a host have a core each",
    phase=LAUNCHED,
    covers=("BIND-02",),
    reads=_READS,
    fix="start mpirun outside a Slurm step bound to one core (srun --cpu-bind=none), or use fewer "
    "ranks; taskset -p $$ shows the mask the launcher itself has",
)
def check_same_core(evidence: Evidence) -> Finding:
    """FAIL if all masks of a host together have fewer cores than it has ranks.

    WARN if the plan binds nothing: then cores are shared on purpose.
    """
    crowded: dict[str, tuple[list[int], set[int]]] = {}
    for host, masks in _by_host(evidence).items():
        union = {core for mask in masks.values() for core in mask}
        if len(union) < len(masks):
            crowded[host] = (sorted(masks), union)
    expected = "at least one core a rank"
    if not crowded:
        return Finding(Status.PASS, expected, _all_masks(evidence))
    texts = [f"{host}: ranks {', '.join(map(str, ranks))} all on core {render_cpu_list(cores)}"
             for host, (ranks, cores) in crowded.items()]  # fmt: skip
    ranks = tuple(rank for ranks, _ in crowded.values() for rank in ranks)
    # A plan that binds nothing was asked for by whoever shares cores on purpose.
    shares = evidence.plan is not None and evidence.plan.cores_per_rank == 0
    status = Status.WARN if shares else Status.FAIL
    return Finding(status, expected, "; ".join(texts), ranks=ranks, hosts=tuple(crowded))


@check(
    "binding.overlap",
    title="bound ranks do not share cores",
    phase=LAUNCHED,
    covers=("BIND-02",),
    reads=_READS,
    fix="let the launcher bind by the plan, without binding options of your own "
    "(OMPI_MCA_hwloc_base_binding_policy, SLURM_CPU_BIND)",
)
def check_overlap(evidence: Evidence) -> Finding:
    """WARN if two ranks of a host are bound to some of the same cores.

    Masks that are all equal are ranks that nobody bound: INFO where no plan asked for
    more, since the scheduler then decides.
    """
    shared: dict[tuple[int, int], set[int]] = {}
    unbound = True
    for masks in _by_host(evidence).values():
        ranks = sorted(masks)
        unbound &= len({tuple(mask) for mask in masks.values()}) == 1
        for n, first in enumerate(ranks):
            for second in ranks[n + 1 :]:
                both = set(masks[first]) & set(masks[second])
                if both:
                    shared[first, second] = both
    expected = "cores of its own for each rank"
    if not shared:
        return Finding(Status.PASS, expected, _all_masks(evidence))
    text = "; ".join(
        f"ranks {a} and {b} share {render_cpu_list(c)}" for (a, b), c in shared.items()
    )
    planned = any(binding.cores for binding in evidence.planned().values())
    status = Status.INFO if unbound and not planned else Status.WARN
    return Finding(
        status, expected, text, ranks=tuple(sorted({r for pair in shared for r in pair}))
    )


@check(
    "binding.threads",
    title="a rank has as many cores as threads",
    phase=LAUNCHED,
    covers=("BIND-01",),
    reads=_READS,
    fix="bind more cores to a rank (mpirun --map-by slot:PE=N), bind nothing (--bind-to none), or "
    "use fewer threads",
)
def check_threads(evidence: Evidence) -> Finding:
    """FAIL if a rank of several threads has one core, WARN if fewer cores than threads.

    SKIP without a plan, which is what says how many threads there will be.
    """
    planned, masks = evidence.planned(), evidence.of_ranks("host.affinity")
    if not planned:
        return Finding(Status.SKIP, "as many cores as threads", "no plan was given")
    cores = {rank: len(mask) for rank, mask in masks.items() if rank in planned}
    few = {rank: number for rank, number in cores.items() if number < planned[rank].threads}
    if not few:
        return Finding(Status.PASS, "as many cores as threads", _all_masks(evidence))
    text = "; ".join(f"rank {r}: {planned[r].threads} threads on {n} cores" for r, n in few.items())
    status = Status.FAIL if any(n == 1 for n in few.values()) else Status.WARN
    return Finding(status, "as many cores as threads", text, ranks=tuple(few))


@check(
    "binding.plan",
    title="each rank runs where the plan puts it",
    phase=LAUNCHED,
    reads=_READS,
    fix="remove other binding settings (OMPI_MCA_*, SLURM_CPU_BIND) that override the launcher's, "
    "or make the plan anew for this allocation",
)
def check_plan(evidence: Evidence) -> Finding:
    """FAIL if a mask is not the planned one; SKIP where no plan binds anything."""
    planned = {r: b for r, b in evidence.planned().items() if b.cores}
    masks = evidence.of_ranks("host.affinity")
    if not planned:
        return Finding(Status.SKIP, "masks as planned", "no plan binds the ranks")
    wrong = {r: m for r, m in masks.items() if r in planned and set(m) != set(planned[r].cores)}
    if not wrong:
        return Finding(Status.PASS, "masks as planned", _all_masks(evidence))
    text = "; ".join(
        f"rank {r} on {render_cpu_list(m)}, planned {render_cpu_list(planned[r].cores)}"
        for r, m in wrong.items()
    )
    return Finding(Status.FAIL, "masks as planned", text, ranks=tuple(wrong))


@check(
    "binding.gpu",
    title="each rank's cores are near its GPU",
    phase=LAUNCHED,
    covers=("BIND-08",),
    reads=(*_READS, "places.gpus", "host.numa_nodes", "launch.local_rank"),
    required=False,
    fix="let the launcher bind by the plan (invoke plan-binding shows it): --map-by socket knows "
    "nothing of GPUs",
)
def check_gpu(evidence: Evidence) -> Finding:
    """WARN if a rank may run on no core of its GPU's memory node, or on others as well.

    PASS where the host has one node or the node is unknown, which ``binding.gpu-node`` tells;
    INFO where the plan itself says why a rank cannot be near. SKIP without GPUs.
    """
    masks, nodes = evidence.of_ranks("host.affinity"), evidence.of_ranks("host.numa_nodes")
    gpus, locals_ = evidence.of_ranks("places.gpus"), evidence.of_ranks("launch.local_rank")
    planned, near = evidence.planned(), []
    far: dict[int, str] = {}
    for rank, mask in masks.items():
        gpu = _gpu_of(planned.get(rank), gpus[rank], locals_[rank] or 0)
        if gpu is None:
            continue
        place = set(nodes[rank].get(str(gpu["node"]), mask))
        text = f"rank {rank} on {render_cpu_list(mask)}, GPU {gpu['pci']} at node {gpu['node']}"
        if len(nodes[rank]) > 1 and not set(mask) <= place:
            far[rank] = f"{text} ({render_cpu_list(place)})"
        else:
            near.append(text)
    expected = "cores of the GPU's memory node"
    if far:
        known = all(rank in planned and planned[rank].note for rank in far)
        notes = [f"{text}: {planned[r].note}" if known else text for r, text in far.items()]
        status = Status.INFO if known else Status.WARN
        return Finding(status, expected, "; ".join(notes), ranks=tuple(far))
    if not near:
        return Finding(Status.SKIP, expected, "no rank has a GPU")
    return Finding(Status.PASS, expected, "; ".join(near))


def _gpu_of(
    binding: RankBinding | None, gpus: list[dict[str, Any]], local_rank: int
) -> dict[str, Any] | None:
    """Return the GPU that a rank computes on: the plan's, else that of its local rank.

    A launcher may show each rank one GPU alone. None where the rank has none.
    """
    if binding is not None and binding.gpu is None:
        return None
    if len(gpus) == 1:
        return gpus[0]
    if binding is not None:
        return next((gpu for gpu in gpus if gpu["pci"] == binding.gpu_pci), None)
    return gpus[local_rank] if local_rank < len(gpus) else None


def _by_host(evidence: Evidence) -> dict[str, dict[int, list[int]]]:
    """Return the masks of the ranks, grouped by host."""
    masks, names = evidence.of_ranks("host.affinity"), evidence.of_ranks("host.name")
    hosts: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for rank, mask in masks.items():
        hosts[names[rank]][rank] = mask
    return hosts


def _all_masks(evidence: Evidence) -> str:
    masks = evidence.of_ranks("host.affinity")
    return ", ".join(f"rank {r}: {render_cpu_list(mask)}" for r, mask in masks.items())
