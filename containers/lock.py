"""Resolving a Stack into a Lock: which exact wheels and packages, each with its hash.

Knows how pip is asked for another Python and distribution than this machine's, how its
report is dealt out to the groups of a stack, and what cannot be made exact here. Leaves
the distribution's packages to ``containers.archive``, the lock's format to ``env.lock``
and choosing versions that a rule is about to the catalogue.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from containers.archive import Resolution, resolve_system
from containers.base import find_digest
from containers.compatibility import require_compatible
from env.atomic import write_text
from env.errors import UserError
from env.lock import GROUPS, Lock, PythonPackage, lock_path, make_lock, render_lock
from env.stack import Stack, load_stack

# What may reach pip from this machine: how to get to an index, never what to take from it.
_KEPT_PIP_VARIABLES = (
    "PIP_INDEX_URL", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT",
)  # fmt: skip
# Tags older than manylinux_2_17, which pip does not derive from a newer one (PEP 600).
_OLD_PLATFORMS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def write_lock(stack_name: str, *, output: Path | None = None) -> Path:
    """Resolve a stack of the catalogue and write its lock.

    Args:
        stack_name: a stack's name.
        output: where to; ``containers/<stack>/stack.lock.json`` when None.

    Returns:
        The file written.

    Raises:
        UserError: there is no such stack, the output is a folder, pip found no set of wheels,
            or what was found breaks a rule of compatibility.
    """
    stack = load_stack(stack_name)
    path = output or lock_path(stack_name)
    if path.is_dir():
        raise UserError("a file to write the lock to", found=f"{path} is a folder",
                        fix="name a file in it")  # fmt: skip
    # What the catalogue alone tells comes first: pip would say no more than "conflict".
    require_compatible(stack, lock=make_lock(stack, python=()))
    lock = resolve_lock(stack)
    require_compatible(stack, lock=lock)
    write_text(path, render_lock(lock))
    return path


def resolve_lock(stack: Stack) -> Lock:
    """Ask for everything a stack is made of, and say what remains inexact, and why.

    Args:
        stack: the stack; its distribution, Python and glibc need not be this machine's.

    Raises:
        UserError: an index or archive does not answer or has not got what is asked for,
            or this Python reads a dependency's conditions otherwise than the stack's would.
    """
    gaps = {}
    python = resolve_python(stack)
    if stack.base.distribution == "debian":
        system = resolve_system(stack)
    else:
        system = Resolution((), "")
        gaps["system_packages"] = (
            f"only Debian's archive can be asked, and this stands on {stack.base.distribution}"
        )
    images = {"digest": stack.base.image, "build_digest": stack.base.build_image}
    digests = {key: find_digest(image) for key, image in images.items() if image}
    for key, digest in digests.items():
        if digest is None:
            gaps[f"base.{key}"] = "no registry answered when this was locked"
    return make_lock(
        stack, python=python, system_packages=system.packages, archive_date=system.date,
        base_digest=digests["digest"], build_digest=digests.get("build_digest"), gaps=gaps,
    )  # fmt: skip


def resolve_python(stack: Stack) -> tuple[PythonPackage, ...]:
    """Ask a package index for the wheels of a stack.

    All groups are resolved in one go, so a package has one version in all of them.

    Raises:
        UserError: pip found no set of wheels, or this Python reads a dependency's
            conditions otherwise than the stack's would.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        done = subprocess.run(
            pip_command(stack, report=report),
            env=pip_environment(os.environ), capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
            raise UserError(f"a set of wheels for the stack {stack.name!r}", found=f"pip: {said}",
                            fix="correct the versions in env/stacks.toml, or the way to the index",
                            exit_code=1)  # fmt: skip
        return packages_of(stack, json.loads(report.read_text()))


def pip_command(stack: Stack, *, report: Path) -> list[str]:
    """Return the command line that resolves a stack without installing anything."""
    python, glibc = stack.components["python"], stack.components["glibc"]
    wanted = {str(item): None for group in GROUPS for item in requirements_of(stack, group=group)}
    return [
        sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet",
        "--report", str(report), "--target", str(report.parent / "unused"),
        "--only-binary", ":all:",
        "--implementation", "cp", "--python-version", python,
        *(word for tag in platforms(glibc) for word in ("--platform", tag)),
        *wanted,
    ]  # fmt: skip


def pip_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for pip, without any setting that chooses packages.

    Files such as /etc/pip.conf are left out too, but certificates and proxies stay.
    """
    kept = {
        key: value
        for key, value in variables.items()
        if not key.startswith("PIP_") or key in _KEPT_PIP_VARIABLES
    }
    return kept | {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def platforms(glibc: str) -> tuple[str, ...]:
    """Return the platform tags that wheels may carry on a glibc, best first.

    Args:
        glibc: its version, ``2.<minor>``.
    """
    newest = int(glibc.split(".")[1])
    tags: list[str] = []
    for minor in range(newest, 4, -1):
        tags.append(f"manylinux_2_{minor}_x86_64")
        if minor in _OLD_PLATFORMS:
            tags.append(f"{_OLD_PLATFORMS[minor]}_x86_64")
    return (*tags, "linux_x86_64")


def requirements_of(stack: Stack, *, group: str) -> tuple[Requirement, ...]:
    """Return what a group of a stack asks for, held to the catalogue's components."""
    names = getattr(stack.python, group)
    held = {canonicalize_name(key): version for key, version in stack.components.items()}
    if group == "run":
        names = (*stack.python.wheels.values(), *names)
        for component, wheel in stack.python.wheels.items():
            held[canonicalize_name(Requirement(wheel).name)] = stack.components[component]
    asked = (Requirement(name) for name in names)
    return tuple(
        Requirement(f"{item}=={held[name]}")
        if (name := canonicalize_name(item.name)) in held
        else item
        for item in asked
    )


def packages_of(stack: Stack, report: Mapping[str, Any]) -> tuple[PythonPackage, ...]:
    """Return the packages of a pip report, sorted, each with the groups that need it.

    Raises:
        UserError: a file has no sha256, or a package that the stack's Python needs is
            not in the report, since pip read the conditions of this machine's Python.
    """
    found = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
    needed = {
        group: _closure(stack, found, requirements_of(stack, group=group)) for group in GROUPS
    }
    packages = []
    for name, item in sorted(found.items()):
        groups = tuple(group for group in GROUPS if name in needed[group])
        if not groups:  # asked for by a condition that is false on the stack's Python
            continue
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest is None:
            raise UserError("a sha256 from the index for every file",
                            found=f"none for {name}", fix="use an index that gives hashes",
                            exit_code=1)  # fmt: skip
        packages.append(PythonPackage(name, item["metadata"]["version"], (digest,), groups))
    return tuple(packages)


def _closure(
    stack: Stack, found: Mapping[str, Mapping[str, Any]], roots: Iterable[Requirement]
) -> set[str]:
    """Return the names of all packages that some requirements lead to."""
    environment = dict(default_environment()) | {
        "python_version": stack.components["python"],
        "python_full_version": stack.components["python"] + ".0",
        "implementation_version": stack.components["python"] + ".0",
    }
    seen: set[tuple[str, str]] = set()
    todo = [(canonicalize_name(r.name), extra) for r in roots for extra in ("", *r.extras)]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        if name not in found:
            python = stack.components["python"]
            raise UserError(f"{name}, which Python {python} needs, in pip's report",
                            found="not there: pip read the conditions of this machine's Python",
                            fix=f"resolve this stack with Python {python}",
                            exit_code=1)  # fmt: skip
        for text in found[name]["metadata"].get("requires_dist", ()):
            item = Requirement(text)
            if item.marker is None or item.marker.evaluate(environment | {"extra": extra}):
                todo += [(canonicalize_name(item.name), e) for e in ("", *item.extras)]
    return {name for name, _ in seen}
