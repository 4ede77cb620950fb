"""What only an import can tell; runs as a child process, since an import can kill it.

Run by path, imports nothing of this project, and prints one line of JSON for each
thing observed, as soon as it is known: what a dead child had already told still counts.
With ``--mapped`` it also names every library in the process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

BEGIN = "@begin "
FACT = "@fact "
# Libraries of which one process must hold one copy.
_WATCHED = re.compile(
    r"(libmpi|libopen-pal|libopen-rte|libprrte|libpmix|libnccl|libcudart|libcudnn|libcublas|libstdc\+\+"
    r"|libtensorflow_framework|libtensorflow_cc|libhwloc|libcuda|libnvidia-ml)\.so[.0-9]*$"
)


def observe_tensorflow() -> dict:
    """Import TensorFlow and Keras and return what was loaded."""
    import numpy
    import tensorflow

    build = tensorflow.sysconfig.get_build_info()
    import keras

    return {
        "version": tensorflow.__version__,
        "keras": keras.__version__,
        "numpy": numpy.__version__,
        "path": tensorflow.__file__,
        "build": {key: str(value) for key, value in build.items()},
    }


def observe_horovod() -> dict:
    """Import Horovod's TensorFlow part and return what it was built with."""
    import horovod
    import horovod.tensorflow as hvd

    return {
        "version": horovod.__version__,
        "path": horovod.__file__,
        "mpi": bool(hvd.mpi_built()),
        "gloo": bool(hvd.gloo_built()),
        "nccl": int(hvd.nccl_built()),
    }


def observe_libraries() -> list[str]:
    """Return the files of watched libraries that are mapped into this process."""
    return [file for file in observe_mapped() if _WATCHED.search(file)]


def observe_mapped() -> list[str]:
    """Return the files of all libraries that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    files = {line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6}
    return sorted(file for file in files if ".so" in Path(file).name)


def observe_mpi_library() -> dict | None:
    """Return the file and the own words of the MPI that Horovod loaded, None without one."""
    import ctypes

    files = [file for file in observe_libraries() if Path(file).name.startswith("libmpi.so")]
    if not files:
        return None
    # Callable before MPI_Init; 256 and 8192 are the sizes MPICH and the standard's
    # largest implementation ask for, so the larger one.
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(files[0]).MPI_Get_library_version(text, ctypes.byref(length))
    return {"path": files[0], "text": text.value.decode(errors="replace")}


def observe_program(name: str = "chexnet.train") -> dict | None:
    """Import the training program and return whether TensorFlow computed meanwhile.

    A rank chooses its GPU and its threads after the import; TensorFlow then refuses both. None
    where the program is not here.
    """
    import importlib
    import importlib.util

    import tensorflow
    from tensorflow.python.client import device_lib

    if importlib.util.find_spec(name.partition(".")[0]) is None:
        return None
    listed: list[str] = []
    listing = device_lib.list_local_devices  # starts every GPU, and tells nobody
    device_lib.list_local_devices = lambda *args, **kw: listed.append(name) or listing(*args, **kw)
    importlib.import_module(name)
    threads = tensorflow.config.threading
    try:
        threads.set_intra_op_parallelism_threads(threads.get_intra_op_parallelism_threads() + 1)
    except RuntimeError as error:
        return {"name": name, "early": str(error)}
    return {"name": name, "early": "list_local_devices() was called" if listed else None}


def observe_xla() -> list[str] | None:
    """Let XLA read its flags, and return the variables that hold some; None without any.

    A flag that it does not know ends the process. Leaves GPUs alone, so it comes last.
    """
    given = [name for name in ("TF_XLA_FLAGS", "XLA_FLAGS") if os.environ.get(name, "").strip()]
    if not given:
        return None
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    import tensorflow

    tensorflow.function(lambda value: value + 1, jit_compile=True)(tensorflow.constant(1.0))
    return given


def main(*, mapped: bool) -> None:
    """Observe everything, in the order in which one thing needs the other."""
    steps: list[tuple[str, Callable[[], object]]] = [
        ("tensorflow", observe_tensorflow),
        ("horovod", observe_horovod),
        ("mpi_library", observe_mpi_library),
        ("libraries", observe_libraries),
        ("program", observe_program),
    ]
    if mapped:
        steps.append(("mapped", observe_mapped))
    steps.append(("xla", observe_xla))
    failed: set[str] = set()
    for name, observe in steps:
        if name not in ("libraries", "mapped") and failed:
            continue
        print(BEGIN + name, flush=True)
        try:
            value = observe()
        except Exception as error:  # whatever an import raises is the observation
            failed.update({name} - {"program"})
            value = {"error": f"{type(error).__name__}: {error}"}
        print(FACT + json.dumps([name, value]), flush=True)


if __name__ == "__main__":
    main(mapped="--mapped" in sys.argv[1:])
