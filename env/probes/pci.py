"""NVIDIA's devices on the PCI bus, and what stands between two of them.

Knows /sys/bus/pci and the PCI Express capability by which bridges redirect peer traffic
(ACS: PCI Express Base Specification, 7.7.8). Leaves judging to the checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env.facts import Fact

_NVIDIA = "0x10de"
_DISPLAY, _BRIDGE_SWITCH = "0x03", "0x0680"
_PCI_BRIDGE = "0x0604"
_ACS = 0x000D
# Bits of the ACS control register that send peer-to-peer requests up to the root complex.
_REDIRECT = 0b0001_1100
_MAX_CAPABILITIES = 48


def probe_pci(root: Path = Path("/")) -> dict[str, Fact]:
    """Return ``driver.pci`` and ``driver.iommu``.

    ``driver.pci`` is ``{gpus: {pci: bound driver or None}, switches: number of NVSwitches, iommu:
    {pci: how the IOMMU serves that GPU, "DMA…" where it translates, "identity" where not}}``.
    ``driver.iommu`` is ``{units, cmdline, redirecting}``: how many IOMMUs translate, the words
    of the kernel's command line about them, and the bridges whose ACS redirects peer traffic
    (None where their settings cannot be read, as without root).

    Args:
        root: the folder in which /proc and /sys lie.
    """
    bus = root / "sys/bus/pci/devices"
    gpus: dict[str, str | None] = {}
    groups: dict[str, str] = {}
    switches, redirecting, unread = 0, [], False
    for device in sorted(bus.glob("*")):
        kind = _read(device / "class")
        if kind.startswith(_PCI_BRIDGE):
            redirects = _redirects(device / "config")
            unread |= redirects is None
            redirecting += [device.name] if redirects else []
        if _read(device / "vendor") != _NVIDIA:
            continue
        if kind.startswith(_DISPLAY):
            link = device / "driver"
            gpus[device.name] = link.resolve().name if link.exists() else None
            kind_of_group = _read(device / "iommu_group/type")
            groups |= {device.name: kind_of_group} if kind_of_group else {}
        switches += kind.startswith(_BRIDGE_SWITCH)
    words = _read(root / "proc/cmdline").split()
    iommu: dict[str, Any] = {
        "units": len(list((root / "sys/class/iommu").glob("*"))),
        "cmdline": [word for word in words if "iommu" in word or "noacs" in word or "acs" in word],
        "redirecting": None if unread and not redirecting else redirecting,
    }
    return {
        "driver.pci": Fact({"gpus": gpus, "switches": switches, "iommu": groups}, str(bus)),
        "driver.iommu": Fact(iommu, str(root / "sys/class/iommu")),
    }


def _redirects(config: Path) -> bool | None:
    """Return whether a bridge redirects peer traffic, None where that cannot be read."""
    try:
        data = config.read_bytes()
    except OSError:
        return None
    if len(data) <= 256:  # without root the kernel shows the first 64 bytes alone
        return None
    for place in _extended(data):
        if int.from_bytes(data[place : place + 2], "little") == _ACS:
            control = int.from_bytes(data[place + 6 : place + 8], "little")
            return bool(control & _REDIRECT)
    return False


def _extended(data: bytes) -> Iterator[int]:
    """Yield where each extended capability of a configuration space begins."""
    place = 0x100
    for _ in range(_MAX_CAPABILITIES):
        header = int.from_bytes(data[place : place + 4], "little")
        if header in (0, 0xFFFFFFFF):
            return
        yield place
        place = header >> 20
        if place < 0x100:
            return


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
