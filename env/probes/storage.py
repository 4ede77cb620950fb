"""The folders that a run writes to without being told: is there room, and may it write.

Knows which variable names which folder, for MPI's session files, Python's and TensorFlow's
temporary ones, and Apptainer's unpacking. Writes nothing but a nameless file of one page in
folders of temporary files, since permission alone tells nothing of quotas.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.reading import is_folder
from env.probes.settings import told_values

# What a folder is for, and the variables that name it, the first that is set counting.
_PLACES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("MPI's session files", ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base",
                             "PMIX_SERVER_TMPDIR", "TMPDIR", "TMP", "TEMP"), "/tmp"),
    ("temporary files", ("TMPDIR", "TEMP", "TMP"), "/tmp"),
    ("the image's unpacking", ("APPTAINER_TMPDIR", "SINGULARITY_TMPDIR", "TMPDIR"), "/tmp"),
    ("the image cache", ("APPTAINER_CACHEDIR", "SINGULARITY_CACHEDIR"), ""),
    ("the home", ("HOME",), ""),
)  # fmt: skip
# Of those variables the ones that a file of MPI's may say.
_IN_FILES = ("OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base")
# File systems that another machine serves: locks and shared memory maps are slow or broken there.
_REMOTE = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "smb",
    "afs",
    "fuse.sshfs",
    "glusterfs",
)


def probe_storage(
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    statvfs: Callable[[str], Any] = os.statvfs,
) -> dict[str, Fact]:
    """Return the fact ``storage.places``.

    A list of ``{use, variable, path, problem, total, free, inodes_free, type, options, remote,
    writable}``: sizes in bytes; ``problem`` says why the rest is missing; ``inodes_free`` is None
    where the file system counts none. And ``storage.folder``: ``{folder, told, told_there,
    submitted, submitted_there}``: where this process is, where its shell says it is, and where a
    job was submitted; the latter two may not exist here.

    Args:
        root: the folder in which /proc lies.
        environ: the process's environment.
        statvfs: asks a file system for its size (a parameter, since a test cannot mount one
            everywhere).
    """
    mounts = _mounts(root / "proc/self/mountinfo")
    told = told_values(root, environ, _IN_FILES)
    rows, seen = [], set()
    for use, variables, default in _PLACES:
        variable = next((name for name in variables if environ.get(name) or name in told), "")
        path = environ.get(variable, default)
        if variable in told and not environ.get(variable):
            path, origin = told[variable]
            variable = f"{variable} in {origin}"
        if not path or (use != "MPI's session files" and (path, use[:4]) in seen):
            continue
        seen.add((path, use[:4]))
        row = {"use": use, "variable": variable, "path": path} | _look(path, mounts, statvfs)
        if row["problem"] is None:
            row["writable"] = _writable(path, row["options"], trying=use != "the home")
        rows.append(row)
    try:
        folder = str(Path.cwd())
    except OSError:  # it was deleted under us
        folder = None
    told, submitted = environ.get("PWD") or None, environ.get("SLURM_SUBMIT_DIR") or None
    where = {
        "folder": folder, "told": told, "told_there": told is None or is_folder(told),
        "submitted": submitted, "submitted_there": submitted is None or is_folder(submitted),
    }  # fmt: skip
    return {
        "storage.places": Fact(rows, "statvfs and /proc/self/mountinfo"),
        "storage.folder": Fact(where, "PWD"),
    }


def parse_mountinfo(text: str) -> list[dict[str, str]]:
    """Return ``{point, type, source, options}`` of each mount, in the order they were made."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if not dash or len(fields) < 6 or len(rest) < 2:
            continue
        options = ",".join((fields[5], *rest[2:3]))
        mounts.append(
            {"point": _unescaped(fields[4]), "root": _unescaped(fields[3]), "type": rest[0],
             "source": _unescaped(rest[1]), "options": options}
        )  # fmt: skip
    return mounts


def _unescaped(text: str) -> str:
    """Undo the kernel's escapes of blanks in paths."""
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text


def mount_of(path: str, mounts: list[dict[str, str]]) -> dict[str, str] | None:
    """Return the mount that a path lies on: the last one made over its longest beginning."""
    best = None
    for mount in mounts:
        point = mount["point"].rstrip("/")
        inside = path == mount["point"] or path.startswith(point + "/")
        if inside and (best is None or len(point) >= len(best["point"].rstrip("/"))):
            best = mount
    return best


def _mounts(path: Path) -> list[dict[str, str]]:
    try:
        return parse_mountinfo(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []


def _look(path: str, mounts: list[dict[str, str]], statvfs: Callable[[str], Any]) -> dict[str, Any]:
    try:
        size = statvfs(path)
        mount = mount_of(os.path.realpath(path), mounts) or {"type": "", "options": ""}
        return {
            "problem": None,
            "total": size.f_blocks * size.f_frsize,
            "free": size.f_bavail * size.f_frsize,
            "inodes_free": size.f_favail if size.f_files else None,
            "type": mount["type"],
            "options": mount["options"],
            "remote": mount["type"].startswith(_REMOTE),
        }
    except OSError as error:
        return {"problem": error.strerror or repr(error)}
    except ValueError as error:  # a null byte in a path
        return {"problem": str(error)}


def _writable(path: str, options: str, *, trying: bool) -> str:
    """Return "yes", or why no file can be made."""
    if not is_folder(path):
        return "not a folder"
    if not os.access(path, os.W_OK | os.X_OK):
        return "read-only" if "ro" in options.split(",") else "no permission"
    try:
        if trying:
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(b"\0" * 4096)
                file.flush()
    except OSError as error:
        return error.strerror or repr(error)
    return "yes"
