"""States of the checks that hold found versions against the rules of compatibility.

The healthy machine is a node with two H100 and a stack for them; what is changed breaks one
rule, whose fix the finding must give.
"""
# ruff: noqa: E501 - one state a line

from env.checks.evidence import Evidence
from env.facts import Fact, Facts
from env.result import Status

FAIL, WARN, SKIP = Status.FAIL, Status.WARN, Status.SKIP


def installed(**versions):
    names = {"tensorflow": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6", "protobuf": "6.31.1",
             "horovod": "0.28.1"}  # fmt: skip
    names |= {name.replace("_", "-"): text for name, text in versions.items()}
    return {name: {"version": text, "location": "/venv"} for name, text in names.items() if text}


def gpus(*capabilities, driver="570.86.10"):
    devices = [
        {"index": n, "uuid": f"GPU-{n}", "name": "NVIDIA made up", "compute_capability": text}
        for n, text in enumerate(capabilities)
    ]
    return {"gpu.nvml": {"state": "ok", "driver": driver, "devices": devices}}


NODE = {
    "driver.libraries": [],
    "gpu.visible": None,
    "packages.python": "3.13.5",
    "packages.installed": installed(),
    "packages.horovod_metadata": {"tensorflow": "2.21.0"},
    "versions.glibc": "2.41",
    "versions.pmix": "5.0.7",
    "versions.hwloc": "2.12",
    "versions.prrte": "3.0.8",
    "versions.slurm": None,
    "versions.slurm_pmix": None,
    "versions.cuda": "12.9",
    "versions.cudnn": "9.10.2",
    "versions.nccl": "2.32.3",
    "versions.nccl_cuda": "12.9",
    "mpi.banner": "mpirun (Open MPI) 5.0.7",
    "frameworks.mpi_library": {"path": "/usr/lib/libmpi.so.40", "text": "Open MPI v5.0.7, package: Debian"},
} | gpus("8.0", "8.0")  # fmt: skip


def compat(release, *, kind="compat"):
    """The library that --nv or an image puts first, above the driver of the host."""
    library = {"name": "libcuda.so.1", "path": "/usr/local/cuda/compat/libcuda.so.1"}
    return {"driver.libraries": [library | {"release": release, "kind": kind}]}


def evidence(changes=None, *, lost=(), **settings):
    values = {key: Fact(value, "made up") for key, value in (NODE | (changes or {})).items()}
    facts = Facts(values | {key: Fact(None, "made up", problem="lost") for key in lost})
    return Evidence(facts=facts, **({"stack_device": "gpu"} | settings))


PACKAGES = "packages.installed"
STATES = {
    "rules.packages": (
        [(FAIL, "horovod_tensorflow 2.20.0", evidence({"packages.horovod_metadata": {"tensorflow": "2.20.0"}})),
         (FAIL, "keras 2.15.0", evidence({PACKAGES: installed(keras="2.15.0")})),
         (FAIL, "protobuf 5.29.5", evidence({PACKAGES: installed(protobuf="5.29.5")})),
         (FAIL, "python 3.14.0", evidence({"packages.python": "3.14.0"})),
         (FAIL, "glibc 2.17", evidence({"versions.glibc": "2.17"})),
         (WARN, "tensorflow 1.15.0", evidence({PACKAGES: installed(tensorflow="1.15.0", keras="", numpy="", protobuf=""), "packages.python": "3.7.9", "packages.horovod_metadata": {"tensorflow": "1.15.0"}}))],
        evidence({"packages.horovod_metadata": {}}),
    ),
    "rules.mpi": (
        [(FAIL, "pmix 3.2.3", evidence({"versions.pmix": "3.2.3"})),
         (FAIL, "openmpi 4.1.5", evidence({"frameworks.mpi_library": {"text": "Open MPI v4.1.5"}})),
         (FAIL, "openmpi 3.1.3", evidence({"frameworks.mpi_library": None, "mpi.banner": "mpirun (Open MPI) 3.1.3", "versions.pmix": None})),
         (FAIL, "openmpi 3.1.3", evidence({"mpi.banner": "mpirun (Open MPI) 3.1.3"})),
         (FAIL, "prrte 2.0.2", evidence({"versions.prrte": "2.0.2"})),
         (FAIL, "slurm 15.08.13", evidence({"versions.slurm": "15.08.13"})),
         (FAIL, "slurm_pmix 4", evidence({"versions.slurm": "20.02.5", "versions.slurm_pmix": "4"}))],
        evidence(lost=["versions.pmix"]),
    ),
    "rules.gpu": (
        [(FAIL, "driver 470.57.02", evidence(gpus("8.0", driver="470.57.02"))),
         (FAIL, "compute_capability 9.0, cuda 12.9, driver 535.104.05", evidence(gpus("8.0", "9.0", driver="535.104.05"))),
         (WARN, "compute_capability 9.0", evidence(gpus("9.0"))),
         (FAIL, "compute_capability 3.0", evidence(gpus("3.0", "8.0"))),
         (FAIL, "cudnn 9.28", evidence(gpus("7.0") | {"versions.cudnn": "9.28.0"})),
         (FAIL, "cudnn 8.9.7", evidence({"versions.cudnn": "8.9.7"})),
         (FAIL, "nccl_cuda 13.0", evidence({"versions.nccl_cuda": "13.0"})),
         (FAIL, "cuda 11.8", evidence({"versions.cuda": "11.8"})),
         (SKIP, "none here", evidence({"gpu.nvml": {"state": "absent"}, "versions.cuda": None, "versions.cudnn": None, "versions.nccl": None, "versions.nccl_cuda": None})),
         (SKIP, "CPU run", evidence(gpus("7.0", driver="470.57.02"), device="cpu"))],
        evidence({"gpu.nvml": {"state": "error", "error": "no answer"}}),
    ),
}  # fmt: skip
PASSES = {
    # What is not there breaks no rule: no Slurm, no driver, no cuDNN of its own.
    "rules.gpu": [evidence(), evidence({"gpu.nvml": {"state": "absent"}}), evidence({"versions.cudnn": None}), evidence(gpus("7.0", driver="525.60.13")),
                  evidence(gpus("8.0", driver="470.57.02") | compat("570.86.10")), evidence(compat("570.86.10", kind="injected")),
                  evidence(gpus("3.0", "8.0") | {"gpu.visible": "1"})],  # the card for the screen
    # Another launcher stands on a PMIx of its own, of which nothing is known.
    "rules.mpi": [evidence(), evidence({"mpi.banner": "mpirun (Open MPI) 4.1.5"}), evidence({"versions.pmix": None, "versions.prrte": None}), evidence({"frameworks.mpi_library": {"error": "no import"}})],
    "rules.packages": [evidence(), evidence({"packages.installed": installed(horovod="")})],
}  # fmt: skip
