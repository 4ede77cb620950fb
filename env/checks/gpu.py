"""GPUs: whether there are any where they are wanted, and which of them the job is shown.

Devices are joined by UUID: an index means something else to NVML, to CUDA and in a
container. Leaves a GPU's health to ``env.checks.gpu_health``, its driver to
``env.checks.driver`` and what each rank takes to ``env.checks.gpu_ranks``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from env.checks.evidence import Evidence
from env.checks.gpus import READS, Gpu, devices, gpu_check, visible, wanted
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status


@check(
    "gpu.present",
    title="there are GPUs where the training wants them",
    covers=("CON-01", "CON-02", "VER-03"),
    reads=(*READS, "gpu.variables", "driver.kernel", "host.container"),
    fix="start the container with the GPUs (Apptainer: --nv; docker: --gpus all), ask the "
    "scheduler for them, or train with --device cpu",
)
def check_present(evidence: Evidence) -> Finding:
    """FAIL if a GPU is wanted and none can be used, or the stack has no GPU code.

    On a CPU run: PASS, or INFO where GPUs stay unused or cannot be asked.
    """
    if evidence.device == "gpu" and evidence.stack_device == "cpu":
        fix = "use the image of a GPU stack, or train with --device cpu"
        found = "a CPU stack, asked for --device gpu"
        return Finding(Status.FAIL, "a stack made for GPUs", found, fix=fix)
    if not wanted(evidence):
        return _unused(evidence)
    nvml = evidence.facts.value("gpu.nvml")
    problem, fix = _trouble(evidence, nvml)
    if problem:
        where = evidence.facts["gpu.nvml"].origin
        return Finding(Status.FAIL, "a usable GPU", problem, where=where, fix=fix)
    shown = visible(evidence.facts)
    names = {d.get("name", "?") for d in nvml["devices"] if d["index"] in shown.indices}
    found = f"{len(shown.uuids)} GPUs: {', '.join(sorted(names))}, driver {nvml.get('driver')}"
    return Finding(Status.PASS, "a usable GPU", found)


def _trouble(evidence: Evidence, nvml: dict[str, Any]) -> tuple[str, str]:
    """Return what is wrong with the GPUs and the fix; two empty texts where nothing is."""
    if nvml["state"] == "absent":
        return _absent(evidence, nvml)
    if nvml["state"] == "error":
        return nvml["error"], _CURES.get(nvml.get("error_code"), _RELOAD)
    if not visible(evidence.facts).uuids:
        raw = evidence.facts.value("gpu.visible")
        return f"{len(devices(evidence.facts))} GPUs, none visible with " + (
            f"CUDA_VISIBLE_DEVICES={raw!r}" if raw is not None else "CUDA"
        ), ""
    return "", ""


def _absent(evidence: Evidence, nvml: dict[str, Any]) -> tuple[str, str]:
    """Say why there is no driver library: none on the host, or not brought into the container."""
    facts = evidence.facts
    why = f" that can be loaded ({nvml['error']})" if nvml.get("error") else ""
    files = ", ".join(facts.value("gpu.device_files"))
    there = f", though /dev has {files}: the container was started without it" if files else ""
    text = f"no NVIDIA driver library{why}{there}"
    container, kernel = facts["host.container"].value, facts["driver.kernel"].value
    if container and kernel:
        text += f"; the host has driver {kernel}"
        asked = facts["gpu.variables"].value or {}
        if container == "apptainer":
            return text, "start the container with --nv"
        given = (
            f" (NVIDIA_VISIBLE_DEVICES={asked['NVIDIA_VISIBLE_DEVICES']!r} now)"
            if ("NVIDIA_VISIBLE_DEVICES" in asked)
            else ""
        )
        return (
            text,
            f"docker run --gpus all{given}; where docker then knows no driver with "
            "capabilities [[gpu]], install nvidia-container-toolkit: nvidia-ctk runtime configure",
        )
    return text, ""


_RELOAD = "reboot the node or reload its NVIDIA modules, then start again"
# By NVML's code of the refusal.
_CURES = {
    9: "load the driver on the host: modprobe nvidia, and look at dmesg where that fails",
    18: "the driver was updated under a loaded module: reboot the node or reload its NVIDIA "
    "modules; a container that was running then must be made anew",
    999: "make the container anew: its permission for the GPUs was taken away while it ran, as "
    "`systemctl daemon-reload` does; docker: --device /dev/nvidiactl …, or cgroupfs as driver",
}


def _unused(evidence: Evidence) -> Finding:
    """Judge a CPU run: NVML need not answer, and what it says is only for information."""
    fact, expected = evidence.facts["gpu.nvml"], "none: this is a CPU run"
    if evidence.stack_device is None:
        expected = "none: nobody says that there should be one"
    if fact.problem is not None:
        if "gpu.nvml" not in evidence.facts:
            raise CannotTellError("gpu.nvml: was not observed")
        return Finding(Status.INFO, expected, f"NVML could not be asked: {fact.problem}")
    if fact.value["state"] == "absent":
        return Finding(Status.PASS, expected, "no NVIDIA driver here")
    if fact.value["state"] == "error":
        return Finding(Status.INFO, expected, f"NVML says: {fact.value['error']}")
    return Finding(Status.INFO, expected, f"{len(fact.value['devices'])} GPUs stay unused")


@gpu_check(
    "gpu.visible",
    title="CUDA_VISIBLE_DEVICES names GPUs that are there, one for each rank of the host",
    covers=("PIN-03", "PIN-07", "SLM-03"),
    reads=("gpu.variables",),
    fix="name each GPU once, by its UUID (nvidia-smi -L) or by an index that this process sees "
    "(they are counted from 0 inside a job or a container), or leave the variable unset",
    required=True,
)
def check_visible(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if an entry of the list names no GPU, several, or one twice: CUDA ends it there.

    FAIL if fewer GPUs are visible than ranks are to run on this host. One GPU visible is
    right for several ranks only if the launcher shows each another: then ranks have reported.
    """
    shown = visible(evidence.facts)
    raw = evidence.facts.value("gpu.visible")
    if shown.problem:
        found = f"CUDA_VISIBLE_DEVICES={raw!r}: {shown.problem}; {len(shown.uuids)} GPUs are seen"
        fix, where = _whole_node(evidence, raw), "CUDA_VISIBLE_DEVICES"
        yield Finding(Status.FAIL, "a list of GPUs of this host", found, where=where, fix=fix)
    ranks = evidence.ranks_a_host
    if not evidence.ranks and shown.uuids and len(shown.uuids) < ranks:
        fix = f"start at most {len(shown.uuids)} ranks on this host, or give the job more GPUs"
        found = f"{len(shown.uuids)} GPUs for {ranks} ranks"
        yield Finding(Status.FAIL, "a GPU for each rank of the host", found, fix=fix)


# Variables that number the GPUs of the whole node, and who counts so.
_NUMBERED_BY = {
    "SLURM_STEP_GPUS": "Slurm", "SLURM_JOB_GPUS": "Slurm",
    "NVIDIA_VISIBLE_DEVICES": "the container's runtime",
}  # fmt: skip


def _whole_node(evidence: Evidence, raw: str | None) -> str:
    """Return the cure where the numbers are those of the whole node, else nothing."""
    given = evidence.facts.value("gpu.variables")
    for name, who in _NUMBERED_BY.items():
        if raw and raw == given.get(name):
            return (
                f"{raw} is how {who} counts on the whole node ({name}); a process inside sees only "
                "its own GPUs, counted from 0: leave CUDA_VISIBLE_DEVICES unset there"
            )
    return ""


@gpu_check(
    "gpu.order",
    title="a GPU's number means the same to CUDA and to nvidia-smi",
    covers=("PIN-06",),
    reads=("gpu.variables",),
    fix="export CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID",
)
def check_order(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if the models differ and CUDA counts the fastest first, by default, as NVML does not.

    INFO if CUDA was asked and counts another way than NVML although the models are alike.
    """
    if evidence.facts.value("gpu.variables").get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    found = [device for device in devices(evidence.facts) if "error" not in device]
    models = sorted({device.get("name", "?") for device in found})
    expected = "the order of the PCI bus, or GPUs of one model"
    if len(models) > 1:
        text = f"CUDA counts the fastest first, NVML by PCI bus, over {', '.join(models)}"
        yield Finding(Status.WARN, expected, text, where="CUDA_DEVICE_ORDER")
    elif evidence.facts.value("gpu.visible") is None:
        shown = visible(evidence.facts).indices
        if list(shown) != sorted(shown):
            text = f"CUDA counts NVML's GPUs as {', '.join(map(str, shown))}"
            yield Finding(Status.INFO, expected, text, where="cuDeviceGetUuid")


@gpu_check(
    "gpu.allocation",
    title="the job sees the GPUs that Slurm gave it, and no others",
    covers=("SLM-03", "SLM-04"),
    reads=("gpu.variables",),
    fix="leave CUDA_VISIBLE_DEVICES in the job as Slurm sets it; the site: ConstrainDevices=yes in "
    "cgroup.conf",
)
def check_allocation(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if more GPUs can be used than were given, and nothing says which to use.

    WARN if a variable alone keeps the job from the others, if it names other GPUs than Slurm
    gave, or if the job asked for no GPU at all. Outside a Slurm job nothing is judged.
    """
    variables = evidence.facts.value("gpu.variables")
    if "SLURM_JOB_ID" not in variables:
        return
    given = _given(variables)
    found = devices(evidence.facts)
    expected = "the GPUs of the job"
    where = "SLURM_GPUS_ON_NODE, NVML"
    if given is None:
        if "CUDA_VISIBLE_DEVICES" not in variables:
            fix = "ask Slurm for them: --gpus-per-node=N"
            text = f"the job asked Slurm for no GPU and sees {len(found)}"
            yield Finding(Status.WARN, expected, text, where=where, fix=fix)
        return
    count, ids = given
    if len(found) <= count:
        return
    text = f"Slurm gave {count} of the {len(found)} GPUs that this process can open"
    if "CUDA_VISIBLE_DEVICES" not in variables:
        text += ", and CUDA_VISIBLE_DEVICES is not set"
        yield Finding(Status.FAIL, expected, text, where=where)
        return
    shown = visible(evidence.facts).indices
    mine = {device.get("minor", device["index"]) for device in found if device["index"] in shown}
    if ids and not mine <= ids:
        other = f"/dev/nvidia{_list(mine)} are used, Slurm gave {_list(ids)}"
        fix = "unset what changes CUDA_VISIBLE_DEVICES in the job: Slurm sets it by itself"
        yield Finding(Status.WARN, expected, other, where="CUDA_VISIBLE_DEVICES", fix=fix)
    text += "; CUDA_VISIBLE_DEVICES alone keeps it from the others"
    yield Finding(Status.WARN, expected, text, where=where)


def _given(variables: dict[str, str]) -> tuple[int, set[int]] | None:
    """Return how many GPUs Slurm gave on this node and their numbers, None for no GPU at all."""
    ids: set[int] = set()
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        for first, last in re.findall(r"(\d{1,3})(?:-(\d{1,3}))?", variables.get(name, "")):
            ids |= set(range(int(first), int(last or first) + 1))
        if ids:
            break
    count = variables.get("SLURM_GPUS_ON_NODE", "")
    number = int(count) if count.isdigit() else len(ids)
    return (number, ids) if number else None


def _list(numbers: set[int]) -> str:
    return ",".join(map(str, sorted(numbers)))
