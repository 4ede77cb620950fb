"""A stack in, definition text out.

Knows HPCCM's global state: sets all of it, restores it, and takes its warnings for
errors. Leaves the recipe to ``recipes.chexnet`` and building to ``containers.build``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hpccm
from hpccm.common import container_type, cpu_arch, linux_distro
from packaging.version import Version

from env.errors import unknown_name
from env.lock import Lock, load_lock, lock_path
from env.stack import PROJECT, Stack, load_stack
from recipes.chexnet import make_stages

FORMATS = {"singularity": container_type.SINGULARITY, "docker": container_type.DOCKER}
FILE_NAMES = {"singularity": "Singularity.def", "docker": "Dockerfile"}
IMAGE_STACKS = ("cpu", "cuda12", "ngc12")
"""The stacks whose definitions are committed: those that are built, and one for a base of NVIDIA's,
which builds where a registry answers."""

_HEADING = """\
# Made by `invoke recipe --stack {stack} --format {format}`; do not edit: change recipes/.
# Build with `invoke build-image --stack {stack} --format {format}`.

"""
# Format 3.2 of the definition file brought stages; HPCCM's default is older, and then
# it drops the second one with only a warning.
_STATE = {
    "g_cpu_arch": cpu_arch.X86_64,
    "g_cpu_target": None,
    "g_linux_distro": linux_distro.UBUNTU,
    "g_linux_version": Version("16.04"),
    "g_singularity_tmp_fallback": False,
    "g_singularity_version": Version("3.2"),
    "g_wd": "/var/tmp",
}


def render_definition(
    stack: Stack,
    *,
    format: str,
    lock: Lock | None = None,
    local_base: str = "",
    build_stage: str = "",
) -> str:
    """Return the definition of a stack's image; the same input gives the same bytes.

    Args:
        stack: a stack of the catalogue.
        format: ``"singularity"`` or ``"docker"``.
        lock: the stack made exact; by default the committed one.
        local_base: see ``recipes.chexnet.make_stages``; empty for the registry's base.
        build_stage: see there; empty to build the first stage.

    Raises:
        UserError: the format is unknown, or the stack's lock is missing or bad.
        RuntimeError: HPCCM warned of something; that is our mistake, not the user's.
    """
    check_format(format)
    lock = lock or load_lock(lock_path(stack.name))
    with _hpccm_state(FORMATS[format]), _warnings_are_errors():
        stages = make_stages(lock, local_base=local_base, build_stage=build_stage)
        text = "\n\n".join(str(stage) for stage in stages)
    return _HEADING.format(stack=stack.name, format=format) + text + "\n"


def render_build_stage(stack: Stack, *, lock: Lock, local_base: str = "") -> str:
    """Return the first stage alone, as a Singularity definition.

    Raises:
        RuntimeError: HPCCM warned of something.
    """
    with _hpccm_state(FORMATS["singularity"]), _warnings_are_errors():
        return str(make_stages(lock, local_base=local_base)[0]) + "\n"


def write_definitions(*, root: Path = PROJECT) -> list[Path]:
    """Write the committed definitions anew and return where they lie."""
    written = []
    for stack in IMAGE_STACKS:
        for format, name in FILE_NAMES.items():
            path = root / "containers" / stack / name
            partial = path.with_name(f".{name}.partial")
            text = render_definition(load_stack(stack), format=format)
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
            written.append(path)
    return written


def check_format(format: str) -> None:
    """Refuse a format that is not one of ours.

    Raises:
        UserError: the format is unknown; the known ones are listed.
    """
    if format not in FORMATS:
        raise unknown_name("format", format, known=FORMATS)


@contextmanager
def _hpccm_state(ctype: container_type) -> Iterator[None]:
    """Set every global of HPCCM's configuration, and put back what was there.

    HPCCM's primitives read it when they are made and again when they are printed,
    and its base image changes it (hpccm/primitives/baseimage.py).
    """
    before = {name: value for name, value in vars(hpccm.config).items() if name.startswith("g_")}
    vars(hpccm.config).update(_STATE | {"g_ctype": ctype})
    try:
        yield
    finally:
        vars(hpccm.config).update(before)


@contextmanager
def _warnings_are_errors() -> Iterator[None]:
    """Turn what HPCCM logs into an exception: it warns where it drops half an image."""

    def refuse(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            raise RuntimeError(f"HPCCM warned: {record.getMessage()}")
        return True

    root = logging.getLogger()
    root.addFilter(refuse)
    try:
        yield
    finally:
        root.removeFilter(refuse)
