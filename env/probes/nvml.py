"""Asks NVML for the GPUs; runs as a child process by path and prints one line of JSON.

Imports nothing of this project. A missing library is "no NVIDIA driver here", which
is no error; any other refusal is one. A broken GPU does not hide the others.
"""

from __future__ import annotations

import json


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _device(pynvml: object, index: int) -> dict:
    device: dict = {"index": index}
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        device["uuid"] = _text(pynvml.nvmlDeviceGetUUID(handle))
        device["name"] = _text(pynvml.nvmlDeviceGetName(handle))
        device["pci"] = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        device["memory_bytes"] = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError as error:
        device["error"] = str(error)
    return device


def observe() -> dict:
    """Return ``{state: absent | error | ok, …}``."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return {"state": "absent"}
        return {"state": "error", "error": f"{error} (NVML error {error.value})"}
    try:
        count = pynvml.nvmlDeviceGetCount()
        return {
            "state": "ok",
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "devices": [_device(pynvml, index) for index in range(count)],
        }
    except pynvml.NVMLError as error:
        return {"state": "error", "error": f"{error} (NVML error {error.value})"}
    finally:
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    print(json.dumps(observe()))
