"""The versions that libraries, the launcher's run-time and the scheduler tell of themselves.

Knows whom to ask and how each answers. Leaves Python and its packages to
``env.probes.packages``, the driver to ``env.probes.gpu`` and judging to the checks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact
from env.probes.child import Outcome, run_child, without_launcher

TIMEOUT_S = 15.0
ASK = Path(__file__).with_name("told.py")
LIBRARIES = ("pmix", "hwloc", "cuda", "cudnn", "nccl", "nccl_cuda")
_PRRTE = r"\(PRRTE\) v?(\d\S*)"
# A client of Slurm that was installed and never set up is no Slurm to start ranks with.
_NO_SLURM = re.compile(r"configuration source|Unable to process configuration|slurm\.conf", re.I)


def probe_versions(
    *,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
    python: str = sys.executable,
) -> dict[str, Fact]:
    """Return the facts ``versions.*``: a text each, None where the thing is not there.

    ``versions.glibc``; of the libraries that a process here would load ``pmix``, ``hwloc``,
    ``cuda`` (libcudart), ``cudnn``, ``nccl`` and ``nccl_cuda`` (what NCCL was built for);
    ``prrte`` of the launcher, ``slurm``, and ``slurm_pmix`` as far as ``srun`` lists it.

    Args:
        environ: the environment to look in.
        timeout_s: seconds each program asked may take.
        python: the interpreter to open the libraries in.
    """
    environ = without_launcher(environ)
    return (
        {"versions.glibc": _glibc()}
        | _libraries(python, environ, timeout_s)
        | {"versions.prrte": _told("prterun", "--version", _PRRTE, environ, timeout_s)}
        | _slurm(environ, timeout_s)
    )


def _glibc() -> Fact:
    origin = "CS_GNU_LIBC_VERSION"
    try:
        return Fact((os.confstr(origin) or "").removeprefix("glibc ") or None, origin)
    except ValueError:  # a C library that is not GNU's
        return Fact(None, origin)


def _libraries(python: str, environ: Mapping[str, str], timeout_s: float) -> dict[str, Fact]:
    mpirun = shutil.which("mpirun", path=environ.get("PATH", ""))
    folders = _mpi_folders(Path(mpirun).resolve().parent.parent) if mpirun else []
    # Open MPI installed with a PMIx of its own loads that one.
    argv = [python, "-P", str(ASK), *map(str, folders)]
    outcome = run_child(argv, environ=environ, timeout_s=timeout_s)
    told = dict(json.loads(line) for line in outcome.stdout.splitlines() if line.startswith("["))
    facts = {f"versions.{name}": _of_library(told, name, outcome) for name in LIBRARIES}
    plugins = {path.name for folder in folders for path in folder.glob("openmpi*/mca_pmix_*.so")}
    if plugins and not any(name.startswith("mca_pmix_ext") for name in plugins):
        # Open MPI 4 with PMIx compiled in: another one on the machine is none of its business.
        facts["versions.pmix"] = Fact(None, f"{mpirun}: a PMIx of its own")
    return facts


def _mpi_folders(prefix: Path) -> list[Path]:
    """Return where an Open MPI under this prefix may have its libraries and plugins."""
    return [
        folder
        for pattern in ("lib", "lib64", "lib/*-linux-gnu", "lib/*-linux-gnu/openmpi/lib")
        for folder in sorted(prefix.glob(pattern))
    ]


def _of_library(told: Mapping[str, dict | None], name: str, outcome: Outcome) -> Fact:
    if name not in told:
        return Fact(None, outcome.origin, problem=outcome.end)
    seen = told[name]
    if seen is None:
        return Fact(None, "the library path")
    return Fact(seen.get("version"), seen["path"], problem=seen.get("error"))


def _told(
    program: str, option: str, pattern: str, environ: Mapping[str, str], timeout_s: float
) -> Fact:
    """Return what a program on PATH says of its version, None where PATH has none."""
    path = shutil.which(program, path=environ.get("PATH", ""))
    if path is None:
        return Fact(None, "PATH")
    outcome = run_child([path, option], environ=environ, timeout_s=timeout_s)
    match = re.search(pattern, outcome.stdout)
    if match is not None:
        return Fact(match[1], outcome.origin)
    if _NO_SLURM.search(outcome.stderr):
        return Fact(None, outcome.origin)
    return Fact(None, outcome.origin, problem=outcome.end)


def _slurm(environ: Mapping[str, str], timeout_s: float) -> dict[str, Fact]:
    """Return Slurm's version, and the newest PMIx that its plugins name (its major number)."""
    version = _told("srun", "--version", r"slurm\S* v?(\d\S*)", environ, timeout_s)
    if version.value is None:
        return {"versions.slurm": version, "versions.slurm_pmix": Fact(None, version.origin)}
    path = str(shutil.which("srun", path=environ.get("PATH", "")))
    outcome = run_child([path, "--mpi=list"], environ=environ, timeout_s=timeout_s)
    numbers = re.findall(r"\bpmix_v(\d+)", outcome.stdout + outcome.stderr)
    if not numbers and outcome.exit_code != 0:
        pmix = Fact(None, outcome.origin, problem=outcome.end)
    else:
        pmix = Fact(max(numbers, key=int, default=None), outcome.origin)
    return {"versions.slurm": version, "versions.slurm_pmix": pmix}
