"""The driver's library as a program finds it: there, the right one, and able to be loaded.

Knows what container runtimes bring into a container and what goes missing on the way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from env.checks.driver import SKIPPED, driver_here, release_of
from env.checks.evidence import Evidence
from env.checks.gpus import READS, wanted
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status
from env.versions import parse_version

APPTAINER_LIBS = "/.singularity.d/libs"


@check(
    "driver.library",
    title="programs find the driver's library, and the right one",
    covers=("CON-01", "CON-03", "CON-07", "CON-08", "VER-02"),
    reads=(*READS, "gpu.files", "gpu.variables", "driver.kernel", "driver.libraries",
           "driver.library_path", "driver.apptainer_libs", "driver.glibc"),
    required=False,
    fix="Apptainer: start with --nv; docker: --gpus all with "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
)  # fmt: skip
def check_library(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if the first libcuda found is missing, a stub, or of compat and older than the driver.

    FAIL if Apptainer brought it to a folder that LD_LIBRARY_PATH lacks, or it needs a newer C
    library than the image has. WARN if another comes before it, or a compat library newer than
    the driver does (it works on data-centre GPUs alone, there FAIL), or graphics libraries
    alone need a newer C library.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "the driver's libcuda.so.1", SKIPPED)
        return
    if not driver_here(evidence):
        return
    facts = evidence.facts
    found = [lib for lib in facts.value("driver.libraries") if lib["name"] == "libcuda.so.1"]
    brought = facts.value("driver.apptainer_libs")
    yield from _reachable(evidence, found, brought)
    if found:
        yield from _first(evidence, found)
    yield from _c_library(facts.value("driver.glibc"))


def _reachable(
    evidence: Evidence, found: list[dict[str, Any]], brought: list[str] | None
) -> Iterator[Finding]:
    expected, facts = "libcuda.so.1 where the loader looks", evidence.facts
    if brought is not None and "libcuda.so.1" in brought:
        if APPTAINER_LIBS not in facts.value("driver.library_path"):
            fix = f"put {APPTAINER_LIBS} into LD_LIBRARY_PATH: setting that variable for the "
            fix += "container replaced it (--env, APPTAINERENV_LD_LIBRARY_PATH)"
            text = f"{APPTAINER_LIBS} holds it, LD_LIBRARY_PATH lacks that folder"
            yield Finding(Status.FAIL, expected, text, where="LD_LIBRARY_PATH", fix=fix)
        return
    if found or facts.value("gpu.cuda")["state"] == "ok":
        return
    capabilities = facts.value("gpu.variables").get("NVIDIA_DRIVER_CAPABILITIES")
    fix, text = "", "no libcuda.so.1"
    if any(lib["name"] == "libnvidia-ml.so.1" for lib in facts.value("driver.libraries")):
        fix = "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        text += f", only libnvidia-ml.so.1 (NVIDIA_DRIVER_CAPABILITIES={capabilities!r})"
    elif brought is not None:
        fix = "start the container with --nv"
        text += f" in {APPTAINER_LIBS}, and the host has the driver: --nv is missing"
    traces = (facts.value("driver.kernel"), facts.value("gpu.files"), capabilities, brought)
    if not any(trace is not None and trace != {} for trace in traces):
        raise CannotTellError(f"{text}; NVML answers, and the kernel shows no driver")
    yield Finding(Status.FAIL, expected, text, where="the loader's order", fix=fix)


def _first(evidence: Evidence, found: list[dict[str, Any]]) -> Iterator[Finding]:
    first, kernel = found[0], release_of(evidence)
    expected, path = "the driver's own libcuda.so.1 first", first["path"]
    if first["kind"] == "stub":
        fix = "take the folder of stubs out of LD_LIBRARY_PATH: it is for linking alone"
        yield Finding(Status.FAIL, expected, f"{path} is a stub (CUDA error 34)", path, fix)
    elif first["kind"] == "compat":
        yield from _compat(evidence, first, kernel)
    else:
        host = next((lib for lib in found if lib["path"].startswith(APPTAINER_LIBS)), first)
        if host is not first:
            fix = f"put {APPTAINER_LIBS} first in LD_LIBRARY_PATH, or take {path} out of the image"
            text = f"{path} comes before {host['path']}"
            yield Finding(Status.WARN, expected, text, where="LD_LIBRARY_PATH", fix=fix)


def _compat(evidence: Evidence, first: dict[str, Any], kernel: str | None) -> Iterator[Finding]:
    expected = "the driver's own libcuda.so.1 first"
    fix = f"take the folder of {first['path']} out of LD_LIBRARY_PATH and /etc/ld.so.conf.d"
    names = [d.get("name", "") for d in evidence.facts.value("gpu.nvml").get("devices", [])]
    gaming = [name for name in names if re.search(r"GeForce|TITAN", name)]
    text = f"{first['path']} ({first['release']}) over a driver {kernel}"
    older = (
        kernel and first["release"] and (parse_version(first["release"]) < parse_version(kernel))
    )
    if gaming:
        text += f": forward compatibility is not for {gaming[0]} (CUDA error 804)"
        yield Finding(Status.FAIL, expected, text, where=first["path"], fix=fix)
    elif older:
        text += ": older than the driver (CUDA error 803)"
        yield Finding(Status.FAIL, expected, text, where=first["path"], fix=fix)
    else:
        text += ": only needed where the driver is older than the image's CUDA"
        yield Finding(Status.WARN, expected, text, where=first["path"], fix=fix)


def _c_library(glibc: dict[str, Any]) -> Iterator[Finding]:
    here, needed = glibc["here"], glibc["needed"]
    newer = {name: release for name, release in needed.items()
             if here and parse_version(release) > parse_version(here)}  # fmt: skip
    driver = {n: r for n, r in newer.items() if n.startswith(("libcuda", "libnvidia-ml"))}
    expected = f"host libraries that the image's C library ({here}) serves"
    fix = "use an image with a base as new as the host, or trim nvliblist.conf"
    worst = driver or newer
    if worst:
        name, release = next(iter(worst.items()))
        text = f"{name} needs GLIBC_{release}" + (f", and {len(newer) - 1} more" if newer else "")
        status = Status.FAIL if driver else Status.WARN
        yield Finding(status, expected, text, where=APPTAINER_LIBS, fix=fix)
