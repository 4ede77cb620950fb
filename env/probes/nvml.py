"""Asks the driver for the GPUs; runs as a child process by path, one line of JSON for each thing.

Says what it is about to ask before it asks (``{"ask": "2 name"}``), so that whoever started
it knows what killed it or hung, and can start it again with ``--without "2 name"``. Opens no
CUDA context: ``cuInit`` makes none, and its code is what every rank would meet.

Imports nothing of this project. A missing library is "no NVIDIA driver here", which is no
error. What a GPU does not support is left out; any other refusal is kept under ``problems``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

# A call that hangs is ended by SIGALRM, and this process with it.
CALL_LIMIT_S = 5.0
# The first call of a driver without persistence wakes every GPU of the node.
START_LIMIT_S = 15.0
# Not supported by this GPU, unknown to this driver, or no such link, slice or matrix.
_NOT_HERE = {2, 3, 6, 13, 25}
_BROKEN = {15, 16}
_MAX_LINKS = 18
# What tells which GPUs a rank is shown; its host's first rank asks for the rest.
_BRIEF = (
    "uuid",
    "name",
    "pci",
    "minor",
    "compute_capability",
    "mig_mode",
    "mig_devices",
    "nvlinks",
)

Binding = Any  # the module pynvml, which has no types
Handle = Any
Answer = Any


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _values(ml: Binding) -> dict[str, str | Callable[[Handle], object]]:
    """Return what is asked of every GPU: a fact's name, and a call's name or how to ask."""
    return {
        "uuid": lambda gpu: _text(ml.nvmlDeviceGetUUID(gpu)),
        "name": lambda gpu: _text(ml.nvmlDeviceGetName(gpu)),
        "pci": lambda gpu: _text(ml.nvmlDeviceGetPciInfo(gpu).busId),
        "minor": "nvmlDeviceGetMinorNumber",
        "compute_capability": lambda gpu: "{}.{}".format(
            *ml.nvmlDeviceGetCudaComputeCapability(gpu)
        ),
        "memory": lambda gpu: _memory(ml, gpu),
        "processes": lambda gpu: _processes(ml, "Compute", gpu),
        "graphics": lambda gpu: _processes(ml, "Graphics", gpu),
        "compute_mode": "nvmlDeviceGetComputeMode",
        "persistence": "nvmlDeviceGetPersistenceMode",
        "mig_mode": "nvmlDeviceGetMigMode",
        "mig_devices": lambda gpu: list(_slices(ml, gpu)),
        "ecc_mode": "nvmlDeviceGetEccMode",
        # 1: uncorrected; 0: since the driver was loaded.
        "ecc_uncorrected": lambda gpu: ml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0),
        "remapped_rows": lambda gpu: dict(
            zip(("corrected", "uncorrected", "pending", "failure"),
                ml.nvmlDeviceGetRemappedRows(gpu), strict=True)
        ),
        "retired_pending": "nvmlDeviceGetRetiredPagesPendingStatus",
        "clock_reasons": lambda gpu: _clock_reasons(ml, gpu),
        "clock_mhz": lambda gpu: ml.nvmlDeviceGetApplicationsClock(gpu, 1),
        "clock_default_mhz": lambda gpu: ml.nvmlDeviceGetDefaultApplicationsClock(gpu, 1),
        "power_limit_mw": "nvmlDeviceGetEnforcedPowerLimit",
        "power_default_mw": "nvmlDeviceGetPowerManagementDefaultLimit",
        "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
        "pcie_generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
        "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
        "pcie_width_max": "nvmlDeviceGetMaxPcieLinkWidth",
        "nvlinks": lambda gpu: list(_links(ml, gpu)),
        "fabric": lambda gpu: _fabric(ml, gpu),
    }  # fmt: skip


def _memory(ml: Binding, gpu: Handle) -> dict[str, int]:
    """Return sizes in bytes; drivers before 510 count what they reserve as used."""
    try:
        info = ml.nvmlDeviceGetMemoryInfo(gpu, version=ml.nvmlMemory_v2)
        return {"total": info.total, "used": info.used, "reserved": info.reserved}
    except AttributeError:  # an older release of the binding
        pass
    except ml.NVMLError as error:
        if error.value not in _NOT_HERE:
            raise
    info = ml.nvmlDeviceGetMemoryInfo(gpu)
    return {"total": info.total, "used": info.used}


def _processes(ml: Binding, kind: str, gpu: Handle) -> list[dict[str, int | None]]:
    try:
        found = getattr(ml, f"nvmlDeviceGet{kind}RunningProcesses")(gpu)
    except ml.NVMLError as error:
        if error.value != 13:
            raise
        found = getattr(ml, f"nvmlDeviceGet{kind}RunningProcesses_v2")(gpu)
    return [{"pid": one.pid, "memory": one.usedGpuMemory} for one in found]


def _slices(ml: Binding, gpu: Handle) -> Iterator[dict[str, Any]]:
    """Yield the MIG devices of a GPU; an older driver names them by parent and numbers."""
    with suppress(ml.NVMLError):
        if ml.nvmlDeviceGetMigMode(gpu)[0] != 1:
            return
    for index in range(ml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            part = ml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except ml.NVMLError as error:
            if error.value not in _NOT_HERE:
                raise
            continue
        numbers = (ml.nvmlDeviceGetGpuInstanceId, ml.nvmlDeviceGetComputeInstanceId)
        instance: dict[str, Any] = {"uuid": _text(ml.nvmlDeviceGetUUID(part))}
        with suppress(ml.NVMLError):
            instance["instance"] = "/".join(str(ask(part)) for ask in numbers)
        # Without root the whole GPU tells neither of them while it is divided.
        with suppress(ml.NVMLError):
            instance["memory"] = _memory(ml, part)
            instance["processes"] = _processes(ml, "Compute", part)
        yield instance


def _clock_reasons(ml: Binding, gpu: Handle) -> int:
    try:
        return ml.nvmlDeviceGetCurrentClocksEventReasons(gpu)
    except AttributeError:
        pass
    except ml.NVMLError as error:
        if error.value not in _NOT_HERE:
            raise
    return ml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)  # its name before driver 535


def _links(ml: Binding, gpu: Handle) -> Iterator[int]:
    for link in range(_MAX_LINKS):
        try:
            yield int(ml.nvmlDeviceGetNvLinkState(gpu, link))
        except ml.NVMLError as error:
            if error.value not in _NOT_HERE:
                raise
            return


def _fabric(ml: Binding, gpu: Handle) -> dict[str, int]:
    # One byte in the driver; the binding declares four.
    try:
        info = ml.c_nvmlGpuFabricInfoV_t()
        ml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(info))
        return {"state": info.state & 0xFF, "status": info.status, "health": info.healthMask}
    except ml.NVMLError as error:
        if error.value not in _NOT_HERE:
            raise
    info = ml.c_nvmlGpuFabricInfo_t()  # drivers before 545
    ml.nvmlDeviceGetGpuFabricInfo(gpu, ctypes.byref(info))
    return {"state": info.state & 0xFF, "status": info.status}


class Questions:
    """Asks one thing at a time, and says so beforehand on standard output."""

    def __init__(
        self, without: frozenset[str], *, limit_s: float = CALL_LIMIT_S, brief: bool = False
    ) -> None:
        """Leave out what is named, which killed the process that asked before.

        Args:
            without: what not to ask.
            limit_s: seconds that one answer may take.
            brief: ask only which GPUs there are.
        """
        self._without = without
        self._limit_s = limit_s
        self.brief = brief

    def ask(
        self, what: str, question: Callable[[], object], limit_s: float | None = None
    ) -> Answer:
        """Return the answer, None where it is left out; what the question raises goes on."""
        if what in self._without:
            return None
        tell({"ask": what})
        signal.setitimer(signal.ITIMER_REAL, limit_s or self._limit_s)
        try:
            return question()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def tell(line: dict[str, Any]) -> None:
    """Print one thing that is known, at once."""
    print(json.dumps(line), flush=True)


def observe_device(
    ml: Binding,
    index: int,
    questions: Questions,
) -> tuple[dict[str, Any], Handle]:
    """Return all that one GPU says of itself, and its handle, None where it is lost.

    What it refuses is under ``problems``.
    """
    device: dict[str, Any] = {"index": index}
    try:
        gpu = questions.ask(
            f"{index} handle", lambda: ml.nvmlDeviceGetHandleByIndex(index), START_LIMIT_S
        )
        if gpu is not None:
            _fill(device, ml, gpu, questions)
            return device, gpu
    except ml.NVMLError as error:
        device |= {"error": str(error), "error_code": error.value}
    return device, None


def _fill(device: dict[str, Any], ml: Binding, gpu: Handle, questions: Questions) -> None:
    """Add the answers of a GPU; raises where it says that it is lost."""
    problems: dict[str, Any] = {}
    for name, question in _values(ml).items():
        if questions.brief and name not in _BRIEF:
            continue
        what = f"{device['index']} {name}"
        try:
            call = getattr(ml, question) if isinstance(question, str) else question
            value = questions.ask(what, lambda call=call: call(gpu))
        except ml.NVMLError as error:
            if error.value in _BROKEN:
                raise
            if error.value not in _NOT_HERE:
                problems[name] = {"code": error.value, "text": str(error)}
            continue
        except AttributeError:  # an older release of the binding
            continue
        if value is not None:
            device[name] = value
    if problems:
        device["problems"] = problems


def observe_peers(ml: Binding, gpus: list[Handle], questions: Questions) -> dict[str, Any]:
    """Return the matrices ``ancestor`` (how far two GPUs are apart) and ``p2p`` (0 is good).

    The numbers are those of nvml.h: ``nvmlGpuTopologyLevel_t``, ``nvmlGpuP2PStatus_t``; None
    between GPUs that do not say.

    Args:
        ml: the binding.
        gpus: the handles, None of a lost GPU.
        questions: asks them.
    """
    calls = {
        "ancestor": ml.nvmlDeviceGetTopologyCommonAncestor,
        # 0: reading. (The binding's own name for it is a tuple by mistake.)
        "p2p": lambda one, two: ml.nvmlDeviceGetP2PStatus(one, two, 0),
    }

    def between(call: Callable[[Handle, Handle], int], one: Handle, two: Handle) -> int | None:
        if one is two or None in (one, two):
            return None
        try:
            return questions.ask("peers", lambda: call(one, two))
        except (ml.NVMLError, AttributeError):
            return None

    return {
        name: [[between(call, one, two) for two in gpus] for one in gpus]
        for name, call in calls.items()
    }


def observe_nvml(questions: Questions) -> dict[str, Any]:
    """Tell of every GPU, and return ``{state: absent | error | ok, …}``."""
    import pynvml as ml

    try:
        questions.ask("nvmlInit", ml.nvmlInit, START_LIMIT_S)
    except ml.NVMLError as error:
        if error.value == ml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return {"state": "absent"} | _why_absent()
        return _refusal(error)
    try:
        tell({"driver": _text(questions.ask("driver", ml.nvmlSystemGetDriverVersion))})
        with suppress(ml.NVMLError, AttributeError):
            tell({"cuda_version": questions.ask("cuda", ml.nvmlSystemGetCudaDriverVersion)})
        count = questions.ask("count", ml.nvmlDeviceGetCount)
        gpus = []
        for index in range(count):
            device, gpu = observe_device(ml, index, questions)
            gpus.append(gpu)
            tell({"device": device})
        if count > 1 and not questions.brief:
            tell({"peers": observe_peers(ml, gpus, questions)})
        return {"state": "ok"}
    except ml.NVMLError as error:
        return _refusal(error)


def _refusal(error: Binding) -> dict[str, Any]:
    text = f"{error} (NVML error {error.value})"
    return {"state": "error", "error": text, "error_code": error.value}


def _why_absent() -> dict[str, str]:
    """Return what the loader says of a library that is there and cannot be loaded."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        text = str(error)
        return {} if text.endswith("No such file or directory") else {"error": text}
    return {}


def observe_cuda(questions: Questions) -> dict[str, Any]:
    """Return what the CUDA driver library says: its code, and the GPUs in its own order.

    Those it numbers are after CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
    """
    try:
        cuda = questions.ask("cuda-load", lambda: ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        return {"state": "absent", "error": str(error)}
    if cuda is None:
        return {"state": "error", "error": "loading libcuda.so.1 kills a process"}
    code = questions.ask("cuInit", lambda: cuda.cuInit(0), START_LIMIT_S)
    if code != 0:
        return {"state": "error", "code": code}
    number, uuids = ctypes.c_int(), []
    questions.ask("cuDeviceGetCount", lambda: cuda.cuDeviceGetCount(ctypes.byref(number)))
    for index in range(number.value):
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        # The second form names a MIG slice by its own UUID; drivers before 11.4 lack it.
        name = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
        name(ctypes.byref(uuid), device)
        uuids.append(bytes(uuid).hex())
    return {"state": "ok", "code": 0, "devices": uuids}


def observe_holder(pid: int, questions: Questions) -> dict[str, Any]:
    """Return on which GPUs a process has a context, and how many processes there are in all.

    Without a driver: ``{"gpus": None}``.
    """
    import pynvml as ml

    try:
        questions.ask("nvmlInit", ml.nvmlInit, START_LIMIT_S)
    except ml.NVMLError:
        return {"gpus": None}
    gpus, listed = [], 0
    for index in range(ml.nvmlDeviceGetCount()):
        with suppress(ml.NVMLError):
            gpu = ml.nvmlDeviceGetHandleByIndex(index)
            found = questions.ask("processes", lambda gpu=gpu: _processes(ml, "Compute", gpu))
            listed += len(found)
            mine = [one["memory"] for one in found if one["pid"] == pid]
            if mine:
                gpus.append({"uuid": _text(ml.nvmlDeviceGetUUID(gpu)), "memory": mine[0]})
    return {"gpus": gpus, "listed": listed}


def main(argv: list[str]) -> None:
    """Tell everything; the last line of each library is its state."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--limit", type=float, default=CALL_LIMIT_S)
    parser.add_argument("--brief", action="store_true", help="only which GPUs there are")
    parser.add_argument("--holder", type=int, help="tell only which GPUs this process has")
    options = parser.parse_args(argv)
    without = frozenset(options.without)
    questions = Questions(without, limit_s=options.limit, brief=options.brief)
    # Whoever started us may have chosen to ignore it.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    if options.holder:
        tell(observe_holder(options.holder, questions))
        return
    tell({"nvml": observe_nvml(questions)})
    tell({"cuda": observe_cuda(questions)})


if __name__ == "__main__":
    main(sys.argv[1:])
