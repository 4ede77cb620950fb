"""States of the checks of GPUs and of their driver: a machine of two H100 with NVLink."""
# ruff: noqa: E501 - one state a line

import runpy
from dataclasses import replace
from pathlib import Path

from env.binding import BindingPlan, RankBinding
from env.result import Status

FAIL, WARN, INFO, SKIP = Status.FAIL, Status.WARN, Status.INFO, Status.SKIP
TABLE = runpy.run_path(str(Path(__file__).with_name("states.py")))
MIB = 2**20


def gpu(index, **changes):
    whole = {
        "index": index, "uuid": f"GPU-{index}{index}", "name": "H100", "pci": f"0000:0{index}:00.0",
        "minor": index, "compute_capability": "9.0", "numa_node": 0,
        "memory": {"total": 80000 * MIB, "used": 4 * MIB, "reserved": 500 * MIB},
        "processes": [], "graphics": [], "compute_mode": 0, "mig_mode": [0, 0], "mig_devices": [],
        "ecc_mode": [1, 1], "ecc_uncorrected": 0, "clock_reasons": 1, "power_limit_mw": 700000,
        "remapped_rows": {"corrected": 0, "uncorrected": 0, "pending": 0, "failure": 0},
        "pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16,
        "nvlinks": [1, 1], "fabric": {"state": 3, "status": 0, "health": 0},
    } | changes  # fmt: skip
    return {key: value for key, value in whole.items() if value is not None}


def nvml(*devices, **changes):
    return {"gpu.nvml": {"state": "ok", "driver": "570.86.10", "cuda_version": 12080,
                         "devices": list(devices), "peers": {"p2p": [[None, 0], [0, None]]}} | changes}  # fmt: skip


def one(**changes):
    """Both GPUs, the second changed."""
    return nvml(gpu(0), gpu(1, **changes))


HOST_LIBRARIES = [
    {"name": "libcuda.so.1", "path": "/usr/lib/libcuda.so.1", "release": "570.86.10", "kind": ""},
    {
        "name": "libnvidia-ml.so.1",
        "path": "/usr/lib/libnvidia-ml.so.1",
        "release": "570.86.10",
        "kind": "",
    },
]
GPU_FACTS = {
    **nvml(gpu(0), gpu(1)),
    "gpu.cuda": {"state": "ok", "code": 0, "devices": ["00", "11"]},
    "gpu.visible": None,
    "gpu.variables": {},
    "gpu.device_files": ["nvidia0", "nvidia1"],
    "gpu.files": {"nvidia0": True, "nvidia1": True, "nvidiactl": True, "nvidia-uvm": True},
    "gpu.processes": {"attributable": None, "known": {}},
    "driver.kernel": "570.86.10",
    "driver.modules": ["nvidia", "nvidia_uvm"],
    "driver.gpus": {"0000:00:00.0": {"minor": 0, "uuid": "GPU-00"}, "0000:01:00.0": {"minor": 1, "uuid": "GPU-11"}},
    "driver.libraries": HOST_LIBRARIES,
    "driver.library_path": [],
    "driver.apptainer_libs": None,
    "driver.glibc": {"here": "2.36", "needed": {}},
    "driver.pci": {"gpus": {"0000:00:00.0": "nvidia", "0000:01:00.0": "nvidia"}, "switches": 0, "iommu": {}},
    "driver.iommu": {"units": 0, "cmdline": [], "redirecting": []},
}  # fmt: skip
LOCK = replace(TABLE["LOCK"], stack="cuda12", driver_minimum="525.60.13")
OF_RANK = ("gpu.nvml", "gpu.cuda", "gpu.visible", "gpu.device_files")


def evidence(*changes, ranks=({}, {}), **settings):
    """Return the healthy machine with some facts changed, and those of its ranks."""
    static = GPU_FACTS | {key: value for change in changes for key, value in change.items()}
    mine = {key: static[key] for key in OF_RANK}
    records = tuple(None if rank is None else mine | rank for rank in ranks)
    settings = {"stack_device": "gpu", "lock": LOCK, "plan": None} | settings
    return TABLE["evidence"](static, ranks=records, **settings)


def early(*changes, **settings):
    """The same before any rank is launched."""
    return evidence(*changes, ranks=(), **settings)


def on(key, **values):
    return {key: {**GPU_FACTS[key], **values}}


def mask(raw, *, cuda=()):
    return {"gpu.visible": raw, "gpu.cuda": {"state": "ok", "code": 0, "devices": list(cuda)}}


def using(pid, mib, **known):
    """A process on the second GPU; ``known``: what /proc says of it."""
    memory = {"total": 80000 * MIB, "used": mib * MIB, "reserved": 500 * MIB}
    told = (
        {str(pid): {"name": "python3", "state": "S", "uid": 7, "ours": False} | known}
        if known
        else {}
    )
    processes = {"attributable": None, "known": told}
    return {
        **one(memory=memory, processes=[{"pid": pid, "memory": mib * MIB}]),
        "gpu.processes": processes,
    }


def program(**changes):
    return {"frameworks.program": {"name": "chexnet.train", "early": None} | changes}


def holding(uuid):
    return {"rank.contexts": {"gpus": [{"uuid": uuid, "memory": 900 * MIB}], "listed": 2}}


def library(path, release, kind=""):
    return {"name": "libcuda.so.1", "path": path, "release": release, "kind": kind}


ABSENT = {"gpu.nvml": {"state": "absent"}, "gpu.cuda": {"state": "absent", "error": "no such file"}}
LIBS = "/.singularity.d/libs"
NV = {"driver.library_path": [LIBS], "driver.apptainer_libs": ["libcuda.so.1", "libnvidia-ml.so.1"],
      "host.container": "apptainer",
      "driver.libraries": [library(f"{LIBS}/libcuda.so.1", "570.86.10", "injected")]}  # fmt: skip
SLICED = gpu(
    0,
    mig_mode=[1, 1],
    mig_devices=[{"uuid": "MIG-a", "instance": "7/0"}, {"uuid": "MIG-b", "instance": "8/0"}],
)
SLURM = {"SLURM_JOB_ID": "1", "SLURM_JOB_GPUS": "1", "SLURM_GPUS_ON_NODE": "1"}
NO_NVLINK = nvml(gpu(0, nvlinks=None), gpu(1, nvlinks=None))
NEAR = BindingPlan(
    tuple(RankBinding(n, n, "node1", (n,), n, 1, gpu_pci=f"0000:0{n}:00.0") for n in range(2)), 1
)
PLAN = BindingPlan(tuple(RankBinding(n, n, "node1", (n,), 1 - n, 1) for n in range(2)), 1)

STATES = {
    "program.early": (
        [
            (FAIL, "chexnet.train: cannot be modified", evidence(program(early="cannot be modified"))),
            (SKIP, "no training program", evidence({"frameworks.program": None})),
        ],
        evidence({"frameworks.program": {"error": "ImportError: x"}}),
    ),
    "gpu.present": (
        [(FAIL, "no NVIDIA driver library, though /dev has nvidia0", evidence(ABSENT)),
         (FAIL, "the host has driver 570.86.10", evidence(ABSENT, {"host.container": "apptainer"})),
         (FAIL, "the host has driver", evidence(ABSENT, {"host.container": "docker", "gpu.variables": {"NVIDIA_VISIBLE_DEVICES": "void"}})),
         (FAIL, "GLIBC_2.38", evidence({"gpu.nvml": {"state": "absent", "error": "version `GLIBC_2.38' not found"}})),
         (FAIL, "mismatch", evidence({"gpu.nvml": {"state": "error", "error": "version mismatch", "error_code": 18}})),
         (FAIL, "none visible", evidence(mask(""))),
         (FAIL, "a CPU stack", evidence(device="gpu", stack_device="cpu")),
         (INFO, "2 GPUs stay unused", evidence(stack_device="cpu")),
         (INFO, "NVML could not be asked", evidence(lost=["gpu.nvml"], stack_device="cpu"))],
        evidence(lost=["gpu.nvml"]),
    ),
    "gpu.visible": (
        [(FAIL, "'7' names no GPU, there are 0 to 1; 1 GPUs are seen", evidence(mask("0,7"))),
         (FAIL, "'GPU-' names 2 GPUs", evidence(mask("GPU-"))),
         (FAIL, "a second time", evidence(mask("1,1"))),
         (FAIL, "1 GPUs for 2 ranks", early(mask("1"))),
         (FAIL, "2 GPUs for 3 ranks", early(num_ranks=3)),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["gpu.visible"]),
    ),
    "gpu.order": (
        [(WARN, "over H100, RTX 4000", evidence(one(name="RTX 4000"))),
         (INFO, "as 1, 0", evidence(mask(None, cuda=["11", "00"])))],
        evidence(lost=["gpu.nvml"]),
    ),
    "gpu.allocation": (
        [(FAIL, "is not set", evidence({"gpu.variables": SLURM})),
         (WARN, "alone keeps it", evidence(mask("1"), {"gpu.variables": SLURM | {"CUDA_VISIBLE_DEVICES": "1"}})),
         (WARN, "/dev/nvidia0 are used, Slurm gave 1", evidence(mask("0"), {"gpu.variables": SLURM | {"CUDA_VISIBLE_DEVICES": "0"}})),
         (WARN, "asked Slurm for no GPU and sees 2", evidence({"gpu.variables": {"SLURM_JOB_ID": "1"}}))],
        evidence(lost=["gpu.variables"]),
    ),
    "gpu.lost": (
        [(FAIL, "GPU 1 (GPU-11) on node1: GPU is lost", evidence(one(error="GPU is lost", error_code=15))),
         (WARN, "GPU is lost", evidence(mask("0"), one(error="GPU is lost", error_code=15))),
         (WARN, "/dev/nvidia1) is not listed", evidence(nvml(gpu(0)))),
         (WARN, "0000:09:00.0 is on the bus, with no driver", evidence(on("driver.pci", gpus={"0000:09:00.0": None})))],
        evidence(lost=["driver.gpus"]),
    ),
    "gpu.memory": (
        [(FAIL, "9000 of 80000 MiB in use by python3 (process 7)", evidence(using(7, 9000, name="python3"))),
         (FAIL, "no process is shown", evidence(one(memory={"total": 16000 * MIB, "used": 9000 * MIB}))),
         (WARN, "a zombie", evidence(using(7, 100, state="Z"))),
         (WARN, "process 7, which is gone", evidence(using(7, 100))),
         (WARN, "300 of 80000 MiB", evidence(one(memory={"total": 80000 * MIB, "used": 300 * MIB, "reserved": 0}))),
         (INFO, "cannot be told: a namespace", evidence(using(7, 100), {"gpu.processes": {"attributable": "a namespace", "known": {}}}))],
        evidence(one(problems={"memory": {"code": 4, "text": "no permission"}})),
    ),
    "gpu.mode": (
        [(FAIL, "prohibited", evidence(one(compute_mode=2))),
         (FAIL, "exclusive-thread", evidence(one(compute_mode=1))),
         (FAIL, "process 7 has it", evidence(one(compute_mode=3, processes=[{"pid": 7, "memory": 0}]))),
         (WARN, "exclusive-process", evidence(one(compute_mode=3)))],
        evidence(one(problems={"compute_mode": {"code": 999, "text": "unknown"}})),
    ),
    "gpu.mig": (
        [(FAIL, "2 ranks on slices (MIG-a)", evidence(nvml(SLICED))),
         (WARN, "MIG-a is taken because it is the first", evidence(nvml(SLICED), num_ranks=1)),
         (INFO, "one rank on MIG-b", evidence(nvml(SLICED), mask("MIG-b"), num_ranks=1)),
         (WARN, "without any slice", evidence(one(mig_mode=[1, 1]))),
         (WARN, "MIG is off, to be on", evidence(one(mig_mode=[0, 1])))],
        evidence(lost=["gpu.visible"]),
    ),
    "gpu.ecc": (
        [(FAIL, "could not be remapped", evidence(one(remapped_rows={"pending": 0, "failure": 1}))),
         (FAIL, "3 uncorrected errors", evidence(one(ecc_uncorrected=3))),
         (WARN, "a remapping of rows waits", evidence(one(remapped_rows={"pending": 1, "failure": 0}))),
         (WARN, "a retirement of pages waits", evidence(one(retired_pending=1)))],
        evidence(one(problems={"ecc_uncorrected": {"code": None, "text": "asking kills the process"}})),
    ),
    "gpu.throttle": (
        [(WARN, "hardware slowdown, power brake", evidence(one(clock_reasons=0x88))),
         (WARN, "software thermal slowdown", evidence(one(clock_reasons=0x20)))],
        evidence(one(problems={"clock_reasons": {"code": 4, "text": "no permission"}})),
    ),
    "gpu.alike": (
        [(WARN, "a power limit of 350 W, others have 700 W", evidence(one(power_limit_mw=350000))),
         (WARN, "a power limit of 350 W, 700 W by default", evidence(one(power_limit_mw=350000, power_default_mw=700000))),
         (WARN, "an application clock of 300 MHz, 1980 MHz by default", evidence(one(clock_mhz=300, clock_default_mhz=1980))),
         (WARN, "an application clock of 2 MHz, others have 1 MHz",
          evidence(nvml(*(gpu(n, clock_mhz=1 + n // 2, clock_default_mhz=1) for n in range(3))))),
         (WARN, "ECC off, others have on", evidence(one(ecc_mode=[0, 0])))],
        evidence(lost=["gpu.nvml"]),
    ),
    "gpu.pcie": (
        [(WARN, "GPU-11) on node1: 8 of 16 lanes", evidence(one(pcie_width=8))),
         (WARN, "under load at generation 1 of 5", evidence(one(clock_reasons=0)))],
        evidence(one(problems={"pcie_width": {"code": 999, "text": "unknown"}})),
    ),
    "gpu.nvlink": (
        [(WARN, "1 of 2 up; down are 1", evidence(one(nvlinks=[1, 0]))),
         (WARN, "0 of 2 up", evidence(one(nvlinks=[0, 0])))],
        evidence(one(problems={"nvlinks": {"code": 999, "text": "unknown"}})),
    ),
    "gpu.fabric": (
        [(FAIL, "registration in progress", evidence(one(fabric={"state": 2, "status": 0}))),
         (FAIL, "registration failed, 999", evidence(one(fabric={"state": 3, "status": 999}))),
         (FAIL, "4 NVSwitches and not one of 2 NVLinks up", evidence(one(fabric=None, nvlinks=[0, 0]), on("driver.pci", switches=4)))],
        evidence(lost=["driver.pci"]),
    ),
    "gpu.peers": (
        [(WARN, "an IOMMU translates for 0000:00:00.0", evidence(NO_NVLINK, on("driver.pci", iommu={"0000:00:00.0": "DMA-FQ"}))),
         (WARN, "no iommu=pt", evidence(NO_NVLINK, on("driver.iommu", units=2))),
         (WARN, "ACS redirects at 0000:00:01.0", evidence(NO_NVLINK, on("driver.iommu", redirecting=["0000:00:01.0"])))],
        evidence(NO_NVLINK, lost=["driver.iommu"]),
    ),
    "gpu.one-per-rank": (
        [(FAIL, "GPU-00 on node1: ranks 0, 1", evidence(mask("0"))),
         (FAIL, "rank 1 sees 0 GPUs (CUDA_VISIBLE_DEVICES='-1') and wants number 0", evidence(ranks=({}, mask("-1")))),
         (FAIL, "ranks 0, 1", evidence(ranks=({"launch.local_rank": 0},) * 2)),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["gpu.nvml"]),
    ),
    "gpu.planned": (
        [
            (WARN, "rank 0 takes 0000:01:00.0, the plan gave it 0000:00:00.0", evidence(mask(None, cuda=["11", "00"]), plan=NEAR)),
            (SKIP, "no plan", evidence()),
        ],
        evidence(plan=NEAR, lost=["gpu.nvml"]),
    ),
    "gpu.isolation": (
        [(WARN, "ranks 0, 1 open 1 of 2 GPUs: NCCL leaves NVLink unused", evidence(ranks=(nvml(gpu(0)), nvml(gpu(1))))),
         (INFO, "copies through the host's memory", evidence(ranks=(nvml(gpu(0, nvlinks=None)), nvml(gpu(1, nvlinks=None))))),
         (WARN, "CUDA 10 cannot share", evidence(ranks=tuple(nvml(gpu(0), gpu(1), cuda_version=10000) | mask(str(n)) for n in range(2)))),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["gpu.nvml"]),
    ),
    "gpu.contexts": (
        [
            (WARN, "rank 1: GPU-00 (300 MiB), GPU-11 (900 MiB)", evidence(ranks=(holding("GPU-00"), {"rank.contexts": {"gpus": [{"uuid": "GPU-00", "memory": 300 * MIB}, {"uuid": "GPU-11", "memory": 900 * MIB}]}}))),
            (SKIP, "--allreduce", evidence()),
        ],
        evidence(ranks=(holding("GPU-00"), {"rank.contexts": {"gpus": [], "listed": 2}})),
    ),
    "driver.release": (
        [(FAIL, "/usr/lib/libcuda.so.1 is of 570.86.10", evidence({"driver.kernel": "550.54.15"})),
         (FAIL, "/opt/libcuda.so.1 is of 535.104.05", evidence({"driver.libraries": [*HOST_LIBRARIES, library("/opt/libcuda.so.1", "535.104.05")]})),
         (WARN, "/usr/lib/libcuda.so.1 belong to the image", evidence(NV, {"driver.libraries": [*NV["driver.libraries"], HOST_LIBRARIES[0]]})),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["driver.libraries"]),
    ),
    "driver.floor": (
        [(FAIL, "470.57.02: CUDA would end with error 35", evidence(nvml(gpu(0), driver="470.57.02"), {"driver.kernel": None})),
         (SKIP, "no lock names", evidence(lock=None))],
        evidence({"gpu.nvml": {"state": "absent"}, "driver.kernel": None}),
    ),
    "driver.library": (
        [(FAIL, "no libcuda.so.1, only libnvidia-ml.so.1", evidence(ABSENT, {"driver.libraries": HOST_LIBRARIES[1:], "gpu.variables": {"NVIDIA_DRIVER_CAPABILITIES": "utility"}})),
         (FAIL, "--nv is missing", evidence(ABSENT, {"driver.libraries": [], "driver.apptainer_libs": []})),
         (FAIL, "LD_LIBRARY_PATH lacks", evidence(NV, {"driver.library_path": ["/opt"]})),
         (WARN, "/opt/libcuda.so.1 comes before", evidence(NV, {"driver.libraries": [library("/opt/libcuda.so.1", "570.86.10"), *NV["driver.libraries"]]})),
         (FAIL, "is a stub", evidence({"driver.libraries": [library("/cuda/stubs/libcuda.so.1", None, "stub")]})),
         (FAIL, "CUDA error 803", evidence({"driver.libraries": [library("/c/compat/libcuda.so.1", "550.54.15", "compat")]})),
         (FAIL, "CUDA error 804", evidence(nvml(gpu(0, name="NVIDIA GeForce RTX 4090")), {"driver.libraries": [library("/c/compat/libcuda.so.1", "580.1.1", "compat")]})),
         (WARN, "only needed where", evidence({"driver.libraries": [library("/c/compat/libcuda.so.1", "580.1.1", "compat")]})),
         (FAIL, "libcuda.so.1 needs GLIBC_2.38", evidence(NV, on("driver.glibc", needed={"libcuda.so.1": "2.38"}))),
         (WARN, "libGLdispatch.so.0 needs GLIBC_2.38", evidence(NV, on("driver.glibc", needed={"libGLdispatch.so.0": "2.38"})))],
        evidence(lost=["driver.libraries"]),
    ),
    "driver.files": (
        [(FAIL, "/dev/nvidia-uvm is missing, and the module", evidence({"gpu.files": {"nvidia0": True, "nvidiactl": True}, "driver.modules": ["nvidia"]})),
         (FAIL, "/dev/nvidiactl is there and may not be opened", evidence(on("gpu.files", nvidiactl=False))),
         (FAIL, "none of nvidia0, nvidia1 may be opened", evidence(on("gpu.files", nvidia0=False, nvidia1=False))),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["gpu.files"]),
    ),
    "driver.start": (
        [(FAIL, "error 802: the fabric is not ready", evidence({"gpu.cuda": {"state": "error", "code": 802}})),
         (FAIL, "error 12: see CUresult", evidence({"gpu.cuda": {"state": "error", "code": 12}})),
         (FAIL, "no such file", evidence({"gpu.cuda": {"state": "absent", "error": "no such file"}})),
         (FAIL, "cuInit: asking kills", evidence({"gpu.cuda": {"state": "error", "code": None, "deaths": {"cuInit": "asking kills"}}})),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(lost=["gpu.cuda"]),
    ),
    "driver.image": (
        [(FAIL, "CUDA 12.8 at most, by driver 570.86.10", evidence({"gpu.variables": {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}})),
         (WARN, "NVIDIA_DISABLE_REQUIRE", evidence({"gpu.variables": {"NVIDIA_DISABLE_REQUIRE": "1"}})),
         (SKIP, "no GPU", evidence(stack_device="cpu"))],
        evidence(nvml(gpu(0), cuda_version=None), {"gpu.variables": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}}),
    ),
}  # fmt: skip
PASSES = {
    "program.early": [evidence(program())],
    "gpu.present": [
        evidence(),
        evidence({"gpu.nvml": {"state": "absent"}, "gpu.device_files": []}, stack_device="cpu"),
        # A prolog knows no stack: a node without GPUs is as it should be.
        evidence({"gpu.nvml": {"state": "absent"}, "gpu.device_files": []}, stack_device=None),
        evidence(mask("GPU-11"), device="gpu"),
        evidence(mask("1,9")),
    ],
    "gpu.order": [evidence(), evidence(one(name="A100"), {"gpu.variables": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}})],
    "gpu.allocation": [evidence(), evidence({"gpu.variables": SLURM | {"SLURM_GPUS_ON_NODE": "2"}})],
    # A GPU that other jobs hold, one that a guest has.
    "gpu.lost": [evidence(), evidence(one(error="Insufficient Permissions", error_code=4), on("gpu.files", nvidia1=False)),
                 evidence(on("driver.pci", gpus={"0000:09:00.0": "vfio-pci"}))],
    # Our own process, the display.
    "gpu.memory": [evidence(), evidence(using(7, 9000, ours=True)), evidence(using(7, 40, name="nvidia-cuda-mps-server")),
                   evidence(one(graphics=[{"pid": 7, "memory": 900 * MIB}], memory={"total": 8000 * MIB, "used": 904 * MIB, "reserved": 0}),
                            {"gpu.processes": {"attributable": None, "known": {"7": {"name": "Xorg", "state": "S", "uid": 0, "ours": False}}}})],
    # A gaming card has neither ECC nor fabric nor NVLink.
    "gpu.ecc": [evidence(), evidence(one(ecc_uncorrected=None, remapped_rows=None))],
    "gpu.fabric": [evidence(), evidence(one(fabric=None)), evidence(one(fabric={"state": 0, "status": 0}, nvlinks=[0, 0]))],
    "gpu.throttle": [evidence(), evidence(one(clock_reasons=0x7))],
    "gpu.pcie": [evidence(), evidence(one(clock_reasons=0, pcie_generation=5))],
    "gpu.nvlink": [evidence(), evidence(NO_NVLINK), evidence(nvml(gpu(0, nvlinks=[0, 0]), gpu(1, nvlinks=[0, 0])))],
    "gpu.peers": [evidence(), evidence(NO_NVLINK, on("driver.pci", iommu={"0000:00:00.0": "identity"})),
                  evidence(NO_NVLINK, on("driver.iommu", units=2, cmdline=["iommu=pt"]))],
    "gpu.one-per-rank": [
        evidence(),
        evidence(ranks=(mask("0"), mask("GPU-1"))),
        evidence(plan=PLAN),
        # The same UUID on two hosts is two cards of made-up names, not one card twice.
        evidence(ranks=(mask("0"), mask("0") | {"host.name": "node2"})),
    ],
    "gpu.contexts": [evidence(ranks=(holding("GPU-00"), holding("GPU-11")))],
    "gpu.planned": [evidence(plan=NEAR), evidence(plan=NEAR, ranks=(mask("0"), mask("1")))],
    "gpu.isolation": [evidence(), evidence(ranks=(mask("0"), mask("1"))), evidence(ranks=(nvml(gpu(0)), nvml(gpu(1)) | {"host.name": "node2"}))],
    "driver.library": [evidence(), evidence(NV)],
    "driver.files": [evidence(), evidence(on("gpu.files", nvidia1=False)), evidence({"gpu.files": {}, "driver.kernel": None})],
    "driver.image": [evidence(), evidence({"gpu.variables": {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}}),
                     evidence({"gpu.variables": {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0 brand=tesla,driver>=570,driver<571"}})],
}  # fmt: skip
