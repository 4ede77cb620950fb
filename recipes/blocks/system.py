"""The distribution's packages: compilers to build with, libraries to run with.

Knows how to install them leanly, exactly the versions of the lock, and what of their
installation would differ each time. Leaves which packages to the lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, shell

from env.lock import Lock
from recipes.blocks.network import shell_with_network
from recipes.layout import PACKAGES

# Debian's openmpi-bin brings compiler wrappers (mpicc and kin). Without a compiler
# behind them they only look like one.
WRAPPERS = (
    "/usr/bin/mpi[cCf]*", "/usr/bin/mpiCC*", "/usr/bin/ortecc", "/usr/bin/oshcc*",
    "/usr/bin/osh[cCf]*", "/usr/bin/shmem[cCf]*", "/usr/bin/opal_wrapper*",
)  # fmt: skip
# What apt, dpkg and ldconfig note down for themselves: times, inodes, the state before.
_NOTES = (
    "/var/lib/apt/lists/*", "/var/cache/apt/*", "/var/cache/debconf/*-old",
    "/var/cache/ldconfig/aux-cache", "/var/lib/dpkg/*-old", "/var/log/alternatives.log",
    "/var/log/apt/*", "/var/log/dpkg.log",
)  # fmt: skip
# Given a folder of packages, apt sees nothing else; its helper user may not see into it.
_APT = (
    f'if [ -s {PACKAGES}/sources.list ]; then apt="apt-get -o APT::Sandbox::User=root'
    f" -o Dir::Etc::SourceList={PACKAGES}/sources.list -o Dir::Etc::SourceParts=/dev/null"
    '"; else apt=apt-get; fi'
)


class SystemPackages(bb_base):
    """Packages of the distribution, one set a stage.

    Args:
        lock: names them, with what they pull in and exact versions; names alone where the
            distribution is one whose packages cannot be locked.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        self._lock = lock
        self += comment("Distribution packages to compile with", reformat=False)
        self += _install(_wanted(lock, "build"))

    def runtime(self, _from: str = "0") -> str:
        """Return the second stage's packages: nothing is copied, they are installed anew."""
        heading = comment("Distribution packages to run with", reformat=False)
        step = _install(_wanted(self._lock, "run"), afterwards=[f"rm -f {' '.join(WRAPPERS)}"])
        return f"{heading}\n{step}"


def _wanted(lock: Lock, group: str) -> list[str]:
    exact = [f"{package.name}={package.version}" for package in lock.system_group(group)]
    return exact or sorted(lock.system[group])


def _install(packages: Sequence[str], *, afterwards: Sequence[str] = ()) -> shell:
    """Return one step that installs packages and leaves nothing else behind.

    One step, and so not HPCCM's own block: what a later step of a Dockerfile removes
    still lies in the layer below. A line for each package, so that a renewed lock reads as
    a list of changes here too.
    """
    names = "".join(f" \\\n        {name}" for name in packages)
    return shell_with_network([
        "export DEBIAN_FRONTEND=noninteractive",
        _APT,
        "$apt update",
        f"$apt install -y --no-install-recommends{names}",
        *afterwards,
        "apt-get clean",
        f"rm -rf {' '.join(_NOTES)}",
    ])  # fmt: skip
