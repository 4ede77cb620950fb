"""Joining the other ranks through Horovod's own library, without importing TensorFlow.

Run by path under a launcher, imports nothing of this project, and prints one line of JSON for
each thing observed, as ``env.probes.inside`` does. Python's side of TensorFlow takes several
seconds of a core to import, in every rank; what ``hvd.init()`` does lies in one library,
which needs TensorFlow's libraries to be mapped and nothing else. That the import works
is the static phase's business.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

BEGIN = "@begin "
FACT = "@fact "
_PR_SET_PDEATHSIG = 1
_DRIVER_LIMIT_S = 30
_REPEATS = 5  # the best counts: anything else on the machine only makes it slower
_MAPPED = re.compile(
    r"/(libmpi|libopen-pal|libopen-rte|libpmix|libprrte|libucp|libfabric|libnccl|libcudart|libcuda"
    r"|libcudnn|libtensorflow_framework|mpi_lib)\.[^/]*$"
)


def die_with_parent() -> None:
    """Ask the kernel to end this process with the one that started it.

    A rank that is killed while it waits here must leave nothing that waits on.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def folder_of(package: str) -> Path:
    """Return where a package lies, without importing it.

    Raises:
        ModuleNotFoundError: there is none.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    return Path(spec.origin).parent


def load_library() -> ctypes.CDLL:
    """Map Horovod's library and return it.

    Raises:
        OSError: it, or a library that it needs, cannot be loaded; the message names it.
        ModuleNotFoundError: TensorFlow or Horovod is not installed.
    """
    built = sorted((folder_of("horovod") / "tensorflow").glob("mpi_lib*.so"))
    if not built:
        raise ModuleNotFoundError("Horovod has no TensorFlow part: mpi_lib is missing")
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        path = folder_of("tensorflow") / name
        if path.exists():
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(built[0]), ctypes.RTLD_GLOBAL)
    library.horovod_init.restype = ctypes.c_bool
    return library


def join(library: ctypes.CDLL) -> dict[str, int]:
    """Join the other ranks, as ``hvd.init()`` does, and return this one's place.

    Raises:
        RuntimeError: Horovod says that it is not initialised.
    """
    if not library.horovod_init(None, 0, None, None, 0):
        raise RuntimeError("horovod_init gave false; Horovod's own words are above")
    return {
        name: int(getattr(library, f"horovod_{name}")())
        for name in ("rank", "size", "local_rank", "local_size")
    }


def observe_mapped() -> list[str]:
    """Return the files of the libraries for messages that are mapped here, with their sizes.

    One path may hold another library on another host; its size tells, and costs no reading.
    """
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    files = {parts[5] for line in lines if len(parts := line.split(None, 5)) == 6}
    wanted = (file for file in files if _MAPPED.search(file))
    return sorted(f"{file} ({Path(file).stat().st_size} bytes)" for file in wanted)


def take_gpu(tf: ModuleType, local_rank: int) -> None:
    """Leave TensorFlow one GPU, as a training does: else every rank takes all of them."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        mine = gpus[0 if len(gpus) == 1 else local_rank]
        tf.config.set_visible_devices(mine, "GPU")
        tf.config.experimental.set_memory_growth(mine, True)


def observe_contexts() -> dict[str, object]:
    """Return the GPUs on which this very process has a context, after it has computed.

    Asked in a child, as the driver may do as it likes there.
    """
    argv = [sys.executable, "-P", str(Path(__file__).with_name("nvml.py"))]
    argv += ["--holder", str(os.getpid())]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=_DRIVER_LIMIT_S, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"gpus"')]
    return told[-1] if told else {"error": f"the driver ended the question: {done.returncode}"}


def observe_allreduce(mib: int) -> dict[str, float]:
    """Sum so many MiB over the ranks and return whether that was right, and how fast.

    The bandwidth is that of NCCL's own tests: bytes x 2 (n - 1) / n / seconds, which does
    not depend on the number of ranks n where the network is what limits.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    take_gpu(tf, hvd.local_rank())
    number = mib * 2**18
    values = tf.fill([number], float(hvd.rank() + 1))
    total = hvd.allreduce(values, op=hvd.Sum, name="preflight")  # also warms up
    seconds = []
    for turn in range(_REPEATS):
        begin = time.perf_counter()
        hvd.allreduce(values, op=hvd.Sum, name=f"preflight.{turn}").numpy()
        seconds.append(time.perf_counter() - begin)
    size = hvd.size()
    wanted = size * (size + 1) / 2
    wrong = int(tf.math.count_nonzero(total != wanted))
    best_s = min(seconds)
    gb_s = number * 4 * 2 * (size - 1) / size / best_s / 1e9
    return {"mib": mib, "wrong": wrong, "seconds": best_s, "gb_s": gb_s}


def main(argv: list[str]) -> None:
    """Join, look and with ``argv[0]`` reduce so many MiB.

    What one step had told still counts when the next one dies.
    """
    die_with_parent()
    loaded: list[ctypes.CDLL] = []

    def place() -> dict[str, int]:
        if argv:
            # Before the library is mapped by itself: Python's part wants to come first.
            import horovod.tensorflow  # noqa: F401
        loaded.append(load_library())
        return join(loaded[0])

    steps: list[tuple[str, Callable[[], object]]] = [
        ("horovod_init", place),
        ("mapped", observe_mapped),
    ]
    if argv:
        steps.append(("allreduce", lambda: observe_allreduce(int(argv[0]))))
        steps.append(("contexts", observe_contexts))
    for name, observe in steps:
        print(BEGIN + name, flush=True)
        try:
            value = observe()
        except Exception as error:  # whatever it raises is the observation
            value = {"error": f"{type(error).__name__}: {error}"}
        print(FACT + json.dumps([name, value]), flush=True)
        if isinstance(value, dict) and "error" in value:
            return
    loaded[0].horovod_shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
