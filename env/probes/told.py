"""Asks shared libraries for their own version; runs as a child process by path, prints JSON.

Imports nothing of this project: a broken library can kill the process that opens it. Knows
which function of which library answers, and how it packs numbers. No device is opened.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

# The CUDA of NCCL's build stands in a text of the library; no function tells it.
_NCCL_CUDA = re.compile(rb"NCCL version [0-9.]+\+cuda([0-9]+\.[0-9]+)")


def find_library(soname: str, *, own: Iterable[str] = ()) -> str | None:
    """Return what the loader would open, None where there is nothing.

    Both TensorFlow's wheels and Open MPI look in LD_LIBRARY_PATH, then in folders of their own
    (a RUNPATH comes after the variable), then where every program looks.

    Args:
        soname: the library's name.
        own: the folders that whoever opens it looks in by itself.
    """
    listed = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for folder in (*listed, *own):
        if (Path(folder) / soname).exists():
            return str(Path(folder) / soname)
    try:
        ctypes.CDLL(soname)
    except OSError as error:
        # Anything else is a library that is there and does not load.
        return None if "No such file" in str(error) else soname
    return soname


def _pmix(library: ctypes.CDLL) -> str:
    library.PMIx_Get_version.restype = ctypes.c_char_p
    text = library.PMIx_Get_version().decode(errors="replace")
    return re.search(r"\d+(\.\d+)+\w*", text)[0]


def _hwloc(library: ctypes.CDLL) -> str:
    number = library.hwloc_get_api_version()  # 0x00MMmmpp; a release may keep the number
    version = number >> 16, number >> 8 & 255
    if (2, 5) <= version < (2, 8):
        raise TypeError(f"interface {version[0]}.{version[1]} is that of several releases")
    return f"{version[0]}.{version[1]}"


def _cuda(library: ctypes.CDLL) -> str:
    number = ctypes.c_int()
    library.cudaRuntimeGetVersion(ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _cudnn(library: ctypes.CDLL) -> str:
    library.cudnnGetVersion.restype = ctypes.c_size_t
    return _packed(library.cudnnGetVersion(), most_of_old=9000)


def _nccl(library: ctypes.CDLL) -> str:
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    return _packed(number.value, most_of_old=2900)


def _packed(number: int, *, most_of_old: int) -> str:
    """Return major.minor.patch: the major number had three digits after it, and now has four."""
    major, rest = divmod(number, 1000 if number < most_of_old else 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


NAMES = ("pmix", "hwloc", "cuda", "cudnn", "nccl")


@dataclass(frozen=True)
class Library:
    """A library to ask: its sonames, who is asked for its version, who opens it by itself."""

    sonames: tuple[str, ...]
    ask: Callable[[ctypes.CDLL], str]
    own: tuple[str, ...] = ()


def libraries(mpi_folders: Iterable[str]) -> dict[str, Library]:
    """Return by name the libraries that would be loaded.

    Of CUDA and cuDNN only those whose sonames TensorFlow was built to open: another CUDA
    that lies on the machine, or a TensorFlow for CPUs, is no trouble.

    Args:
        mpi_folders: where Open MPI has its own libraries.
    """
    own = tuple(mpi_folders)
    every = {
        "pmix": Library(("libpmix.so.2",), _pmix, own),
        "hwloc": Library(("libhwloc.so.15", "libhwloc.so.5"), _hwloc, own),
    }
    built = _tensorflow_build()
    if "cuda_version" not in built:
        return every
    major, _, minor = built["cuda_version"].partition(".")
    # From CUDA 11 on the soname keeps one minor number for the whole family.
    cudart = {"10": f"10.{minor[:1]}", "11": "11.0"}.get(major, major)
    cudnn = built.get("cudnn_version", "").partition(".")[0]
    wheels = {str(path) for entry in sys.path for path in Path(entry or ".").glob("nvidia/*/lib")}
    own = tuple(sorted(wheels))
    return every | {
        "cuda": Library((f"libcudart.so.{cudart}",), _cuda, own),
        "cudnn": Library((f"libcudnn.so.{cudnn}",), _cudnn, own),
        "nccl": Library(("libnccl.so.2",), _nccl, own),
    }


def _tensorflow_build() -> dict[str, str]:
    """Return what TensorFlow's own file says of its build; importing it would take seconds."""
    for folder in sys.path:
        path = Path(folder or ".", "tensorflow/python/platform/build_info.py")
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            return dict(re.findall(r"['\"](\w+)['\"][,:] *['\"]([^'\"]*)['\"]", text))
    return {}


def observe(one: Library) -> dict[str, str] | None:
    """Return ``{version, path}`` or ``{error, path}`` of a library, None where there is none."""
    found = (find_library(soname, own=one.own) for soname in one.sonames)
    path = next((path for path in found if path), None)
    if path is None:
        return None
    try:
        return {"version": one.ask(ctypes.CDLL(path)), "path": path}
    except (OSError, AttributeError, TypeError) as error:
        return {"error": str(error), "path": path}


def observe_nccl_cuda(path: str) -> dict[str, str]:
    """Return the CUDA that a libnccl was built for."""
    if not Path(path).is_absolute():  # found by the loader: it is mapped by now
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        path = next((f"/{part}" for part in re.findall(r" /(\S*libnccl\.so\S*)", maps)), path)
    try:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            match = _NCCL_CUDA.search(text)
            version = match[1].decode() if match else None  # while the file is mapped
    except (OSError, ValueError) as error:
        return {"error": str(error), "path": path}
    if version is None:
        return {"error": "it holds no text 'NCCL version …+cuda…'", "path": path}
    return {"version": version, "path": path}


def main() -> None:
    """Print a line for each library as soon as it has answered: a later one may be fatal."""
    asked = libraries(sys.argv[1:])
    for name in NAMES:
        seen = observe(asked[name]) if name in asked else None
        print(json.dumps([name, seen]), flush=True)
        if name == "nccl" and seen and "version" in seen:
            seen = observe_nccl_cuda(seen["path"])
        if name == "nccl":
            print(json.dumps(["nccl_cuda", seen]), flush=True)


if __name__ == "__main__":
    main()
