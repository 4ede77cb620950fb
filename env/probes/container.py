"""What surrounds this process: container, namespaces, and what the kernel lets it do.

Knows the marks of engines, the sysctls on which unprivileged containers depend, and a few
system calls that containers are known to refuse, tried in a child. Leaves GPUs in
containers to ``env.probes.driver``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import run_child, without_launcher
from env.probes.reading import read_fact
from env.probes.storage import mount_of, parse_mountinfo

TRIALS = Path(__file__).with_name("trials.py")
TRIAL_NAMES = ("thread", "peer_memory")
TIMEOUT_S = 20.0
# Where images keep software.
IMAGE_FOLDERS = ("/opt/chexnet", "/opt", "/usr/lib", "/usr/local", "/usr/bin")


def probe_container(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    python: str = sys.executable,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Fact]:
    """Return the facts ``container.*``.

    ``container.programs``: where apptainer, docker and podman are. ``container.starter``: whether
    Apptainer's starter may change its user. ``container.user_namespaces``: how many the kernel
    allows, 0 for none. ``container.root_type``: the file system of ``/``.
    ``container.covered``: mounts over the image's own folders, ``{folder, point, type, source}``.
    ``container.ptrace_scope``, ``container.seccomp``. ``container.trials``: for each thing
    tried, None or the name of the error.

    Args:
        root: the folder in which /proc and /sys lie.
        environ: the process's environment.
        python: the interpreter that tries what the kernel allows.
        timeout_s: seconds the trials may take.
    """
    programs = {
        name: _which(name, environ) for name in ("apptainer", "docker", "podman", "mksquashfs")
    }
    programs["apptainer"] = programs["apptainer"] or _which("singularity", environ)
    status = root / "proc/self/status"
    return {
        "container.programs": Fact(programs, "PATH"),
        "container.starter": _starter(programs["apptainer"]),
        "container.user_namespaces": _user_namespaces(root),
        **_mounts(root / "proc/self/mountinfo"),
        "container.ptrace_scope": _optional(root / "proc/sys/kernel/yama/ptrace_scope"),
        "container.seccomp": read_fact(status, parse=_seccomp),
        "container.trials": _trials(python, environ, timeout_s),
    }


def _which(name: str, environ: Mapping[str, str]) -> str | None:
    return shutil.which(name, path=environ.get("PATH", ""))


def _starter(program: str | None) -> Fact:
    """Return whether a setuid starter lies where Apptainer's own tree would have it."""
    if program is None:
        return Fact(None, "PATH")
    home = Path(os.path.realpath(program)).parent.parent
    for pattern in ("libexec/*/bin/starter-suid", "lib/*/*/bin/starter-suid"):
        for file in home.glob(pattern):
            try:
                mode = file.stat()
            except OSError as error:
                return Fact(None, str(file), problem=error.strerror or repr(error))
            return Fact(bool(mode.st_mode & stat.S_ISUID) and mode.st_uid == 0, str(file))
    return Fact(False, str(home))


def _user_namespaces(root: Path) -> Fact:
    """Return the limit; a switch of Debian's and one of Ubuntu's can make it nothing."""
    clone = root / "proc/sys/kernel/unprivileged_userns_clone"
    most = root / "proc/sys/user/max_user_namespaces"
    off = _optional(clone)
    if off.problem is None and off.value == 0:
        return Fact(0, str(clone))
    if not most.exists():
        return Fact(0, str(most), problem=None)
    return read_fact(most, parse=int)


def _optional(path: Path) -> Fact:
    """Return a number that not every kernel has, None where it has not."""
    return read_fact(path, parse=int) if path.exists() else Fact(None, str(path))


def _seccomp(text: str) -> int:
    match = re.search(r"^Seccomp:\s*(\d)", text, re.MULTILINE)
    if match is None:
        raise ValueError("no line about seccomp")
    return int(match[1])


def _mounts(path: Path) -> dict[str, Fact]:
    try:
        mounts = parse_mountinfo(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        lost = Fact(None, str(path), problem=error.strerror or repr(error))
        return {"container.root_type": lost, "container.covered": lost}
    top = mount_of("/", mounts)
    covered: list[dict[str, Any]] = []
    for folder in IMAGE_FOLDERS:
        mount = mount_of(folder, mounts)
        if mount and mount["point"] != "/" and mount["point"] not in [c["point"] for c in covered]:
            covered.append({"folder": folder, **mount})
    kind = Fact(top["type"], str(path)) if top else Fact(None, str(path), problem="names no root")
    return {"container.root_type": kind, "container.covered": Fact(covered, str(path))}


def _trials(python: str, environ: Mapping[str, str], timeout_s: float) -> Fact:
    argv = [python, "-I", "-S", str(TRIALS)]
    outcome = run_child(argv, environ=without_launcher(environ), timeout_s=timeout_s)
    told: dict[str, str | None] = {}
    for line in outcome.stdout.splitlines():
        try:
            name, value = json.loads(line)
            told[str(name)] = value
        except (ValueError, TypeError):
            continue
    if not told:
        return Fact(None, outcome.origin, problem=outcome.end)
    for name in TRIAL_NAMES:  # what killed the child is the first that it did not tell of
        if name not in told:
            told[name] = outcome.end
            break
    return Fact(told, outcome.origin)
