"""Horovod as built: for which Python, with which collectives, with which libraries.

Leaves its version to ``env.checks.versions``, which TensorFlow it was compiled against to
``env.checks.compatibility`` and its size under a launcher to ``env.checks.mpi``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.conditions import parse_range
from env.errors import UserError
from env.facts import CannotTellError
from env.result import Finding, Status

REBUILD = (
    "compile Horovod again against the installed TensorFlow, without pip's cache "
    "(env/bootstrap.sh does, or build the image again)"
)
# How the message of a failed import begins -> what it means.
_MEANINGS = (
    ("undefined symbol", "it was compiled against another TensorFlow or by another compiler"),
    ("GLIBCXX", "an older libstdc++ comes first in the library path"),
    ("cannot open shared object file", "a library it was linked to is not here"),
    ("HorovodVersionMismatchError", "it was compiled against another TensorFlow"),
    ("has not been built", "its TensorFlow part was never compiled"),
)


@check(
    "horovod.extension",
    title="Horovod's TensorFlow part is compiled for this Python",
    covers=("VER-11",),
    reads=("packages.horovod_extensions", "packages.extension_suffix"),
    fix="compile Horovod with HOROVOD_WITH_TENSORFLOW=1 under this Python (env/bootstrap.sh does)",
)
def check_extension(evidence: Evidence) -> Finding:
    """FAIL if no mpi_lib extension carries this interpreter's suffix."""
    suffix = evidence.facts.value("packages.extension_suffix")
    there = evidence.facts.value("packages.horovod_extensions")
    where = evidence.facts["packages.horovod_extensions"].origin
    good = any(name.endswith(suffix) for name in there)
    found = ", ".join(there) or "no mpi_lib extension at all"
    return Finding(Status.PASS if good else Status.FAIL, f"mpi_lib*{suffix}", found, where=where)


@check(
    "horovod.import",
    title="Horovod can be imported",
    covers=("VER-12", "VER-18", "VER-23"),
    reads=("frameworks.horovod",),
    explains=("frameworks.",),
    fix=REBUILD,
)
def check_import(evidence: Evidence) -> Finding:
    """FAIL if the import raises or kills the process."""
    seen = evidence.facts.value("frameworks.horovod")
    where = evidence.facts["frameworks.horovod"].origin
    if "error" not in seen:
        text = seen["version"]
        return Finding(Status.PASS, "import horovod.tensorflow", text, where=seen["path"])
    meaning = next((text for mark, text in _MEANINGS if mark in seen["error"]), "")
    found = f"{seen['error']}{'; ' + meaning if meaning else ''}"
    return Finding(Status.FAIL, "import horovod.tensorflow", found, where=where)


@check(
    "horovod.mpi",
    title="Horovod is built with MPI",
    covers=("VER-16",),
    reads=("frameworks.horovod",),
    fix="compile Horovod with HOROVOD_WITH_MPI=1 where mpicxx is on PATH (env/bootstrap.sh does)",
)
def check_mpi(evidence: Evidence) -> Finding:
    """FAIL without MPI: under mpirun every rank would train alone."""
    seen = _built(evidence)
    kinds = [name for name in ("mpi", "gloo", "nccl") if seen[name]]
    status = Status.PASS if seen["mpi"] else Status.FAIL
    return Finding(status, "Horovod with MPI", f"built with {', '.join(kinds) or 'nothing'}")


@check(
    "horovod.nccl",
    title="Horovod is built with NCCL where GPUs compute",
    covers=("VER-15",),
    reads=("frameworks.horovod",),
    fix="compile Horovod with HOROVOD_GPU_OPERATIONS=NCCL, or train with --device cpu",
)
def check_nccl(evidence: Evidence) -> Finding:
    """FAIL on a GPU run without NCCL: gradients would go through the host.

    SKIP on a CPU run.
    """
    if not evidence.wants_gpu:
        return Finding(Status.SKIP, "NCCL on a GPU run", "this is a CPU run")
    nccl = _built(evidence)["nccl"]
    found = f"NCCL {nccl}" if nccl else "no NCCL"
    return Finding(Status.PASS if nccl else Status.FAIL, "Horovod with NCCL", found)


@check(
    "horovod.wrapper",
    title="the program calls no wrapper of Horovod's that this Keras breaks",
    covers=("VER-13", "VER-14"),
    reads=("python.wrappers", "packages.installed"),
    fix="compute gradients with horovod.tensorflow.DistributedGradientTape and apply them with "
    "Keras's "
    "own optimizer, as this project's program does",
    required=False,
)
def check_wrapper(evidence: Evidence) -> Finding:
    """FAIL if the program calls DistributedOptimizer with Keras 3, or with 2.11 and Horovod < 0.28.

    The rest of Horovod works with Keras 3: a program without the wrapper passes.
    """
    places = evidence.facts.value("python.wrappers")
    installed = evidence.facts.value("packages.installed")
    keras, horovod = (installed.get(name, {}).get("version") for name in ("keras", "horovod"))
    expected, where = "no DistributedOptimizer", evidence.facts["python.wrappers"].origin
    if not places:
        return Finding(Status.PASS, expected, "none in the program", where=where)
    if keras is None or horovod is None:
        raise CannotTellError("Keras or Horovod is not installed")
    breaks = _is(keras, ">=3") or (_is(keras, ">=2.11") and _is(horovod, "<0.28"))
    found = f"Keras {keras}, Horovod {horovod}, and {', '.join(places[:5])}"
    return Finding(Status.FAIL if breaks else Status.PASS, expected, found, where=places[0])


def _is(version: str, limits: str) -> bool:
    try:
        return bool(parse_range(limits).holds(version, {}))
    except UserError as error:
        raise CannotTellError(str(error)) from error


@check(
    "libraries.duplicates",
    title="each shared library is loaded once",
    covers=("VER-25", "MPI-22", "VER-17"),
    reads=("frameworks.libraries",),
    fix="take the second copy out of LD_LIBRARY_PATH, LD_PRELOAD or the module list",
)
def check_duplicates(evidence: Evidence) -> Finding:
    """FAIL if two files of one library are mapped into the process."""
    seen = evidence.facts.value("frameworks.libraries")
    if isinstance(seen, dict):
        raise CannotTellError(seen.get("error", "no list of libraries"))
    copies: dict[str, set[str]] = defaultdict(set)
    for path in seen:
        copies[PurePath(path).name.split(".so")[0]].add(path)
    twice = {name: paths for name, paths in copies.items() if len(paths) > 1}
    expected = "one file of each of " + ", ".join(sorted(copies))
    if twice:
        found = "; ".join(f"{name}: {' and '.join(sorted(p))}" for name, p in sorted(twice.items()))
        return Finding(Status.FAIL, expected, found, where=", ".join(sorted(twice)))
    return Finding(Status.PASS, expected, "one of each")


def _built(evidence: Evidence) -> dict:
    seen = evidence.facts.value("frameworks.horovod")
    if "error" in seen:
        raise CannotTellError("horovod does not import")
    return seen
