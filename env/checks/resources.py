"""Memory, shared memory, limits and quota: whether the host has room for the ranks.

Thresholds are stated where they are used, with their reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.cpulist import render_cpu_list
from env.result import Finding, Status

MIB = 2**20
GIB = 2**30

# Docker's default is 64 MiB, too small for MPI's and NCCL's segments (NVIDIA/nccl#290);
# below 1 GiB a few GPUs already fill it.
SHM_FAIL_BYTES = 64 * MIB
SHM_WARN_BYTES = 1 * GIB
# Importing TensorFlow and Horovod takes about 0.5 GiB a rank; DenseNet-121 with a
# batch of 32 small films 1.5 to 2 GiB.
RANK_FAIL_BYTES = 1 * GIB
RANK_WARN_BYTES = 2 * GIB
# Python with TensorFlow keeps under 100 files open; sockets grow with ranks. NCCL and Open MPI
# ran out of 1024 beyond a few hosts (NVIDIA/nccl#550), and 4096 is what sites give.
FILES_BASE, FILES_PER_RANK = 1024, 32
FILES_OF_SEVERAL_HOSTS = 4096
# TensorFlow's thread pools are up to four times the cores it may use.
THREADS_PER_CORE, THREADS_BASE = 4, 32
# vm.overcommit_memory (proc(5)): never promise more memory than there is.
NO_OVERCOMMIT = 2


@check(
    "memory.shm",
    title="/dev/shm holds the segments of MPI and NCCL",
    covers=("RES-01", "MPI-15"),
    reads=("host.shm",),
    fix="docker: --shm-size=1g or --ipc=host; Apptainer shows the host's, which root enlarges "
    "with mount -o remount,size=4g /dev/shm",
)
def check_shm(evidence: Evidence) -> Finding:
    """FAIL at 64 MiB or less in all, or free, for several ranks; WARN below 1 GiB.

    FAIL too if no file can be made there. One rank alone shares nothing: PASS.
    """
    shm = evidence.facts.value("host.shm")
    where = evidence.facts["host.shm"].origin
    found = f"{_gib(shm['total'])} in all, {_gib(shm['free'])} free"
    expected = f"at least {_gib(SHM_WARN_BYTES)}"
    status = Status.PASS
    if evidence.ranks_a_host > 1 and shm["refused"]:
        fix = "chmod 1777 /dev/shm on the host, or mount a tmpfs there that takes more files"
        return Finding(Status.FAIL, "a folder that takes files", f"{found}; {shm['refused']}",
                       where=where, fix=fix)  # fmt: skip
    if evidence.ranks_a_host > 1:
        least = min(shm["total"], shm["free"])
        status = Status.WARN if least < SHM_WARN_BYTES else status
        status = Status.FAIL if least <= SHM_FAIL_BYTES else status
    return Finding(status, expected, found, where=where)


@check(
    "memory.ranks",
    title="every rank has memory to train in",
    covers=("RES-04",),
    reads=("host.memory_available", "host.memory_left", "host.memory_promised", "host.oom_kills"),
    fix="use fewer ranks, ask for more memory (Slurm: --mem), or stop what else runs here",
)
def check_memory(evidence: Evidence) -> Finding:
    """FAIL below 1 GiB a rank, WARN below 2 GiB; limits of the group and of Slurm's job count.

    WARN as well if a process of this group was killed for memory before.
    """
    facts = evidence.facts
    keys = ("host.memory_available", "host.memory_left", "host.memory_promised")
    limits = [(facts.value(key), facts[key].origin) for key in keys]
    free, origin = min(
        (limit for limit in limits if limit[0] is not None), key=lambda pair: pair[0]
    )
    share, kills = free / evidence.ranks_a_host, facts.value("host.oom_kills")
    status = Status.WARN if share < RANK_WARN_BYTES or kills else Status.PASS
    status = Status.FAIL if share < RANK_FAIL_BYTES else status
    found = f"{_gib(share)} for each of {evidence.ranks_a_host}"
    found += f"; {kills} killed for memory in this group before" if kills else ""
    return Finding(status, f"at least {_gib(RANK_WARN_BYTES)} a rank", found, where=origin)


@check(
    "limits.files",
    title="a process may open enough files",
    covers=("RES-02",),
    reads=("host.open_files",),
    fix="ulimit -n $(ulimit -Hn) in the job script; docker: --ulimit nofile=65536",
    required=False,
)
def check_files(evidence: Evidence) -> Finding:
    """FAIL below 1024 or 32 a rank; WARN below 4096 where ranks are on several hosts."""
    needed = max(FILES_BASE, FILES_PER_RANK * evidence.num_ranks)
    wanted = max(needed, FILES_OF_SEVERAL_HOSTS) if evidence.num_hosts > 1 else needed
    number = evidence.facts.value("host.open_files")
    return _against(number, (needed, wanted), "open files", "ulimit -n")


@check(
    "limits.processes",
    title="the ranks may start their threads",
    covers=("RES-03",),
    reads=("host.processes", "host.pids_left", "host.uid", "host.affinity"),
    fix="ulimit -u $(ulimit -Hu) in the job script; docker: --pids-limit=-1",
    required=False,
)
def check_processes(evidence: Evidence) -> Finding:
    """FAIL if the limit is below 32 plus 4 a core for each rank, WARN below twice that."""
    facts = evidence.facts
    bound = [len(binding.cores) for binding in evidence.planned().values() if binding.cores]
    cores = max(bound, default=len(facts.value("host.affinity")))
    needed = evidence.ranks_a_host * (THREADS_BASE + THREADS_PER_CORE * cores)
    limits = [(facts.value("host.pids_left"), facts["host.pids_left"].origin)]
    if facts.value("host.uid") != 0:  # the kernel does not hold root to ulimit -u
        limits.append((facts.value("host.processes"), "ulimit -u"))
    number, where = min(limits, key=lambda pair: float("inf") if pair[0] is None else pair[0])
    return _against(number, (needed, 2 * needed), "processes and threads", where)


# Limits of a process that end a training, as ulimit names them: FAIL below the first number, WARN
# below the second, and why. Sizes in bytes, times in seconds.
_LIMITS = {
    "address space": (64 * GIB, 256 * GIB, "-v", "TensorFlow and CUDA map far more than they use"),
    "data size": (4 * GIB, 16 * GIB, "-d", "a rank allocates its batches and its input pool there"),
    "resident set": (1 * GIB, 1 * GIB, "-m", "a rank holds TensorFlow and its batches in memory"),
    "file size": (1 * GIB, 1 * GIB, "-f", "prepared data is larger; writing it ends the process"),
    "cpu time": (24 * 3600, 30 * 86400, "-t", "it counts all threads together, and ends the rank"),
    "stack size": (1 * MIB, 4 * MIB, "-s", "threads of libraries get no more than this"),
    "pending signals": (64, 64, "-i", "timers of the C library and of debuggers need them"),
    "file locks": (64, 64, "-x", "PMIx and HDF5 lock files"),
}  # fmt: skip


@check(
    "limits.process",
    title="no limit of a process ends or cripples a rank",
    covers=("RES-03",),
    reads=("host.limits",),
    fix="raise it in the job script (ulimit), or have the site raise its hard limit",
    required=False,
)
def check_process(evidence: Evidence) -> Iterator[Finding]:
    """FAIL or WARN for each limit that is set below what a rank needs; most are unlimited."""
    limits = evidence.facts.value("host.limits")
    for name, (needed, wanted, option, why) in _LIMITS.items():
        soft = limits.get(name, {}).get("soft")
        if soft is not None and soft < wanted:
            found = f"{name} {_amount(name, soft)}: {why}"
            hard = limits[name]["hard"]
            enough = hard is None or hard >= wanted
            raised = "unlimited" if hard is None else f"$(ulimit -H{option[1]})"
            yield Finding(
                Status.FAIL if soft < needed else Status.WARN,
                f"at least {_amount(name, wanted)} of {name}", found,
                where=f"ulimit {option}", fix=f"ulimit {option} {raised}" if enough else "",
            )  # fmt: skip


@check(
    "limits.system",
    title="no limit of the whole system stands in the way of the ranks",
    covers=("RES-02", "RES-03"),
    reads=("host.system_limits",),
    fix="have the site raise it: sysctl -w NAME=VALUE, or a line in /etc/sysctl.d",
    required=False,
)
def check_system(evidence: Evidence) -> Iterator[Finding]:
    """FAIL or WARN for each limit below what the ranks of a host need; defaults are far above."""
    limits, ranks = evidence.facts.value("host.system_limits"), evidence.ranks_a_host
    where = evidence.facts["host.system_limits"].origin
    threads, files = ranks * (THREADS_BASE + THREADS_PER_CORE), ranks * FILES_BASE
    bounds = {
        "kernel/pid_max": ("process numbers", threads, 8 * threads),
        "kernel/threads-max": ("threads", threads, 8 * threads),
        "vm/max_map_count": ("mappings a process", 8192, 32768),
        "fs/nr_open": ("open files a process", FILES_BASE, FILES_BASE),
        "fs/file-nr": ("more open files", files, 2 * files),
        "net/ipv4/ip_local_port_range": ("ports for connections", 16 * ranks, 1024),
    }
    for name, (what, needed, wanted) in bounds.items():
        number = _room_of(name, limits.get(name, []))
        if number is not None and number < wanted:
            status = Status.FAIL if number < needed else Status.WARN
            yield Finding(status, f"at least {wanted} {what}", f"{name}: {number}", where=where)
    if limits.get("vm/overcommit_memory") == [NO_OVERCOMMIT]:
        found = "vm/overcommit_memory is 2: what is only mapped counts as used, and TensorFlow and "
        yield Finding(Status.WARN, "memory that counts when it is used", found + "CUDA map much",
                      where=where, fix="have the site set vm.overcommit_memory=0")  # fmt: skip


def _room_of(name: str, numbers: Sequence[int]) -> int | None:
    """Return how much a limit leaves: some are written as several numbers."""
    if name == "fs/file-nr":  # used, free, most
        return numbers[2] - numbers[0] if len(numbers) == 3 else None
    if name.endswith("_range"):
        return numbers[1] - numbers[0] + 1 if len(numbers) == 2 else None
    return numbers[0] if numbers else None


def _amount(name: str, number: float) -> str:
    if "time" in name:
        return f"{number / 3600:g} h"
    in_bytes = any(word in name for word in ("space", "size", "set"))
    return f"{number / GIB:g} GiB" if in_bytes else str(number)


@check(
    "cpu.quota",
    title="the control group gives as much CPU time as it shows cores",
    covers=("BIND-12",),
    reads=("host.cpu_quota", "host.affinity"),
    fix="raise the quota (docker: --cpus) or show fewer cores (--cpuset-cpus), else threads stall",
    required=False,
)
def check_quota(evidence: Evidence) -> Finding:
    """WARN if the CPU quota is smaller than the cores this process may use."""
    quota = evidence.facts.value("host.cpu_quota")
    mask = evidence.facts.value("host.affinity")
    expected = f"time of {len(mask)} cores ({render_cpu_list(mask)})"
    if quota is None:
        return Finding(Status.PASS, expected, "no quota")
    where = evidence.facts["host.cpu_quota"].origin
    status = Status.WARN if quota < len(mask) else Status.PASS
    return Finding(status, expected, f"time of {quota:g} cores", where=where)


@check(
    "cpu.priority",
    title="the ranks give way to no other program",
    reads=("host.priority",),
    fix="start the launcher without nice, chrt or a service that lowers its priority "
    "(systemd: Nice=, CPUSchedulingPolicy=); a site's batch system may do so on purpose",
    required=False,
)
def check_priority(evidence: Evidence) -> Finding:
    """WARN if the kernel runs this process only where nobody else wants the core (SCHED_IDLE).

    INFO if it is nice: what else runs on its cores comes first.
    """
    told, where = evidence.facts.value("host.priority"), evidence.facts["host.priority"].origin
    expected, found = "the usual priority", f"policy {told['policy']}, nice {told['nice']}"
    idle = told["policy"] == "idle"
    status = Status.WARN if idle else Status.INFO if told["nice"] > 0 else Status.PASS
    return Finding(status, expected, found, where=where)


@check(
    "host.root",
    title="an ordinary user runs this",
    covers=("CON-20",),
    reads=("host.uid",),
    fix="run as an ordinary user where you can; as root, Open MPI wants --allow-run-as-root",
    required=False,
)
def check_root(evidence: Evidence) -> Finding:
    """INFO if this runs as root; never a reason to stop."""
    uid = evidence.facts.value("host.uid")
    if uid == 0:
        return Finding(Status.INFO, "an ordinary user", "root; files will belong to root")
    return Finding(Status.PASS, "an ordinary user", f"uid {uid}")


def _against(number: float | None, bounds: tuple[int, int], what: str, where: str) -> Finding:
    """Judge a limit: FAIL below the first bound, WARN below the second."""
    needed, wanted = bounds
    if number is None:
        return Finding(Status.PASS, f"{wanted} {what}", "no limit", where=where)
    status = Status.WARN if number < wanted else Status.PASS
    status = Status.FAIL if number < needed else status
    return Finding(status, f"at least {wanted} {what}", f"{number:g}", where=where)


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.2f} GiB"
