"""Ranks and GPUs: whether each rank takes one of its own, as the training will choose it.

A rank takes the first GPU where CUDA_VISIBLE_DEVICES names one only, or the plan's is the only
one, else the plan's, else that of its local rank: the rule of ``chexnet.distributed``. Devices
are joined by UUID.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.gpus import READS, devices, visible, wanted
from env.checks.registry import LAUNCHED, check
from env.facts import CannotTellError, Facts
from env.result import Finding, Status

# From here on CUDA shares memory with a GPU that a variable hides from the process.
_SHARES_HIDDEN = 10010


@check(
    "gpu.one-per-rank",
    title="each rank has a GPU of its own",
    phase=LAUNCHED,
    covers=("PIN-01", "PIN-03", "PIN-04", "SLM-01"),
    reads=(*READS, "launch.local_rank"),
    fix="start at most as many ranks on a host as it has GPUs (mpirun --host a:2,b:2, Slurm "
    "--ntasks-per-node), and show every rank all of the job's GPUs (Slurm: --gpu-bind=none), or "
    "each another one",
)
def check_one_per_rank(evidence: Evidence) -> Finding:
    """FAIL if two ranks of a host take one GPU, or a rank finds none.

    A rank takes the one GPU that CUDA_VISIBLE_DEVICES names, else the plan's (a lone GPU is
    number 0 there), or without a plan that of its local rank. SKIP on a CPU run.
    """
    expected = "one GPU for each rank"
    if not wanted(evidence):
        return Finding(Status.SKIP, expected, "the training uses no GPU")
    takers: dict[tuple[str, str], list[int]] = defaultdict(list)
    without: dict[int, str] = {}
    unable: list[str] = []
    for rank, facts in evidence.reported.items():
        try:
            shown = visible(facts).uuids
            index = choose_gpu(evidence, rank, facts, len(shown))
        except CannotTellError as error:
            unable.append(f"rank {rank}: {error}")
            continue
        if index < len(shown):
            takers[evidence.host_of(rank), shown[index]].append(rank)
        else:
            raw = facts["gpu.visible"].value
            mask = "" if raw is None else f" (CUDA_VISIBLE_DEVICES={raw!r})"
            without[rank] = f"rank {rank} sees {len(shown)} GPUs{mask} and wants number {index}"
    shared = {key: ranks for key, ranks in takers.items() if len(ranks) > 1}
    if shared or without:
        return _not_one_each(evidence, expected, shared, without)
    if unable or not takers:
        raise CannotTellError("; ".join(unable) or "no rank reported")
    return Finding(Status.PASS, expected, f"{len(takers)} GPUs for {len(takers)} ranks")


def choose_gpu(evidence: Evidence, rank: int, facts: Facts, shown: int) -> int:
    """Return the number of the GPU that a rank takes among those it is shown."""
    binding = evidence.planned().get(rank)
    planned = binding.gpu if binding else None
    named = [entry for entry in (facts.value("gpu.visible") or "").split(",") if entry]
    if len(named) == 1 or (planned is not None and shown == 1):
        return 0
    return facts.value("launch.local_rank") or 0 if planned is None else planned


def _not_one_each(
    evidence: Evidence, expected: str,
    shared: dict[tuple[str, str], list[int]], without: dict[int, str],
) -> Finding:  # fmt: skip
    texts = [f"{uuid} on {host}: ranks {', '.join(map(str, ranks))}"
             for (host, uuid), ranks in shared.items()]  # fmt: skip
    ranks = sorted({*without, *(rank for group in shared.values() for rank in group)})
    hosts = tuple(sorted({evidence.host_of(rank) for rank in ranks}))
    found = "; ".join([*texts, *without.values()])
    return Finding(Status.FAIL, expected, found, ranks=tuple(ranks), hosts=hosts)


@check(
    "gpu.planned",
    title="each rank takes the GPU that the plan put its cores next to",
    phase=LAUNCHED,
    covers=("PIN-06",),
    reads=(*READS, "launch.local_rank"),
    fix="export CUDA_DEVICE_ORDER=PCI_BUS_ID for the ranks (mpirun -x), so that CUDA counts the "
    "GPUs as the plan does",
    required=False,
)
def check_planned(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a rank's number leads it to another GPU than the plan means by that number.

    It still has one of its own, but its cores are near another. SKIP without a plan of GPUs.
    """
    expected, planned = "the plan's GPU", evidence.planned()
    if not wanted(evidence) or all(binding.gpu_pci is None for binding in planned.values()):
        yield Finding(Status.SKIP, expected, "no plan gives the ranks GPUs")
        return
    evidence.of_ranks("gpu.nvml")
    for rank, facts in evidence.reported.items():
        binding, shown = planned.get(rank), visible(facts)
        index = choose_gpu(evidence, rank, facts, len(shown.uuids))
        if binding is None or binding.gpu_pci is None or index >= len(shown.uuids):
            continue
        taken = next(d for d in devices(facts) if d["index"] == shown.indices[index])
        if not taken.get("pci", "").lower().endswith(binding.gpu_pci.lower()):
            text = f"rank {rank} takes {taken.get('pci')}, the plan gave it {binding.gpu_pci}"
            yield Finding(Status.WARN, expected, text, where="CUDA_DEVICE_ORDER", ranks=(rank,),
                          hosts=(evidence.host_of(rank),))  # fmt: skip


@check(
    "gpu.isolation",
    title="the ranks of a host can share their GPUs' memory",
    phase=LAUNCHED,
    covers=("PIN-05",),
    reads=READS,
    fix="give the ranks of a host all of the job's GPUs: Slurm --gpus-per-node=N with "
    "--gpu-bind=none instead of --gpus-per-task, one container for all ranks of a host",
)
def check_isolation(evidence: Evidence) -> Iterator[Finding]:
    """WARN if each rank can open its own GPU alone, and NVLinks between them stay unused.

    INFO where there is no NVLink to lose. A variable alone (CUDA_VISIBLE_DEVICES) does not
    stand between ranks from CUDA 10.1 on; before that WARN. SKIP on a CPU run.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "shared memory of GPUs", "the training uses no GPU")
        return
    hosts: dict[str, list[tuple[int, Facts]]] = defaultdict(list)
    for rank, name in evidence.of_ranks("host.name").items():
        hosts[name].append((rank, evidence.reported[rank]))
    for host, members in hosts.items():
        yield from _isolated(host, members)


def _isolated(host: str, members: list[tuple[int, Facts]]) -> Iterator[Finding]:
    views = [{d.get("uuid"): d for d in devices(facts)} for _, facts in members]
    every = {uuid: device for view in views for uuid, device in view.items()}
    expected = "GPUs that every rank of the host can open"
    ranks = tuple(rank for rank, _ in members)
    if len(members) < 2 or len(every) < 2:
        return
    if any(len(view) < len(every) for view in views):
        linked = any(any(device.get("nvlinks") or []) for device in every.values())
        what = "leaves NVLink unused and " if linked else ""
        text = f"ranks {', '.join(map(str, ranks))} open {max(map(len, views))} of {len(every)} "
        text += f"GPUs: NCCL {what}copies through the host's memory"
        status = Status.WARN if linked else Status.INFO
        yield Finding(status, expected, text, where="/dev", ranks=ranks, hosts=(host,))
        return
    release = members[0][1].value("gpu.nvml").get("cuda_version") or _SHARES_HIDDEN
    hidden = all(len(visible(facts).uuids) == 1 for _, facts in members)
    if hidden and release < _SHARES_HIDDEN:
        text = (
            f"CUDA_VISIBLE_DEVICES hides the others, and CUDA {release // 1000} cannot share them"
        )
        yield Finding(Status.WARN, expected, text, where="CUDA_VISIBLE_DEVICES", ranks=ranks,
                      hosts=(host,))  # fmt: skip


@check(
    "gpu.contexts",
    title="a rank has a context on its own GPU alone",
    phase=LAUNCHED,
    covers=("PIN-11",),
    reads=(*READS, "rank.contexts"),
    fix="show each rank its own GPU before any library of GPUs is imported, and look for what a "
    "sitecustomize, a .pth file or the program imports early",
    required=False,
)
def check_contexts(evidence: Evidence) -> Iterator[Finding]:
    """WARN if a rank that has computed holds memory on GPUs other than its own.

    Looked at after the allreduce that --allreduce asks for, else SKIP, as on a CPU run.
    """
    expected = "one GPU a rank"
    told = {r: f["rank.contexts"] for r, f in evidence.reported.items() if "rank.contexts" in f}
    if not wanted(evidence) or (evidence.reported and not told):
        yield Finding(Status.SKIP, expected, "no rank computed on a GPU: --allreduce MIB")
        return
    told = evidence.of_ranks("rank.contexts")
    contexts = {rank: value.get("gpus") for rank, value in told.items()}
    for rank, gpus in contexts.items():
        if gpus and len(gpus) > 1:
            parts = [f"{g['uuid']} ({(g['memory'] or 0) / 2**20:.0f} MiB)" for g in gpus]
            yield Finding(Status.WARN, expected, f"rank {rank}: {', '.join(parts)}", where="NVML",
                          ranks=(rank,), hosts=(evidence.host_of(rank),))  # fmt: skip
    silent = [str(rank) for rank, gpus in contexts.items() if not gpus]
    if silent:
        raise CannotTellError(
            f"the driver names no process of rank {', '.join(silent)}, as in a process namespace"
        )
