"""Shared libraries as the loader would find them: there, new enough, and not hidden.

Judges what ``env.probes.libraries`` follows without loading anything. Leaves what an
import mapped to ``env.checks.horovod``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.checks.settings import effective
from env.facts import CannotTellError
from env.result import Finding, Status

# A copy of one of these from elsewhere breaks the build's binary interface, or makes two
# runtimes of one: MPI, CUDA and NCCL, the C++ library, TensorFlow.
_CRITICAL = re.compile(
    r"lib(mpi|open-pal|open-rte|prrte|pmix|nccl|cudart|cudnn|cublas|cuda\.|nvidia-ml|stdc\+\+|tensorflow|gcc_s|c\.)"
)


@check(
    "libraries.found",
    title="every library that TensorFlow and Horovod need is there",
    covers=("VER-18",),
    reads=("libraries.missing",),
    fix="install what provides it, or take the environment or image that was built for this "
    "(ldd on the file named shows the rest)",
    required=False,  # the imports are the proof; this names the library
)
def check_found(evidence: Evidence) -> Finding:
    """FAIL if the loader's search finds no file for a needed library."""
    missing = evidence.facts.value("libraries.missing")
    expected = "all needed libraries"
    where = evidence.facts["libraries.missing"].origin
    if not missing:
        return Finding(Status.PASS, expected, "all of them", where=where)
    found = "; ".join(f"no {m['soname']}, which {m['needed_by']} needs" for m in missing)
    return Finding(Status.FAIL, expected, found, where=where)


@check(
    "libraries.cuda",
    title="TensorFlow finds the libraries of CUDA that it opens by name",
    covers=("VER-07",),
    reads=("libraries.cuda", "frameworks.tensorflow"),
    fix="install the wheel or package that holds it (nvidia-cudnn-cu12, nvidia-cublas-cu12, …), "
    "or use "
    "the image of a GPU stack; without it TensorFlow computes on the CPU and only warns",
    required=False,
)
def check_cuda(evidence: Evidence) -> Finding:
    """FAIL on a GPU run if a library is nowhere; SKIP on a CPU run.

    UNKNOWN for a TensorFlow that does not name its CUDA, or one of a CUDA that has no list here.
    """
    expected = "the libraries of TensorFlow's CUDA"
    if not evidence.wants_gpu:
        return Finding(Status.SKIP, expected, "this is a CPU run")
    paths, tensorflow = (
        evidence.facts.value(key) for key in ("libraries.cuda", "frameworks.tensorflow")
    )
    build = tensorflow.get("build", {})
    major, cudnn = (str(build.get(f"{key}_version", "")) for key in ("cuda", "cudnn"))
    of_cuda = paths.get(major.partition(".")[0])
    if of_cuda is None:
        raise CannotTellError(f"no list of libraries for CUDA {major or 'of an unknown version'}")
    cudnn = f"libcudnn.so.{cudnn.partition('.')[0]}"
    wanted = {n: p for n, p in of_cuda.items() if not n.startswith("libcudnn") or n == cudnn}
    missing = [name for name, path in wanted.items() if path is None]
    where = evidence.facts["libraries.cuda"].origin
    if missing:
        return Finding(Status.FAIL, expected, f"no {', no '.join(missing)}", where=where)
    return Finding(Status.PASS, expected, f"{len(wanted)} of them", where=where)


@check(
    "libraries.symbols",
    title="each library found is new enough for what needs it",
    covers=("VER-23", "CON-07"),
    reads=("libraries.lacking",),
    fix="take the folder of the older library out of LD_LIBRARY_PATH, or use an image whose C and "
    "C++ libraries are as new as the host's drivers want",
    required=False,
)
def check_symbols(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if a library does not define a symbol version that its user was linked against.

    WARN if only a graphics library of the host's driver lacks it, which no training needs.
    """
    lacks: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in evidence.facts.value("libraries.lacking"):
        lacks[row["library"], row["path"]].add(row["version"])
    for (library, path), versions in sorted(lacks.items()):
        name = PurePath(library).name
        injected = "/.singularity.d/libs" in library
        compute = not injected or name.startswith(("libcuda.", "libnvidia-ml."))
        found = f"{path} lacks {', '.join(sorted(versions))}, which {library} needs"
        status = Status.FAIL if compute else Status.WARN
        yield Finding(status, f"a {PurePath(path).name} as new as {name}", found, where=path)


@check(
    "libraries.shadowed",
    title="LD_LIBRARY_PATH and LD_PRELOAD hide no library of this environment",
    covers=("VER-06", "VER-17", "MPI-22", "VER-25", "CON-09"),
    reads=("libraries.shadowed", "host.container"),
    explains=("mpi.", "frameworks."),
    fix="take that folder out of LD_LIBRARY_PATH, or unload the module that put it there "
    "(a container: start it with --cleanenv, or with APPTAINERENV_LD_LIBRARY_PATH set)",
    required=False,
)
def check_shadowed(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if another MPI, CUDA, C++ or TensorFlow library comes first; WARN for any other.

    Two files of one version are a WARN, too: they may be the same build, or not.
    """
    for row in evidence.facts.value("libraries.shadowed"):
        critical = _CRITICAL.match(row["soname"])
        versions = {PurePath(row[key]).name for key in ("path", "hides")}
        bad = critical and (row["loaded"] or evidence.facts.value("host.container"))
        bad = bad or len(versions) > 1
        found = f"{row['path']} comes before {row['hides']}"
        yield Finding(
            Status.FAIL if bad else Status.WARN, f"{row['soname']} from {row['hides']}", found,
            where=row["by"],
            fix="" if row["by"] == "LD_LIBRARY_PATH" else f"take {row['path']} out of {row['by']}",
        )  # fmt: skip


@check(
    "libraries.copies",
    title="MPI, CUDA's libraries and the C++ library are installed once",
    covers=("VER-06", "VER-17", "MPI-22"),
    reads=("libraries.copies",),
    fix="take the folder of the other copy out of /etc/ld.so.conf.d and run ldconfig, or remove "
    "the "
    "package; which of them is loaded depends on who asks first",
    required=False,
)
def check_copies(evidence: Evidence) -> Iterator[Finding]:
    """WARN for each library that the loader can find in several files."""
    for name, paths in evidence.facts.value("libraries.copies").items():
        where = evidence.facts["libraries.copies"].origin
        yield Finding(Status.WARN, f"one {name}", " and ".join(paths[:5]), where=where)


@check(
    "libraries.path",
    title="LD_LIBRARY_PATH names folders that exist",
    covers=("CON-09",),
    reads=("libraries.path", "host.container"),
    fix="take the entry out of LD_LIBRARY_PATH; in a container it is the host's, which --cleanenv "
    "keeps outside",
    required=False,
)
def check_path(evidence: Evidence) -> Finding:
    """WARN if an entry is relative or empty, or leads nowhere inside a container.

    On a host a folder that does not exist is only passed over: INFO.
    """
    entries = evidence.facts.value("libraries.path")
    inside = evidence.facts.value("host.container")
    relative = [e for e in entries if e["state"] == "relative"]
    dead = [e for e in entries if e["state"] not in ("relative", "folder")]
    expected = "folders that exist, by their whole path"
    texts = [f"{e['entry']!r} is the current folder, wherever that is" for e in relative]
    texts += [f"{e['entry']}: {e['state']}" for e in dead]
    if not texts:
        found = ", ".join(e["entry"] for e in entries) or "not set"
        return Finding(Status.PASS, expected, found)
    status = Status.WARN if relative or inside else Status.INFO
    return Finding(status, expected, "; ".join(texts), where="LD_LIBRARY_PATH")


@check(
    "libraries.preload",
    title="no library is forced into every program",
    covers=("CON-10",),
    reads=("libraries.preload", "host.container"),
    fix="unset LD_PRELOAD (Apptainer: APPTAINERENV_LD_PRELOAD= with nothing behind it)",
    required=False,
)
def check_preload(evidence: Evidence) -> Finding:
    """WARN if a preloaded library is not there, or is one of the host's in a container.

    Elsewhere a preloaded library that exists is INFO: a profiler, or another malloc.
    """
    rows = evidence.facts.value("libraries.preload")
    expected = "nothing preloaded"
    if not rows:
        return Finding(Status.PASS, expected, "nothing")
    broken = [row for row in rows if row["state"] not in ("present", "named")]
    inside = evidence.facts.value("host.container")
    found = "; ".join(
        f"{row['entry']}: {row['state']}" if row in broken else row["entry"] for row in rows
    )
    status = Status.WARN if broken or inside else Status.INFO
    return Finding(status, expected, found, where=", ".join({row["origin"] for row in rows}))


@check(
    "libraries.xla",
    title="XLA finds what it compiles for GPUs with",
    covers=("VER-22",),
    reads=("libraries.xla", "settings.assigned"),
    fix="install the part of CUDA that holds nvvm and ptxas (the wheel nvidia-cuda-nvcc) and "
    "name its "
    "folder: XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR; or switch XLA off: unset TF_XLA_FLAGS",
    required=False,
)
def check_xla(evidence: Evidence) -> Finding:
    """FAIL if a setting asks for XLA and libdevice or ptxas is missing; INFO if none asks.

    On a CPU run XLA needs neither: a folder that does not exist is a WARN, the rest SKIP.
    """
    found = evidence.facts.value("libraries.xla")
    settings = {s["name"]: s["value"] for s in effective(evidence)}
    asked = "auto_jit" in settings.get("TF_XLA_FLAGS", "") or "XLA_FLAGS" in settings
    missing = [what for what in ("libdevice", "ptxas") if found[what] is None]
    expected, where = "libdevice.10.bc and ptxas", evidence.facts["libraries.xla"].origin
    text = f"no {' and no '.join(missing)}" if missing else f"{found['libdevice']}"
    if not evidence.wants_gpu:
        if found["folder"] and missing:
            return Finding(Status.WARN, expected, f"{text} in {found['folder']}", where="XLA_FLAGS")
        return Finding(Status.SKIP, expected, "this is a CPU run")
    if not missing:
        return Finding(Status.PASS, expected, text, where=where)
    return Finding(Status.FAIL if asked else Status.INFO, expected, text, where=where)
