"""Other jobs of this host that are bound to a part of its cores.

Knows /proc, and whose children the processes around us are. Leaves whether their cores are ours
to the checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from env.cpulist import parse_cpu_list, render_cpu_list
from env.facts import Fact
from env.topology import HostTopology

# A process that has worked for a second, and for half of its life, is at work; or for a tenth of
# it where it waits for a core this very moment, since others may have kept it from one.
BUSY_SHARE, WAITING_SHARE, BUSY_SECONDS = 0.5, 0.1, 1.0
# What names a job, by launcher and scheduler.
_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_MAX_TOLD = 64
_KERNEL = 2  # the parent of all threads of the kernel


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    name: str
    state: str
    busy_s: float
    age_s: float


def probe_neighbours(
    root: Path = Path("/"),
    *,
    topology: HostTopology,
    environ: Mapping[str, str] = os.environ,
    pid: int | None = None,
) -> Fact:
    """Return the processes that are bound and busy, or bound ranks of some MPI job.

    Not those of this job: what this process descends from or has started, and what bears the
    same job's number. Bound is what may not use all that our control group allows.

    Args:
        root: the folder in which /proc lies.
        topology: this host.
        environ: the environment of the process that asks.
        pid: the process that asks; this one by default.

    Returns:
        A fact with a list of ``{"pid", "name", "cpus", "busy"}``; ``busy`` is the share of a
        core it has used over its life.
    """
    folder = root / "proc"
    processes = {process.pid: process for process in _processes(folder)}
    mine = _family(processes, os.getpid() if pid is None else pid)
    found = []
    for process in processes.values():
        if process.pid in mine or _KERNEL in (process.pid, process.parent):
            continue
        share = process.busy_s / process.age_s if process.age_s > 0 else 0.0
        least = WAITING_SHARE if process.state == "R" else BUSY_SHARE
        busy = share >= least and process.busy_s >= BUSY_SECONDS
        cpus = _mask(folder / str(process.pid))
        if not cpus or set(cpus) >= set(topology.cpuset):
            continue
        theirs = _variables(folder / str(process.pid))
        same_job = any(theirs.get(name) == environ[name] for name in _JOBS if name in environ)
        if not same_job and (busy or "OMPI_COMM_WORLD_RANK" in theirs):
            found.append(
                {"pid": process.pid, "name": process.name, "cpus": render_cpu_list(cpus),
                 "busy": round(min(share, 99.0), 2)}
            )  # fmt: skip
    return Fact(found[:_MAX_TOLD], str(folder))


def _processes(folder: Path) -> Iterator[_Process]:
    hertz = os.sysconf("SC_CLK_TCK")
    try:
        uptime = float((folder / "uptime").read_text().split()[0])
        names = [entry.name for entry in os.scandir(folder) if entry.name.isdecimal()]
    except (OSError, ValueError, IndexError):
        return
    for name in names:
        try:
            text = (folder / name / "stat").read_text(encoding="utf-8", errors="replace")
            # The name stands in brackets and may hold any character, brackets too.
            head, _, tail = text.rpartition(")")
            fields = tail.split()
            busy, started = int(fields[11]) + int(fields[12]), int(fields[19])
            yield _Process(
                int(name), int(fields[1]), _plain(head.partition("(")[2]), fields[0], busy / hertz,
                uptime - started / hertz,
            )  # fmt: skip
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or is not ours to read


def _family(processes: Mapping[int, _Process], pid: int) -> set[int]:
    """Return a process, its ancestors, and all that it has started."""
    family, above, below = {pid}, pid, {pid}
    while above in processes and processes[above].parent not in family:
        above = processes[above].parent
        family.add(above)
    while below:
        family |= below
        below = {p.pid for p in processes.values() if p.parent in below} - family
    return family


def _mask(folder: Path) -> tuple[int, ...]:
    try:
        lines = (folder / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        name = "Cpus_allowed_list:"
        return parse_cpu_list(next(ln[len(name) :] for ln in lines if ln.startswith(name)))
    except (OSError, ValueError, StopIteration):
        return ()


def _variables(folder: Path) -> dict[str, str]:
    """Return the environment of a process; empty where it is not ours to read."""
    try:
        words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:32]
