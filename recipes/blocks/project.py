"""The project inside the image: its files, the lock, the bill of materials, settings, labels.

Knows what ``singularity exec IMAGE invoke …`` needs to work from any folder. Leaves
what the image was built from (revision, time) to the build, so that the committed
text stays the same.
"""

from __future__ import annotations

import hpccm
from hpccm.building_blocks.base import bb_base
from hpccm.common import container_type
from hpccm.primitives import comment, copy, environment, label, raw, shell

from env.lock import Lock
from recipes.layout import LOCK, PROJECT, PROJECT_PARTS, SBOM, VENV, lock_source

ENVIRONMENT = {
    "CHEXNET_LOCK": LOCK,
    "LANG": "C.UTF-8",
    "PATH": f"{VENV}/bin:$PATH",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Singularity brings the user's home folder along; packages there must not leak in.
    "PYTHONNOUSERSITE": "1",
    "PYTHONPATH": PROJECT,
}

# invoke looks for tasks.py from the current folder upwards; no variable of the environment
# changes that, its system-wide file does.
INVOKE_SETTINGS = f"tasks:\n  search_root: {PROJECT}\n"

# The checks of `python -m env` that judge an image, whatever machine it is on.
IMAGE_CHECKS = (
    "python.version", "python.packages", "python.shadowed", "python.requirements",
    "python.hooks", "python.hiding", "tensorflow.import", "tensorflow.loaded", "rules.packages",
    "rules.mpi", "horovod.extension", "horovod.import", "horovod.mpi", "horovod.nccl",
    "libraries.found", "libraries.symbols", "libraries.duplicates", "mpi.launcher", "mpi.version",
    "mpi.library", "mpi.installation", "mpi.components",
)  # fmt: skip


class Project(bb_base):
    """What the second stage adds last, since it changes most often.

    Args:
        lock: the lock the image is built from; it goes into the image and its labels.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        self += comment("The project, its lock and its settings", reformat=False)
        self += copy(files={part: f"{PROJECT}/{part}" for part in PROJECT_PARTS})
        self += copy(files={lock_source(lock): LOCK})
        self += environment(variables=ENVIRONMENT)
        self += shell(commands=[
            f"printf '{INVOKE_SETTINGS}' > /etc/invoke.yaml".replace("\n", "\\n"),
            # Last, when everything that it lists is in place.
            f"{VENV}/bin/python -m containers.sbom --output {SBOM}",
            f"chmod -R a+rX {PROJECT} {LOCK} {SBOM}",
        ])  # fmt: skip
        self += label(metadata=stack_labels(lock))
        self += _health()


def stack_labels(lock: Lock) -> dict[str, str]:
    """Return the labels that follow from the lock alone; the build adds where it is from."""
    labels = {
        "chexnet.stack": lock.stack,
        "chexnet.lock.sha256": lock.sha256,
        "org.opencontainers.image.title": f"chexnet-{lock.stack}",
    }
    if lock.driver_minimum:
        labels["chexnet.driver.minimum"] = lock.driver_minimum
    return labels


def _health() -> shell | raw:
    """Return the test that the image carries: ``%test``, or Docker's health check."""
    commands = [
        f"{VENV}/bin/python -m env --only {','.join(IMAGE_CHECKS)}",
        f"{VENV}/bin/invoke --list > /dev/null",
    ]
    if hpccm.config.g_ctype == container_type.SINGULARITY:
        return shell(commands=commands, _test=True)
    return raw(docker="HEALTHCHECK --interval=5m --timeout=2m CMD " + " && ".join(commands))
