"""What a launcher told this process: its rank, the number of ranks, and its settings.

Knows the variables of Open MPI, PMIx, PMI and Slurm, and which others all ranks should have
alike. Leaves what a setting is to ``env.probes.settings``, and whether MPI agrees to
``env.probes.frameworks``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from env.facts import Fact
from env.probes.settings import PREFIXES

# horovodrun's before Slurm's, which are those of the batch script where it starts ranks itself.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "HOROVOD_RANK", "SLURM_PROCID"
)  # fmt: skip
SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE", "SLURM_STEP_NUM_TASKS")
LOCAL_VARIABLES = (
    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "HOROVOD_LOCAL_RANK", "SLURM_LOCALID"
)  # fmt: skip
# Names that are not compared although they begin like settings: what launchers and containers
# write themselves, what is rightly of one host or rank, and what changes nothing in a training.
_OF_OTHERS = re.compile(
    r"(OMPI|PMIX|PRTE)_(?!MCA_)|(OPAL|ORTE|PMI|HYDRA|I_MPI|MPICH|MV2|MPIEXEC|SLURM|SRUN|"
    r"APPTAINER|SINGULARITY|CONDA)(_|ENV_|$)"
    r"|HOROVOD_(RANK|SIZE|LOCAL_\w+|CROSS_\w+|HOSTNAME)$|TF_CONFIG$|NCCL_HOSTID$"
    r"|OPENBLAS_(?!NUM_THREADS$)"  # how numpy's library suits the host's own processor
    r"|(CUDA|NVIDIA)_VISIBLE_DEVICES$|CUDA_(MPS_\w+|HOME|PATH|ROOT)$|GOMP_CPU_AFFINITY$"
    r"|PMIX_MCA_mca_base_component_show_load_errors$|PRTE_MCA_(prte_|ess)"
    r"|\w*(TOKEN|SECRET|PASSW|CREDENTIAL|_KEY$)"  # ... and secrets
    r"|PYTHON(?!(PATH|HOME|NOUSERSITE|OPTIMIZE|HASHSEED|MALLOC|SAFEPATH|DEVMODE)$)"
)
# Of Open MPI's own parameters only what people set: mpirun fills the others in for each rank,
# among them how to wait on a host that has more ranks than cores.
_OF_OPEN_MPI = re.compile(
    r"OMPI_MCA_(btl|pml|mtl|coll|osc|oob|opal|io|topo|vprotocol|mca|"
    r"mpi(?!_yield_when_idle|_oversubscribe))(_|$)"
)
# Where a process lives: the ranks of a host have it in common, hosts need not.
_SURROUNDINGS = ("HOME", "TMPDIR", "LANG", "LC_ALL")


def probe_launch(*, environ: Mapping[str, str] = os.environ) -> dict[str, Fact]:
    """Return the facts ``launch.*``: numbers are None where no launcher gave them."""
    settings = {
        key: value
        for key, text in sorted(environ.items())
        if _is_compared(key)
        and (value := _own_folders(text) if key == "LD_LIBRARY_PATH" else text) is not None
    }
    return {
        "launch.rank": _number(environ, RANK_VARIABLES),
        "launch.size": _number(environ, SIZE_VARIABLES),
        "launch.local_rank": _number(environ, LOCAL_VARIABLES),
        "launch.settings": Fact(settings, "environment"),
        "launch.surroundings": Fact(
            {key: environ[key] for key in _SURROUNDINGS if key in environ}, "environment"
        ),
    }


def _is_compared(name: str) -> bool:
    """Return whether a variable changes what a rank does, so that all ranks should have it."""
    if not name.startswith(PREFIXES) or _OF_OTHERS.match(name):
        return False
    return not name.startswith("OMPI_MCA_") or bool(_OF_OPEN_MPI.match(name))


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
