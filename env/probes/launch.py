"""What a launcher told this process: its rank, the number of ranks, and its settings.

Knows the variables of Open MPI, PMIx, PMI and Slurm. Leaves whether MPI agrees to
``env.probes.frameworks``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from env.facts import Fact

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
LOCAL_VARIABLES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
# Settings that change what a rank does, and so must be the same in all of them. Of Open MPI's
# own only what people set: mpirun fills the others in for each rank.
_SETTINGS = re.compile(
    r"(NCCL_|HOROVOD_|TF_|XLA_|KERAS_|OMP_|KMP_|UCX_|PMIX_MCA_|PRTE_MCA_"
    r"|OMPI_MCA_(btl|pml|mtl|coll|osc|oob|opal|io|topo|vprotocol)(_|$)"
    r"|CUDA_DEVICE_ORDER$|LD_LIBRARY_PATH$|LD_PRELOAD$|PYTHONPATH$|PYTHONNOUSERSITE$)"
)
_OF_ONE_RANK = ("RANK", "CROSS_", "_SIZE", "HOSTNAME")


def probe_launch(*, environ: Mapping[str, str] = os.environ) -> dict[str, Fact]:
    """Return the facts ``launch.*``: numbers are None where no launcher gave them."""
    settings = {
        key: value
        for key, text in sorted(environ.items())
        if _SETTINGS.match(key)
        and not any(part in key for part in _OF_ONE_RANK)
        and (value := _own_folders(text) if key == "LD_LIBRARY_PATH" else text) is not None
    }
    return {
        "launch.rank": _number(environ, RANK_VARIABLES),
        "launch.size": _number(environ, SIZE_VARIABLES),
        "launch.local_rank": _number(environ, LOCAL_VARIABLES),
        "launch.settings": Fact(settings, "environment"),
    }


def _own_folders(paths: str) -> str | None:
    """Return a library path without the system's own folders, None where nothing is left.

    Open MPI 5 puts its folder in front on other hosts, also where that changes nothing.
    """
    own = [path for path in paths.split(":") if path and not re.match(r"/(usr/)?lib(/|64|$)", path)]
    return ":".join(own) or None


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> Fact:
    for name in names:
        if name in environ:
            try:
                return Fact(int(environ[name]), name)
            except ValueError:
                return Fact(None, name, problem=f"not a number: {environ[name]!r}")
    return Fact(None, "environment")
