"""States of what surrounds a training: settings, libraries, folders, limits, containers, networks.

The healthy machine is that of ``states.py`` with an InfiniBand card and a quiet shell.
"""
# ruff: noqa: E501 - one state a line

import runpy
from pathlib import Path

from env.binding import BindingPlan, RankBinding
from env.checks.evidence import Evidence
from env.facts import Facts
from env.result import Status

BASE = runpy.run_path(str(Path(__file__).with_name("states.py")))
FAIL, WARN, INFO, SKIP = Status.FAIL, Status.WARN, Status.INFO, Status.SKIP
MIB, GIB = 2**20, 2**30

PORT = {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "physical": "LinkUp", "link": "InfiniBand",
        "rate": "200 Gb/sec (4X HDR)", "gids": {"0": {"gid": "fe80::1", "kind": "IB/RoCE v1"}}}  # fmt: skip
ROCE = PORT | {
    "link": "Ethernet",
    "gids": {
        "0": {"gid": "fe80::1", "kind": "RoCE v1"},
        "1": {"gid": "::ffff:a01:1", "kind": "RoCE v1"},
        "3": {"gid": "::ffff:a01:1", "kind": "RoCE v2"},
    },
}
ETH0 = {
    "name": "eth0",
    "up": True,
    "loopback": False,
    "addresses": ["10.1.0.7/16"],
    "speed_mbit": 10000,
    "mtu": 1500,
    "kind": "device",
}
LO = ETH0 | {"name": "lo", "loopback": True, "addresses": ["127.0.0.1/8"], "kind": "virtual"}
DOCKER0 = ETH0 | {"name": "docker0", "addresses": ["172.17.0.1/16"], "kind": "bridge"}
VETH = ETH0 | {"name": "veth1", "addresses": ["fe80::1/64"], "kind": "virtual"}
WITH_DOCKER = {"network.interfaces": [LO, ETH0, DOCKER0]}
NO_CARD = {"rdma.ports": [], "gpu.device_files": []}
PROTOCOLS = {
    "mpi.components": {
        "btl": ["self", "tcp", "vader"],
        "pml": ["ob1", "ucx", "cm", "v", "monitoring"],
        "mtl": ["ofi"],
    }
}
PINNED = """\
FROM docker.io/library/debian:bookworm-slim AS build
RUN apt-get install -y --no-install-recommends gcc=4:12.2.0-3 ca-certificates=20230311
FROM build AS run
RUN pip install --require-hashes -r run.txt
"""
UNLIMITED = {"soft": None, "hard": None}


def place(use="MPI's session files", path="/tmp", variable="", **changes):
    return {"use": use, "variable": variable, "path": path, "problem": None, "total": 50 * GIB, "free": 40 * GIB,
            "inodes_free": 10**6, "type": "ext4", "options": "rw", "remote": False, "writable": "yes"} | changes  # fmt: skip


def places(*changed):
    return {"storage.places": [place(), place("the home", "/home/u", "HOME"), *changed]}


def only(*chosen):
    return {"storage.places": list(chosen)}


def settings(origin="environment", **values):
    return {
        "settings.assigned": [{"name": n, "value": v, "origin": origin} for n, v in values.items()]
    }


HOST = BASE["STATIC"] | {
    "host.limits": {"open files": {"soft": 20000, "hard": 20000}, "locked memory": UNLIMITED,
                    "address space": UNLIMITED, "stack size": {"soft": 8 * MIB, "hard": None}},
    "host.system_limits": {"kernel/pid_max": [4194304], "kernel/threads-max": [190000], "vm/max_map_count": [65530],
                           "vm/overcommit_memory": [0], "fs/file-nr": [9000, 0, 9000000], "fs/nr_open": [1048576],
                           "net/ipv4/ip_local_port_range": [32768, 60999]},
    "host.spaces": {"ipc": "ipc:[1]", "shm": 23},
    "settings.assigned": [{"name": "OMPI_MCA_btl", "value": "^openib", "origin": "/etc/openmpi/openmpi-mca-params.conf"}],
    "settings.unread": [],
    "settings.launch": {},
    "known.names": {"HOROVOD_": ["HOROVOD_AUTOTUNE", "HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD"]},
    "mpi.parameters": ["btl", "btl_tcp_if_include", "btl_tcp_if_exclude", "pml", "mpi_yield_when_idle"],
    "mpi.components": {"btl": ["self", "tcp", "vader", "openib"], "pml": ["ob1"]},
    "mpi.forms": {"btl": {"type": "string", "words": []}},
    "mpi.threads": True,
    "mpi.cuda": False,
    "mpi.configured": "'--enable-mpirun-prefix-by-default'",
    "mpi.data": {"folder": "/usr/share/openmpi", "helps": True},
    "mpi.complaints": [],
    "mpi.ucx": {"version": "1.13.1", "threads": True},
    "mpi.daemon": "/usr/bin/orted",
    "leftover.servers": [],
    "python.requires": {"tensorflow-cpu": ["numpy>=1.26.0", "protobuf<7.0.0,>=6.31.1", "gast!=0.5.0,>=0.2.1", 'x[y]>=9; extra == "gpu"']},
    "python.hooks": [],
    "python.hiding": [],
    "python.wrappers": [],
    "recipe.text": PINNED,
    "libraries.missing": [],
    "libraries.lacking": [],
    "libraries.shadowed": [],
    "libraries.path": [{"entry": "/usr/lib", "state": "folder"}],
    "libraries.cuda": {"12": {"libcudart.so.12": "/v/libcudart.so.12", "libcudnn.so.9": "/v/libcudnn.so.9", "libcudnn.so.8": None}},
    "frameworks.tensorflow": BASE["STATIC"]["frameworks.tensorflow"] | {"build": {"cuda_version": "12.5.1", "cudnn_version": "9"}},
    "frameworks.xla": None,
    "libraries.preload": [],
    "libraries.copies": {},
    "mpi.launchers": ["/usr/bin/mpirun"],
    "libraries.xla": {"libdevice": "/cuda/nvvm/libdevice/libdevice.10.bc", "ptxas": "/cuda/bin/ptxas", "folder": None},
    **places(),
    "storage.folder": {"folder": "/work", "told": "/work", "told_there": True, "submitted": None, "submitted_there": True},
    "container.programs": {"apptainer": "/usr/bin/apptainer", "docker": None},
    "container.starter": False,
    "container.user_namespaces": 10000,
    "container.root_type": "ext4",
    "container.covered": [{"point": "/opt", "type": "nfs", "source": "s:/opt", "folder": "/opt"}],
    "container.ptrace_scope": 1,
    "container.seccomp": 0,
    "container.trials": {"thread": None, "peer_memory": None},
    "network.own_name": ["10.1.0.7"],
    "network.interfaces": [LO, ETH0],
    "rdma.ports": [PORT],
    "rdma.files": {"uverbs0": True, "rdma_cm": True},
    "rdma.library": "/lib/libibverbs.so.1",
    "rdma.drivers": ["mlx5"],
    "rdma.peer_memory": ["nvidia_peermem"],
}  # fmt: skip
TWO_HOSTS = BindingPlan(tuple(RankBinding(n, 0, f"node{n + 1}", (), None, 1) for n in range(2)), 0)


def evidence(static=None, *, ranks=({}, {}), lost=(), **more):
    """Return the healthy machine with some values changed and some facts lost."""
    own = {"host.spaces": HOST["host.spaces"], "rdma.ports": [PORT]}
    records = {n: BASE["facts"](BASE["rank_values"](n, **(own | changes)), lost=lost)
               for n, changes in enumerate(ranks)}  # fmt: skip
    defaults = {"num_ranks": 2, "ranks": records, "lock": BASE["LOCK"], "plan": BASE["PLAN"]}
    return Evidence(
        facts=Facts(BASE["facts"](HOST | (static or {}), lost=lost)), **(defaults | more)
    )


def gpu(static=None, **more):
    return evidence(static, stack_device="gpu", **more)


def several(static=None, **more):
    return evidence(static, plan=TWO_HOSTS, ranks=(), **more)


def installed(**versions):
    return {
        "packages.installed": {
            name: {"version": v, "location": "/home/u/.local"} for name, v in versions.items()
        }
    }


def limit(**values):
    return {
        "host.limits": {
            name.replace("_", " "): {"soft": v, "hard": None} for name, v in values.items()
        }
    }


def system(name, *numbers):
    return {"host.system_limits": HOST["host.system_limits"] | {name: list(numbers)}}


IN_DOCKER, IN_APPTAINER = {"host.container": "docker"}, {"host.container": "apptainer"}
ROCE_ONLY = {"rdma.ports": [ROCE]}
STEP = settings(SLURM_STEP_ID="0", SLURM_JOB_ID="77", SLURM_MPI_TYPE="none")

STATES = {
    "python.requirements": (
        [(FAIL, "numpy 1.24.0 in /home/u", evidence(installed(numpy="1.24.0"))),
         (FAIL, "protobuf 7.1.0", evidence(installed(protobuf="7.1.0"))),
         (FAIL, "gast 0.5.0", evidence(installed(gast="0.5.0")))],
        evidence(lost=["python.requires"]),
    ),
    "python.hooks": (
        [(WARN, "usercustomize: /home/u/usercustomize.py", evidence({"python.hooks": [{"kind": "usercustomize", "path": "/home/u/usercustomize.py"}]}))],
        evidence(lost=["python.hooks"]),
    ),
    "python.hiding": (
        [(FAIL, "/x/json.py hides Python's own json", evidence({"python.hiding": [{"module": "json", "path": "/x/json.py", "hides": "Python's own"}]}))],
        evidence(lost=["python.hiding"]),
    ),
    "recipe.repeats": (
        [(FAIL, "nvidia/cuda:10.2-devel was withdrawn", evidence({"recipe.text": PINNED.replace("library/debian:bookworm-slim", "nvidia/cuda:10.2-devel")})),
         (WARN, "gcc in whatever version there is, on docker.io/library/debian:bookworm-slim", evidence({"recipe.text": PINNED.replace("gcc=4:12.2.0-3", "gcc")})),
         (WARN, "7fa2af80", evidence({"recipe.text": PINNED + "RUN apt-key adv --fetch-keys https://x/7fa2af80.pub\n"})),
         (SKIP, "no definition", evidence({"recipe.text": None}))],
        evidence(lost=["recipe.text"]),
    ),
    "horovod.wrapper": (
        [(FAIL, "Keras 3.15.1, Horovod 0.28.1, and t.py:3", evidence({"python.wrappers": ["t.py:3"]} | installed(keras="3.15.1", horovod="0.28.1"))),
         (FAIL, "Keras 2.11.0", evidence({"python.wrappers": ["t.py:3"]} | installed(keras="2.11.0", horovod="0.27.0")))],
        evidence({"python.wrappers": ["t.py:3"], "packages.installed": {}}),
    ),
    "program.xla": (
        [(FAIL, "died by SIGABRT: F1 Unknown flag", evidence({"frameworks.xla": {"error": "died by SIGABRT: F1 Unknown flag", "signal": "SIGABRT"}}))],
        evidence({"frameworks.xla": {"error": "InternalError: x"}}),
    ),
    "settings.harmful": (
        [(WARN, "NCCL_P2P_DISABLE=1", evidence(settings(NCCL_P2P_DISABLE="1"))),
         (WARN, "NCCL_DEBUG=info", evidence(settings("/home/u/.nccl.conf", NCCL_DEBUG="info"))),
         (FAIL, "without self", evidence(settings(OMPI_MCA_btl="tcp,vader"))),
         (FAIL, "no openib", evidence(settings(OMPI_MCA_btl="self,openib") | {"mpi.banner": "mpirun (Open MPI) 5.0.7"})),
         (WARN, "no longer has this parameter", evidence(settings(OMPI_MCA_orte_abort_timeout="3") | {"mpi.banner": "mpirun (Open MPI) 5.0.7"})),
         (WARN, "PRRTE", evidence(settings(PRTE_MCA_prte_tmpdir_base="/x"))),
         (FAIL, "another framework", evidence(settings("/home/u/.keras/keras.json", **{"keras.json/backend": "torch"}))),
         (FAIL, "Keras 2", evidence(settings(TF_USE_LEGACY_KERAS="1") | installed(tensorflow="2.21.0"))),
         (FAIL, "PMIx no longer has", evidence(settings(PMIX_MCA_ptl="usock"))),
         (FAIL, "no such way", evidence(settings("/etc/pmix-mca-params.conf", PMIX_MCA_psec="mung"))),
         (WARN, "without munge", evidence(settings(PMIX_MCA_psec="munge"))),
         (INFO, "first steps are slow", evidence(settings(HOROVOD_AUTOTUNE="1")))],
        evidence(lost=["settings.assigned"]),
    ),
    "settings.values": (
        [(WARN, "HOROVOD_FUSION_THRESHOLD=64MB", evidence(settings(HOROVOD_FUSION_THRESHOLD="64MB"))),
         (WARN, "NCCL_DEBUG=yes", evidence(settings(NCCL_DEBUG="yes"))),
         (WARN, "NCCL_P2P_LEVEL=NVLINK", evidence(settings(NCCL_P2P_LEVEL="NVLINK"))),
         (WARN, "TF_FORCE_GPU_ALLOW_GROWTH=1", evidence(settings(TF_FORCE_GPU_ALLOW_GROWTH="1"))),
         (WARN, "OMP_NUM_THREADS=all", evidence(settings(OMP_NUM_THREADS="all")))],
        evidence(lost=["settings.assigned"]),
    ),
    "settings.names": (
        [(WARN, "unknown to mpirun (Open MPI) 4.1.4", evidence(settings(OMPI_MCA_btl_tcp_nonsense="1"))),
         (WARN, "meant: OMPI_MCA_btl_tcp_if_include", evidence(settings(OMPI_MCA_btl_tcp_if_inclde="eth0"))),
         (WARN, "meant: HOROVOD_CYCLE_TIME", evidence(settings(HOROVOD_CYCLE_TIMES="1"))),
         (WARN, "unknown to the installed Horovod", evidence(settings(HOROVOD_QQQ="1"))),
         (WARN, "meant: NCCL_SOCKET_IFNAME", evidence(settings(NCCL_SOCKET_IF_NAME="eth0"))),
         (WARN, "meant: CUDA_VISIBLE_DEVICES", evidence(settings(CUDA_VISIBLE_DEVICE="0")))],
        evidence(lost=["settings.assigned"]),
    ),
    "settings.components": (
        [(FAIL, "OMPI_MCA_btl=self,smcuda: no smcuda", evidence(settings(OMPI_MCA_btl="self,smcuda"))),
         (FAIL, "no ucx", evidence(settings("/etc/openmpi/openmpi-mca-params.conf", OMPI_MCA_pml="ucx"))),
         (FAIL, "=self leaves only self", evidence(NO_CARD | settings(OMPI_MCA_btl="self"))),
         (FAIL, "=^tcp,vader,ofi leaves only openib, self", evidence(NO_CARD | settings("/etc/openmpi/openmpi-mca-params.conf", OMPI_MCA_btl="^tcp,vader,ofi"))),
         (WARN, "leaves only self, tcp", evidence(NO_CARD | settings(OMPI_MCA_btl="tcp,self"))),
         (FAIL, "=^ob1 leaves only cm, ucx", evidence(NO_CARD | PROTOCOLS | settings(OMPI_MCA_pml="^ob1"))),
         (WARN, "=cm leaves only cm", evidence(NO_CARD | PROTOCOLS | settings(OMPI_MCA_pml="cm"))),
         (FAIL, "=cm leaves only cm", evidence(NO_CARD | PROTOCOLS | settings(OMPI_MCA_pml="cm", OMPI_MCA_mtl="^ofi"))),
         (FAIL, "=cm leaves only cm", evidence({"mpi.components": {"pml": ["ob1", "cm"]}} | settings(OMPI_MCA_pml="cm")))],
        evidence(lost=["mpi.components"]),
    ),
    "settings.files": (
        [(WARN, "sets btl_tcp_if_include=eth0", evidence(settings("/home/u/.openmpi/mca-params.conf", OMPI_MCA_btl_tcp_if_include="eth0"))),
         (WARN, "Permission denied", evidence({"settings.unread": [{"path": "/home/u/.nccl.conf", "problem": "Permission denied"}]}))],
        evidence(lost=["settings.unread"]),
    ),
    "libraries.found": (
        [(FAIL, "no libcudart.so.12, which /v/mpi_lib.so needs", evidence({"libraries.missing": [{"soname": "libcudart.so.12", "needed_by": "/v/mpi_lib.so"}]}))],
        evidence(lost=["libraries.missing"]),
    ),
    "libraries.cuda": (
        [(FAIL, "no libcudnn.so.8", gpu({"frameworks.tensorflow": {"build": {"cuda_version": "12.2", "cudnn_version": "8"}}})),
         (SKIP, "CPU run", evidence())],
        gpu({"frameworks.tensorflow": {"build": {"cuda_version": "99.1"}}}),
    ),
    "network.rails": (
        [(WARN, "node2: 0, elsewhere 1", evidence(ranks=({}, {"host.name": "node2", "rdma.ports": [PORT | {"state": "DOWN"}]})))],
        evidence(lost=["rdma.ports"]),
    ),
    "libraries.copies": (
        [(WARN, "/a/libnccl.so.2 and /b/libnccl.so.2", evidence({"libraries.copies": {"libnccl.so.2": ["/a/libnccl.so.2", "/b/libnccl.so.2"]}}))],
        evidence(lost=["libraries.copies"]),
    ),
    "mpi.others": (
        [(INFO, "/a/mpirun, and behind it /b/mpirun", evidence({"mpi.launchers": ["/a/mpirun", "/b/mpirun"]}))],
        evidence(lost=["mpi.launchers"]),
    ),
    "libraries.symbols": (
        [(FAIL, "/old/libstdc++.so.6 lacks GLIBCXX_3.4.32", evidence({"libraries.lacking": [{"library": "/v/mpi_lib.so", "version": "GLIBCXX_3.4.32", "of": "libstdc++.so.6", "path": "/old/libstdc++.so.6"}]})),
         (FAIL, "lacks GLIBC_2.38", evidence({"libraries.lacking": [{"library": "/.singularity.d/libs/libcuda.so.1", "version": "GLIBC_2.38", "of": "libc.so.6", "path": "/lib/libc.so.6"}]})),
         (WARN, "lacks GLIBC_2.38", evidence({"libraries.lacking": [{"library": "/.singularity.d/libs/libGLX.so.0", "version": "GLIBC_2.38", "of": "libc.so.6", "path": "/lib/libc.so.6"}]}))],
        evidence(lost=["libraries.lacking"]),
    ),
    "libraries.shadowed": (
        [(FAIL, "/m/libmpi.so.40 comes before /usr/lib/libmpi.so.40", evidence(IN_DOCKER | {"libraries.shadowed": [{"soname": "libmpi.so.40", "path": "/m/libmpi.so.40", "hides": "/usr/lib/libmpi.so.40", "loaded": False, "by": "LD_LIBRARY_PATH"}]})),
         (FAIL, "/m/libcudnn.so.9", evidence({"libraries.shadowed": [{"soname": "libcudnn.so.9", "path": "/m/libcudnn.so.9", "hides": "/v/libcudnn.so.9", "loaded": True, "by": "LD_LIBRARY_PATH"}]})),
         (WARN, "/m/libz.so.1", evidence({"libraries.shadowed": [{"soname": "libz.so.1", "path": "/m/libz.so.1", "hides": "/lib/libz.so.1", "loaded": True, "by": "LD_LIBRARY_PATH"}]}))],
        evidence(lost=["libraries.shadowed"]),
    ),
    "settings.parameters": (
        [(WARN, "OMPI_MCA_x=maybe", evidence(settings(OMPI_MCA_x="maybe") | {"mpi.forms": {"x": {"type": "bool", "words": ["false", "true"]}}})),
         (WARN, "OMPI_MCA_x=1.5", evidence(settings(OMPI_MCA_x="1.5") | {"mpi.forms": {"x": {"type": "int", "words": []}}}))],
        evidence(lost=["mpi.forms"]),
    ),
    "libraries.path": (
        [(WARN, "/share/none: absent", evidence(IN_APPTAINER | {"libraries.path": [{"entry": "/share/none", "state": "absent"}]})),
         (INFO, "/share/none: absent", evidence({"libraries.path": [{"entry": "/share/none", "state": "absent"}]})),
         (WARN, "'' is the current folder", evidence({"libraries.path": [{"entry": "", "state": "relative"}]}))],
        evidence(lost=["libraries.path"]),
    ),
    "libraries.preload": (
        [(WARN, "/x.so: No such file", evidence({"libraries.preload": [{"entry": "/x.so", "state": "No such file or directory", "origin": "LD_PRELOAD"}]})),
         (WARN, "/xalt.so", evidence(IN_APPTAINER | {"libraries.preload": [{"entry": "/xalt.so", "state": "present", "origin": "LD_PRELOAD"}]})),
         (INFO, "/malloc.so", evidence({"libraries.preload": [{"entry": "/malloc.so", "state": "present", "origin": "/etc/ld.so.preload"}]}))],
        evidence(lost=["libraries.preload"]),
    ),
    "libraries.xla": (
        [(FAIL, "no libdevice and no ptxas", gpu(settings(TF_XLA_FLAGS="--tf_xla_auto_jit=2") | {"libraries.xla": {"libdevice": None, "ptxas": None, "folder": None}})),
         (INFO, "no ptxas", gpu({"libraries.xla": {"libdevice": "/x", "ptxas": None, "folder": None}})),
         (WARN, "no libdevice in /nope", evidence({"libraries.xla": {"libdevice": None, "ptxas": "/x", "folder": "/nope"}})),
         (SKIP, "CPU run", evidence())],
        gpu(lost=["libraries.xla"]),
    ),
    "mpi.installation": (
        [(FAIL, "no help files", evidence({"mpi.data": {"folder": "/nowhere/share", "helps": False}}))],
        evidence(lost=["mpi.data"]),
    ),
    "mpi.components": (
        [(WARN, "mca_coll_hcoll", evidence({"mpi.complaints": ["unable to open mca_coll_hcoll: undefined symbol"]})),
         (FAIL, "mca_pml_ucx", evidence({"mpi.complaints": ["unable to open mca_pml_ucx: undefined symbol"]}))],
        evidence(lost=["mpi.complaints"]),
    ),
    "mpi.threads": (
        [(WARN, "Open MPI without it", evidence({"mpi.threads": False})),
         (WARN, "UCX 1.13.1 without", evidence({"mpi.ucx": {"version": "1.13.1", "threads": False}}))],
        evidence(lost=["mpi.threads"]),
    ),
    "mpi.cuda": (
        [(FAIL, "neither NCCL nor", gpu()),
         (WARN, "NCCL and a CUDA-aware", gpu({"mpi.cuda": True, "frameworks.horovod": BASE["WITH_NCCL"]})),
         (SKIP, "CPU run", evidence())],
        gpu(lost=["mpi.cuda"]),
    ),
    "mpi.openib": (
        [(WARN, "openib may take mlx5_0", evidence({"settings.assigned": []})),
         (FAIL, "openib may take mlx5_0", evidence({"settings.assigned": [], "mpi.banner": "mpirun (Open MPI) 3.1.6"}))],
        evidence(lost=["rdma.ports"]),
    ),
    "mpi.daemon": (
        [(FAIL, "none in origin of mpi.daemon", several({"mpi.daemon": None})),
         (INFO, "/opt/x/bin/orted", several({"mpi.daemon": "/opt/x/bin/orted", "mpi.configured": ""}))],
        several(lost=["mpi.daemon"]),
    ),
    "mpi.leftover": (
        [(FAIL, "PMIX_SERVER_URI4 names 127.0.0.1:9: refused", evidence({"leftover.servers": [{"variable": "PMIX_SERVER_URI4", "place": "127.0.0.1:9", "problem": "refused"}]}))],
        evidence(lost=["leftover.servers"]),
    ),
    "slurm.step": (
        [(WARN, "step 0 of job 77, started by srun --mpi=none", evidence(STEP)),
         (FAIL, "step 0 of job 1", evidence(settings(SLURM_STEP_ID="0", SLURM_JOB_ID="1", SLURM_JOB_NUM_NODES="2"))),
         (WARN, "step 0", evidence(settings(SLURM_STEP_ID="0", SLURM_NNODES="2", SLURM_OVERLAP="1")))],
        evidence(lost=["settings.launch"]),
    ),
    # 2 ranks bound to 2 cores each on a host; 16 MiB a rank, but 64 MiB at least.
    "storage.temporary": (
        [(FAIL, "/tmp: 63 MiB free", evidence(only(place(free=63 * MIB)))),
         (WARN, "/tmp: 127 MiB free", evidence(only(place(free=127 * MIB)))),
         (FAIL, "/tmp: No such file", evidence(only(place(problem="No such file or directory")))),
         (FAIL, "/tmp: read-only", evidence(only(place(writable="read-only")))),
         (FAIL, "159 MiB free", evidence(only(place(free=159 * MIB)), num_ranks=10, plan=None)),
         (WARN, "room for 999 more files", evidence(only(place(inodes_free=999)))),
         (WARN, "68 bytes", evidence(only(place(path="/" + "x" * 67)))),
         (WARN, "/tmp is nfs4", evidence(only(place(type="nfs4", remote=True))))],
        evidence(lost=["storage.places"]),
    ),
    "storage.home": (
        [(WARN, "/home/u: No such file", evidence(only(place("the home", "/home/u", "HOME", problem="No such file or directory")))),
         (INFO, "/home/u: no permission", evidence(only(place("the home", "/home/u", "HOME", writable="no permission"))))],
        evidence(lost=["storage.places"]),
    ),
    "storage.unpacking": (
        [(FAIL, "/small: 511 MiB free", evidence(places(place("the image's unpacking", "/small", "APPTAINER_TMPDIR", free=511 * MIB)))),
         (WARN, "/tmp: 511 MiB free", evidence(places(place("the image's unpacking", free=511 * MIB)))),
         (WARN, "/tmp: 8000 MiB free", evidence(places(place("the image's unpacking", free=8000 * MIB)))),
         (FAIL, "/c: Permission denied", evidence(places(place("the image cache", "/c", "SINGULARITY_CACHEDIR", problem="Permission denied"))))],
        evidence(lost=["container.programs"]),
    ),
    "storage.folder": (
        [(FAIL, "/gone is not in this container", evidence(IN_APPTAINER | {"storage.folder": HOST["storage.folder"] | {"told": "/gone", "told_there": False}})),
         (WARN, "there is no /gone", evidence({"storage.folder": HOST["storage.folder"] | {"told": "/gone", "told_there": False}})),
         (FAIL, "no longer exists", evidence({"storage.folder": HOST["storage.folder"] | {"folder": None}})),
         (WARN, "/job is not in this container", evidence(IN_APPTAINER | {"storage.folder": HOST["storage.folder"] | {"submitted": "/job", "submitted_there": False}}))],
        evidence(lost=["storage.folder"]),
    ),
    "limits.process": (
        [(FAIL, "address space 32 GiB", evidence(limit(address_space=32 * GIB))),
         (WARN, "address space 128 GiB", evidence(limit(address_space=128 * GIB))),
         (FAIL, "file size 0.5 GiB", evidence(limit(file_size=GIB // 2))),
         (FAIL, "cpu time 1 h", evidence(limit(cpu_time=3600))),
         (WARN, "stack size", evidence(limit(stack_size=2 * MIB)))],
        evidence(lost=["host.limits"]),
    ),
    # 2 ranks on a host: 2 x (32 + 4) = 72 threads at least, 576 at ease.
    "limits.system": (
        [(FAIL, "kernel/pid_max: 71", evidence(system("kernel/pid_max", 71))),
         (WARN, "kernel/threads-max: 575", evidence(system("kernel/threads-max", 575))),
         (FAIL, "vm/max_map_count: 8191", evidence(system("vm/max_map_count", 8191))),
         (FAIL, "fs/file-nr: 2047", evidence(system("fs/file-nr", 7953, 0, 10000))),
         (WARN, "ip_local_port_range: 1000", evidence(system("net/ipv4/ip_local_port_range", 60001, 61000))),
         (WARN, "vm/overcommit_memory is 2", evidence(system("vm/overcommit_memory", 2)))],
        evidence(lost=["host.system_limits"]),
    ),
    "container.threads": (
        [(FAIL, "refused: EPERM, with a seccomp filter", evidence({"container.trials": {"thread": "EPERM"}, "container.seccomp": 2})),
         (FAIL, "refused: EAGAIN", evidence({"container.trials": {"thread": "EAGAIN"}}))],
        evidence(lost=["container.trials"]),
    ),
    "container.peer-memory": (
        [(WARN, "refused: EPERM", evidence({"container.trials": {"peer_memory": "EPERM"}})),
         (INFO, "refused: EPERM", evidence({"container.trials": {"peer_memory": "EPERM"}, "mpi.banner": "mpirun (Open MPI) 5.0.7"})),
         (WARN, "UCX 1.5.2 does not ask", evidence({"mpi.ucx": {"version": "1.5.2", "threads": True}}))],
        evidence(lost=["container.trials"]),
    ),
    "container.covered": (
        [(FAIL, "/opt is s:/opt (nfs), over /opt", evidence(IN_APPTAINER)), (INFO, "/opt is s:/opt", evidence(IN_DOCKER))],
        evidence(IN_APPTAINER, lost=["container.covered"]),
    ),
    "container.namespaces": (
        [(FAIL, "0 user namespaces", evidence({"container.user_namespaces": 0})), (WARN, "1 user namespaces", evidence({"container.user_namespaces": 1}))],
        evidence(lost=["container.user_namespaces"]),
    ),
    "container.root": (
        [(WARN, "fuse.squashfuse for 2 ranks", evidence(IN_APPTAINER | {"container.root_type": "fuse.squashfuse"})),
         (INFO, "fuse.squashfuse for 1 ranks", evidence(IN_APPTAINER | {"container.root_type": "fuse.squashfuse"}, num_ranks=1, plan=None))],
        evidence(lost=["container.root_type"]),
    ),
    "container.apart": (
        [(WARN, "ranks 1: ipc:[1] with /dev/shm on 99", evidence(ranks=({}, {"host.spaces": {"ipc": "ipc:[1]", "shm": 99}}))),
         (WARN, "ranks 0: ipc:[2]", evidence(ranks=({"host.spaces": {"ipc": "ipc:[2]", "shm": 23}}, {})))],
        evidence(lost=["host.spaces"]),
    ),
    "network.name": (
        [(FAIL, "only 127.0.1.1", several({"network.own_name": ["127.0.1.1", "::1"]})),
         (FAIL, "leads to no address", several({"network.own_name": []})),
         (INFO, "leads to no address", evidence({"network.own_name": []}))],
        evidence(lost=["network.own_name"]),
    ),
    "network.chosen": (
        [(FAIL, "NCCL_SOCKET_IFNAME=eth99: eth99 matches nothing", evidence(settings(NCCL_SOCKET_IFNAME="eth99"))),
         (FAIL, "=et: et matches", evidence(settings(NCCL_SOCKET_IFNAME="=et"))),
         (FAIL, "192.168.0.0/24 matches nothing", evidence(settings(OMPI_MCA_btl_tcp_if_include="eth0,192.168.0.0/24"))),
         (FAIL, "mlx4_0 matches nothing", evidence(settings("/etc/nccl.conf", NCCL_IB_HCA="mlx4_0"))),
         (FAIL, "mlx5_0:2 matches nothing", evidence(settings(UCX_NET_DEVICES="mlx5_0:2"))),
         (WARN, "leads to no other host", evidence(settings(NCCL_SOCKET_IFNAME="lo"))),
         (FAIL, "leads to no other host: it leaves lo", several(settings(NCCL_SOCKET_IFNAME="lo"))),
         # What a list leaves out counts as what it names.
         (WARN, "^lo lets in docker0", evidence(WITH_DOCKER | settings(NCCL_SOCKET_IFNAME="^lo"))),
         (WARN, "^docker lets in lo", evidence(settings(NCCL_SOCKET_IFNAME="^docker"))),
         (WARN, "^eth,lo leads to no other host: it leaves docker0", evidence(WITH_DOCKER | settings(NCCL_SOCKET_IFNAME="^eth,lo"))),
         (FAIL, "^=eth0,lo leaves no interface", evidence(settings(NCCL_SOCKET_IFNAME="^=eth0,lo"))),
         (WARN, "exclude=docker0 lets in lo", evidence(WITH_DOCKER | settings(OMPI_MCA_btl_tcp_if_exclude="docker0"))),
         (WARN, "exclude=lo lets in docker0", evidence(WITH_DOCKER | settings(OMPI_MCA_btl_tcp_if_exclude="lo"))),
         (FAIL, "it leaves lo", several(settings(OMPI_MCA_btl_tcp_if_exclude="10.0.0.0/8"))),
         (WARN, "eth0,docker0 lets in docker0", evidence(WITH_DOCKER | settings(OMPI_MCA_btl_tcp_if_include="eth0,docker0"))),
         (WARN, "FI_TCP_IFACE=docker0 leads", evidence(WITH_DOCKER | settings(FI_TCP_IFACE="docker0"))),
         (FAIL, "oob_tcp_if_exclude are both set", evidence(settings(OMPI_MCA_oob_tcp_if_include="eth0", OMPI_MCA_oob_tcp_if_exclude="lo")))],
        evidence(lost=["network.interfaces"]),
    ),
    "network.host-only": (
        [(INFO, "docker0 lead nowhere", evidence(WITH_DOCKER)),
         (INFO, "docker0 lead nowhere", evidence(WITH_DOCKER | settings(NCCL_SOCKET_IFNAME="^lo")))],
        evidence(lost=["network.interfaces"]),
    ),
    "network.locked-memory": (
        [(FAIL, "0.0625 MiB", evidence(limit(locked_memory=65536))), (WARN, "2048 MiB", evidence(limit(locked_memory=2 * GIB)))],
        evidence(lost=["host.limits"]),
    ),
    "network.verbs": (
        [(WARN, "no uverbs file", evidence({"rdma.files": {}})),
         (FAIL, "no uverbs file", several({"rdma.files": {"rdma_cm": True}})),
         (WARN, "no permission for /dev/infiniband/uverbs0", evidence({"rdma.files": {"uverbs0": False}})),
         (WARN, "no libibverbs", evidence({"rdma.library": None}))],
        evidence(lost=["rdma.files"]),
    ),
    "network.ports": (
        [(FAIL, "mlx5_0 port 1 is DOWN", evidence({"rdma.ports": [PORT | {"state": "DOWN"}]} | settings(NCCL_IB_HCA="mlx5"))),
         (FAIL, "index 7 is empty", evidence(ROCE_ONLY | settings(NCCL_IB_GID_INDEX="7"))),
         (FAIL, "index 0 is link-local", evidence(ROCE_ONLY | settings(NCCL_IB_GID_INDEX="0"))),
         (WARN, "index 1 is RoCE v1", evidence(ROCE_ONLY | settings(NCCL_IB_GID_INDEX="1"))),
         (WARN, "has none among 1", evidence({"rdma.ports": [ROCE | {"gids": {"1": {"gid": "::ffff:a01:1", "kind": "RoCE v1"}}}]}))],
        evidence(lost=["rdma.ports"]),
    ),
    "network.gpudirect": (
        [(WARN, "no such module", evidence({"gpu.device_files": ["nvidia0"], "rdma.peer_memory": []}))],
        evidence(lost=["rdma.ports"]),
    ),
}  # fmt: skip
PASSES = {
    "program.xla": [evidence(), evidence({"frameworks.xla": ["XLA_FLAGS"]})],
    "limits.system": [evidence(), evidence(system("kernel/pid_max", 576)), evidence({"host.system_limits": {"vm/overcommit_memory": [1]}})],
    # What is excluded need not be there; vader and sm are one.
    "settings.components": [evidence(settings(OMPI_MCA_btl="^smcuda", OMPI_MCA_pml="ob1")), evidence(settings(OMPI_MCA_btl="self,sm,tcp", OMPI_MCA_coll="x")),
        # With a card MPI takes UCX by itself, and transports do not count; nor do they beside UCX or for one rank.
        evidence(settings(OMPI_MCA_btl="self")), evidence(PROTOCOLS | settings(OMPI_MCA_pml="^ob1")),
        evidence(NO_CARD | PROTOCOLS | settings(OMPI_MCA_pml="ucx", OMPI_MCA_btl="self")),
        evidence(NO_CARD | settings(OMPI_MCA_btl="self"), num_ranks=1),
        evidence(NO_CARD | PROTOCOLS | settings(OMPI_MCA_pml="cm", FI_PROVIDER="cxi")),
        evidence(NO_CARD | settings(OMPI_MCA_btl="^openib")), evidence(NO_CARD | settings(OMPI_MCA_btl="^openib,ofi", OMPI_MCA_pml="ob1"))],
    "libraries.cuda": [gpu()],
    "horovod.wrapper": [evidence(), evidence({"python.wrappers": ["t.py:3"]} | installed(keras="2.15.0", horovod="0.28.1"))],
    "recipe.repeats": [evidence(), evidence({"recipe.text": "nonsense"})],
    "settings.harmful": [
        # mpirun tells its ranks of its own options so.
        evidence(settings(OMPI_MCA_rmaps_base_mapping_policy="slot:PE=2") | {"settings.launch": {"OMPI_COMM_WORLD_RANK": "0"}}),
        evidence(), evidence(settings(NCCL_P2P_DISABLE="0", OMPI_MCA_btl="tcp,self,vader", NCCL_DEBUG="WARN")),
        # Open MPI 4 has these; a Keras of unknown version is not taken for a new one.
        evidence(settings(OMPI_MCA_orte_abort_timeout="3")), evidence(settings(TF_USE_LEGACY_KERAS="1") | {"packages.installed": {}}),
    ],
    "settings.values": [evidence(), evidence(settings(HOROVOD_FUSION_THRESHOLD="67108864", HOROVOD_CYCLE_TIME="0.1", OMP_NUM_THREADS="4,2", NCCL_DEBUG="warn"))],
    "settings.names": [
        evidence(), evidence(settings(NCCL_MIN_NCHANNELS="4", NCCL_VERSION="2.20", HOROVOD_WITH_MPI="1", HOROVOD_CYCLE_TIME="1", OMPI_MCA_pml="ob1")),
        # Where no ompi_info tells, no name of Open MPI is doubted; nor one of PRRTE's in 5.
        evidence(settings(OMPI_MCA_nonsense="1"), lost=["mpi.parameters"]),
        evidence(settings(OMPI_MCA_zzz_made_up="1") | {"mpi.banner": "mpirun (Open MPI) 5.0.7"}),
    ],
    "settings.files": [evidence(), evidence(settings("/home/u/.keras/keras.json", **{"keras.json/floatx": "float32"}))],
    "libraries.xla": [gpu()],
    "mpi.cuda": [gpu({"frameworks.horovod": BASE["WITH_NCCL"]}), gpu({"mpi.cuda": True})],
    "mpi.openib": [evidence(), evidence({"rdma.ports": [], "settings.assigned": []}), evidence({"settings.assigned": [], "mpi.components": {"btl": ["self"]}})],
    "mpi.daemon": [evidence(), several(), several({"mpi.configured": ""}), evidence({"mpi.daemon": None}, ranks=())],
    "slurm.step": [
        evidence(), evidence(STEP | {"settings.launch": {"PMIX_RANK": "0"}}),
        evidence(settings(SLURM_JOB_ID="5", SLURM_STEP_ID="4294967291")), evidence(settings(SLURM_JOB_ID="5")),
    ],
    "storage.temporary": [evidence(), evidence(only(place(free=128 * MIB, path="/" + "x" * 66)))],
    "storage.home": [evidence(), evidence(only(place()))],
    "storage.unpacking": [
        evidence(), evidence(places(place("the image's unpacking", free=0)) | {"container.programs": {"apptainer": None}}),
        evidence(places(place("the image cache", "/c", "APPTAINER_CACHEDIR", problem="No such file or directory"))),
    ],
    "storage.folder": [evidence(), evidence({"storage.folder": HOST["storage.folder"] | {"told": "/elsewhere"}})],
    "container.peer-memory": [evidence(), evidence({"container.trials": {"peer_memory": "EPERM"}} | settings(OMPI_MCA_btl_vader_single_copy_mechanism="none"))],
    "container.namespaces": [evidence(), evidence({"container.user_namespaces": 0, "host.uid": 0}), evidence({"container.user_namespaces": 0, "container.starter": True}), evidence({"container.user_namespaces": 0} | IN_APPTAINER)],
    "container.root": [evidence(), evidence({"container.root_type": "fuse.squashfuse"})],
    # On two machines nothing is shared, and need not be.
    "container.apart": [evidence(), evidence(ranks=({}, {"host.spaces": {"ipc": "ipc:[9]", "shm": 1}, "host.boot_id": "b2"}))],
    "network.name": [evidence(), evidence({"network.own_name": ["127.0.1.1"]}), several()],
    "network.chosen": [
        evidence(), evidence(settings(NCCL_SOCKET_IFNAME="eth,ens")), evidence(settings(NCCL_SOCKET_IFNAME="=eth0")),
        evidence(WITH_DOCKER | settings(NCCL_SOCKET_IFNAME="^docker,lo")), evidence(WITH_DOCKER | settings(OMPI_MCA_btl_tcp_if_exclude="127.0.0.0/8,docker0")),
        evidence(settings(NCCL_SOCKET_IFNAME="eth0:5000")), evidence(settings(NCCL_IB_HCA="^mlx5")),
        # The kernel gives each end of a container's cable a link-local address; the daemons find their way past lo.
        evidence({"network.interfaces": [LO, ETH0, VETH]} | settings(NCCL_SOCKET_IFNAME="^lo")), evidence(settings(OMPI_MCA_oob_tcp_if_exclude="docker0")),
        evidence(settings(OMPI_MCA_btl_tcp_if_include="10.1.0.0/16")),
        evidence(settings(UCX_NET_DEVICES="all", NCCL_IB_HCA="mlx5")), evidence(settings(UCX_NET_DEVICES="mlx5_0:1,eth0")),
    ],
    "network.host-only": [evidence(), evidence({"network.interfaces": [LO, ETH0, DOCKER0]} | settings(NCCL_SOCKET_IFNAME="eth0"))],
    "network.locked-memory": [evidence(), evidence(limit(locked_memory=65536) | {"rdma.ports": []}), evidence(limit(locked_memory=65536) | {"rdma.ports": [PORT | {"state": "DOWN"}]})],
    "network.verbs": [evidence(), evidence({"rdma.ports": [], "rdma.files": {}})],
    "network.ports": [evidence(), evidence({"rdma.ports": [PORT | {"state": "DOWN"}]}), evidence(ROCE_ONLY), evidence(ROCE_ONLY | settings(NCCL_IB_GID_INDEX="3", NCCL_IB_HCA="=mlx5_0:1"))],
    "network.gpudirect": [evidence(), evidence({"gpu.device_files": ["nvidia0"]}), evidence({"gpu.device_files": ["nvidia0"], "rdma.peer_memory": [], "rdma.ports": []})],
    "limits.process": [evidence(), evidence(limit(address_space=None, cpu_time=None))],
    "libraries.path": [evidence(), evidence({"libraries.path": []})],
    "container.covered": [evidence(), evidence(IN_APPTAINER | {"container.covered": []})],
}  # fmt: skip
