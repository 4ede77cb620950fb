"""The MPI launcher on PATH, and what its Open MPI says of itself.

Knows the banners of the common families and the output of ``ompi_info``. Leaves the MPI
library that Horovod maps to ``env.probes.frameworks``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import Outcome, run_child, without_launcher
from env.probes.reading import is_folder
from env.probes.settings import probe_settings

TIMEOUT_S = 20.0
# What Open MPI writes when it finds a component, or its own help files, in no usable state.
_COMPLAINT = re.compile(
    r"component_repository_open|unable to open mca_|undefined symbol|couldn't open the help file"
    r"|failed to (load|find)|cannot open shared object"
)
_MAX_COMPLAINTS = 20
_TOLD = ("parameters", "components", "threads", "cuda", "configured", "data", "complaints", "forms")


def probe_mpi(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Fact]:
    """Return the facts ``mpi.*``.

    ``mpi.mpirun`` is the path, None where PATH has none; ``mpi.launchers`` all of them, each
    file once. ``mpi.banner`` is the first line of ``mpirun --version``; ``mpi.prefix`` the
    folder above the launcher's bin. Of ``ompi_info``: ``mpi.parameters`` (names),
    ``mpi.components`` (by framework), ``mpi.threads`` and ``mpi.cuda`` (supported or not),
    ``mpi.configured`` (the options it was built with), ``mpi.data`` (``{folder, helps}``: where
    its help files should be, and whether they are), ``mpi.complaints`` (lines) and ``mpi.forms``:
    ``{type, words}`` of the values of those parameters that a setting names. ``mpi.ucx``
    is ``{version, threads}`` of UCX, None where nothing tells of one; ``mpi.daemon`` the file
    that Open MPI starts on other hosts.

    Args:
        root: the folder in which /usr lies.
        environ: the environment whose PATH is searched.
        timeout_s: seconds the launcher may take to say its version.
    """
    found = _launchers(environ.get("PATH", ""))
    facts = {"mpi.launchers": Fact(found, "PATH")}
    if not found:
        absent = Fact(None, "PATH", problem="no mpirun on PATH")
        keys = ("banner", "prefix", "ucx", "daemon", *_TOLD)
        return facts | {"mpi.mpirun": Fact(None, "PATH")} | {f"mpi.{k}": absent for k in keys}
    path = found[0]
    assigned = probe_settings(root, environ=environ)["settings.assigned"].value
    named = {row["name"].removeprefix("OMPI_MCA_") for row in assigned}
    environ = without_launcher(environ)
    facts |= {"mpi.ucx": _ucx(environ, timeout_s), "mpi.daemon": _daemon(path)}
    outcome = run_child([path, "--version"], environ=environ, timeout_s=timeout_s)
    lines = [line.strip() for line in outcome.stdout.splitlines() if line.strip()]
    banner = Fact(None, outcome.origin, problem=outcome.end)
    if lines and outcome.problem is None:
        banner = Fact(_telling(lines), outcome.origin)
    facts |= {"mpi.mpirun": Fact(path, "PATH"), "mpi.banner": banner}
    return facts | _info(root, path, environ, timeout_s, named)


def _launchers(path: str) -> list[str]:
    """Return every mpirun of PATH in its order; a file that has two names counts once."""
    found: dict[str, str] = {}
    for folder in path.split(os.pathsep):
        program = shutil.which("mpirun", path=folder) if folder else None
        if program:
            found.setdefault(os.path.realpath(program), program)
    return list(found.values())


def _daemon(mpirun: str) -> Fact:
    """Return Open MPI's orted or PRRTE's prted beside the launcher, None where there is neither."""
    folder = Path(mpirun).parent
    files = (str(folder / name) for name in ("prted", "orted"))
    return Fact(next((file for file in files if os.access(file, os.X_OK)), None), str(folder))


def _ucx(environ: Mapping[str, str], timeout_s: float) -> Fact:
    program = shutil.which("ucx_info", path=environ.get("PATH", ""))
    if program is None:
        return Fact(None, "PATH")
    outcome = run_child([program, "-v"], environ=environ, timeout_s=timeout_s)
    version = re.search(r"(?:version=|Version )(\d+(?:\.\d+)+)", outcome.stdout)
    if version is None:
        return Fact(None, outcome.origin, problem=f"names no version ({outcome.end})")
    return Fact({"version": version[1], "threads": "--enable-mt" in outcome.stdout}, outcome.origin)


def _telling(lines: list[str]) -> str:
    """Return the first line; MPICH's Hydra says its version only in the second."""
    version = next((line for line in lines if re.match(r"Version:\s*\S", line)), "")
    return f"{lines[0]} {version}".strip()


def _info(
    root: Path, mpirun: str, environ: Mapping[str, str], timeout_s: float, named: set[str]
) -> dict[str, Fact]:
    """Return what ``ompi_info`` beside the launcher tells; without one, the prefix by its place."""
    by_place = Fact(str(Path(os.path.realpath(mpirun)).parent.parent), mpirun)
    info = Path(mpirun).parent / "ompi_info"
    if not info.exists():
        none = Fact(None, str(info), problem="no ompi_info beside mpirun")
        return {"mpi.prefix": by_place} | {f"mpi.{key}": none for key in _TOLD}
    argv = [str(info), "--all", "--parsable"]
    outcome = run_child(argv, environ=environ, timeout_s=timeout_s)
    told = parse_info(outcome.stdout)
    facts = {
        f"mpi.{key}": Fact(value, outcome.origin)
        if value is not None
        else Fact(None, outcome.origin, problem=f"says nothing of it ({outcome.end})")
        for key, value in told.items()
    }
    prefix = told["prefix"]
    facts["mpi.prefix"] = Fact(os.path.realpath(prefix), outcome.origin) if prefix else by_place
    return facts | {
        "mpi.data": _data(root, told["data"], outcome),
        "mpi.forms": Fact(
            {n: told["forms"][n] for n in named & told["forms"].keys()}, outcome.origin
        ),
        "mpi.complaints": Fact(_complaints(outcome.stderr), outcome.origin),
    }


def parse_info(text: str) -> dict[str, Any]:
    """Return what the output of ``ompi_info --all --parsable`` says; None for what it does not."""
    parameters, components, forms = set(), {}, {}
    for line in text.splitlines():
        if match := re.match(r"mca:([^:]+):[^:]*:param:([^:]+):(.*)", line):
            parameters.add(match[2])
            form = re.fullmatch(r"(?:enumerator:value:[^:]+|(type)):(.+)", match[3])
            if form:
                told = forms.setdefault(match[2], {"type": "", "words": []})
                told["type" if form[1] else "words"] = (
                    form[2] if form[1] else [*told["words"], form[2]]
                )
        elif match := re.match(r'mca:([^:]+):([^:]+):version:"component:', line):
            components.setdefault(match[1], []).append(match[2])
    threads = re.search(r"^option:threads:.*MPI_THREAD_MULTIPLE: (yes|no)", text, re.MULTILINE)
    cuda = re.search(r":param:\w*built_with_cuda_support:value:(\w+)", text)

    def of(key: str) -> str | None:
        match = re.search(rf"^{key}:(.+)$", text, re.MULTILINE)
        return match[1].strip() if match else None

    return {
        "prefix": of("path:prefix"),
        "data": of("path:pkgdatadir"),
        "configured": of("config:cli"),
        "parameters": sorted(parameters) or None,
        "components": components or None,
        "forms": forms,
        "threads": threads[1] == "yes" if threads else None,
        "cuda": cuda[1] == "true" if cuda else None,
    }


def _data(root: Path, folder: str | None, outcome: Outcome) -> Fact:
    if folder is None:
        return Fact(None, outcome.origin, problem=f"names no data folder ({outcome.end})")
    place = root / folder.lstrip("/")
    return Fact(
        {"folder": folder, "helps": is_folder(place) and any(place.glob("help-*.txt"))},
        outcome.origin,
    )


def _complaints(text: str) -> list[str]:
    # The loader's own words on LD_PRELOAD are every program's, not Open MPI's.
    lines = [line.strip() for line in text.splitlines() if _COMPLAINT.search(line)]
    lines = [line for line in lines if "LD_PRELOAD" not in line]
    return list(dict.fromkeys(lines))[:_MAX_COMPLAINTS]
