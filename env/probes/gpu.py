"""The GPUs of this host as the driver shows them, and what this process may see of them.

Knows how to ask (in a child: a broken driver library can crash or hang, and then the rest is
asked again without what killed it), which files a driver leaves, and whose processes a GPU
holds. Never opens a CUDA context: one here would stand in the way of the ranks. Leaves the
driver's own files to ``env.probes.driver`` and judging to the checks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import Outcome, run_child
from env.probes.launch import probe_launch
from env.probes.loader import find_libraries
from env.probes.processes import probe_processes

TIMEOUT_S = 25.0
# A call that hangs longer ends the child, which is then asked again without it.
CALL_LIMIT_S = 5.0
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
ASK = Path(__file__).with_name("nvml.py")
# After so many deaths of the child the driver is beyond asking.
_TRIES = 4

# What decides which GPUs a process sees, by whom: CUDA, the container runtime, Slurm.
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "NVIDIA_DISABLE_REQUIRE",
    "SLURM_JOB_ID", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "GPU_DEVICE_ORDINAL",
)  # fmt: skip


def probe_gpu(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
    call_limit_s: float = CALL_LIMIT_S,
    python: str = sys.executable,
) -> dict[str, Fact]:
    """Return the facts ``gpu.*``.

    ``gpu.nvml`` is ``{state: absent | error | ok, error, driver, cuda_version, devices, peers}``.
    A device has ``index, uuid, name, pci, numa_node, compute_capability ("9.0"), memory {total,
    used, reserved: bytes}, processes [{pid, memory}], mig_devices [{uuid, instance}]`` and what
    else ``env/probes/nvml.py`` asks; what it does not support is missing, ``problems`` holds
    what it refused, ``error`` says that it is lost or not ours. A rank that is not its host's
    first asks only which GPUs there are.

    ``gpu.cuda`` is ``{state, code, devices}``: cuInit's code, and the UUIDs (32 hex digits) in
    CUDA's own order. ``gpu.visible`` is the raw CUDA_VISIBLE_DEVICES, ``gpu.variables`` those
    of ``VARIABLES`` that are set, ``gpu.device_files`` the names in /dev of the GPUs,
    ``gpu.files`` whether this process may open each file of the driver, ``gpu.processes`` whose
    the processes on the GPUs are.

    Args:
        root: the folder in which /dev, /proc and /sys lie.
        environ: the process's environment.
        timeout_s: seconds the driver may take.
        call_limit_s: seconds one question about a GPU may take.
        python: the interpreter to ask with.
    """
    argv = [python, "-P", str(ASK), "--limit", str(call_limit_s)]
    if probe_launch(environ=environ)["launch.local_rank"].value:
        argv.append("--brief")
    if _anything(root, environ):
        told, outcome = _ask(argv, environ, timeout_s=timeout_s)
        nvml, cuda = (_answer(told, name, outcome) for name in ("nvml", "cuda"))
    else:  # starting Python to be told so takes every rank a quarter of a second
        nvml = Fact({"state": "absent"}, "the loader's folders")
        cuda = Fact({"state": "absent", "error": "no libcuda.so.1"}, "the loader's folders")
    devices = (nvml.value or {}).get("devices", [])
    for device in devices:
        device["numa_node"] = _numa_node(root, device.get("pci"))
    dev = root / "dev"
    return {
        "gpu.nvml": nvml,
        "gpu.cuda": cuda,
        "gpu.visible": Fact(environ.get("CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES"),
        "gpu.variables": Fact({n: environ[n] for n in VARIABLES if n in environ}, "environment"),
        "gpu.device_files": Fact(sorted(p.name for p in dev.glob("nvidia[0-9]*")), str(dev)),
        "gpu.files": Fact(_openable(dev), str(dev)),
        "gpu.processes": probe_processes(root, pids=_pids(devices), environ=environ),
    }


def _anything(root: Path, environ: Mapping[str, str]) -> bool:
    """Return whether there is a library or a kernel's part of a driver to ask."""
    if (root / "proc/driver/nvidia").exists() or any((root / "dev").glob("nvidia*")):
        return True
    # What the child would load, wherever ``root`` is.
    return any(find_libraries(LIBRARIES, root=Path("/"), environ=environ))


def _ask(
    argv: list[str], environ: Mapping[str, str], *, timeout_s: float
) -> tuple[dict[str, Any], Outcome]:
    """Ask until a child comes to its end; each time without what killed the one before."""
    deadline = time.monotonic() + timeout_s
    deadly: dict[str, str] = {}
    while True:
        without = [part for what in deadly for part in ("--without", what)]
        left = max(1.0, deadline - time.monotonic())
        outcome = run_child([*argv, *without], environ=environ, timeout_s=left)
        told, asked = _read(outcome.stdout.splitlines())
        if outcome.exit_code == 0 or asked in (None, "nvmlInit", *deadly):
            break
        deadly[asked] = outcome.end
        if len(deadly) >= _TRIES or time.monotonic() >= deadline:
            break
    _blame(told, deadly)
    return told, outcome


# What a child tells once, and of what kind it is.
_TOLD = {"driver": str, "cuda_version": int | None, "peers": dict, "nvml": dict, "cuda": dict}


def _read(lines: Iterable[str]) -> tuple[dict[str, Any], str | None]:
    """Return all that a child told, and what it asked for last.

    Whatever else a driver's library prints is passed over.
    """
    told: dict[str, Any] = {"devices": []}
    asked = None
    for line in lines:
        try:
            ((name, value),) = json.loads(line).items()
        except (ValueError, AttributeError):
            continue
        if name == "ask":
            asked = str(value)
        elif name == "device" and isinstance(value, dict) and isinstance(value.get("index"), int):
            told["devices"].append(value)
        elif name in ("nvml", "cuda") and not (isinstance(value, dict) and "state" in value):
            continue
        elif name in _TOLD and isinstance(value, _TOLD[name]):
            told[name] = value
    return told, asked


def _blame(told: dict[str, Any], deadly: Mapping[str, str]) -> None:
    """Enter the deaths where the answers would be."""
    for what, end in deadly.items():
        index, _, name = what.partition(" ")
        text = f"asking kills the process: {end}"
        if not index.isdigit():
            told.setdefault("deaths", {})[what] = text
            continue
        device = next((d for d in told["devices"] if d["index"] == int(index)), None)
        if device is None:
            told["devices"].append({"index": int(index), "error": text, "error_code": None})
        elif name == "handle":
            device |= {"error": text, "error_code": None}
        else:
            device.setdefault("problems", {})[name] = {"code": None, "text": text}


def _answer(told: Mapping[str, Any], name: str, outcome: Outcome) -> Fact:
    """Return one library's answer as a fact; without its last word it is not known."""
    last = told.get(name)
    if name == "cuda":
        if last is None:
            return Fact(None, "libcuda", problem=outcome.end)
        deaths = {k: v for k, v in told.get("deaths", {}).items() if k.startswith("cu")}
        return Fact(last | ({"deaths": deaths} if deaths else {}), "libcuda")
    if last is None and not told["devices"]:
        return Fact(None, outcome.origin, problem=outcome.end)
    rest = {key: told[key] for key in ("driver", "cuda_version", "devices", "peers") if key in told}
    last = last or {"state": "ok", "incomplete": outcome.end}
    return Fact(last | rest if last["state"] == "ok" else last, "NVML")


def _numa_node(root: Path, pci: str | None) -> int | None:
    """Return the memory node next to a GPU, None where the kernel names none."""
    if not pci:
        return None
    try:
        text = (root / "sys/bus/pci/devices" / kernel_pci(pci) / "numa_node").read_text()
        node = int(text)
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def kernel_pci(pci: str) -> str:
    """Return a PCI address as /sys writes it: ``00000000:1B:00.0`` is ``0000:1b:00.0``."""
    domain, _, rest = pci.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return pci.lower()


def _openable(dev: Path) -> dict[str, bool]:
    """Return each file of the driver and whether this process may open it.

    Asked of the kernel without opening: the answer counts permissions and the control
    group's list of devices alike.
    """
    return {
        path.name: os.access(path, os.R_OK | os.W_OK)
        for path in sorted(dev.glob("nvidia*"))
        if not path.is_dir()
    }


def _pids(devices: Iterable[Mapping[str, Any]]) -> list[int]:
    groups = (device.get(kind, []) for device in devices for kind in ("processes", "graphics"))
    return sorted({process["pid"] for group in groups for process in group})
