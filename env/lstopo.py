"""Recorded ``lstopo`` XML: the topology of a machine that is not here.

Knows the XML of hwloc 1 and 2 as far as a binding plan needs it. Leaves machines that are
here to ``env.probes.topology``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from env.errors import UserError
from env.topology import Core, Gpu, HostTopology, launcher_order

# The largest machines give a few MiB; what is larger is no record of one.
MAX_BYTES, MAX_BITMAP = 64 * 2**20, 10_000
_NVIDIA = re.compile(r"\b03[0-9a-f]{2} \[10de:", re.IGNORECASE)
_FIX = "record it on that machine: lstopo --of xml FILE (without --no-io, which hides the GPUs)"


def load_lstopo(path: Path) -> HostTopology:
    """Read a file that ``lstopo --of xml FILE`` wrote.

    Raises:
        UserError: the file cannot be read or is not such a file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UserError("a file of lstopo", found=f"{path}: too large", fix=_FIX)
        text = path.read_text(encoding="utf-8")
        return parse_lstopo(text, host=path.stem)
    except OSError as error:
        found = f"{path}: {error.strerror or error}"
        raise UserError("a file of lstopo", found=found, fix=_FIX) from error
    except ValueError as error:
        raise UserError("XML of lstopo", found=f"{path}: {error}", fix=_FIX) from error


def parse_lstopo(text: str, *, host: str) -> HostTopology:
    """Return the topology in the text of an ``lstopo`` XML file.

    What the recording process was not allowed to use is not allowed in the plan either.

    Args:
        text: the XML.
        host: the name to give the machine where the file does not name it.

    Raises:
        ValueError: the text is not such XML, or holds no processors.
    """
    if "<!ENTITY" in text:
        raise ValueError("it declares entities, which lstopo never does")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"no XML: {error}") from error
    machine = root.find("object")
    if root.tag != "topology" or machine is None:
        raise ValueError("no <topology> with an <object> in it")
    parts = {kind: list(_cpus_of(machine, kind)) for kind in ("socket", "node", "cache", "core")}
    cpus = {int(pu.get("os_index", "")) for pu in machine.iter("object") if _kind(pu) == "pu"}
    if not cpus:
        raise ValueError("no processors (PU) in it")
    allowed = tuple(sorted(cpus & (_bits(machine.get("allowed_cpuset")) or cpus)))
    groups = [members for _, members in parts["core"]] or [{cpu} for cpu in cpus]
    cores = launcher_order(
        Core(
            tuple(sorted(members)),
            socket=_holder(parts["socket"], members) or 0,
            node=_holder(parts["node"], members),
            cache=_holder(parts["cache"], members),
        )
        for members in groups
    )
    known = {core.node for core in cores if core.node is not None}
    name = next(
        (i.get("value") for i in machine.findall("info") if i.get("name") == "HostName"), ""
    )
    return HostTopology(
        host=name or host,
        cores=cores,
        allowed=allowed,
        cpuset=allowed,
        gpus=tuple(sorted(_gpus(machine, known), key=lambda gpu: gpu.pci)),
    )


def _kind(element: Element) -> str:
    """Return what an object is, whichever hwloc wrote it; empty for what does not matter."""
    kind = element.get("type", "")
    if kind == "Cache":  # hwloc 1 tells the level apart
        kind = f"L{element.get('depth')}Cache"
    kinds = {"Package": "socket", "Socket": "socket", "NUMANode": "node", "L3Cache": "cache",
             "Core": "core", "PU": "pu"}  # fmt: skip
    return kinds.get(kind, "")


def _cpus_of(machine: Element, kind: str) -> Iterator[tuple[int, set[int]]]:
    """Yield the number and the logical CPUs of every object of a kind.

    A cache has no number of its own: it goes by its lowest CPU.
    """
    for element in machine.iter("object"):
        if _kind(element) == kind:
            cpus = _bits(element.get("cpuset"))
            number = element.get("os_index") if kind != "cache" else None
            if cpus:
                yield int(number) if number is not None else min(cpus), cpus


def _holder(parts: list[tuple[int, set[int]]], cpus: set[int]) -> int | None:
    return next((number for number, members in parts if cpus <= members), None)


def _bits(text: str | None) -> set[int]:
    """Return the numbers in a bitmap such as ``0x0000000f`` or ``0x1,0x00000000``.

    Raises:
        ValueError: it is neither, has no end (``0xf...f``), or is longer than any machine's.
    """
    if not text:
        return set()
    if len(text) > MAX_BITMAP:
        raise ValueError(f"a bitmap of {len(text)} characters")
    value = 0
    for word in text.split(","):  # the highest 32 first; an empty word is 0
        value = (value << 32) | (int(word, 16) if word else 0)
    return {n for n in range(value.bit_length()) if value >> n & 1}


def _gpus(machine: Element, known: set[int]) -> Iterator[Gpu]:
    """Yield NVIDIA's GPUs; a GPU's node is that of the nearest object around it that has one.

    Nodes without cores of their own do not count: fast memory of the processor, memory of GPUs.
    """
    waiting: list[tuple[Element, int | None]] = [(machine, None)]
    while waiting:
        element, node = waiting.pop()
        nodes = _bits(element.get("nodeset")) & known
        if nodes:
            node = nodes.pop() if len(nodes) == 1 else None
        if element.get("type") == "PCIDev" and _NVIDIA.search(element.get("pci_type", "")):
            told = {i.get("name"): i.get("value") for i in element.iter("info")}
            model = told.get("GPUModel") or told.get("PCIDevice")
            yield Gpu(element.get("pci_busid", "unknown"), node, told.get("NVIDIAUUID"), model)
        else:
            waiting += [(child, node) for child in element.findall("object")]
