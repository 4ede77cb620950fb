"""MPI from its sources, for bases whose distribution has none that fits.

Knows how HPCCM's blocks for PMIx, UCX and Open MPI are given archives that were held to a
hash: they fetch with ``wget -nc`` and verify nothing, but take a file that lies there
already (wget 1.21 then exits 0 and fetches nothing). Leaves addresses, hashes and versions
to the lock.
"""

from __future__ import annotations

from hpccm.building_blocks import generic_autotools, openmpi, ucx
from hpccm.building_blocks.base import bb_base
from hpccm.primitives import comment, copy, environment, shell

from env.lock import Lock
from recipes.blocks.network import shell_with_network
from recipes.layout import MPI_PREFIXES

_PMIX, _UCX, _OPENMPI = MPI_PREFIXES
_CUDA = "/usr/local/cuda"
_WRAPPERS = ("mpi[cCf]*", "opal_wrapper", "osh[cCf]*", "shmem[cCf]*")
# Where HPCCM's blocks fetch to and look for what was fetched.
_DOWNLOADS = "/var/tmp"
# HPCCM's blocks install lists of their own without these; the lock's lists have them.
_NO_PACKAGES = ["ca-certificates"]


class Mpi(bb_base):
    """Open MPI with UCX and PMIx, each from its release archive, compiled in this order.

    Args:
        lock: names the archives and their hashes; its system packages hold the compilers
            and the libraries that each stage needs.
    """

    def __init__(self, *, lock: Lock) -> None:
        super().__init__()
        for component, make in (("pmix", _pmix), ("ucx", _ucx), ("openmpi", _openmpi)):
            download = lock.downloads[component]
            self += _fetched(component, download["url"], download["sha256"])
            self += make(download["url"], lock.components[component])

    def runtime(self, _from: str = "0") -> str:
        """Return the copies of what was compiled, less what only looks like a compiler.

        HPCCM's own would bring binutils, an assembler and a linker.
        """
        libraries = " ".join(f"{prefix}/lib" for prefix in MPI_PREFIXES)
        return "\n".join(map(str, (
            comment("MPI, as it was compiled", reformat=False),
            *(copy(_from=_from, src=prefix, dest=prefix) for prefix in MPI_PREFIXES),
            shell(commands=[
                f"printf '%s\\n' {libraries} > /etc/ld.so.conf.d/mpi.conf",
                "ldconfig",
                f"rm -f {' '.join(f'{_OPENMPI}/bin/{name}' for name in _WRAPPERS)}",
            ]),
            environment(variables={"PATH": f"{_OPENMPI}/bin:$PATH"}),
        )))  # fmt: skip


def _fetched(component: str, url: str, sha256: str) -> list[object]:
    """Return the step that puts an archive, held to its hash, where HPCCM's block looks."""
    archive = f"{_DOWNLOADS}/{url.rpartition('/')[2]}"
    return [
        comment(f"The sources of {component}, held to their hash", reformat=False),
        shell_with_network([
            f'wget -q ${{SSL_CERT_FILE:+--ca-certificate="$SSL_CERT_FILE"}} -O {archive} {url}',
            f"echo '{sha256}  {archive}' | sha256sum -c -",
        ]),
    ]  # fmt: skip


def _pmix(url: str, _version: str) -> generic_autotools:
    # HPCCM's own block for PMIx knows one address only, of an archive whose hash nobody
    # publishes; this is the block it is made of.
    return generic_autotools(
        url=url, prefix=_PMIX, ldconfig=True, comment=False,
        configure_opts=["--disable-static", "--without-munge"],
    )  # fmt: skip


def _ucx(url: str, version: str) -> ucx:
    return ucx(
        url=url, version=version, prefix=_UCX, ldconfig=True, ofed=True, gdrcopy=False,
        knem=False, xpmem=False, cuda=_CUDA, ospackages=_NO_PACKAGES,
    )  # fmt: skip


def _openmpi(url: str, version: str) -> openmpi:
    return openmpi(
        url=url, version=version, prefix=_OPENMPI, ldconfig=True, infiniband=False,
        cuda=_CUDA, ucx=_UCX, pmix=_PMIX,
        ospackages=_NO_PACKAGES,
        configure_opts=["--disable-getpwuid", "--with-slurm", "--disable-mpi-fortran"],
    )  # fmt: skip
