"""Which GPUs CUDA shows a process, from CUDA_VISIBLE_DEVICES and the list of the devices.

Knows every form of that variable: indices, UUIDs and their beginnings, MIG slices, the words
that schedulers write when they gave no device. Pure: leaves reading to the probes and judging
to the checks.

CUDA reads the list from the left and ends at the first entry that names no device; an entry
that comes twice empties it (NVIDIA CUDA programming guide, "CUDA environment variables"; the
rule for duplicates as PyTorch, ``torch.cuda._parse_visible_devices``, found it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Entries by which a scheduler says that it gave no device; CUDA finds no device of that name.
NO_DEVICE = ("NoDevFiles", "void", "none")
_NO_PERMISSION = 4
# As C's strtol: blanks and a sign before the digits, anything behind them.
_NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Visible:
    """What CUDA shows.

    Attributes:
        uuids: of the GPUs or MIG slices, in CUDA's order as far as it is known.
        indices: NVML's index of each of them, a slice's being that of its GPU.
        problem: why the list is shorter than it reads; empty where it is not.
        numbered: whether numbers name the devices, which mean CUDA's order and not NVML's.
    """

    uuids: tuple[str, ...]
    indices: tuple[int, ...]
    problem: str = ""
    numbered: bool = False


@dataclass(frozen=True)
class _Seen:
    uuid: str
    index: int
    sliced: bool


class _MeaninglessError(Exception):
    """An entry at which CUDA ends the list; the text says why, empty where it is on purpose."""


def resolve_visible(raw: str | None, devices: Sequence[Mapping[str, Any]]) -> Visible:
    """Return what CUDA shows of a host's devices.

    Args:
        raw: the variable, None where it is not set.
        devices: as ``gpu.nvml`` holds them, ordered by PCI address.
    """
    ours = [device for device in devices if device.get("error_code") != _NO_PERMISSION]
    if raw is None:
        whole = [seen for device in ours for seen in _first(device) if not seen.sliced]
        slices = [seen for device in ours for seen in _first(device) if seen.sliced]
        return _visible(whole or slices[:1], "", numbered=False)
    entries = [entry.strip() for entry in raw.split(",")] if raw.strip() else []
    numbered = any(_NUMBER.match(entry) for entry in entries)
    chosen, problem = _read(entries, ours)
    if len(chosen) > 1 and any(seen.sliced for seen in chosen):
        problem = problem or "a process can use one MIG slice, the first that is named"
        chosen = chosen[:1]
    return _visible(chosen, problem, numbered=numbered)


def _read(entries: Sequence[str], devices: Sequence[Mapping[str, Any]]) -> tuple[list[_Seen], str]:
    """Return what the entries name up to the one that ends the list, and why that one does."""
    chosen: list[_Seen] = []
    for place, entry in enumerate(entries):
        try:
            seen = _find(entry, devices)
        except _MeaninglessError as error:
            # An empty entry at the end, which joining scripts leave behind, loses nothing.
            more = any(entries[place + 1 :])
            name = entry or "an empty entry"
            ends = f"{name} ends the list, what follows is not seen" if more else ""
            return chosen, str(error) or ends
        if any(seen.uuid == other.uuid for other in chosen):
            return [], f"{entry!r} names a device a second time"
        chosen.append(seen)
    return chosen, ""


def _visible(chosen: Sequence[_Seen], problem: str, *, numbered: bool) -> Visible:
    uuids, indices = (seen.uuid for seen in chosen), (seen.index for seen in chosen)
    return Visible(tuple(uuids), tuple(indices), problem, numbered)


def _first(device: Mapping[str, Any]) -> list[_Seen]:
    """Return what naming a whole device shows: itself, or the first slice of a divided one."""
    if not device.get("uuid"):
        return []
    if (device.get("mig_mode") or [0])[0] != 1:
        return [_Seen(device["uuid"], device["index"], sliced=False)]
    parts = device.get("mig_devices") or []
    return [_Seen(part["uuid"], device["index"], sliced=True) for part in parts[:1]]


def _find(entry: str, devices: Sequence[Mapping[str, Any]]) -> _Seen:
    if not entry or entry in NO_DEVICE:
        raise _MeaninglessError("")
    if entry.startswith("MIG-"):
        return _find_slice(entry, devices)
    if entry.startswith("GPU-"):
        found = [device for device in devices if device.get("uuid", "").startswith(entry)]
        if len(found) != 1:
            count = f"{len(found)} GPUs" if found else "no GPU of this host"
            raise _MeaninglessError(f"{entry!r} names {count}")
        return _whole(entry, found[0])
    number = _NUMBER.match(entry)
    if not number:
        raise _MeaninglessError(f"{entry!r} means nothing to CUDA")
    index = int(number.group())
    if index < 0:
        raise _MeaninglessError("")
    if index >= len(devices):
        last = f"there are 0 to {len(devices) - 1}" if devices else "there is none"
        raise _MeaninglessError(f"{entry!r} names no GPU, {last}")
    return _whole(entry, devices[index])


def _whole(entry: str, device: Mapping[str, Any]) -> _Seen:
    seen = _first(device)
    if not seen:
        why = "MIG is on and it has no slice" if device.get("uuid") else device.get("error", "?")
        raise _MeaninglessError(f"{entry!r} names GPU {device['index']}: {why}")
    return seen[0]


def _find_slice(entry: str, devices: Sequence[Mapping[str, Any]]) -> _Seen:
    """Return a slice by its UUID, or in the older form ``MIG-GPU-<uuid>/<instance>/<part>``."""
    found = [
        _Seen(part["uuid"], device["index"], sliced=True)
        for device in devices
        for part in device.get("mig_devices") or []
        if part["uuid"].startswith(entry)
        or f"MIG-{device.get('uuid')}/{part.get('instance')}" == entry
    ]
    if len(found) != 1:
        count = f"{len(found)} MIG slices" if found else "no MIG slice of this host"
        raise _MeaninglessError(f"{entry!r} names {count}")
    return found[0]
