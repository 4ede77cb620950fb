"""CUDA's side of an image: where Horovod's build finds NCCL, what a GPU needs to be let in.

Knows the wheels that bring NCCL and the variables by which NVIDIA's container runtime
hands a GPU in. The toolkit is the distribution's (or the base's) and stays in the first
stage: the second has the libraries of the virtual environment and no compiler. Leaves
versions, the driver's floor and the generations of GPUs to the lock.
"""

from __future__ import annotations

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, environment, shell

from env.lock import Lock
from recipes.layout import site_packages

# The library's wheel, without the number of the CUDA it was built for.
_NCCL_WHEEL = "nvidia-nccl-cu"


class Held(bb_base):
    """Lets the catalogue choose versions that NVIDIA's base images hold: NCCL, cuDNN."""

    def __init__(self) -> None:
        super().__init__()
        self += comment("The catalogue chooses the versions that the base holds", reformat=False)
        # Nothing held is no mistake, though apt-mark would say so.
        self += shell(commands=[
            'for name in $(apt-mark showhold); do apt-mark unhold "$name"; done'
        ])  # fmt: skip

    def runtime(self, _from: str = "0") -> str:
        """Return the same for the second stage, whose base holds as well."""
        return str(self)


class Gpu(bb_base):
    """What an image of a GPU stack tells the runtime that starts it: for the second stage.

    Most are variables of NVIDIA's container runtime. Apptainer obeys none of those (its --nv
    brings all GPUs of the host): there ``python -m env`` enforces the floor, which it
    reads in the lock.

    Args:
        lock: names the driver's floor.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        self += comment("What NVIDIA's runtime asks of the host and its driver", reformat=False)
        self += environment(variables={
            # A newer GPU than TensorFlow has machine code for starts from PTX: what the driver
            # makes of it is to be kept whole (bytes; CUDA's largest).
            "CUDA_CACHE_MAXSIZE": "4294967296",
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            # In quotes, since a shell reads it too.
            "NVIDIA_REQUIRE_CUDA": f'"driver>={lock.driver_minimum}"',
        })  # fmt: skip


def build_variables(lock: Lock) -> dict[str, str]:
    """Return the variables by which Horovod's build finds this image's GPU parts.

    Empty for a stack without GPUs.
    """
    if not lock.gpus:
        return {}
    numbers = sorted(int(gpu["compute_capability"].replace(".", "")) for gpu in lock.gpus)
    variables = {"HOROVOD_BUILD_CUDA_CC_LIST": ",".join(map(str, numbers))}
    if _has_nccl_wheel(lock):
        variables["HOROVOD_NCCL_HOME"] = _nccl_home(lock)
    return variables


def link_lines(lock: Lock) -> tuple[list[str], list[str]]:
    """Return the shell lines to run before and after Horovod is compiled.

    They make the link that a linker needs beside the wheel's ``libnccl.so.2``, and take it
    away again: the wheel must be as it came.
    """
    if not _has_nccl_wheel(lock):
        return [], []
    link = f"{_nccl_home(lock)}/lib/libnccl.so"
    return [f"ln -s libnccl.so.2 {link}"], [f"rm {link}"]


def _nccl_home(lock: Lock) -> str:
    return f"{site_packages(lock)}/nvidia/nccl"


def _has_nccl_wheel(lock: Lock) -> bool:
    return any(package.name.startswith(_NCCL_WHEEL) for package in lock.python)
