"""The GPUs of this host as NVML shows them, and what this process may see of them.

Knows how to ask (in a child: a broken driver library can crash or hang) and which files
a driver leaves. Never opens CUDA: a context here would stand in the way of the ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact
from env.probes.child import run_child

TIMEOUT_S = 30.0
ASK = Path(__file__).with_name("nvml.py")


def probe_gpu(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
    python: str = sys.executable,
) -> dict[str, Fact]:
    """Return the facts ``gpu.*``.

    ``gpu.nvml`` is ``{state: absent | error | ok, error, driver, devices: [{index, uuid,
    name, pci, memory_bytes}]}``; ``gpu.visible`` the raw CUDA_VISIBLE_DEVICES;
    ``gpu.device_files`` the names in /dev that the kernel driver made.

    Args:
        root: the folder in which /dev lies.
        environ: the process's environment.
        timeout_s: seconds NVML may take.
        python: the interpreter to ask with.
    """
    outcome = run_child([python, "-P", str(ASK)], environ=environ, timeout_s=timeout_s)
    try:
        nvml = Fact(json.loads(outcome.stdout), "NVML")
    except ValueError:
        nvml = Fact(None, outcome.origin, problem=outcome.end)
    files = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))
    return {
        "gpu.nvml": nvml,
        "gpu.visible": Fact(environ.get("CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES"),
        "gpu.device_files": Fact(files, str(root / "dev")),
    }
