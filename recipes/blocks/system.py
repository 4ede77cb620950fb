"""The distribution's packages: compilers to build with, libraries to run with.

Knows how to install them leanly. Leaves which packages to the lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, shell

# Debian's openmpi-bin brings compiler wrappers (mpicc and kin). Without a compiler
# behind them they only look like one.
_WRAPPERS = (
    "/usr/bin/mpi[cCf]*", "/usr/bin/mpiCC*", "/usr/bin/ortecc", "/usr/bin/oshcc*",
    "/usr/bin/osh[cCf]*", "/usr/bin/shmem[cCf]*", "/usr/bin/opal_wrapper*",
)  # fmt: skip


class SystemPackages(bb_base):
    """Packages of the distribution, one set a stage.

    Args:
        build: names for the first stage.
        run: names for the second.
    """

    def __init__(self, *, build: Sequence[str], run: Sequence[str]) -> None:
        super().__init__()
        self._run = tuple(run)
        self += comment("Distribution packages to compile with", reformat=False)
        self += _install(build)

    def runtime(self, _from: str = "0") -> str:
        """Return the second stage's packages: nothing is copied, they are installed anew."""
        heading = comment("Distribution packages to run with", reformat=False)
        step = _install(self._run, afterwards=[f"rm -f {' '.join(_WRAPPERS)}"])
        return f"{heading}\n{step}"


def _install(packages: Sequence[str], *, afterwards: Sequence[str] = ()) -> shell:
    """Return one step that installs packages and leaves nothing else behind.

    One step, and so not HPCCM's own block: what a later step of a Dockerfile removes
    still lies in the layer below.
    """
    names = " ".join(sorted(packages))
    return shell(commands=[
        "export DEBIAN_FRONTEND=noninteractive",
        "apt-get update",
        f"apt-get install -y --no-install-recommends {names}",
        *afterwards,
        "apt-get clean",
        "rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt/* /var/log/dpkg.log",
    ])  # fmt: skip
