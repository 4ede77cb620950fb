"""Python, its packages and TensorFlow, held against the lock.

Judges which versions are installed, which are loaded, and whose copy it is. Leaves
Horovod to ``env.checks.horovod``.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

from env.checks.evidence import Evidence
from env.checks.registry import check
from env.errors import UserError
from env.facts import CannotTellError
from env.names import normal_name
from env.result import Finding, Status
from env.versions import parse_version

REBUILD_IMAGE = "use the image, or set the host up again: env/bootstrap.sh"


def same_version(found: str, locked: str) -> bool:
    """Return whether a version is the locked one; ``3.11`` locks every 3.11.x.

    Raises:
        CannotTellError: what was found is no version.
    """
    try:
        return parse_version(found).has_prefix(locked)
    except UserError as error:
        raise CannotTellError(f"{found!r} is no version") from error


@check(
    "python.version",
    title="this is the locked Python",
    reads=("packages.python",),
    fix="run through env/bootstrap.sh CMD or inside the image, where the locked Python comes first",
)
def check_python(evidence: Evidence) -> Finding:
    """FAIL if the running Python is not of the locked version."""
    locked = evidence.locked("python")
    found = evidence.facts.value("packages.python")
    status = Status.PASS if same_version(found, locked) else Status.FAIL
    where = evidence.facts["packages.python"].origin
    return Finding(status, f"Python {locked}", f"Python {found}", where=where)


@check(
    "python.packages",
    title="every locked package is installed at its locked version",
    covers=("REP-03", "VER-21"),
    reads=("packages.installed",),
    fix=REBUILD_IMAGE,
)
def check_packages(evidence: Evidence) -> Finding:
    """FAIL if a package that training needs is missing or has another version."""
    needed = [p for p in evidence.need_lock().python if "run" in p.groups]
    installed = evidence.facts.value("packages.installed")
    wrong = []
    for package in needed:
        found = installed.get(normal_name(package.name))
        if found is None:
            wrong.append(f"{package.name}: not installed, locked {package.version}")
        elif found["version"] != package.version:
            wrong.append(
                f"{package.name}: {found['version']} in {found['location']}, "
                f"locked {package.version}"
            )
    expected = f"{len(needed)} packages as locked"
    if wrong:
        return Finding(Status.FAIL, expected, "; ".join(wrong))
    return Finding(Status.PASS, expected, "all of them")


@check(
    "python.shadowed",
    title="no package comes from a user's home or a foreign folder",
    covers=("CON-11",),
    reads=("packages.installed", "packages.modules", "packages.prefixes", "packages.user_site",
           "packages.python_path", "host.container"),
    fix="export PYTHONNOUSERSITE=1, unset PYTHONPATH (inside Apptainer: --no-home or --containall)",
)  # fmt: skip
def check_shadowed(evidence: Evidence) -> Finding:
    """FAIL if a locked package or a main module would load from outside.

    WARN if, in a container, the user's own site-packages can be seen at all.
    """
    facts = evidence.facts
    installed, modules = facts.value("packages.installed"), facts.value("packages.modules")
    user_site = facts.value("packages.user_site")
    roots = [os.path.normpath(prefix) for prefix in facts.value("packages.prefixes")]
    names = {normal_name(p.name) for p in evidence.lock.python} if evidence.lock else set()
    places = {name: p["location"] for name, p in installed.items() if name in names | set(modules)}
    places |= {f"module {name}": origin for name, origin in modules.items() if origin}
    foreign = {
        name: place for name, place in sorted(places.items())
        if not _inside(place, roots) or (user_site and _inside(place, [user_site]))
    }  # fmt: skip
    expected = f"packages from {' or '.join(roots)} only"
    if foreign:
        found = "; ".join(f"{name} from {place}" for name, place in foreign.items())
        return Finding(
            Status.FAIL, expected, found, where=facts.value("packages.python_path") or ""
        )
    places = [package["location"] for package in installed.values()]
    in_user_site = [place for place in places if user_site and _inside(place, [user_site])]
    if in_user_site and facts.value("host.container"):
        found = f"{len(in_user_site)} packages of {user_site} can be imported in this container"
        return Finding(Status.WARN, expected, found, where=user_site)
    return Finding(Status.PASS, expected, "nothing from outside")


def _inside(place: str, folders: list[str]) -> bool:
    path = PurePath(os.path.normpath(place))
    return any(path.is_relative_to(folder) for folder in folders)


@check(
    "cpu.instructions",
    title="the CPU has the instructions TensorFlow is compiled for",
    covers=("VER-09",),
    reads=("host.cpu_flags", "host.machine"),
    fix="use another node type, or a TensorFlow compiled without AVX",
    required=False,  # whether TensorFlow imports is the proof; this names the reason
)
def check_instructions(evidence: Evidence) -> Finding:
    """FAIL if an x86 CPU lacks AVX; SKIP on other architectures."""
    machine = evidence.facts.value("host.machine")
    if machine != "x86_64":
        return Finding(Status.SKIP, "AVX on x86_64", f"this is {machine}")
    has = "avx" in evidence.facts.value("host.cpu_flags")
    where = evidence.facts["host.cpu_flags"].origin
    if has:
        return Finding(Status.PASS, "AVX", "AVX", where=where)
    return Finding(Status.FAIL, "a CPU with AVX", "no avx among the CPU's flags", where=where)


@check(
    "tensorflow.import",
    title="TensorFlow can be imported",
    covers=("VER-09", "VER-21"),
    reads=("frameworks.tensorflow", "host.cpu_flags"),
    explains=("frameworks.",),
    fix=REBUILD_IMAGE,
)
def check_tensorflow(evidence: Evidence) -> Finding:
    """FAIL if the import raises or kills the process; the signal is named."""
    seen = evidence.facts.value("frameworks.tensorflow")
    where = evidence.facts["frameworks.tensorflow"].origin
    if "error" not in seen:
        return Finding(Status.PASS, "import tensorflow", seen["version"], where=seen["path"])
    found, fix = seen["error"], ""
    if seen.get("signal") == "SIGILL":
        flags = evidence.facts["host.cpu_flags"].value or ()
        lacks = [flag for flag in ("avx", "avx2", "fma") if flag not in flags]
        lacking = ", ".join(lacks) or "none of AVX, AVX2 and FMA"
        found += f"; an illegal instruction: this CPU lacks {lacking}"
        fix = "use another node type, or a TensorFlow compiled for this CPU"
    return Finding(Status.FAIL, "import tensorflow", found, where=where, fix=fix)


@check(
    "tensorflow.loaded",
    title="what an import loads is what the lock names",
    reads=("frameworks.tensorflow", "frameworks.horovod"),
    fix="find the other copy: python -m env --only python.shadowed,python.packages",
)
def check_loaded(evidence: Evidence) -> Finding:
    """FAIL if the loaded TensorFlow, Keras, numpy or Horovod is not the locked one."""
    lock = evidence.need_lock()
    wanted = {name: evidence.locked(name) for name in ("tensorflow", "keras", "horovod")}
    if lock.version("numpy"):
        wanted["numpy"] = lock.version("numpy")
    tensorflow = _loaded(evidence, "frameworks.tensorflow")
    loaded = {
        "tensorflow": tensorflow["version"], "keras": tensorflow["keras"],
        "numpy": tensorflow["numpy"], "horovod": _loaded(evidence, "frameworks.horovod")["version"],
    }  # fmt: skip
    wrong = {name: v for name, v in wanted.items() if not same_version(loaded[name], v)}
    expected = ", ".join(f"{name} {version}" for name, version in wanted.items())
    found = ", ".join(f"{name} {loaded[name]}" for name in (wrong or wanted))
    return Finding(Status.FAIL if wrong else Status.PASS, expected, found, where=tensorflow["path"])


def _loaded(evidence: Evidence, key: str) -> dict[str, Any]:
    """Return what an import loaded.

    Raises:
        CannotTellError: it failed, which another check reports.
    """
    seen = evidence.facts.value(key)
    if "error" in seen:
        raise CannotTellError(f"{key.split('.')[1]} does not import")
    return seen
