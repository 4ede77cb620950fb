"""This Open MPI's own state: installed where it says, whole, and fit for Horovod.

Judges what ``ompi_info`` tells and what surrounds a launch. Leaves family, version and the
library that Horovod loads to ``env.checks.mpi``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.mpi import version_of
from env.checks.registry import check
from env.checks.settings import effective
from env.result import Finding, Status

_PREFIXES = ("OPAL_PREFIX", "PMIX_PREFIX", "PRTE_PREFIX")
# Without these no rank starts or no message goes; other components only make less possible.
_VITAL = re.compile(r"mca_(pml|btl|pmix|ess|bml|plm|gds|ptl|rmaps)_")
# Steps that Slurm makes for itself have numbers just below 2**32.
_FIRST_OWN_STEP = 4_000_000_000
_NO_STEP = "no step of srun around this process"


@check(
    "mpi.installation",
    title="Open MPI lies where it thinks it does",
    covers=("MPI-06",),
    reads=("mpi.data", "settings.assigned", "mpi.mpirun"),
    explains=("mpi.banner",),
    fix="unset OPAL_PREFIX, PMIX_PREFIX and PRTE_PREFIX, or set them to the folder that Open "
    "MPI was "
    "moved to",
)
def check_installation(evidence: Evidence) -> Finding:
    """FAIL if the help files are not where Open MPI looks for them: it was moved, or misled."""
    data = evidence.facts.value("mpi.data")
    led = [f"{s['name']}={s['value']}" for s in effective(evidence) if s["name"] in _PREFIXES]
    expected = f"Open MPI's own files in {data['folder']}"
    where = ", ".join(led) or evidence.facts.value("mpi.mpirun")
    if data["helps"]:
        return Finding(Status.PASS, expected, "there", where=where)
    return Finding(Status.FAIL, expected, "no help files there", where=where)


@check(
    "mpi.components",
    title="Open MPI can load its components",
    covers=("MPI-07",),
    reads=("mpi.complaints", "mpi.components", "settings.assigned"),
    fix="take the other library out of LD_LIBRARY_PATH, or install Open MPI and its components "
    "of one "
    "release",
    required=False,
)
def check_components(evidence: Evidence) -> Finding:
    """WARN if ompi_info complains of a component; FAIL if no rank can start without it.

    FAIL as well if it finds no transport (btl) at all, of which every build has some.
    """
    complaints = evidence.facts.value("mpi.complaints")
    where = evidence.facts["mpi.complaints"].origin
    expected = "no complaint"
    built = evidence.facts["mpi.components"].value
    if built is not None and "btl" not in built:
        led = [s["name"] for s in effective(evidence) if s["name"].startswith("OPAL_")]
        fix = f"unset {' '.join(led)}" if led else "install Open MPI anew: its files are incomplete"
        found = "no transport at all (btl)"
        return Finding(Status.FAIL, "components of each kind", found, where=where, fix=fix)
    if not complaints:
        return Finding(Status.PASS, expected, "none", where=where)
    vital = any(_VITAL.search(line) for line in complaints)
    status = Status.FAIL if vital else Status.WARN
    return Finding(status, expected, "; ".join(complaints), where=where)


@check(
    "mpi.threads",
    title="MPI and UCX are built for calls from several threads",
    covers=("MPI-18",),
    reads=("mpi.threads", "mpi.ucx"),
    fix="use an MPI built with MPI_THREAD_MULTIPLE and UCX with --enable-mt, leave UCX out "
    "(OMPI_MCA_pml=^ucx), or set HOROVOD_MPI_THREADS_DISABLE=1",
    required=False,
)
def check_threads(evidence: Evidence) -> Finding:
    """WARN if Open MPI, or a UCX that tells of itself, was built without thread support."""
    ucx = evidence.facts.value("mpi.ucx")
    lacks = [] if evidence.facts.value("mpi.threads") else ["Open MPI"]
    lacks += [f"UCX {ucx['version']}"] if ucx and not ucx["threads"] else []
    expected, where = "MPI_THREAD_MULTIPLE", evidence.facts["mpi.threads"].origin
    if lacks:
        return Finding(Status.WARN, expected, f"{' and '.join(lacks)} without it", where=where)
    return Finding(Status.PASS, expected, "supported", where=where)


@check(
    "mpi.cuda",
    title="MPI and Horovod agree on who moves GPU memory",
    covers=("MPI-19",),
    reads=("mpi.cuda", "frameworks.horovod"),
    fix="compile Horovod with HOROVOD_GPU_OPERATIONS=NCCL, and use an Open MPI without CUDA "
    "support "
    "beside it (or OMPI_MCA_mpi_cuda_support=0)",
    required=False,
)
def check_cuda(evidence: Evidence) -> Finding:
    """FAIL on a GPU run without NCCL if MPI is not CUDA-aware; WARN if both could move it.

    SKIP on a CPU run.
    """
    expected = "NCCL, and an MPI that keeps to the host's memory"
    if not evidence.wants_gpu:
        return Finding(Status.SKIP, expected, "this is a CPU run")
    aware, horovod = evidence.facts.value("mpi.cuda"), evidence.facts.value("frameworks.horovod")
    nccl, where = horovod.get("nccl"), evidence.facts["mpi.cuda"].origin
    if nccl and aware:
        found = "NCCL and a CUDA-aware Open MPI: the two may wait for each other"
        return Finding(Status.WARN, expected, found, where=where)
    if not nccl and not aware:
        found = "neither NCCL nor a CUDA-aware MPI: GPU buffers would crash MPI"
        return Finding(Status.FAIL, expected, found, where=where)
    return Finding(Status.PASS, expected, "NCCL" if nccl else "a CUDA-aware MPI", where=where)


@check(
    "mpi.openib",
    title="Open MPI does not use its old InfiniBand transport",
    covers=("MPI-17",),
    reads=("mpi.components", "mpi.banner", "rdma.ports", "settings.assigned"),
    fix="OMPI_MCA_btl=^openib and OMPI_MCA_pml=ob1: MPI then uses TCP, and NCCL the InfiniBand",
    required=False,
)
def check_openib(evidence: Evidence) -> Finding:
    """WARN if there are RDMA devices, Open MPI has openib and no setting leaves it out.

    FAIL for Open MPI below 4, where openib is not safe with threads.
    """
    expected = "openib left out where there is InfiniBand"
    ports = evidence.facts.value("rdma.ports")
    if not ports:
        return Finding(Status.PASS, expected, "no RDMA device here")
    has = "openib" in evidence.facts.value("mpi.components").get("btl", ())
    settings = {s["name"]: s for s in effective(evidence)}
    btl = settings.get("OMPI_MCA_btl", {"value": "", "origin": ""})
    out = "openib" in btl["value"] if btl["value"].startswith("^") else (
        bool(btl["value"]) and "openib" not in btl["value"]
    )  # fmt: skip
    pml = settings.get("OMPI_MCA_pml", {"value": ""})["value"]
    if not has or out or pml == "ucx":
        found = f"{btl['value']} in {btl['origin']}" if out else "not built in, or not used"
        return Finding(Status.PASS, expected, found)
    version = version_of(evidence.facts.value("mpi.banner")) or "0"
    status = Status.FAIL if int(version.split(".")[0]) < 4 else Status.WARN
    return Finding(status, expected, f"openib may take {ports[0]['device']}")


@check(
    "mpi.daemon",
    title="other hosts will find Open MPI's daemon",
    covers=("MPI-11",),
    reads=("mpi.daemon", "mpi.configured", "mpi.mpirun"),
    fix="call mpirun by its absolute path, with --prefix, or use one configured with "
    "--enable-mpirun-prefix-by-default; the prefix must be the same on all hosts",
    required=False,
)
def check_daemon(evidence: Evidence) -> Finding:
    """FAIL if there is no daemon beside mpirun; INFO if only an absolute path leads to it.

    The launcher of this project calls mpirun so; on one host none is needed: PASS.
    """
    expected = "orted or prted on the other hosts"
    daemon, where = evidence.facts.value("mpi.daemon"), evidence.facts["mpi.daemon"].origin
    if evidence.num_hosts == 1:
        return Finding(Status.PASS, expected, "one host needs none", where=where)
    if daemon is None:
        return Finding(Status.FAIL, expected, f"none in {where}", where=where)
    by_default = re.search(
        r"(mpirun|orterun)-prefix-by-default", evidence.facts.value("mpi.configured")
    )
    usual = daemon.startswith(("/usr/bin/", "/bin/", "/usr/local/bin/"))
    status = Status.PASS if by_default or usual else Status.INFO
    return Finding(status, expected, daemon, where=where)


@check(
    "mpi.leftover",
    title="no launcher that is gone still rules this shell",
    covers=("MPI-03",),
    reads=("leftover.servers",),
    fix="start from a shell that no launcher started, or unset the PMIX_ variables named",
    required=False,
)
def check_leftover(evidence: Evidence) -> Finding:
    """FAIL if variables name a PMIx server, or its folder, that does not answer or exist."""
    servers = evidence.facts.value("leftover.servers")
    dead = [server for server in servers if server["problem"]]
    expected = "servers that answer, or none"
    if dead:
        found = "; ".join(f"{s['variable']} names {s['place']}: {s['problem']}" for s in dead)
        return Finding(Status.FAIL, expected, found, where=dead[0]["variable"])
    return Finding(Status.PASS, expected, f"{len(servers)} of them" if servers else "none")


@check(
    "slurm.step",
    title="the launch does not begin inside a step of srun",
    covers=("MPI-09", "MPI-10"),
    reads=("settings.assigned", "settings.launch"),
    fix="launch from the job itself (sbatch or salloc), start the ranks by srun --mpi=pmix, or "
    "give the "
    "outer srun --overlap; for one process alone: unset SLURM_STEP_ID SLURM_PROCID",
    required=False,
)
def check_step(evidence: Evidence) -> Iterator[Finding]:
    """FAIL in a step of a job of several nodes, WARN of one.

    A rank that a launcher started is in a step by right.
    """
    slurm = {s["name"]: s["value"] for s in effective(evidence) if s["name"].startswith("SLURM_")}
    step = slurm.get("SLURM_STEP_ID", slurm.get("SLURM_STEPID", ""))
    of_launch = evidence.facts.value("settings.launch")
    is_rank = any(name.startswith(("PMIX_RANK", "OMPI_COMM_WORLD")) for name in of_launch)
    if not step.isdigit() or int(step) >= _FIRST_OWN_STEP or is_rank:
        yield Finding(Status.PASS, _NO_STEP, "none, or this is a rank of it")
        return
    kind = slurm.get("SLURM_MPI_TYPE", "")
    found = f"step {step} of job {slurm.get('SLURM_JOB_ID', '?')}"
    found += f", started by srun{f' --mpi={kind}' if kind else ''} without PMIx"
    nodes = slurm.get("SLURM_JOB_NUM_NODES", slurm.get("SLURM_NNODES", "1"))
    overlaps = slurm.get("SLURM_OVERLAP", "0") not in ("", "0")
    status = Status.FAIL if nodes != "1" and not overlaps else Status.WARN
    yield Finding(status, _NO_STEP, found, where="SLURM_STEP_ID")
