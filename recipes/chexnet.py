"""The one recipe: from a lock to the two stages of an image.

Knows the order of the blocks. Leaves what each does to ``recipes.blocks`` and the
text to ``recipes.render``.
"""

from __future__ import annotations

import hpccm
from hpccm import Stage
from hpccm.common import container_type
from hpccm.primitives import baseimage, raw

from env.lock import Lock
from recipes.blocks.cuda import Gpu, Held
from recipes.blocks.horovod import Horovod
from recipes.blocks.mpi import Mpi
from recipes.blocks.project import Project
from recipes.blocks.sections import Sections
from recipes.blocks.system import SystemPackages
from recipes.blocks.tensorflow import TensorFlow
from recipes.layout import BUILD_STAGE

# HPCCM has no Debian; of the families it knows, Ubuntu is the one that uses apt.
DISTRIBUTION_FAMILY = "ubuntu"


def make_stages(lock: Lock, *, local_base: str = "", build_stage: str = "") -> tuple[Stage, Stage]:
    """Return the compiling stage and the stage that runs.

    Args:
        lock: what the image is made of.
        local_base: what to stand on instead of the registry's base: a root folder
            (Singularity) or the name of its tar file in the build context (Docker).
        build_stage: a root folder that holds a finished first stage, to be taken as it
            is instead of being built again (Singularity only).
    """
    first = Stage(name=BUILD_STAGE)
    first += _base(lock, local=local_base, name=BUILD_STAGE)
    if _holds_versions(lock):
        first += Held()
    if set(lock.base["sections"]) > {"main"}:
        first += Sections(sections=lock.base["sections"])
    first += SystemPackages(lock=lock)
    if lock.downloads:
        first += Mpi(lock=lock)
    first += TensorFlow(lock=lock)
    first += Horovod(lock=lock)
    second = Stage()
    second += _base(lock, local=local_base, name="run")
    second += first.runtime()
    if lock.gpus:
        second += Gpu(lock=lock)
    second += Project(lock=lock)
    if build_stage:
        first = Stage(name=BUILD_STAGE)
        first += _base(lock, local=build_stage, name=BUILD_STAGE)
    return first, second


def _holds_versions(lock: Lock) -> bool:
    """Return whether the catalogue names a version where the base may hold another."""
    return any("=" in name for names in lock.system.values() for name in names)


def _exact_image(lock: Lock, *, stage: str) -> str:
    """Return the name in its registry of what a stage stands on, by digest where it is locked.

    Without the tag then: not every engine takes both.
    """
    own = "build_" if stage == BUILD_STAGE and lock.base["build_image"] else ""
    image, digest = lock.base[f"{own}image"], lock.base.get(f"{own}digest")
    return f"{image.rpartition(':')[0]}@{digest}" if digest else image


def _base(lock: Lock, *, local: str, name: str) -> list[object]:
    """Return the layers that a stage stands on."""
    common = {"_as": name, "_distro": DISTRIBUTION_FAMILY, "_docker_env": False}
    if not local:
        return [baseimage(image=_exact_image(lock, stage=name), **common)]
    if hpccm.config.g_ctype == container_type.SINGULARITY:
        return [baseimage(image=local, _bootstrap="localimage", **common)]
    return [baseimage(image="scratch", **common), raw(docker=f"ADD {local} /")]
