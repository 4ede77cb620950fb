"""MPI: the launcher, the library that Horovod loads, and whether the two belong together.

Judges the static side and the sizes that the ranks report. Leaves where ranks run to
``env.checks.binding``.
"""

from __future__ import annotations

import re
from pathlib import PurePath as Path

from env.checks.evidence import Evidence
from env.checks.registry import LAUNCHED, check
from env.result import Finding, Status

OPEN_MPI = "Open MPI"
_FAMILIES = (
    (OPEN_MPI, r"Open ?MPI|OpenRTE|PRRTE|prterun"),
    ("Intel MPI", r"Intel"),
    ("MPICH", r"HYDRA|MPICH|MVAPICH"),
)


def family_of(text: str) -> str:
    """Return the MPI family that a banner names, ``"an unknown MPI"`` for none."""
    return next((n for n, p in _FAMILIES if re.search(p, text, re.IGNORECASE)), "an unknown MPI")


def version_of(text: str) -> str | None:
    """Return the first dotted number of a banner, without suffixes."""
    match = re.search(r"\d+(?:\.\d+)+", text)
    return match.group(0) if match else None


@check(
    "mpi.launcher",
    title="mpirun on PATH is Open MPI's",
    covers=("MPI-21", "VER-25"),
    reads=("mpi.mpirun", "mpi.banner"),
    fix="put Open MPI's bin folder first on PATH, or set the host up: env/bootstrap.sh",
)
def check_launcher(evidence: Evidence) -> Finding:
    """FAIL if PATH has no mpirun, or one of another family."""
    path = evidence.facts.value("mpi.mpirun")
    if path is None:
        return Finding(Status.FAIL, "mpirun on PATH", "none", where="PATH")
    banner = evidence.facts.value("mpi.banner")
    family = family_of(banner)
    status = Status.PASS if family == OPEN_MPI else Status.FAIL
    return Finding(status, f"mpirun of {OPEN_MPI}", f"{family}: {banner}", where=path)


@check(
    "mpi.others",
    title="no other mpirun waits behind the first on PATH",
    covers=("MPI-22", "VER-25"),
    reads=("mpi.launchers",),
    fix="unload the module of the other MPI, or take its bin folder out of PATH",
    required=False,
)
def check_others(evidence: Evidence) -> Finding:
    """INFO if PATH leads to several: a shell with another PATH starts the other one."""
    paths = evidence.facts.value("mpi.launchers")
    expected = "one mpirun"
    if len(paths) > 1:
        found = f"{paths[0]}, and behind it {', '.join(paths[1:])}"
        return Finding(Status.INFO, expected, found, where="PATH")
    return Finding(Status.PASS, expected, ", ".join(paths) or "none", where="PATH")


@check(
    "mpi.version",
    title="mpirun is of the locked version",
    covers=("REP-03",),
    reads=("mpi.mpirun", "mpi.banner"),
    fix="load the locked Open MPI, or use the image, which holds it",
)
def check_version(evidence: Evidence) -> Finding:
    """FAIL if mpirun's version is not the locked one."""
    locked = evidence.locked("openmpi")
    banner = evidence.facts.value("mpi.banner")
    status = Status.PASS if version_of(banner) == locked else Status.FAIL
    return Finding(status, f"Open MPI {locked}", banner, where=evidence.facts.value("mpi.mpirun"))


@check(
    "mpi.library",
    title="the MPI that Horovod loads is the one that launches",
    covers=("VER-25", "MPI-22"),
    reads=("frameworks.mpi_library", "mpi.banner", "mpi.prefix", "mpi.mpirun"),
    fix="make PATH and LD_LIBRARY_PATH name one MPI, then compile Horovod again if it was another",
)
def check_library(evidence: Evidence) -> Finding:
    """FAIL if family or version differ, or Horovod loads no MPI at all.

    WARN if they are equal but lie under different prefixes: two installations.
    """
    facts = evidence.facts
    library, banner = facts.value("frameworks.mpi_library"), facts.value("mpi.banner")
    if library is None:
        return Finding(Status.FAIL, "Horovod loads libmpi", "no libmpi is mapped")
    if "error" in library:
        return Finding(Status.FAIL, "libmpi says its version", library["error"])
    told = library["text"].split(",")[0].strip()
    launcher = (family_of(banner), version_of(banner))
    loaded = (family_of(library["text"]), version_of(library["text"]))
    found = f"mpirun is {' '.join(map(str, launcher))}, libmpi is {told}"
    where = f"{facts.value('mpi.mpirun')} and {library['path']}"
    if launcher != loaded:
        return Finding(Status.FAIL, "one MPI", found, where=where)
    prefix = facts.value("mpi.prefix")
    if Path(prefix) not in Path(library["path"]).parents:
        return Finding(Status.WARN, f"libmpi under {prefix}", found, where=where)
    return Finding(Status.PASS, "one MPI", found, where=where)


@check(
    "mpi.size",
    title="launcher, Horovod and --ranks agree on the number of ranks",
    phase=LAUNCHED,
    covers=("VER-16", "MPI-01", "MPI-02"),
    reads=("launch.size", "launch.rank", "frameworks.horovod_init"),
    fix="start the ranks with the MPI that Horovod was built with, and do not clean "
    "OMPI_* and PMIX_* out of their environment (Apptainer: no --cleanenv)",
)
def check_size(evidence: Evidence) -> Finding:
    """FAIL if a rank sees another number of ranks, or cannot join."""
    expected = f"{evidence.num_ranks} ranks"
    wrong: dict[int, str] = {}
    seen: dict[int, int] = {}
    sizes = evidence.of_ranks("launch.size")
    for rank, place in evidence.of_ranks("frameworks.horovod_init").items():
        if "error" in place:
            wrong[rank] = f"hvd.init() failed: {place['error']}"
            continue
        if place["size"] != evidence.num_ranks:
            wrong[rank] = f"Horovod sees {place['size']}"
        elif place["rank"] in seen:
            other = seen[place["rank"]]
            wrong[rank] = f"Horovod calls it rank {place['rank']}, as it does rank {other}"
        if sizes[rank] not in (None, evidence.num_ranks):
            wrong[rank] = f"{wrong.get(rank, '')} launcher says {sizes[rank]}".strip()
        elif rank in wrong and sizes[rank]:
            wrong[rank] += f", the launcher says {sizes[rank]}"
        seen[place["rank"]] = rank
    if wrong:
        found = "; ".join(f"rank {rank}: {text}" for rank, text in wrong.items())
        return Finding(Status.FAIL, expected, found, ranks=tuple(wrong))
    return Finding(Status.PASS, expected, f"Horovod sees {evidence.num_ranks} on every rank")
