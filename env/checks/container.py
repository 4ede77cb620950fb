"""Containers: what they cover, refuse or keep apart, and whether any can be started here.

Leaves GPUs in containers to ``env.checks.driver`` and libraries of the host to
``env.checks.libraries``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from env.checks.evidence import Evidence
from env.checks.mpi import version_of
from env.checks.registry import LAUNCHED, check
from env.checks.settings import effective
from env.result import Finding, Status

# Squashfs through FUSE is one process a mount, which several ranks wait for.
_SLOW_ROOTS = ("fuse.squashfuse", "fuse.squashfuse_ll", "fuse.fuse-overlayfs", "fuse")


@check(
    "container.threads",
    title="the container lets programs start threads",
    covers=("CON-19",),
    reads=("container.trials", "container.seccomp"),
    fix="upgrade docker and libseccomp on the host, which refuse a system call of the image's "
    "newer "
    "C library; to prove it: docker run --security-opt seccomp=unconfined",
)
def check_threads(evidence: Evidence) -> Finding:
    """FAIL if starting a thread is refused; EPERM is a filter of system calls, EAGAIN a limit."""
    trials = evidence.facts.value("container.trials")
    error, where = trials.get("thread"), evidence.facts["container.trials"].origin
    if error is None:
        return Finding(Status.PASS, "a thread starts", "it does", where=where)
    fix, found = "", f"refused: {error}"
    if error == "EAGAIN":
        fix = "raise the limit on processes: ulimit -u, docker --pids-limit"
    elif evidence.facts.value("container.seccomp") == 2:
        found += ", with a seccomp filter on this process"
    return Finding(Status.FAIL, "a thread starts", found, where=where, fix=fix)


@check(
    "container.peer-memory",
    title="ranks of a host may read each other's memory",
    covers=("MPI-13", "MPI-14"),
    reads=("container.trials", "container.ptrace_scope", "mpi.banner", "mpi.ucx",
           "settings.assigned"),
    fix="docker: --cap-add=SYS_PTRACE; or tell Open MPI to copy twice: "
    "OMPI_MCA_btl_vader_single_copy_mechanism=none",
    required=False,
)  # fmt: skip
def check_peer_memory(evidence: Evidence) -> Finding:
    """WARN if direct reads are refused and Open MPI 3 or 4 counts on them; INFO for 5 and later.

    WARN also where the kernel forbids them between strangers and UCX is older than 1.6, which
    does not ask for leave.
    """
    error = evidence.facts.value("container.trials").get("peer_memory")
    settings = {s["name"]: s["value"] for s in effective(evidence)}
    copies = settings.get("OMPI_MCA_btl_vader_single_copy_mechanism")
    scope, ucx = evidence.facts.value("container.ptrace_scope"), evidence.facts.value("mpi.ucx")
    expected = "process_vm_readv between ranks"
    if scope and ucx and _numbers(ucx["version"]) < (1, 6):
        found = f"ptrace_scope is {scope}, and UCX {ucx['version']} does not ask for leave"
        return Finding(Status.WARN, expected, found, where="/proc/sys/kernel/yama/ptrace_scope",
                       fix="use UCX 1.6 or later, or UCX_TLS=^cma")  # fmt: skip
    if error is None:
        return Finding(Status.PASS, expected, "allowed")
    if copies == "none":
        return Finding(Status.PASS, expected, f"{error}, and Open MPI is told to do without")
    old = _numbers(version_of(evidence.facts.value("mpi.banner")) or "0")[0] < 5
    where = evidence.facts["container.trials"].origin
    return Finding(Status.WARN if old else Status.INFO, expected, f"refused: {error}", where=where)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit()) or (0,)


@check(
    "container.covered",
    title="no folder of the host lies over the image's own",
    covers=("CON-13",),
    reads=("container.covered", "host.container"),
    fix="start it without that mount (Apptainer: --no-mount, --no-home), or have the site stop "
    "binding "
    "that folder",
    required=False,
)
def check_covered(evidence: Evidence) -> Finding:
    """FAIL in Apptainer if a mount covers a folder that the image brings software in.

    In docker and podman such a volume was asked for: INFO. Outside containers mounts are the
    system's own: PASS.
    """
    expected = "the image's own folders"
    kind = evidence.facts.value("host.container")
    if not kind:
        return Finding(Status.PASS, expected, "no container")
    mounts = evidence.facts.value("container.covered")
    if not mounts:
        return Finding(Status.PASS, expected, "nothing over them")
    found = "; ".join(f"{m['point']} is {m['source']} ({m['type']}), over {m['folder']}"
                      for m in mounts)  # fmt: skip
    where = evidence.facts["container.covered"].origin
    status = Status.FAIL if kind == "apptainer" else Status.INFO
    return Finding(status, expected, found, where=where)


@check(
    "container.namespaces",
    title="Apptainer can start containers for an ordinary user here",
    covers=("CON-15",),
    reads=("container.programs", "container.starter", "container.user_namespaces", "host.uid",
           "host.container"),
    fix="have the site allow them (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone=1) "
    "or install Apptainer with its setuid starter",
    required=False,
)  # fmt: skip
def check_namespaces(evidence: Evidence) -> Finding:
    """FAIL if user namespaces are off and no setuid starter is there; WARN if fewer than ranks.

    Root needs neither, nor does a host without Apptainer, or a container of it: PASS.
    """
    expected = "a user namespace for each rank's container"
    program = evidence.facts.value("container.programs").get("apptainer")
    inside = evidence.facts.value("host.container") == "apptainer"
    if not program or inside or not evidence.facts.value("host.uid"):
        return Finding(Status.PASS, expected, "none is needed here")
    most, suid = (
        evidence.facts.value(f"container.{key}") for key in ("user_namespaces", "starter")
    )
    where = evidence.facts["container.user_namespaces"].origin
    if suid:
        return Finding(Status.PASS, expected, "a setuid starter, which needs none", where=where)
    status = Status.WARN if most < evidence.ranks_a_host else Status.PASS
    status = Status.FAIL if most == 0 else status
    return Finding(status, expected, f"{most} user namespaces at most", where=where)


@check(
    "container.root",
    title="the ranks do not share one slow mount of the image",
    covers=("CON-16",),
    reads=("container.root_type", "host.container"),
    fix="let Apptainer mount the image itself (setuid installation), or unpack it once on the "
    "node's own "
    "disk: apptainer build --sandbox",
    required=False,
)
def check_root(evidence: Evidence) -> Finding:
    """WARN if the image is read through FUSE and several ranks share the host; INFO for one."""
    kind = evidence.facts.value("container.root_type")
    expected = "an image that the kernel mounts, or a folder"
    slow = kind in _SLOW_ROOTS and evidence.facts.value("host.container")
    where = evidence.facts["container.root_type"].origin
    if not slow:
        return Finding(Status.PASS, expected, str(kind), where=where)
    status = Status.WARN if evidence.ranks_a_host > 1 else Status.INFO
    found = f"{kind} for {evidence.ranks_a_host} ranks"
    return Finding(status, expected, found, where=where)


@check(
    "container.apart",
    title="ranks of one host share its memory",
    phase=LAUNCHED,
    covers=("CON-17",),
    reads=("host.spaces", "host.boot_id", "host.name"),
    fix="start one container for all ranks of a host, or give each the host's memory: docker "
    "--ipc=host, "
    "Apptainer without --contain and --ipc",
    required=False,
)
def check_apart(evidence: Evidence) -> Iterator[Finding]:
    """WARN if ranks of one machine have another /dev/shm or another IPC namespace each."""
    spaces, boots = evidence.of_ranks("host.spaces"), evidence.of_ranks("host.boot_id")
    together: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, space in spaces.items():
        together[boots[rank]][f"{space['ipc']} with /dev/shm on {space['shm']}"].append(rank)
    for groups in together.values():
        if len(groups) > 1:
            found = "; ".join(f"ranks {', '.join(map(str, ranks))}: {what}"
                              for what, ranks in groups.items())  # fmt: skip
            ranks = tuple(sorted(rank for group in groups.values() for rank in group))
            hosts = tuple(sorted({evidence.host_of(rank) for rank in ranks}))
            yield Finding(Status.WARN, "one memory for the ranks of a host", found,
                          ranks=ranks, hosts=hosts)  # fmt: skip
