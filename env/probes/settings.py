"""Every setting that changes how MPI, NCCL, TensorFlow, Python or the loader behave.

Knows where settings come from: variables by their prefixes, and the files that each tool
reads without being told. All of them become assignments of one form, so that a judge need
not care whether a line of a file or a variable said it. Leaves what a setting does to
``env/settings.toml``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from env.facts import Fact
from env.probes.reading import is_folder

PREFIXES = (
    "OMPI_", "OPAL_", "ORTE_", "PMIX_", "PRTE_", "PMI_", "I_MPI_", "MPICH_", "MPIR_", "HYDRA_",
    "MV2_", "UCX_", "UCC_", "HCOLL_", "SHARP_", "FI_", "PSM2_", "PSM3_", "MXM_", "NCCL_",
    "HOROVOD_", "TF_", "XLA_", "KERAS_", "CUDA_", "CUDNN_", "CUBLAS", "NVIDIA_", "SLURM_",
    "SRUN_", "PYTHON", "LD_", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_",
    "ONEDNN_", "DNNL_", "APPTAINER", "SINGULARITY", "CONDA_",
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

Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class _File:
    """A file that a tool reads by itself.

    Attributes:
        path: where; ``~`` is the user's home.
        parse: turns its text into names and values.
        prefix: what makes a name of it the variable that would say the same.
        overrides: whether it comes before variables.
    """

    path: str
    parse: Callable[[str], Pairs]
    prefix: str = ""
    overrides: bool = False


def parse_mca(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of an MCA file: ``name = value``, ``#`` begins a comment."""
    for line in text.splitlines():
        name, sign, value = line.partition("#")[0].partition("=")
        if sign and re.fullmatch(r"[\w.]+", name.strip()):
            yield name.strip(), value.strip().strip("\"'")


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield ``NAME=value`` lines, as NCCL and UCX write them; sections are passed over."""
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and re.fullmatch(r"[A-Za-z_]\w*", name.strip()):
            yield name.strip(), value.strip()


def parse_hosts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the hosts of a default hostfile as one value; one without hosts says nothing."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    if any(lines):
        yield "orte_default_hostfile", ", ".join(filter(None, lines))


def parse_keras(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a ``keras.json``.

    Raises:
        ValueError: it is no JSON object.
    """
    loaded = json.loads(text)
    if not isinstance(loaded, dict):
        raise ValueError("no JSON object")
    for name, value in loaded.items():
        yield name, str(value)


def parse_preload(text: str) -> Iterator[tuple[str, str]]:
    """Yield the libraries of ``/etc/ld.so.preload`` as one value."""
    words = re.split(r"[\s:]+", re.sub(r"#.*", "", text))
    if any(words):
        yield "LD_PRELOAD", " ".join(filter(None, words))


def parse_slurm(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a ``defaults`` file tells srun, as the variables that would say the same."""
    for line in text.splitlines():
        name, sign, value = line.partition("#")[0].partition("=")
        *scope, option = (word.strip() for word in name.split(":"))
        if sign and option in _OF_SRUN and (not scope or scope[0] in ("srun", "*")):
            yield _OF_SRUN[option], value.strip()


_OF_SRUN = {
    "mpi": "SLURM_MPI_TYPE", "export": "SLURM_EXPORT_ENV", "cpu-bind": "SLURM_CPU_BIND",
    "mem-bind": "SLURM_MEM_BIND", "gpu-bind": "SLURM_GPU_BIND",
    "distribution": "SLURM_DISTRIBUTION", "hint": "SLURM_HINT",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
}  # fmt: skip
_FILES = (
    _File("~/.openmpi/mca-params.conf", parse_mca, "OMPI_MCA_"),
    _File("/etc/openmpi/openmpi-mca-params.conf", parse_mca, "OMPI_MCA_"),
    _File("/etc/openmpi/openmpi-default-hostfile", parse_hosts, "OMPI_MCA_"),
    _File("/etc/prte-default-hostfile", parse_hosts, "OMPI_MCA_"),
    _File("~/.pmix/mca-params.conf", parse_mca, "PMIX_MCA_"),
    _File("/etc/pmix-mca-params.conf", parse_mca, "PMIX_MCA_"),
    _File("/etc/pmix/pmix-mca-params.conf", parse_mca, "PMIX_MCA_"),
    _File("~/.prte/mca-params.conf", parse_mca, "PRTE_MCA_"),
    _File("/etc/prte-mca-params.conf", parse_mca, "PRTE_MCA_"),
    _File("/etc/prte/prte-mca-params.conf", parse_mca, "PRTE_MCA_"),
    _File("~/.nccl.conf", parse_pairs),
    _File("/etc/nccl.conf", parse_pairs),
    _File("~/ucx.conf", parse_pairs),
    _File("~/.ucx/ucx.conf", parse_pairs),
    _File("~/.config/ucx/ucx.conf", parse_pairs),
    _File("/etc/ucx/ucx.conf", parse_pairs),
    _File("~/.keras/keras.json", parse_keras, "keras.json/"),
    _File("~/.slurm/defaults", parse_slurm),
    _File("/etc/ld.so.preload", parse_preload),
)  # fmt: skip
# Variables that name one more file, or a folder that holds one.
_NAMED = (
    ("NCCL_CONF_FILE", "", parse_pairs, ""),
    ("UCX_CONFIG_DIR", "ucx.conf", parse_pairs, ""),
    ("OMPI_MCA_mca_param_files", "", parse_mca, "OMPI_MCA_"),
    ("OMPI_MCA_mca_base_param_files", "", parse_mca, "OMPI_MCA_"),
    ("PMIX_MCA_mca_base_param_files", "", parse_mca, "PMIX_MCA_"),
    ("PRTE_MCA_mca_base_param_files", "", parse_mca, "PRTE_MCA_"),
    ("KERAS_HOME", "keras.json", parse_keras, "keras.json/"),
)
# ... and one that is used, but not for settings that we read.
_USED = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "CUDA_INJECTION64_PATH")


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
    unread = [] if is_rank else list(_missing(root, environ))
    overriding: list[dict[str, str]] = []
    for file in (*_overrides(environ), *_files(environ)):
        path = _place(file.path, root, environ)
        if path is None:
            continue
        try:
            pairs = list(file.parse(_text(path)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, RecursionError) as error:
            # In a home of somebody else's nobody knows what there is, and no tool reads it.
            if isinstance(error, PermissionError) and not os.access(path.parent, os.X_OK):
                continue
            unread.append({"path": str(path), "problem": _reason(error)})
            continue
        rows = [_assignment(file.prefix + name, value, str(path)) for name, value in pairs]
        (overriding if file.overrides else assigned).extend(rows)
    assigned = overriding + assigned
    assigned += _components(root, environ)
    return {
        "settings.assigned": Fact(assigned, "environment and configuration files"),
        "settings.unread": Fact(unread, "configuration files"),
        "settings.launch": Fact(sorted(launch), "environment"),
    }


def _missing(root: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield files that are not where a variable says; its tool goes on without them."""
    for variable in (*(named[0] for named in _NAMED if not named[1]), *_USED):
        for place in filter(None, re.split("[:,]", environ.get(variable, ""))):
            path = _place(place, root, environ)
            # What is looked for from the current folder is not looked for by us.
            if path and place.startswith(("/", "~")) and not os.path.lexists(path):
                problem = f"is not there, where {variable} says"
                yield {"path": str(path), "problem": problem, "variable": variable}


def _components(root: Path, environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the user's own folder of components, which Open MPI searches without being told."""
    folder = _place("~/.openmpi/components", root, environ)
    if folder is None or not is_folder(folder):
        return
    names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".so"))
    if names:
        yield _assignment("OMPI_MCA_mca_base_component_path", ", ".join(names), str(folder))


def _overrides(environ: Mapping[str, str]) -> Iterator[_File]:
    """Yield the files by which a site overrules variables; Open MPI alone has such."""
    named = environ.get("OMPI_MCA_mca_base_override_param_file", "")
    prefix = environ.get("OPAL_PREFIX", "")
    folder = f"{prefix}/etc" if prefix.startswith("/") else "/etc/openmpi"
    yield _File(named or f"{folder}/openmpi-mca-params-override.conf", parse_mca, "OMPI_MCA_",
                overrides=True)  # fmt: skip


def _files(environ: Mapping[str, str]) -> Iterator[_File]:
    for variable, name, parse, prefix in _NAMED:
        # Open MPI's own variable may list several files.
        for place in filter(None, re.split("[:,]", environ.get(variable, ""))):
            yield _File(str(Path(place) / name) if name else place, parse, prefix)
    prefix = environ.get("OPAL_PREFIX", "")
    if prefix.startswith("/"):
        yield _File(f"{prefix}/etc/openmpi-mca-params.conf", parse_mca, "OMPI_MCA_")
    yield from _FILES


def _place(path: str, root: Path, environ: Mapping[str, str]) -> Path | None:
    """Return where a file lies, None where it would be in a home that nobody has."""
    if path.startswith("~"):
        home = environ.get("HOME", "")
        return root / home.lstrip("/") / path[2:] if home.startswith("/") else None
    return root / path.lstrip("/")


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
