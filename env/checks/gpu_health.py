"""The state of each GPU: lost, in use by others, closed, divided, worn, slow.

Judges one GPU after the other. Thresholds stand where they
are used, with their reason. A value that a GPU does not have (ECC of a gaming card) is no
fault. Leaves links between GPUs to ``env.checks.gpu_links``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from env.checks.evidence import Evidence
from env.checks.gpus import Gpu, all_gpus, each, gpu_check, visible
from env.facts import CannotTellError
from env.result import Finding, Status

MIB = 2**20
# From this share on a batch that fits an empty GPU no longer fits.
USED_FAIL_SHARE = 0.10
# A GPU without any context holds some MiB. Drivers before 510 count what they keep for
# themselves (up to 600 MiB on 80 GB) as used.
IDLE_BYTES, IDLE_OLD_BYTES = 256 * MIB, 1024 * MIB
# They compute nothing and are there on every node of their kind.
_SERVICES = (
    "nvidia-cuda-mps",
    "nvidia-persiste",
    "nv-hostengine",
    "Xorg",
    "Xwayland",
    "gnome-shell",
)
# Bits of nvmlClocksEventReasons that mean a fault; the others are idleness, settings and caps.
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@gpu_check(
    "gpu.lost",
    title="every GPU answers",
    covers=("PIN-13",),
    reads=("driver.gpus", "driver.pci", "gpu.files"),
    fix="take the node out of service and reset or reboot it (nvidia-smi -q and dmesg, Xid 79, say "
    "why); until then leave that GPU out of CUDA_VISIBLE_DEVICES",
    required=True,
)
def check_lost(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if a GPU of the job is lost, WARN for one of the node that the job does not use.

    WARN as well if the kernel drives a GPU that this process may open and NVML does not list,
    or the PCI bus has one that no driver took.
    """
    expected = "an answer"
    for gpu in all_gpus(evidence):
        if gpu.broken:
            status = Status.FAIL if gpu.mine else Status.WARN
            yield gpu.finding(status, expected, gpu.device["error"])
    driven = evidence.facts.value("driver.gpus")
    yield from _unlisted(evidence, driven)
    on_bus = evidence.facts.value("driver.pci")["gpus"]
    for pci in sorted(set(on_bus) - set(driven)) if driven else ():
        owner = on_bus[pci] or "no driver"
        if owner in ("nvidia", "no driver", "nouveau"):  # vfio-pci lends it to a guest
            fix = "look for it in dmesg (NVRM, Xid), then reset or reboot the node"
            text = f"{pci} is on the bus, with {owner}; the NVIDIA driver does not drive it"
            yield Finding(Status.WARN, expected, text, where="/sys/bus/pci", fix=fix)


def _unlisted(evidence: Evidence, driven: dict[str, Any]) -> Iterator[Finding]:
    listed = [gpu.device.get("minor") for gpu in all_gpus(evidence)]
    if None in listed or evidence.facts.value("gpu.nvml")["state"] != "ok":
        return  # one of them does not say which it is, or none could
    files = evidence.facts.value("gpu.files")
    for pci, card in driven.items():
        name = f"nvidia{card['minor']}"
        if files.get(name) and card["minor"] not in listed:
            text = f"{pci} (/dev/{name}) is not listed by NVML"
            yield Finding(Status.WARN, "an answer", text, where="/proc/driver/nvidia/gpus")


@gpu_check(
    "gpu.memory",
    title="nobody else uses the GPUs",
    covers=("PIN-09", "PIN-10"),
    reads=("gpu.processes",),
    fix="end those processes (their numbers are the host's), or take another GPU; where none is "
    "left alive, the administrator resets the GPU: nvidia-smi --gpu-reset",
    required=True,
)
def check_memory(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if more than 10 % of a GPU's memory is taken before the ranks start.

    WARN for any process of others that computes on it, and for memory that nobody owns up to.
    INFO where processes are seen that a process namespace does not let us name. The job's own
    ranks, MPS and the display do not count.
    """
    told = evidence.facts.value("gpu.processes")
    shown = set(visible(evidence.facts).uuids)
    parts = [part for gpu in gpus for part in _parts(gpu, shown)]
    yield from each(parts, lambda gpu: _memory(gpu, told))


def _parts(gpu: Gpu, shown: set[str]) -> list[Gpu]:
    """Return what of a GPU the job has: its slices where it is divided, else the whole."""
    if (gpu.device.get("mig_mode") or [0])[0] != 1:
        return [gpu]
    slices = [part for part in gpu.device.get("mig_devices") or () if part["uuid"] in shown]
    return [replace(gpu, device={"index": gpu.device["index"], **part}) for part in slices]


def _memory(gpu: Gpu, told: dict[str, Any]) -> Iterator[Finding]:
    memory, expected = gpu.value("memory"), "an idle GPU"
    strangers, unnamed, excused = _users(gpu, told)
    who = ", ".join([*strangers, *unnamed])
    if memory is None:
        raise CannotTellError(f"{gpu}: it does not say how much memory is used")
    taken = max(0, memory["used"] - excused)
    total, idle = memory["total"], IDLE_BYTES if "reserved" in memory else IDLE_OLD_BYTES
    text = f"{taken / MIB:.0f} of {total / MIB:.0f} MiB in use"
    text += f" by {who}" if who else ", and no process is shown that uses it"
    if taken > max(USED_FAIL_SHARE * total, idle):
        yield gpu.finding(Status.FAIL, expected, text)
    elif strangers or taken > idle:
        yield gpu.finding(Status.WARN, expected, text)
    elif unnamed:
        text += f"; whose cannot be told: {told['attributable']}"
        yield gpu.finding(Status.INFO, expected, text)


def _users(gpu: Gpu, told: dict[str, Any]) -> tuple[list[str], list[str], int]:
    """Return the processes of others, those that cannot be named, and the bytes of our own."""
    strangers, unnamed, excused = [], [], 0
    for kind in ("processes", "graphics"):
        for process in gpu.value(kind) or ():
            seen, size = told["known"].get(str(process["pid"])), process["memory"] or 0
            if seen and (seen["ours"] or seen["name"].startswith(_SERVICES) or kind == "graphics"):
                excused += size
            elif seen:
                state = {"Z": ", a zombie", "D": ", stuck in the kernel"}.get(seen["state"], "")
                strangers.append(f"{seen['name']} (process {process['pid']}{state})")
            elif told["attributable"] is None:
                strangers.append(f"process {process['pid']}, which is gone")
            else:
                unnamed.append(f"process {process['pid']} of the host")
    return strangers, unnamed, excused


@gpu_check(
    "gpu.mode",
    title="the GPUs let a process compute",
    covers=("PIN-12",),
    fix="the administrator sets it back: nvidia-smi --compute-mode=DEFAULT",
    required=True,
)
def check_mode(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if a GPU's compute mode is prohibited or exclusive-thread, or exclusive and taken.

    WARN if it is exclusive-process: a second process on it fails, a helper's too.
    """
    yield from each(gpus, _mode)


def _mode(gpu: Gpu) -> Iterator[Finding]:
    mode, expected = gpu.value("compute_mode"), "compute mode DEFAULT"
    if mode in (1, 2):
        name = {1: "exclusive-thread", 2: "prohibited"}[mode]
        yield gpu.finding(Status.FAIL, expected, name)
    elif mode == 3:
        owners = [str(process["pid"]) for process in gpu.value("processes") or ()]
        if owners:
            text = f"exclusive-process, and process {', '.join(owners)} has it"
            yield gpu.finding(Status.FAIL, expected, text)
        else:
            yield gpu.finding(Status.WARN, expected, "exclusive-process")


@gpu_check(
    "gpu.mig",
    title="slices of GPUs (MIG) are used as NCCL and CUDA can use them",
    covers=("PIN-08",),
    reads=("gpu.variables",),
    fix="train on whole GPUs (nvidia-smi -mig 0, then reset), or with one rank on one slice that "
    "CUDA_VISIBLE_DEVICES names",
)
def check_mig(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if several ranks of a host are to train on slices: NCCL does not join them.

    WARN if a slice is taken without being named, if MIG is on without any slice, or if a
    change of mode waits for a reset. INFO for one rank on a slice that is named.
    """
    yield from _slices(evidence)
    for gpu in all_gpus(evidence):
        mode = gpu.device.get("mig_mode")
        if mode and mode[0] != mode[1]:
            words = {0: "off", 1: "on"}
            text = f"MIG is {words.get(mode[0])}, to be {words.get(mode[1])} after a reset"
            yield gpu.finding(Status.WARN, "no change pending", text)
        if mode and mode[0] == 1 and not gpu.device.get("mig_devices"):
            fix = "the administrator makes slices (nvidia-smi mig -cgi …), or turns MIG off"
            yield gpu.finding(Status.WARN, "a slice to use", "MIG is on without any slice", fix)


def _slices(evidence: Evidence) -> Iterator[Finding]:
    shown, raw = visible(evidence.facts), evidence.facts.value("gpu.visible")
    slices = [uuid for uuid in shown.uuids if uuid.startswith("MIG-")]
    expected = "whole GPUs, or one rank on one slice"
    if not slices:
        return
    if evidence.ranks_a_host > 1:
        text = f"{evidence.ranks_a_host} ranks on slices ({', '.join(slices)})"
        yield Finding(Status.FAIL, expected, text, where="CUDA_VISIBLE_DEVICES")
    elif not (raw or "").startswith("MIG-"):
        text = f"{slices[0]} is taken because it is the first"
        fix = f"name the slice: CUDA_VISIBLE_DEVICES={slices[0]} (nvidia-smi -L lists them)"
        yield Finding(Status.WARN, expected, text, where="CUDA_VISIBLE_DEVICES", fix=fix)
    else:
        text = f"one rank on {slices[0]}, a part of a GPU"
        yield Finding(Status.INFO, expected, text, where="CUDA_VISIBLE_DEVICES")


@gpu_check(
    "gpu.ecc",
    title="the GPUs' memory is sound",
    covers=("PIN-14",),
    fix="the administrator resets the GPU or reboots the node; one whose rows cannot be remapped "
    "any more is to be replaced",
)
def check_ecc(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if a row could not be remapped, or errors were not corrected since the driver started.

    WARN if a remapping or a retirement of pages waits for a reset.
    """
    yield from each(gpus, _ecc)


def _ecc(gpu: Gpu) -> Iterator[Finding]:
    expected, rows = "no uncorrected error", gpu.value("remapped_rows") or {}
    if rows.get("failure"):
        yield gpu.finding(Status.FAIL, expected, "a row of its memory could not be remapped")
    errors = gpu.value("ecc_uncorrected")
    if errors:
        yield gpu.finding(Status.FAIL, expected, f"{errors} uncorrected errors of memory")
    pending = [("a remapping of rows", rows.get("pending")),
               ("a retirement of pages", gpu.value("retired_pending"))]  # fmt: skip
    for what, waits in pending:
        if waits:
            yield gpu.finding(Status.WARN, "nothing pending", f"{what} waits for a reset")


@gpu_check(
    "gpu.throttle",
    title="no GPU is slowed down",
    covers=("PIN-15",),
    fix="look at cooling, power supply and cables of the node (nvidia-smi -q -d PERFORMANCE); run "
    "on others until then: one slow rank makes all of them wait",
)
def check_throttle(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if the hardware slows a GPU down for heat or power; idleness and caps are no fault."""
    yield from each(gpus, _throttle)


def _throttle(gpu: Gpu) -> Iterator[Finding]:
    bits = gpu.value("clock_reasons") or 0
    slow = [name for bit, name in _SLOWDOWNS.items() if bits & bit]
    if slow:
        yield gpu.finding(Status.WARN, "full clocks", ", ".join(slow))


@dataclass(frozen=True)
class _Setting:
    """What GPUs of one model on one host should have in common.

    Attributes:
        key: the fact.
        words: what it is.
        render: how its value reads.
        status: how bad a difference is. Slots of unequal width are how some boards are built.
        default: the fact that tells the value from which the GPU does its best, if any does.
    """

    key: str
    words: str
    render: Callable[[Any], str]
    status: Status
    default: str = ""

    def is_low(self, gpu: Gpu) -> bool:
        """Return whether a GPU is set below its own default."""
        usual = gpu.device.get(self.default)
        return usual is not None and gpu.device[self.key] < usual


_ALIKE = (
    _Setting("power_limit_mw", "a power limit of", lambda v: f"{v / 1000:.0f} W", Status.WARN,
             "power_default_mw"),
    _Setting("clock_mhz", "an application clock of", lambda v: f"{v} MHz", Status.WARN,
             "clock_default_mhz"),
    _Setting("ecc_mode", "ECC", lambda v: "on" if v[0] else "off", Status.WARN),
    _Setting("pcie_generation_max", "a PCIe link of at most generation", str, Status.INFO),
    _Setting("pcie_width_max", "at most as many PCIe lanes as", str, Status.INFO),
)  # fmt: skip


@gpu_check(
    "gpu.alike",
    title="the GPUs of a host are set alike, and to no less than their defaults",
    covers=("PIN-15",),
    fix="set them alike: nvidia-smi --power-limit, --reset-applications-clocks, --ecc-config; for "
    "a link, look at the slot and its settings in the firmware",
)
def check_alike(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if a GPU's power limit or clock is below its default, or differs from its model's.

    WARN as well if its ECC differs; INFO if its slot can do less than theirs.
    """
    for setting in _ALIKE:
        told = [gpu for gpu in gpus if gpu.device.get(setting.key) is not None]
        for gpu in filter(setting.is_low, told):
            default = setting.render(gpu.device[setting.default])
            value = setting.render(gpu.device[setting.key])
            text = f"{setting.words} {value}, {default} by default"
            yield gpu.finding(setting.status, "its default or more", text)
        yield from _odd([gpu for gpu in told if not setting.is_low(gpu)], setting)


def _odd(group: list[Gpu], setting: _Setting) -> Iterator[Finding]:
    for model in {gpu.device.get("name") for gpu in group}:
        values = [
            (gpu, setting.render(gpu.device[setting.key]))
            for gpu in group
            if gpu.device.get("name") == model
        ]
        usual = Counter(value for _, value in values).most_common(1)
        for gpu, value in values:
            if value != usual[0][0]:
                text = f"{setting.words} {value}, others have {usual[0][0]}"
                yield gpu.finding(setting.status, "as the others of its model", text)
