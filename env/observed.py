"""Which versions a machine shows: from facts to the components that rules speak about.

Knows in which fact each component's version stands. Leaves observing to the probes and
judging to ``env.rules``. A component that is not there is left out, so that no rule speaks
about it; one that is there and could not be read is a fact with a problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from env.errors import UserError
from env.facts import Fact, Facts
from env.versions import parse_version
from env.visible import resolve_visible

# The names under which TensorFlow is installed, the most usual first.
TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-gpu", "tf-nightly")
_PACKAGES = {
    "keras": "keras", "numpy": "numpy", "protobuf": "protobuf", "h5py": "h5py",
    "ml-dtypes": "ml_dtypes", "horovod": "horovod",
}  # fmt: skip
_TOLD = ("glibc", "pmix", "hwloc", "prrte", "slurm", "slurm_pmix", "cuda", "cudnn", "nccl",
         "nccl_cuda")  # fmt: skip
# What a second Open MPI meets too.
_OF_ANY_MPI = ("horovod", "slurm", "slurm_pmix")
# The facts that each group of components is read from.
READS_PACKAGES = ("packages.python", "packages.installed", "packages.horovod_metadata",
                  "versions.glibc")  # fmt: skip
READS_MPI = (
    "mpi.banner", "frameworks.mpi_library", "packages.installed", "versions.pmix",
    "versions.hwloc", "versions.prrte", "versions.slurm", "versions.slurm_pmix",
)  # fmt: skip
READS_GPU = (
    "gpu.nvml", "gpu.visible", "driver.libraries", "packages.installed", "versions.cuda",
    "versions.cudnn", "versions.nccl", "versions.nccl_cuda",
)  # fmt: skip


def versions_of_packages(facts: Facts) -> dict[str, Fact]:
    """Return the versions of Python, its packages and the C library, by component.

    Not among them is for which Python Horovod was compiled: its file's name tells, which
    another check reads.
    """
    found = _present(facts, {"python": "packages.python", "glibc": "versions.glibc"})
    found |= _installed(facts)
    built = facts["packages.horovod_metadata"]
    if "horovod" in found and built.problem is None and isinstance(built.value, Mapping):
        version = built.value.get("tensorflow")
        problem = None if version else "names no TensorFlow"
        found["horovod_tensorflow"] = Fact(version, built.origin, problem)
    elif "horovod" in found and "packages.horovod_metadata" in facts:
        found["horovod_tensorflow"] = built
    return _checked(found)


def versions_of_mpi(facts: Facts) -> list[dict[str, Fact]]:
    """Return the versions of Open MPI, of what it stands on and of Slurm, by component.

    Of the Open MPI that Horovod loads, and of the launcher where that is another one; PMIx and
    the rest are known of the first alone.
    """
    told = {name: f"versions.{name}" for name in _TOLD[1:6]}
    found = _present(facts, told) | _installed(facts, only=("horovod",))
    library, launcher = facts["frameworks.mpi_library"], facts["mpi.banner"]
    sets = []
    for fact, text in ((library, _library_text(library.value)), (launcher, launcher.value)):
        match = re.search(r"Open MPI\)? v?(\d[\w.]*)", str(text))
        if match and all(one["openmpi"].value != match[1] for one in sets):
            sets.append(found | {"openmpi": Fact(match[1], fact.origin)})
            found = {name: found[name] for name in found if name in _OF_ANY_MPI}
    return [_checked(one) for one in sets or [found]]


def versions_of_gpu(facts: Facts) -> dict[str, Fact]:
    """Return the versions of CUDA's libraries, of TensorFlow and of the driver, by component.

    Where the package of forward compatibility comes first, its libcuda is the driver.
    """
    told = {name: f"versions.{name}" for name in _TOLD[6:]}
    found = _present(facts, told) | _installed(facts, only=("horovod", "tensorflow"))
    nvml = facts["gpu.nvml"]
    if nvml.problem is not None:
        found["driver"] = nvml
    elif nvml.value["state"] != "absent":
        problem = None if nvml.value.get("driver") else nvml.value.get("error", "it does not say")
        found["driver"] = Fact(nvml.value.get("driver"), nvml.origin, problem)
    libraries = facts["driver.libraries"].value or ()
    first = next((one for one in libraries if one["name"] == "libcuda.so.1"), None)
    if first and first["kind"] == "compat" and "driver" in found:
        found["kernel_driver"] = found["driver"]
        problem = None if first["release"] else "its name holds no release"
        found["driver"] = Fact(first["release"], first["path"], problem)
    return _checked(found)


def capabilities(facts: Facts) -> dict[str, str]:
    """Return the compute capability of each GPU that CUDA would show, by the device's name."""
    nvml = facts["gpu.nvml"]
    devices = nvml.value.get("devices", ()) if nvml.problem is None else ()
    shown = set(resolve_visible(facts["gpu.visible"].value, devices).indices)
    return {
        f"GPU {device['index']} ({device.get('name', 'without a name')})": capability
        for device in devices
        if device["index"] in shown and (capability := device.get("compute_capability"))
    }


def _present(facts: Facts, keys: Mapping[str, str]) -> dict[str, Fact]:
    """Return the facts that somebody looked for and that are not an absence."""
    looked = {name: facts[key] for name, key in keys.items() if key in facts}
    return {
        name: fact
        for name, fact in looked.items()
        if fact.value is not None or fact.problem is not None
    }


def _installed(facts: Facts, *, only: tuple[str, ...] = ()) -> dict[str, Fact]:
    installed = facts["packages.installed"].value or {}
    names = _PACKAGES | {name: "tensorflow" for name in reversed(TENSORFLOW) if name in installed}
    return {
        component: Fact(installed[name]["version"], installed[name]["location"])
        for name, component in names.items()
        if name in installed and (not only or component in only)
    }


def _library_text(value: object) -> str:
    return str(value.get("text", "")) if isinstance(value, Mapping) else ""


def _checked(found: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts, with a problem where what was told is no version."""
    return {name: _version(fact) for name, fact in found.items()}


def _version(fact: Fact) -> Fact:
    if fact.problem is not None:
        return fact
    try:
        return replace(fact, value=str(parse_version(str(fact.value))))
    except UserError:
        return Fact(None, fact.origin, problem=f"no version: {fact.value!r}")
