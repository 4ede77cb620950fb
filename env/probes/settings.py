"""Every setting that changes how MPI, NCCL, TensorFlow, Python or the loader behave.

Knows which variables are settings, by their prefixes. They and the lines of the files that
tools read become assignments of one form, so that a judge need not care which of the two said
it. Leaves where those files lie to ``env.probes.config_files``, and what a setting does to
``env/settings.toml``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from env.facts import Fact
from env.probes.config_files import config_files, missing_files, parse_env_list, place_of
from env.probes.reading import is_folder

PREFIXES = (
    "OMPI_", "OPAL_", "ORTE_", "PMIX_", "PRTE_", "PMI_", "I_MPI_", "MPICH_", "MPIR_", "HYDRA_",
    "MV2_", "UCX_", "UCC_", "HCOLL_", "SHARP_", "FI_", "PSM2_", "PSM3_", "MXM_", "NCCL_",
    "HOROVOD_", "TF_", "XLA_", "KERAS_", "CUDA_", "CUDNN_", "CUBLAS", "NVIDIA_", "SLURM_",
    "SRUN_", "PYTHON", "LD_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "ONEDNN_", "DNNL_", "APPTAINER", "SINGULARITY", "CONDA_", "MPIEXEC_", "MLX4_", "MLX5_",
    "IBV_", "RDMAV_", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS",
)  # fmt: skip
# What a launcher writes for each of its ranks is no setting of a user's.
_OF_A_LAUNCH = re.compile(
    r"OMPI_(COMM_WORLD|UNIVERSE|FILE_LOCATION|ARGV|COMMAND|APP_CTX|FIRST_RANKS|NUM_APP)"
    r"|PMIX_(RANK|NAMESPACE|SERVER_|ID|HOSTNAME|VERSION|SECURITY_MODE|PTL_|BFROP_|GDS_|SYSTEM_"
    r"|MCA_mca_base_component_show_load_errors|UNIVERSAL|DSTORE)|PRTE_LAUNCHED"
)
# ... and these are parameters as well: they are a launcher's own in a rank alone.
_OF_A_RANK = re.compile(
    r"OMPI_MCA_(ess|pmix|initial_wdir|shmem_RUNTIME|prte_|orte_(app_num|bound|daemon|ess|hnp|jobfam"
    r"|launch|local_daemon|node_regex|num_nodes|parent|precondition|tmpdir|top_session))"
    r"|PRTE_MCA_(prte_|ess)"
)
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK")
_HIDDEN = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|JWT|CREDENTIAL|_KEY$", re.IGNORECASE)
_MAX_VALUE = 4096
_MAX_FILE_BYTES = 2**20
# Open MPI's parameter that holds variables for the ranks, and comes before the ranks' own.
_ENV_LISTS = ("OMPI_MCA_mca_base_env_list", "PRTE_MCA_mca_base_env_list")


def probe_settings(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the facts ``settings.*``.

    ``settings.assigned`` is a list of ``{name, value, origin}``; of one name the first
    counts, since a variable comes before a file of the user before one of the system; only
    Open MPI's file of overrides comes before variables.
    ``settings.unread`` lists ``{path, problem}`` of files that exist and cannot be read, with
    ``variable`` those that a variable names and that are not there;
    ``settings.launch`` names what a launcher told this very process.

    Args:
        root: the folder in which /etc lies; the home is looked for under it, too.
        environ: the process's environment.
    """
    is_rank = any(name in environ for name in _RANKS)
    launch = {
        name: value
        for name, value in environ.items()
        if _OF_A_LAUNCH.match(name) or (is_rank and _OF_A_RANK.match(name))
    }
    assigned = [
        _assignment(name, value, "environment")
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and name not in launch
    ]
    before, after, unread = _of_files(root, environ)
    assigned = [*before, *assigned, *after]
    assigned = [*_of_env_lists(assigned), *assigned, *_components(root, environ)]
    if not is_rank:
        unread = [*missing_files(root, environ, first_values(assigned)), *unread]
    return {
        "settings.assigned": Fact(assigned, "environment and configuration files"),
        "settings.unread": Fact(unread, "configuration files"),
        "settings.launch": Fact(sorted(launch), "environment"),
    }


def _of_files(
    root: Path, environ: Mapping[str, str]
) -> tuple[list[dict[str, str]], list[dict[str, str]], list[dict[str, str]]]:
    """Return what files say that comes before variables, what comes after, and what is unread."""
    before: list[dict[str, str]] = []
    after: list[dict[str, str]] = []
    unread: list[dict[str, str]] = []
    for file in config_files(root, environ):
        path = place_of(file.path, root, environ)
        if path is None:
            continue
        try:
            pairs = list(file.parse(_text(path)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            # In a home of somebody else's nobody knows what there is, and no tool reads it.
            if not (isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK)):
                unread.append({"path": str(path), "problem": _reason(error)})
            continue
        rows = [_assignment(file.prefix + name, value, str(path)) for name, value in pairs]
        (before if file.overrides else after).extend(rows)
    return before, after, unread


def first_values(assigned: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the values that count, by name: of one name the first."""
    return {row["name"]: row["value"] for row in reversed(list(assigned))}


def told_values(
    root: Path, environ: Mapping[str, str], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Return value and origin of settings, as far as somebody made them.

    For probes of what a setting names: a line of a file counts there as its variable does.
    """
    wanted = set(names)
    rows = probe_settings(root, environ=environ)["settings.assigned"].value
    return {
        row["name"]: (row["value"], row["origin"])
        for row in reversed(rows)
        if row["name"] in wanted and row["value"]
    }


def _of_env_lists(assigned: Iterable[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the variables that a parameter of Open MPI's gives to the ranks."""
    for row in assigned:
        if row["name"] in _ENV_LISTS:
            origin = row["name"] if row["origin"] == "environment" else row["origin"]
            for name, value in parse_env_list(row["value"]):
                yield _assignment(name, value, origin)


def _components(root: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the user's own folder of components, which Open MPI searches without being told."""
    folder = place_of("~/.openmpi/components", root, environ)
    if folder is None or not is_folder(folder):
        return
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".so"))
    if names:
        yield _assignment("OMPI_MCA_mca_base_component_path", ", ".join(names), str(folder))


def _text(path: Path) -> str:
    """Return a regular file's text; never waits on a pipe or a device.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: it is far too long for a configuration file.
    """
    if path.is_dir():
        raise IsADirectoryError(0, "is a folder, not a file")
    if path.exists() and not path.is_file():
        raise OSError(0, "is no regular file")
    with path.open("rb") as stream:
        data = stream.read(_MAX_FILE_BYTES + 1)
    if len(data) > _MAX_FILE_BYTES:
        raise ValueError("longer than 1 MiB")
    return data.decode(errors="replace")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _assignment(name: str, value: str, origin: str) -> dict[str, str]:
    if _HIDDEN.search(name):
        value = "(hidden)"
    return {"name": name, "value": value[:_MAX_VALUE], "origin": origin}
