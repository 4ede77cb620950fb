"""For each check: a state that passes, one that does not, one that cannot tell.

Written by hand: a healthy machine of four cores with two ranks on it, and what is changed.
"""
# ruff: noqa: E501 - one state a line

from env.binding import BindingPlan, RankBinding
from env.checks.evidence import Evidence
from env.facts import Fact, Facts
from env.lock import Lock, PythonPackage
from env.result import Status

GIB = 2**30
SITE = "/venv/lib/python3.11/site-packages"

LOCK = Lock(
    stack="cpu",
    stack_sha256="0" * 64,
    components={"python": "3.11", "openmpi": "4.1.4", "tensorflow": "2.21.0", "keras": "3.15.1",
                "horovod": "0.28.1"},
    base={}, sources={}, edits={}, flags={}, system={},
    python=(
        PythonPackage("tensorflow-cpu", "2.21.0", (), ("run",)),
        PythonPackage("numpy", "2.4.6", (), ("run",)),
        PythonPackage("ruff", "0.17.6", (), ("develop",)),
    ),
)  # fmt: skip

STATIC = {
    "host.name": "node1",
    "host.boot_id": "b1",
    "host.uid": 1000,
    "host.machine": "x86_64",
    "host.container": None,
    "host.cpu_flags": ["avx", "avx2", "fma", "sse4_2"],
    "host.affinity": [0, 1, 2, 3],
    "host.memory_available": 16 * GIB,
    "host.memory_left": None,
    "host.memory_promised": None,
    "host.oom_kills": 0,
    "host.open_files": 20000,
    "host.processes": 60000,
    "host.pids_left": None,
    "host.cpu_quota": None,
    "host.priority": {"nice": 0, "policy": "other"},
    "host.shm": {"total": 8 * GIB, "free": 8 * GIB, "refused": None},
    "packages.python": "3.11.2",
    "packages.executable": "/venv/bin/python",
    "packages.prefixes": ["/usr", "/venv"],
    "packages.user_site": None,
    "packages.python_path": None,
    "packages.installed": {
        "tensorflow-cpu": {"version": "2.21.0", "location": SITE},
        "numpy": {"version": "2.4.6", "location": SITE},
    },
    "packages.modules": {"tensorflow": f"{SITE}/tensorflow/__init__.py", "keras": None},
    "packages.horovod_metadata": {"tensorflow": "2.21.0"},
    "packages.horovod_extensions": ["mpi_lib.cpython-311-x86_64-linux-gnu.so"],
    "packages.extension_suffix": ".cpython-311-x86_64-linux-gnu.so",
    "frameworks.tensorflow": {"version": "2.21.0", "keras": "3.15.1", "numpy": "2.4.6",
                              "path": f"{SITE}/tensorflow/__init__.py", "build": {}},
    "frameworks.horovod": {"version": "0.28.1", "path": "x", "mpi": True, "gloo": True, "nccl": 0},
    "frameworks.mpi_library": {"path": "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4",
                               "text": "Open MPI v4.1.4, package: Debian OpenMPI"},
    "frameworks.libraries": ["/usr/lib/libmpi.so.40.30.4", "/usr/lib/libstdc++.so.6.0.30"],
    "mpi.mpirun": "/usr/bin/mpirun",
    "mpi.banner": "mpirun (Open MPI) 4.1.4",
    "mpi.prefix": "/usr",
    "gpu.nvml": {"state": "absent"},
    "gpu.visible": None,
    "gpu.device_files": [],
}  # fmt: skip
GPUS = {
    "state": "ok",
    "driver": "550.54.15",
    "devices": [{"index": n, "uuid": f"GPU-{n}{n}", "name": "H100"} for n in range(2)],
}
MIXED = (("V100-SXM2-32GB", 32), ("V100-PCIE-16GB", 16))


def of_gpu(name="V100-SXM2-32GB", gib=32, *, driver="550.54.15", local=0):
    """A rank that is shown these GPUs."""
    models = [(name, gib)] if isinstance(name, str) else name
    devices = [{"index": n, "uuid": f"GPU-{n}{n}", "name": model, "memory": {"total": size * GIB}}
               for n, (model, size) in enumerate(models)]  # fmt: skip
    nvml = {"state": "ok", "driver": driver, "devices": devices}
    return {"gpu.nvml": nvml, "gpu.visible": None, "launch.local_rank": local}


WITH_NCCL = {**STATIC["frameworks.horovod"], "nccl": 23203}
_OF_RANKS = ("host.name", "host.boot_id", "packages.python", "packages.executable",
             "packages.installed", "gpu.nvml", "gpu.visible")  # fmt: skip
PLAN = BindingPlan(
    (RankBinding(0, 0, "node1", (0, 1), None, 2), RankBinding(1, 1, "node1", (2, 3), None, 2)), 2
)


def facts(values, *, lost=()):
    known = {key: Fact(value, f"origin of {key}") for key, value in values.items()}
    return Facts({**known, **{key: Fact(None, key, problem="no permission") for key in lost}})


def rank_values(rank, **changes):
    own = {
        "host.affinity": [2 * rank, 2 * rank + 1],
        "launch.rank": rank,
        "launch.size": 2,
        "launch.local_rank": rank,
        "launch.settings": {"NCCL_DEBUG": "WARN"},
        "rank.lock": "1" * 64,
        "rank.mapped": ["/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4"],
        "rank.time": 1000.0 + rank,
        "frameworks.horovod_init": {"rank": rank, "size": 2, "local_rank": rank, "local_size": 2},
    }
    return {key: STATIC[key] for key in _OF_RANKS} | own | changes


def evidence(static=None, *, ranks=({}, {}), lost=(), **settings):
    """Return the healthy machine with some values changed and some facts lost."""
    records = {
        n: facts(rank_values(n, **changes), lost=lost)
        for n, changes in enumerate(ranks)
        if changes is not None
    }
    defaults = {"num_ranks": 2, "ranks": records, "lock": LOCK, "plan": PLAN, "device": "auto"}
    return Evidence(facts=facts(STATIC | (static or {}), lost=lost), **(defaults | settings))


def changed(key, **values):
    return {key: {**STATIC[key], **values}}


def init(rank, size):
    return {"frameworks.horovod_init": {"rank": rank, "size": size}}


FAIL, WARN, INFO = Status.FAIL, Status.WARN, Status.INFO
# id: the states that do not pass, each with its status and a part of what is found; and
# the evidence that cannot tell. What passes is the healthy machine, unless PASSES says more.
STATES = {
    "python.version": (
        [(FAIL, "3.13.5", evidence({"packages.python": "3.13.5"})),
         (FAIL, "3.1.1", evidence({"packages.python": "3.1.1"}))],
        evidence(lock=None),
    ),
    "python.packages": (
        [(FAIL, "numpy: 1.26.4", evidence(changed("packages.installed", numpy={"version": "1.26.4", "location": SITE}))),
         (FAIL, "numpy: not installed", evidence({"packages.installed": {"tensorflow-cpu": {"version": "2.21.0", "location": SITE}}}))],
        evidence(lost=["packages.installed"]),
    ),
    "python.shadowed": (
        [(FAIL, "numpy from /home/u/.local", evidence(changed("packages.installed", numpy={"version": "2.4.6", "location": "/home/u/.local/lib"}))),
         (FAIL, "module keras from /extra", evidence(changed("packages.modules", keras="/extra/keras/__init__.py"))),
         (FAIL, "numpy from /venv/u", evidence({"packages.user_site": "/venv/u"} | changed("packages.installed", numpy={"version": "2.4.6", "location": "/venv/u"}))),
         (WARN, "1 packages of /home/u", evidence({"packages.user_site": "/home/u", "host.container": "apptainer"} | changed("packages.installed", pandas={"version": "2", "location": "/home/u"})))],
        evidence(lost=["packages.installed"]),
    ),
    "cpu.instructions": (
        [(FAIL, "no avx", evidence({"host.cpu_flags": ["sse4_2"]})),
         (Status.SKIP, "aarch64", evidence({"host.machine": "aarch64", "host.cpu_flags": ["asimd"]}))],
        evidence(lost=["host.cpu_flags"]),
    ),
    "tensorflow.import": (
        [(FAIL, "Descriptors", evidence({"frameworks.tensorflow": {"error": "TypeError: Descriptors cannot be created"}})),
         (FAIL, "lacks avx2, fma", evidence({"frameworks.tensorflow": {"error": "died by SIGILL", "signal": "SIGILL"}, "host.cpu_flags": ["avx"]}))],
        evidence(lost=["frameworks.tensorflow"]),
    ),
    "tensorflow.loaded": (
        [(FAIL, "keras 2.15.0", evidence(changed("frameworks.tensorflow", keras="2.15.0"))),
         (FAIL, "numpy 1.26.4", evidence(changed("frameworks.tensorflow", numpy="1.26.4"))),
         (FAIL, "horovod 0.27.0", evidence(changed("frameworks.horovod", version="0.27.0")))],
        evidence({"frameworks.tensorflow": {"error": "x"}}),
    ),
    "horovod.extension": (
        [(FAIL, "cpython-310", evidence({"packages.horovod_extensions": ["mpi_lib.cpython-310-x86_64-linux-gnu.so"]})),
         (FAIL, "no mpi_lib", evidence({"packages.horovod_extensions": []}))],
        evidence(lost=["packages.horovod_extensions"]),
    ),
    "horovod.import": (
        [(FAIL, "another TensorFlow or by another compiler", evidence({"frameworks.horovod": {"error": "NotFoundError: x.so: undefined symbol: _Z1f"}})),
         (FAIL, "a library it was linked to is not here", evidence({"frameworks.horovod": {"error": "libcudart.so.12: cannot open shared object file"}}))],
        evidence(lost=["frameworks.horovod"]),
    ),
    "horovod.mpi": (
        [(FAIL, "built with gloo", evidence(changed("frameworks.horovod", mpi=False)))],
        evidence({"frameworks.horovod": {"error": "x"}}),
    ),
    "horovod.nccl": (
        [(FAIL, "no NCCL", evidence(stack_device="gpu")), (Status.SKIP, "CPU run", evidence())],
        evidence(stack_device=None),
    ),
    "libraries.duplicates": (
        [(FAIL, "/opt/libmpi.so.40 and /usr/lib/libmpi.so.40.30.4", evidence({"frameworks.libraries": ["/usr/lib/libmpi.so.40.30.4", "/opt/libmpi.so.40"]}))],
        evidence(lost=["frameworks.libraries"]),
    ),
    "mpi.launcher": (
        [(FAIL, "MPICH", evidence({"mpi.banner": "HYDRA build details: Version: 4.0.2"})),
         (FAIL, "Intel MPI", evidence({"mpi.banner": "Intel(R) MPI Library for Linux* OS, Version 2021.8"})),
         (FAIL, "none", evidence({"mpi.mpirun": None}))],
        evidence(lost=["mpi.banner"]),
    ),
    "mpi.version": (
        [(FAIL, "5.0.7", evidence({"mpi.banner": "mpirun (Open MPI) 5.0.7"}))],
        evidence(lost=["mpi.banner"]),
    ),
    "mpi.library": (
        [(FAIL, "libmpi is MPICH", evidence(changed("frameworks.mpi_library", text="MPICH Version: 4.1.4"))),
         (FAIL, "libmpi is Open MPI v4.0.3", evidence(changed("frameworks.mpi_library", text="Open MPI v4.0.3, package: x"))),
         (WARN, "Open MPI v4.1.4", evidence({"mpi.prefix": "/opt/openmpi"})),
         (FAIL, "no libmpi", evidence({"frameworks.mpi_library": None}))],
        evidence(lost=["frameworks.mpi_library"]),
    ),
    "mpi.size": (
        [(FAIL, "rank 1: Horovod sees 1, the launcher says 2", evidence(ranks=({}, init(0, 1)))),
         (FAIL, "rank 0: launcher says 4", evidence(ranks=({"launch.size": 4}, {}))),
         (FAIL, "calls it rank 0, as it does rank 0", evidence(ranks=({}, init(0, 2)))),
         (FAIL, "hvd.init() failed: died by SIGSEGV", evidence(ranks=({}, {"frameworks.horovod_init": {"error": "died by SIGSEGV"}})))],
        evidence(lost=["frameworks.horovod_init"]),
    ),
    "memory.shm": (
        [(FAIL, "0.06 GiB in all", evidence({"host.shm": {"total": 64 * 2**20, "free": 64 * 2**20, "refused": None}})),
         (FAIL, "0.01 GiB free", evidence({"host.shm": {"total": 8 * GIB, "free": 10 * 2**20, "refused": None}})),
         (FAIL, "Permission denied", evidence(changed("host.shm", refused="Permission denied"))),
         (WARN, "0.50 GiB", evidence({"host.shm": {"total": GIB // 2, "free": GIB // 2, "refused": None}}))],
        evidence(lost=["host.shm"]),
    ),
    "memory.ranks": (
        [(FAIL, "0.75 GiB for each of 2", evidence({"host.memory_available": 1.5 * GIB})),
         (FAIL, "0.50 GiB for each of 2", evidence({"host.memory_left": 1 * GIB})),
         (FAIL, "0.50 GiB for each of 2", evidence({"host.memory_promised": 1 * GIB})),
         (WARN, "3 killed for memory", evidence({"host.oom_kills": 3})),
         (WARN, "1.50 GiB", evidence({"host.memory_left": 3 * GIB}))],
        evidence(lost=["host.memory_available"]),
    ),
    # 1024 files at least, 32 for each of 64 ranks; 4096 across hosts.
    "limits.files": (
        [(FAIL, "1023", evidence({"host.open_files": 1023})), (FAIL, "2047", evidence({"host.open_files": 2047}, num_ranks=64)),
         (WARN, "4095", evidence({"host.open_files": 4095}, ranks=({}, {"host.name": "node2"})))],
        evidence(lost=["host.open_files"]),
    ),
    # 2 ranks bound to 2 cores each: 2 x (32 + 4 x 2) = 80 threads.
    "limits.processes": (
        [(FAIL, "79", evidence({"host.processes": 79})), (WARN, "159", evidence({"host.pids_left": 159}))],
        evidence(lost=["host.pids_left"]),
    ),
    "cpu.quota": (
        [(WARN, "time of 2.5 cores", evidence({"host.cpu_quota": 2.5}))],
        evidence(lost=["host.cpu_quota"]),
    ),
    "cpu.priority": (
        [(WARN, "policy idle", evidence({"host.priority": {"nice": 0, "policy": "idle"}})),
         (INFO, "nice 10", evidence({"host.priority": {"nice": 10, "policy": "other"}}))],
        evidence(lost=["host.priority"]),
    ),
    "host.root": ([(INFO, "root", evidence({"host.uid": 0}))], evidence(lost=["host.uid"])),
    "ranks.reported": (
        [(FAIL, "rank 1 on node1 did not report", evidence(ranks=({}, None))),
         (FAIL, "rank 1 on an unknown host did not report", evidence(ranks=({}, None), plan=None)),
         (FAIL, "rank 1 on node1 was not expected", evidence(num_ranks=1))],
        None,  # that nothing was read is itself the answer here
    ),
    "ranks.alike": (
        [(FAIL, "Python of rank 1 (3.12.1, elsewhere 3.11.2)", evidence(ranks=({}, {"packages.python": "3.12.1"}))),
         (FAIL, "numpy: 1.0 /x, elsewhere 2.4.6", evidence(ranks=({}, changed("packages.installed", numpy={"version": "1.0", "location": "/x"})))),
         (FAIL, "the lock of rank 1", evidence(ranks=({}, {"rank.lock": "2" * 64}))),
         (FAIL, "/opt/libmpi.so.40: there, elsewhere none", evidence(ranks=({}, {"rank.mapped": ["/opt/libmpi.so.40"]}))),
         (WARN, "the limit of open files of rank 1 (1024, elsewhere 20000)", evidence(ranks=({"host.open_files": 20000}, {"host.open_files": 1024}))),
         (WARN, "limits of rank 1 (address space: 40000000, elsewhere none)", evidence(ranks=({"host.limits": {}}, {"host.limits": {"address space": {"soft": 40000000, "hard": None}}}))),
         (WARN, "the priority of rank 1 (nice: 5, elsewhere 0)", evidence(ranks=({"host.priority": {"nice": 0, "policy": "other"}}, {"host.priority": {"nice": 5, "policy": "other"}}))),
         (WARN, "the user of rank 1 (0, elsewhere 1000)", evidence(ranks=({"host.uid": 1000}, {"host.uid": 0}))),
         (INFO, "surroundings of rank 1 (HOME: /b, elsewhere /a)", evidence(ranks=({"launch.surroundings": {"HOME": "/a"}}, {"launch.surroundings": {"HOME": "/b"}}))),
         (WARN, "the GPU of rank 1 (driver: 525.60.13, elsewhere 550.54.15)", evidence(ranks=(of_gpu(), of_gpu(driver="525.60.13")), stack_device="gpu")),
         (WARN, "memory: 16 GiB, elsewhere 32 GiB; model: V100-PCIE-16GB, elsewhere V100-SXM2-32GB", evidence(ranks=(of_gpu(), of_gpu("V100-PCIE-16GB", 16)), stack_device="gpu")),
         # Both of one host, which shows each of them both of its GPUs.
         (WARN, "the GPU of rank 1 (memory: 16 GiB", evidence(ranks=tuple(of_gpu(MIXED, local=n) for n in (0, 1)), stack_device="gpu", plan=None)),
         (WARN, "the clock of node1 is 90 s before", evidence(ranks=({}, {"rank.time": 1090.0}))),
         (FAIL, "2 machines are called node1", evidence(ranks=({}, {"host.boot_id": "b2"}))),
         (WARN, "NCCL_DEBUG: INFO, elsewhere WARN", evidence(ranks=({}, {"launch.settings": {"NCCL_DEBUG": "INFO"}})))],
        evidence(lost=["rank.lock"]),
    ),
    "binding.same-core": (
        [(FAIL, "ranks 0, 1 all on core 0", evidence(ranks=({"host.affinity": [0]},) * 2)),
         (WARN, "ranks 0, 1 all on core 0", evidence(ranks=({"host.affinity": [0]},) * 2, plan=BindingPlan((), 0)))],
        evidence(lost=["host.affinity"]),
    ),
    "binding.overlap": (
        [(WARN, "ranks 0 and 1 share 1", evidence(ranks=({"host.affinity": [0, 1]}, {"host.affinity": [1, 2]}))),
         (WARN, "share 0-3", evidence(ranks=({"host.affinity": [0, 1, 2, 3]},) * 2)),
         (INFO, "share 0-3", evidence(ranks=({"host.affinity": [0, 1, 2, 3]},) * 2, plan=None))],
        evidence(lost=["host.affinity"]),
    ),
    "binding.threads": (
        [(FAIL, "rank 1: 2 threads on 1 cores", evidence(ranks=({}, {"host.affinity": [3]}))),
         (WARN, "rank 0: 4 threads on 2 cores", evidence(plan=BindingPlan((RankBinding(0, 0, "node1", (0, 1), None, 4),), 2))),
         (Status.SKIP, "no plan", evidence(plan=None))],
        evidence(lost=["host.affinity"]),
    ),
    "binding.plan": (
        [(FAIL, "rank 0 on 2-3, planned 0-1", evidence(ranks=({"host.affinity": [2, 3]}, {}))),
         (Status.SKIP, "no plan", evidence(plan=None))],
        evidence(lost=["host.affinity"]),
    ),
}  # fmt: skip
PASSES = {
    "ranks.alike": [
        evidence(),
        evidence(ranks=(of_gpu(), of_gpu(gib=31.9)), stack_device="gpu"),
        evidence(ranks=(of_gpu(), of_gpu(driver="1")), stack_device="cpu"),
        evidence(ranks=(of_gpu(), {"gpu.nvml": {"state": "absent"}}), stack_device="gpu"),
    ],
    "horovod.nccl": [evidence({"frameworks.horovod": WITH_NCCL}, stack_device="gpu")],
    "memory.shm": [evidence(), evidence({"host.shm": {"total": 64 * 2**20, "free": 1, "refused": None}}, num_ranks=1, plan=None)],
    "limits.processes": [evidence(), evidence({"host.uid": 0, "host.processes": 10})],
    "limits.files": [evidence(), evidence({"host.open_files": None})],
    # Two hosts with a rank each: one of them needs half.
    "memory.ranks": [evidence(), evidence({"host.memory_available": 2 * GIB}, plan=BindingPlan(tuple(RankBinding(n, 0, f"node{n}", (), None, 1) for n in range(2)), 0))],
    "mpi.version": [evidence()],
    "binding.same-core": [evidence(), evidence(ranks=({"host.affinity": [0]}, {"host.affinity": [0], "host.name": "node2"}))],
    "mpi.size": [evidence(), evidence(ranks=({"launch.size": None}, {}))],
}  # fmt: skip
