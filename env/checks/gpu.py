"""GPUs: whether there are any where they are wanted, and whether each rank has its own.

Devices are joined by UUID: an index means something else to NVML, to CUDA and in a
container. Leaves drivers and architectures to later checks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.facts import Facts
from env.result import Finding, Status


@check(
    "gpu.present",
    title="there are GPUs where the training wants them",
    covers=("CON-01", "VER-03"),
    reads=("gpu.nvml", "gpu.visible", "gpu.device_files"),
    fix="start the container with the GPUs (Apptainer: --nv; docker: --gpus all), ask the "
    "scheduler for them, or train with --device cpu",
)
def check_present(evidence: Evidence) -> Finding:
    """FAIL if a GPU is wanted and none can be used, or the stack has no GPU code.

    On a CPU run: PASS, or INFO where GPUs stay unused.
    """
    if evidence.device == "gpu" and evidence.stack_device == "cpu":
        fix = "use the image of a GPU stack, or train with --device cpu"
        found = "a CPU stack, asked for --device gpu"
        return Finding(Status.FAIL, "a stack made for GPUs", found, fix=fix)
    if not evidence.wants_gpu:
        return _unused(evidence)
    nvml = evidence.facts.value("gpu.nvml")
    problem, fix = _trouble(evidence, nvml)
    if problem:
        where = evidence.facts["gpu.nvml"].origin
        return Finding(Status.FAIL, "a usable GPU", problem, where=where, fix=fix)
    number, name = len(visible_devices(evidence.facts)), nvml["devices"][0]["name"]
    return Finding(Status.PASS, "a usable GPU", f"{number} GPUs: {name}, driver {nvml['driver']}")


def _trouble(evidence: Evidence, nvml: dict[str, Any]) -> tuple[str, str]:
    """Return what is wrong with the GPUs and the fix; two empty texts where nothing is."""
    if nvml["state"] == "absent":
        files = ", ".join(evidence.facts.value("gpu.device_files"))
        there = f", though /dev has {files}: the container was started without it" if files else ""
        return f"no NVIDIA driver library{there}", ""
    if nvml["state"] == "error":
        return nvml["error"], "reboot the node or reload its NVIDIA modules, then start again"
    broken = [f"GPU {d['index']}: {d['error']}" for d in nvml["devices"] if "error" in d]
    if broken:
        fix = "take the node out of service, or leave that GPU out of CUDA_VISIBLE_DEVICES"
        return "; ".join(broken), fix
    if not visible_devices(evidence.facts):
        raw = evidence.facts.value("gpu.visible")
        return f"{len(nvml['devices'])} GPUs, none visible with CUDA_VISIBLE_DEVICES={raw!r}", ""
    return "", ""


def _unused(evidence: Evidence) -> Finding:
    """Judge a CPU run: NVML need not answer, and what it says is only for information."""
    nvml = evidence.facts.value("gpu.nvml")
    expected = "none: this is a CPU run"
    if nvml["state"] == "absent":
        return Finding(Status.PASS, expected, "no NVIDIA driver here")
    if nvml["state"] == "error":
        return Finding(Status.INFO, expected, f"NVML says: {nvml['error']}")
    return Finding(Status.INFO, expected, f"{len(nvml['devices'])} GPUs stay unused")


def visible_devices(facts: Facts) -> list[str]:
    """Return the UUIDs that CUDA would show this process, in its order.

    As CUDA does it: the list ends at the first entry that names no device.

    Raises:
        CannotTellError: NVML or the variable could not be read.
    """
    nvml, raw = facts.value("gpu.nvml"), facts.value("gpu.visible")
    devices = [device.get("uuid", "") for device in nvml.get("devices", [])]
    if raw is None:
        return [uuid for uuid in devices if uuid]
    chosen: list[str] = []
    for entry in raw.split(","):
        uuid = _device(entry.strip(), devices)
        if uuid is None or uuid in chosen:
            break
        chosen.append(uuid)
    return chosen


def _device(entry: str, devices: list[str]) -> str | None:
    if entry.isdigit():
        return devices[int(entry)] if int(entry) < len(devices) else None
    if entry.startswith("MIG-"):
        return entry
    matches = [uuid for uuid in devices if entry and uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


@check(
    "gpu.one-per-rank",
    title="each rank has a GPU of its own",
    phase=LAUNCHED,
    covers=("PIN-01", "PIN-03"),
    reads=("gpu.nvml", "gpu.visible", "launch.local_rank", "host.name"),
    fix="start at most as many ranks on a host as it has GPUs, and let each take the GPU of its "
    "local rank, or show each rank one GPU only",
)
def check_one_per_rank(evidence: Evidence) -> Finding:
    """FAIL if two ranks of a host take one GPU, or a rank finds none.

    A rank that sees one GPU takes it; one that sees several takes that of its local rank.
    SKIP on a CPU run.
    """
    expected = "one GPU for each rank"
    if not evidence.wants_gpu:
        return Finding(Status.SKIP, expected, "this is a CPU run")
    local, hosts = evidence.of_ranks("launch.local_rank"), evidence.of_ranks("host.name")
    takers: dict[tuple[str, str], list[int]] = defaultdict(list)
    without: dict[int, str] = {}
    for rank, facts in evidence.ranks.items():
        visible = visible_devices(facts)
        index = 0 if len(visible) == 1 else (local[rank] or 0)
        if index < len(visible):
            takers[hosts[rank], visible[index]].append(rank)
        else:
            without[rank] = f"rank {rank} sees {len(visible)} GPUs and wants number {index}"
    shared = {key: ranks for key, ranks in takers.items() if len(ranks) > 1}
    if not shared and not without:
        return Finding(Status.PASS, expected, f"{len(takers)} GPUs for {len(takers)} ranks")
    return _not_one_each(expected, shared, without, hosts)


def _not_one_each(
    expected: str, shared: dict[tuple[str, str], list[int]],
    without: dict[int, str], hosts: dict[int, Any],
) -> Finding:  # fmt: skip
    texts = [f"{uuid} on {host}: ranks {', '.join(map(str, ranks))}"
             for (host, uuid), ranks in shared.items()]  # fmt: skip
    ranks = sorted({*without, *(rank for group in shared.values() for rank in group)})
    return Finding(
        Status.FAIL, expected, "; ".join([*texts, *without.values()]),
        ranks=tuple(ranks), hosts=tuple(sorted({hosts[rank] for rank in ranks})),
    )  # fmt: skip
