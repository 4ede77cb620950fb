"""What connects the GPUs: PCIe, NVLink, the fabric of NVSwitches, peer traffic."""

from __future__ import annotations

from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.gpus import Gpu, each, gpu_check
from env.result import Finding, Status

_IDLE = 0x1  # nvmlClocksEventReasonGpuIdle
# nvmlGpuFabricState_t
_FABRIC = {1: "not started", 2: "in progress", 3: "completed"}
_UNSUPPORTED, _COMPLETED = 0, 3


@gpu_check(
    "gpu.pcie",
    title="the PCIe links run at full width and speed",
    reads=(),
    fix="reseat the card or its riser, look at the slot's settings in the firmware; dmesg shows "
    "AER errors",
)
def check_pcie(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if a busy GPU's link is narrower or slower than GPU and slot can do.

    An idle GPU saves power by a slow link: not judged, save where others of its model on the
    host are idle too and have more lanes.
    """
    yield from each(gpus, lambda gpu: _pcie(gpu, gpus))


def _pcie(gpu: Gpu, group: list[Gpu]) -> Iterator[Finding]:
    names = ("pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max")
    width, width_max, generation, generation_max = (gpu.value(name) for name in names)
    if None in (width, width_max, generation, generation_max):
        return
    others = [
        other.device["pcie_width"]
        for other in group
        if other.device.get("name") == gpu.device.get("name") and other.device.get("pcie_width")
    ]
    reasons = gpu.value("clock_reasons")
    busy = reasons is not None and not reasons & _IDLE
    expected = "the link that GPU and slot can do"
    if width < width_max and (busy or max(others) > width):
        text = f"{width} of {width_max} lanes"
        yield gpu.finding(Status.WARN, expected, text)
    if busy and generation < generation_max:
        text = f"under load at generation {generation} of {generation_max}"
        yield gpu.finding(Status.WARN, expected, text)


@gpu_check(
    "gpu.nvlink",
    title="all NVLinks are up",
    reads=("driver.pci",),
    fix="nvidia-smi nvlink --status names the link; the administrator resets the GPUs or looks at "
    "bridges and baseboard. Until then NCCL goes over PCIe or fewer links",
)
def check_nvlink(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if a GPU has fewer NVLinks up than others of its model, or some down at a switch.

    None at all, as without a bridge between PCIe cards, is no fault.
    """
    switches = evidence.facts.value("driver.pci")["switches"]
    yield from each(gpus, lambda gpu: _nvlink(gpu, gpus, switches))


def _nvlink(gpu: Gpu, group: list[Gpu], switches: int) -> Iterator[Finding]:
    links = gpu.value("nvlinks") or []
    siblings = [other for other in group if other.device.get("name") == gpu.device.get("name")]
    most = max(sum(other.device.get("nvlinks") or []) for other in siblings)
    wanted = len(links) if switches and any(links) else most
    if sum(links) < wanted:
        down = [str(number) for number, up in enumerate(links) if not up]
        text = f"{sum(links)} of {wanted} up; down are {', '.join(down) or 'those not listed'}"
        yield gpu.finding(Status.WARN, "every NVLink up", text)


@gpu_check(
    "gpu.fabric",
    title="the NVSwitch fabric is ready",
    covers=("PIN-16",),
    reads=("driver.pci",),
    fix="the administrator starts the fabric manager of the driver's very release on the host: "
    "systemctl start nvidia-fabricmanager (its log: /var/log/fabricmanager.log)",
    required=True,
)
def check_fabric(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """FAIL if a GPU behind NVSwitches has not joined their fabric: CUDA then ends with error 802.

    GPUs that cannot say (before Hopper) are judged by their NVLinks: none is up without it.
    Boards without NVSwitch need no fabric manager.
    """
    switches = evidence.facts.value("driver.pci")["switches"]
    yield from each(gpus, lambda gpu: _fabric(gpu, switches))


def _fabric(gpu: Gpu, switches: int) -> Iterator[Finding]:
    fabric, expected = gpu.value("fabric"), "a fabric that is ready"
    if fabric and fabric["state"] != _UNSUPPORTED:
        state = _FABRIC.get(fabric["state"], f"state {fabric['state']}")
        if fabric["state"] != _COMPLETED:
            yield gpu.finding(Status.FAIL, expected, f"registration {state}")
        elif fabric["status"]:
            yield gpu.finding(Status.FAIL, expected, f"registration failed, {fabric['status']}")
        return
    links = gpu.value("nvlinks")
    if switches and links and not any(links):
        text = f"{switches} NVSwitches and not one of {len(links)} NVLinks up"
        yield gpu.finding(Status.FAIL, expected, text)


@gpu_check(
    "gpu.peers",
    title="GPUs on PCIe can reach each other's memory",
    covers=("PIN-17",),
    reads=("driver.pci", "driver.iommu"),
    fix="turn ACS off on the bridges or in the firmware, or boot with iommu=pt; the last resort is "
    "NCCL_P2P_DISABLE=1, which is slower",
)
def check_peers(evidence: Evidence, gpus: list[Gpu]) -> Iterator[Finding]:
    """WARN if an IOMMU or ACS stands between PCIe GPUs whose driver offers peer traffic.

    Such traffic can hang the first allreduce, or corrupt it. GPUs with NVLink do not use it.
    """
    if evidence.ranks_a_host < 2:
        return
    mine = [gpu for gpu in gpus if not any(gpu.device.get("nvlinks") or [])]
    peers = evidence.facts.value("gpu.nvml").get("peers", {}).get("p2p", [])
    indices = [gpu.device["index"] for gpu in mine if gpu.device["index"] < len(peers)]
    offered = [(a, b) for a in indices for b in indices if a < b and peers[a][b] == 0]
    if not offered:
        return
    iommu, pci = evidence.facts.value("driver.iommu"), evidence.facts.value("driver.pci")
    expected = "nothing between GPUs that offer peer traffic"
    pairs = f"GPUs {', '.join(f'{a} and {b}' for a, b in offered[:3])}"
    translated = [name for name, kind in pci["iommu"].items() if kind.startswith("DMA")]
    if translated:
        text = f"{pairs}: an IOMMU translates for {', '.join(translated)}"
        yield Finding(Status.WARN, expected, text, where="/sys/class/iommu")
    elif iommu["units"] and not pci["iommu"] and "iommu=pt" not in iommu["cmdline"]:
        text = f"{pairs}: {iommu['units']} IOMMUs, and no iommu=pt on the kernel's command line"
        yield Finding(Status.WARN, expected, text, where="/proc/cmdline")
    if iommu["redirecting"]:
        text = f"{pairs}: ACS redirects at {', '.join(iommu['redirecting'][:4])}"
        yield Finding(Status.WARN, expected, text, where="/sys/bus/pci")
