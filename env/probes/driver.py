"""The NVIDIA driver's own files: the kernel's side, and the libraries a program would load.

Knows /proc/driver/nvidia, /sys and the order in which the loader looks for a library. A
library's release stands in the name of its file, or of the file that is mounted on it. Loads
nothing. Leaves the GPUs themselves to ``env.probes.gpu`` and judging to the checks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.gpu import LIBRARIES, kernel_pci
from env.probes.loader import find_libraries
from env.probes.pci import probe_pci

APPTAINER_LIBS = "/.singularity.d/libs"
_RELEASE = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")
# The names of symbol versions stand near the beginning of a library.
_HEAD_BYTES = 2 << 20


def probe_driver(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the facts ``driver.*``.

    ``driver.kernel`` is the release of the loaded module, None without one;
    ``driver.modules`` those of NVIDIA's modules (and nouveau) that are loaded;
    ``driver.gpus`` ``{pci: {minor, uuid}}`` of the GPUs it drives;
    ``driver.libraries`` ``[{name, path, release, kind}]`` in the loader's order, kind being
    ``injected`` (brought by the container runtime), ``compat``, ``stub`` or ``""``;
    ``driver.apptainer_libs`` the names that Apptainer's --nv brought, None outside it;
    ``driver.glibc`` ``{here, needed: {name: release}}`` for those;
    ``driver.library_path`` the folders of LD_LIBRARY_PATH; ``driver.pci`` and
    ``driver.iommu`` as ``env.probes.pci`` says.

    Args:
        root: the folder in which /proc, /sys, /etc and the libraries lie.
        environ: the process's environment.
    """
    folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    mounts = _mounts(root)
    libs = root / APPTAINER_LIBS[1:]
    brought = sorted(path.name for path in libs.glob("*")) if libs.is_dir() else None
    return {
        "driver.kernel": _kernel(root),
        "driver.modules": _modules(root),
        "driver.gpus": Fact(dict(_driven(root)), str(root / "proc/driver/nvidia/gpus")),
        "driver.libraries": Fact(list(_libraries(root, environ, mounts)), "the loader's order"),
        "driver.library_path": Fact(folders, "LD_LIBRARY_PATH"),
        "driver.apptainer_libs": Fact(brought, str(libs)),
        "driver.glibc": Fact(_glibc(libs), str(libs)),
    } | probe_pci(root)


def _kernel(root: Path) -> Fact:
    for place in ("proc/driver/nvidia/version", "sys/module/nvidia/version"):
        try:
            text = (root / place).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            return Fact(None, str(root / place), problem=error.strerror)
        release = _RELEASE.search(text)
        if release:
            return Fact(release[0], str(root / place))
        return Fact(None, str(root / place), problem="no release in it")
    return Fact(None, str(root / "proc/driver/nvidia/version"))


def _modules(root: Path) -> Fact:
    place = root / "proc/modules"
    try:
        lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        return Fact(None, str(place), problem=error.strerror)
    names = {line.split(" ", 1)[0] for line in lines}
    ours = sorted(name for name in names if name.startswith(("nvidia", "nouveau", "nv_peer")))
    return Fact(ours, str(place))


def _driven(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        try:
            text = (path / "information").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        fields = {k.strip(): v.strip() for k, _, v in (r.partition(":") for r in text.splitlines())}
        minor = fields.get("Device Minor", "")
        yield kernel_pci(path.name), {
            "minor": int(minor) if minor.isdigit() else None, "uuid": fields.get("GPU UUID"),
        }  # fmt: skip


def _mounts(root: Path) -> dict[str, str]:
    """Return what lies on which path: the source of each mount within its file system."""
    try:
        text = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    rows = (line.split(" ", 5) for line in text.splitlines())
    return {row[4]: row[3] for row in rows if len(row) == 6}


def _libraries(
    root: Path, environ: Mapping[str, str], mounts: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    for name, inside, behind in find_libraries(LIBRARIES, root=root, environ=environ):
        source = mounts.get(inside) or mounts.get(behind)
        release = _RELEASE.search(Path(source or "").name) or _RELEASE.search(Path(behind).name)
        yield {
            "name": name,
            "path": inside,
            "kind": _kind(inside, behind, mounted=source is not None),
            "release": release[0] if release else None,
        }


def _kind(path: str, real: str, *, mounted: bool) -> str:
    for place in (path, real):
        if "/stubs/" in place:
            return "stub"
        if re.search(r"/compat(\.old|_orig)?/|/cuda-compat", place):
            return "compat"
    return "injected" if mounted or path.startswith(APPTAINER_LIBS) else ""


def _glibc(libs: Path) -> dict[str, Any]:
    """Return this C library's release, and the newest that each brought library asks for."""
    # GNU only; elsewhere the libraries of the driver do not load at all.
    here = (os.confstr("CS_GNU_LIBC_VERSION") or "").removeprefix("glibc ")
    needed = {}
    for path in sorted(libs.glob("lib*")) if libs.is_dir() else ():
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            continue
        releases = [tuple(map(int, m)) for m in re.findall(rb"GLIBC_(\d+)\.(\d+)", head)]
        if releases:
            needed[path.name] = "{}.{}".format(*max(releases))
    return {"here": here, "needed": needed}
