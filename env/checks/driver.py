"""The NVIDIA driver: one release everywhere, new enough, its files open, able to start.

Leaves which library a program finds to ``env.checks.driver_library``, and the rules between
CUDA, driver and GPU generation to ``env/rules.toml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from env.checks.evidence import Evidence
from env.checks.gpus import READS, wanted
from env.checks.registry import check
from env.facts import CannotTellError
from env.result import Finding, Status
from env.versions import parse_version

SKIPPED = "the training uses no GPU"


def release_of(evidence: Evidence) -> str | None:
    """Return the release of the loaded module, by NVML's word where /proc does not show it."""
    told = (evidence.facts["gpu.nvml"].value or {}).get("driver")
    return evidence.facts.value("driver.kernel") or told


def driver_here(evidence: Evidence) -> bool:
    """Return whether there is a driver to judge: the kernel's part, or a file of it."""
    facts = evidence.facts
    return bool(
        facts.value("driver.kernel") or facts.value("gpu.files")
        or facts.value("gpu.nvml")["state"] != "absent"
    )  # fmt: skip


@check(
    "driver.release",
    title="one release of the driver, in the kernel and in all its libraries",
    covers=("VER-03", "VER-04"),
    reads=(*READS, "gpu.files", "driver.kernel", "driver.libraries", "host.container"),
    fix="after an update: reboot or reload the NVIDIA modules, and make running containers anew; "
    "in an image: take the driver's packages (libnvidia-compute-*, libcuda1) out of it",
)
def check_release(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if libraries of another release than the loaded module can be found, or of several.

    WARN if a container holds a driver library of its own that happens to be of that release:
    on the next host it will not be.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "one release", SKIPPED)
        return
    if not driver_here(evidence):
        return
    kernel = release_of(evidence)
    libraries = [lib for lib in evidence.facts.value("driver.libraries") if lib["release"]]
    plain = [lib for lib in libraries if lib["kind"] in ("", "injected")]
    releases = {kernel: "the kernel's module"} if kernel else {}
    for library in plain:
        releases.setdefault(library["release"], library["path"])
    if len(releases) > 1:
        text = "; ".join(f"{path} is of {release}" for release, path in releases.items())
        yield Finding(Status.FAIL, f"release {kernel} alone", text, where=_origin(evidence))
    elif evidence.facts["host.container"].value and any(lib["kind"] == "injected" for lib in plain):
        baked = [lib["path"] for lib in plain if not lib["kind"]]
        if baked:
            text = f"{', '.join(baked)} belong to the image and come beside the host's"
            yield Finding(Status.WARN, "the host's libraries alone", text, where=baked[0])


def _origin(evidence: Evidence) -> str:
    return evidence.facts["driver.kernel"].origin


@check(
    "driver.floor",
    title="the driver is new enough for the stack",
    covers=("VER-01",),
    reads=(*READS, "driver.kernel"),
    fix="update the driver on the host, or use the image of a stack with an earlier CUDA "
    "(invoke stacks lists what each needs)",
)
def check_floor(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if the driver is older than the lock's floor. SKIP where no lock names one."""
    floor = evidence.lock.driver_minimum if evidence.lock else ""
    if not wanted(evidence) or not floor:
        reason = "no lock names a driver" if wanted(evidence) else SKIPPED
        yield Finding(Status.SKIP, "a driver that serves the stack", reason)
        return
    evidence.facts.value("gpu.nvml")
    driver = release_of(evidence)
    if driver is None:
        raise CannotTellError("there is no driver whose release could be read")
    if parse_version(driver) < parse_version(floor):
        text = f"{driver}: CUDA would end with error 35 (driver insufficient)"
        yield Finding(Status.FAIL, f"{floor} or later", text, where="NVML")
    else:
        yield Finding(Status.PASS, f"{floor} or later", driver, where="NVML")


@check(
    "driver.files",
    title="the driver's files can be opened",
    covers=("CON-02", "CON-05", "CON-06"),
    reads=(*READS, "gpu.files", "driver.kernel", "driver.modules"),
    fix="give the process the files: docker --gpus all, Apptainer --nv, Slurm --gpus; outside a "
    "container look at their owner and mode",
)
def check_files(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if /dev/nvidia-uvm or nvidiactl is missing or closed, or every GPU's file is.

    A GPU's file that is closed belongs to another job and is no fault.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "files that can be opened", SKIPPED)
        return
    files = evidence.facts.value("gpu.files")
    if not files and not evidence.facts.value("driver.kernel"):
        return
    for name in ("nvidiactl", "nvidia-uvm"):
        if not files.get(name):
            yield _closed(name, there=name in files, modules=evidence.facts["driver.modules"].value)
    cards = {name: may for name, may in files.items() if re.fullmatch(r"nvidia\d+", name)}
    if not any(cards.values()):
        text = f"none of {', '.join(cards)} may be opened" if cards else "no file of a GPU"
        yield Finding(Status.FAIL, _OPEN, text, where="/dev")


_OPEN = "a file of the driver that this process may open"


def _closed(name: str, *, there: bool, modules: list[str] | None) -> Finding:
    path, fix = f"/dev/{name}", ""
    if there:
        text = f"{path} is there and may not be opened"
        fix = "make the container anew: its permissions were taken away, or never given"
    else:
        text = f"{path} is missing"
        if name == "nvidia-uvm":
            loaded = modules is None or "nvidia_uvm" in modules
            text += "" if loaded else ", and the module nvidia_uvm is not loaded"
            fix = "on the host: nvidia-modprobe -u -c=0, or enable nvidia-persistenced; a "
            fix += "container cannot load the module by itself"
    return Finding(Status.FAIL, _OPEN, text, where=path, fix=fix)


# What CUDA's start returns, and what to do.
_CODES = {
    34: ("a stub library was loaded", "take folders called stubs out of LD_LIBRARY_PATH"),
    35: ("the driver is older than CUDA", "update the driver, or use an image with earlier CUDA"),
    100: ("no device", "see gpu.visible and gpu.present"),
    304: ("the operating system refused", "see driver.files: a file of /dev, or the module"),
    802: ("the fabric is not ready", "the administrator starts nvidia-fabricmanager of the "
          "driver's very release"),
    803: ("the driver and a library of it do not go together",
          "take compat folders out of LD_LIBRARY_PATH; after an update reboot the node"),
    804: ("forward compatibility on a GPU that has none",
          "take compat folders out of LD_LIBRARY_PATH, or update the driver"),
    999: ("unknown", "see driver.files; on the host: nvidia-modprobe -u -c=0; dmesg shows Xid"),
}  # fmt: skip


@check(
    "driver.start",
    title="the driver starts for a program of CUDA",
    covers=("VER-02", "PIN-16", "CON-05"),
    reads=(*READS, "gpu.files", "driver.kernel"),
    fix="look at dmesg on the host (NVRM, Xid); the codes are in CUDA's documentation, CUresult",
)
def check_start(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if cuInit, which makes no context, gives an error: every rank would meet it.

    FAIL as well where the library is there and cannot be loaded, or kills the process.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "cuInit without an error", SKIPPED)
        return
    if not driver_here(evidence):
        return
    cuda, expected = evidence.facts.value("gpu.cuda"), "cuInit without an error"
    where = evidence.facts["gpu.cuda"].origin
    deaths = "; ".join(f"{what}: {end}" for what, end in cuda.get("deaths", {}).items())
    if cuda.get("error", "").startswith("libcuda.so.1: cannot open shared object"):
        yield Finding(Status.SKIP, expected, "no libcuda.so.1 to start, see driver.library")
    elif cuda["state"] == "ok" and not deaths:
        yield Finding(Status.PASS, expected, f"{len(cuda['devices'])} GPUs in CUDA", where=where)
    elif deaths or cuda.get("code") is None:
        yield Finding(Status.FAIL, expected, deaths or cuda.get("error", "?"), where=where)
    else:
        name, fix = _CODES.get(cuda["code"], ("see CUresult", ""))
        yield Finding(Status.FAIL, expected, f"error {cuda['code']}: {name}", where=where, fix=fix)


@check(
    "driver.image",
    title="the driver serves the CUDA that the image asks for",
    covers=("CON-04",),
    reads=(*READS, "gpu.variables"),
    fix="update the driver on the host, or use an image with an earlier CUDA, by its digest",
)
def check_image(evidence: Evidence) -> Iterator[Finding]:
    """FAIL if NVIDIA_REQUIRE_CUDA names a CUDA that the driver does not serve.

    Apptainer does not enforce that variable. WARN if NVIDIA_DISABLE_REQUIRE turns it off.
    """
    if not wanted(evidence):
        yield Finding(Status.SKIP, "a driver that serves the image's CUDA", SKIPPED)
        return
    variables = evidence.facts.value("gpu.variables")
    needed = re.findall(r"cuda>=(\d+)\.(\d+)", variables.get("NVIDIA_REQUIRE_CUDA", ""))
    nvml = evidence.facts.value("gpu.nvml")
    where = "NVIDIA_REQUIRE_CUDA"
    if variables.get("NVIDIA_DISABLE_REQUIRE", "") not in ("", "0", "false"):
        fix = "unset NVIDIA_DISABLE_REQUIRE, and see whether the container still starts"
        text, name = "NVIDIA_DISABLE_REQUIRE turns it off", "NVIDIA_DISABLE_REQUIRE"
        yield Finding(Status.WARN, "the image's own guard in force", text, where=name, fix=fix)
    if not needed or nvml["state"] == "absent":
        return
    serves = nvml.get("cuda_version")
    if serves is None:
        raise CannotTellError("NVML does not say which CUDA the driver serves")
    least = max((int(major), int(minor)) for major, minor in needed)
    if (serves // 1000, serves % 1000 // 10) < least and not _branch(variables, nvml):
        text = (
            f"CUDA {serves // 1000}.{serves % 1000 // 10} at most, by driver {nvml.get('driver')}"
        )
        yield Finding(Status.FAIL, f"CUDA {least[0]}.{least[1]}", text, where=where)


def _branch(variables: dict[str, str], nvml: dict[str, Any]) -> bool:
    """Return whether one of the variable's alternatives lets this branch of the driver in.

    Alternatives are apart by blanks, their terms by commas: ``brand=tesla,driver>=525,driver<526``.
    """
    branch = int((nvml.get("driver") or "0").split(".")[0])
    for alternative in variables["NVIDIA_REQUIRE_CUDA"].split():
        terms = re.findall(r"driver(>=|<)(\d+)", alternative)
        if terms and all(branch >= int(n) if op == ">=" else branch < int(n) for op, n in terms):
            return True
    return False
