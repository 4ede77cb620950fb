"""A GPU image, built in earnest and looked into, without a GPU: sizes, times, what is in it.

What is asked of the image runs inside it. The kernels of its libraries are listed with
NVIDIA's cuobjdump, which comes from PyPI into a scratch folder and is lent to the image.

    python -m benchmarks.gpu_image --output FILE.json [--stack cuda12] [--image FILE.sif]
        [--build FILE.json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import write_record

# Prints, as JSON, what TensorFlow and Horovod say of themselves and what they have loaded.
_TELL = """
import ctypes, json, pathlib, re, sysconfig
import tensorflow as tf, horovod, horovod.tensorflow as hvd
site = pathlib.Path(sysconfig.get_path("purelib"))
maps = pathlib.Path("/proc/self/maps").read_text()
loaded = sorted({line.split()[-1] for line in maps.splitlines() if "/libnccl.so" in line})
def number(library, function):
    value = ctypes.c_int()
    getattr(ctypes.CDLL(str(library)), function)(ctypes.byref(value))
    return value.value
def found(pattern):
    return next(iter(sorted(site.glob(pattern))), None)
cudnn = found("nvidia/cudnn/lib/libcudnn.so.9")
cudart = found("nvidia/cuda_runtime/lib/libcudart.so.*")
info = {key: value for key, value in tf.sysconfig.get_build_info().items()}
records = [path for path in site.glob("*.dist-info/RECORD")]
sizes = [line.rsplit(",", 1)[1] for path in records for line in path.read_text().splitlines()]
print("TOLD " + json.dumps({
    "tensorflow": tf.__version__, "horovod": horovod.__version__, "build_info": info,
    "mpi_built": hvd.mpi_built(), "nccl_built": hvd.nccl_built(), "cuda_built": hvd.cuda_built(),
    "nccl_loaded": loaded, "nccl": number(loaded[0], "ncclGetVersion") if loaded else None,
    "cudnn": ctypes.CDLL(str(cudnn)).cudnnGetVersion() if cudnn else None,
    "cudart": number(cudart, "cudaRuntimeGetVersion") if cudart else None,
    "site_packages": str(site),
    "wheels_bytes": sum(int(size) for size in sizes if size),
}, default=str))
"""
# What compiles or links, by the names of files. Not ptxas: with it the wheel that TensorFlow asks
# for turns its PTX into machine code when it runs.
_COMPILERS = (
    "gcc", "g++", "cc", "c++", "cc1", "cc1plus", "cpp", "clang", "as", "ld", "make", "cmake",
    "nvcc", "cicc", "cudafe++", "nvlink", "fatbinary", "cuda-gdb", "nsys", "ncu",
)  # fmt: skip
TOOLS = "/mnt"
"""Where the image finds what is lent to it."""
_KERNELS = re.compile(r"\.sm_(\d+)[a-z]?\.(cubin|ptx)\b")


LIBRARIES = tuple(
    f"/opt/chexnet/venv/lib/python3*/site-packages/{path}"
    for path in ("nvidia/cudnn/lib/libcudnn*.so.9", "nvidia/nccl/lib/libnccl.so.2",
                 "tensorflow/libtensorflow_cc.so.2", "horovod/tensorflow/mpi_lib*.so")
)  # fmt: skip
"""What must hold kernels for every generation that a stack promises."""


@dataclass(frozen=True)
class Kernels:
    """The generations, as 70 for 7.0, that a library holds machine code and PTX for."""

    binary: tuple[int, ...]
    ptx: tuple[int, ...]

    def serve(self, capability: str) -> str:
        """Return how a GPU is served: ``"binary"``, ``"ptx"``, or ``""`` for not at all.

        Machine code runs on later GPUs of its own major number, PTX on all later ones
        (CUDA C++ Programming Guide, "Binary Compatibility").
        """
        wanted = int(capability.replace(".", ""))
        if any(number // 10 == wanted // 10 and number <= wanted for number in self.binary):
            return "binary"
        return "ptx" if any(number <= wanted for number in self.ptx) else ""


def inside(image: Path, command: Sequence[str], *, binds: Iterable[tuple[Path, str]] = ()) -> str:
    """Return what a command prints in an image, from the folder ``/``.

    Raises:
        RuntimeError: it failed; its last words are in the message.
    """
    from containers.runtime import exec_command

    argv = exec_command(image, command, binds=[(here, Path(there)) for here, there in binds])
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[:4]} exited {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def tell(image: Path) -> dict[str, object]:
    """Return what TensorFlow and Horovod of an image say, and what they have loaded."""
    said = inside(image, ["python", "-c", _TELL])
    return json.loads(next(line for line in said.splitlines() if line.startswith("TOLD "))[5:])


def find_compilers(image: Path, *, names: Sequence[str] = _COMPILERS) -> list[str]:
    """Return the files of an image that compile or link, outside of the kernel's folders.

    Args:
        image: the image.
        names: what such files are called.
    """
    words = [word for name in names for word in ("-o", "-name", name)][1:]
    command = [
        "find",
        "/",
        "-xdev",
        "-path",
        "/proc",
        "-prune",
        "-o",
        "-path",
        TOOLS,
        "-prune",
        "-o",
    ]
    return inside(image, [*command, "(", *words, ")", "-not", "-type", "d", "-print"]).split()


def find_packages(image: Path) -> list[str]:
    """Return the distribution's packages in an image."""
    return inside(image, ["dpkg-query", "--show", "--showformat", "${Package}\n"]).split()


def fetch_cuobjdump(folder: Path) -> Path:
    """Fetch NVIDIA's cuobjdump from PyPI and return the folder that it lies in."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(folder), "nvidia-cuda-cuobjdump"], check=True)
    (tool,) = folder.glob("nvidia/cu*/bin/cuobjdump")
    return tool.parent


def list_kernels(image: Path, libraries: Sequence[str], *, tool: Path) -> dict[str, Kernels]:
    """Return, by library, which generations it holds machine code and PTX for.

    Args:
        image: the image.
        libraries: paths in the image, with ``*`` for any text.
        tool: the folder of cuobjdump.
    """
    script = (
        f'set -- {" ".join(libraries)}; for path in "$@"; do echo "LIBRARY $path"; '
        f'{TOOLS}/cuobjdump --list-elf --list-ptx "$path" 2>/dev/null; done; true'
    )
    told = {}
    said = inside(image, ["sh", "-c", script], binds=[(tool, TOOLS)])
    for part in said.split("LIBRARY ")[1:]:
        path, _, listed = part.partition("\n")
        found = {(kind, int(number)) for number, kind in _KERNELS.findall(listed)}
        told[Path(path).name] = Kernels(
            binary=tuple(sorted(number for kind, number in found if kind == "cubin")),
            ptx=tuple(sorted(number for kind, number in found if kind == "ptx")),
        )
    return told


def measure_build(stack_name: str, *, image: Path) -> list[dict[str, object]]:
    """Build an image in an empty cache and return the seconds of every step."""
    from containers.build import build_image
    from env.stack import load_stack

    made = build_image(load_stack(stack_name), format="singularity", output=image)
    return _build_results(made.seconds)


def _build_results(seconds: Mapping[str, float]) -> list[dict[str, object]]:
    return [
        {"name": f"build: {step}", "value": value, "unit": "s"} for step, value in seconds.items()
    ]


def measure_image(image: Path, *, folder: Path) -> list[dict[str, object]]:
    """Return what is measured in a finished image: sizes, and what it holds."""
    told = tell(image)
    # Not /var and /tmp, of which the engine brings the host's.
    du = inside(image, ["du", "--summarize", "--bytes", "/opt", "/usr", "/etc"])
    unpacked = sum(int(line.split()[0]) for line in du.splitlines())
    kernels = list_kernels(image, LIBRARIES, tool=fetch_cuobjdump(folder / "tools"))
    begun = time.perf_counter()
    inside(image, ["python", "-c", "import tensorflow, horovod.tensorflow"])
    seconds = time.perf_counter() - begun
    return [
        _mib("image", image.stat().st_size) | {"sha256": _sha256(image)},
        _mib("image, unpacked", unpacked),
        _mib("its wheels, unpacked", told.pop("wheels_bytes")),
        {"name": "import of TensorFlow and Horovod", "value": round(seconds, 1), "unit": "s"},
        {"name": "compilers in the image", "value": len(find_compilers(image)), "unit": "files"},
        {"name": "distribution's packages", "value": len(find_packages(image)), "unit": "packages"},
        *(
            {"name": f"kernels of {name}", "value": len(found.binary), "unit": "generations",
             "binary": found.binary, "ptx": found.ptx}
            for name, found in kernels.items()
        ),
        {"name": "NCCL that Horovod loads", "value": told["nccl"], "unit": "version", "said": told},
    ]  # fmt: skip


def _mib(name: str, size_bytes: int) -> dict[str, object]:
    return {"name": f"{name}: size", "value": round(size_bytes / 2**20, 1), "unit": "MiB"}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Build unless an image is given, measure, write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--stack", default="cuda12", metavar="S")
    parser.add_argument("--image", type=Path, metavar="FILE.sif", help="one built before")
    parser.add_argument("--build", type=Path, metavar="FILE.json",
                        help="what build-image --json said of it")  # fmt: skip
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-gpu-", ignore_cleanup_errors=True) as name:
        image = arguments.image or Path(name) / "image.sif"
        results = [] if arguments.image else measure_build(arguments.stack, image=image)
        if arguments.build:
            results = _build_results(json.loads(arguments.build.read_text())["seconds"])
        results += measure_image(image, folder=Path(name))
    sizes = {result["name"]: result["value"] for result in results if result["unit"] == "MiB"}
    unpacked, wheels = sizes["image, unpacked: size"], sizes["its wheels, unpacked: size"]
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.gpu_image", *sys.argv[1:]],
        packages=("hpccm",),
        results=results,
        ratios={"image over its wheels, unpacked": round(unpacked / wheels, 3),
                "image over its wheels": round(sizes["image: size"] / wheels, 3)},
    )  # fmt: skip


if __name__ == "__main__":
    main()
