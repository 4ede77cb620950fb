"""Where everything lies: in the image, and in the project folder it is built from.

Knows paths only. Sources are relative to the project's root, which is the build
context, so the committed definitions also build by hand from there.
"""

from __future__ import annotations

from env.lock import Lock

HOME = "/opt/chexnet"
VENV = f"{HOME}/venv"
PROJECT = f"{HOME}/project"
LOCK = f"{HOME}/stack.lock.json"
SBOM = f"{HOME}/sbom.cdx.json"
"""The image's bill of materials."""
BUILD = f"{HOME}/build"
"""The first stage's working folder; nothing of it reaches the second."""

HOST_CA = "/mnt/host-ca.crt"
"""Where a build that lends the host's CA bundle mounts it. ``/mnt`` exists in every
Debian root folder, and a mount leaves nothing behind."""

PACKAGES = "/mnt/packages"
"""Where a build finds the folder of packages it installs from, if it is given one."""

BUILD_STAGE = "build"
"""The name of the first stage."""

PROJECT_PARTS = (
    "CHANGELOG.md", "LICENSE", "README.md", "chexnet", "commands", "containers", "env",
    "pyproject.toml", "recipes", "tasks.py",
)  # fmt: skip
"""What the image holds of the project: what runs, and what explains it. No tests."""

_TO_BUILD = ("__init__.py", "errors.py", "lock.py", "source_edits.py", "stack.py")


def site_packages(lock: Lock) -> str:
    """Return where the image's Python packages lie."""
    return f"{VENV}/lib/python{lock.components['python']}/site-packages"


MPI_PREFIXES = tuple(f"/usr/local/{component}" for component in ("pmix", "ucx", "openmpi"))
"""Where an MPI that is compiled in the image lies, in the order in which it is."""


def taken_paths(lock: Lock) -> tuple[str, ...]:
    """Return what the second stage takes from the first, and nothing else."""
    return (VENV, *MPI_PREFIXES) if lock.downloads else (VENV,)


def lock_source(lock: Lock) -> str:
    """Return where the lock lies in the project."""
    return f"containers/{lock.stack}/stack.lock.json"


def build_sources(lock: Lock) -> tuple[str, ...]:
    """Return the files of the project that the first stage reads, and no other.

    Together with the definition they are every input of the first stage that the
    project decides: a cache of that stage is keyed by them.
    """
    return (*(f"env/{name}" for name in _TO_BUILD), lock.edits["path"], lock_source(lock))
