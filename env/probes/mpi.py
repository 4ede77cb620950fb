"""The MPI launcher on PATH: which one, of which family and version, where it lives.

Knows the banners of the common families. Leaves the MPI library that Horovod maps to
``env.probes.frameworks``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from env.facts import Fact
from env.probes.child import run_child, without_launcher

TIMEOUT_S = 20.0


def probe_mpi(
    *, environ: Mapping[str, str] = os.environ, timeout_s: float = TIMEOUT_S
) -> dict[str, Fact]:
    """Return the facts ``mpi.*``.

    ``mpi.mpirun`` is the path, None where PATH has none. ``mpi.banner`` is the first
    line of ``mpirun --version``; ``mpi.prefix`` the folder above the launcher's bin.

    Args:
        environ: the environment whose PATH is searched.
        timeout_s: seconds the launcher may take to say its version.
    """
    path = shutil.which("mpirun", path=environ.get("PATH", ""))
    if path is None:
        absent = Fact(None, "PATH", problem="no mpirun on PATH")
        return {"mpi.mpirun": Fact(None, "PATH"), "mpi.banner": absent, "mpi.prefix": absent}
    outcome = run_child([path, "--version"], environ=without_launcher(environ), timeout_s=timeout_s)
    lines = [line.strip() for line in outcome.stdout.splitlines() if line.strip()]
    banner = Fact(None, outcome.origin, problem=outcome.end)
    if lines and outcome.problem is None:
        banner = Fact(_telling(lines), outcome.origin)
    return {
        "mpi.mpirun": Fact(path, "PATH"),
        "mpi.banner": banner,
        "mpi.prefix": _prefix(path, environ, timeout_s),
    }


def _telling(lines: list[str]) -> str:
    """Return the first line; MPICH's Hydra says its version only in the second."""
    version = next((line for line in lines if re.match(r"Version:\s*\S", line)), "")
    return f"{lines[0]} {version}".strip()


def _prefix(mpirun: str, environ: Mapping[str, str], timeout_s: float) -> Fact:
    """Return where the MPI is installed: its own word if it has one, else by its place."""
    info = Path(mpirun).parent / "ompi_info"
    if info.exists():
        argv = [str(info), "--path", "prefix", "--parsable"]
        outcome = run_child(argv, environ=without_launcher(environ), timeout_s=timeout_s)
        match = re.search(r"^path:prefix:(.+)$", outcome.stdout, re.MULTILINE)
        if match:
            return Fact(os.path.realpath(match.group(1).strip()), outcome.origin)
    return Fact(str(Path(os.path.realpath(mpirun)).parent.parent), mpirun)
