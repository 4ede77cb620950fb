"""The files that MPI, NCCL, UCX, Keras, Slurm and the loader read without being told, or on a word.

Knows where each tool looks, in its own order, and how it writes a setting. Leaves what becomes of
the settings to ``env.probes.settings``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from env.probes.reading import is_file

Pairs = Iterable[tuple[str, str]]
_WORD = r"[A-Za-z_]\w*"
_ENV_LIST = "mca_base_env_list"


@dataclass(frozen=True)
class ConfigFile:
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
    """Yield the parameters of an MCA file: ``name = value``, ``#`` begins a comment.

    Options of mpirun count there as well: ``-mca name value``, and ``-x NAME=value``, which gives
    the ranks a variable, as the parameter ``mca_base_env_list`` does.
    """
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        if option := re.fullmatch(r"--?g?mca\s+(\S+)\s+(.+)", line):
            yield option[1], option[2].strip("\"'")
        elif option := re.fullmatch(rf"-x\s+({_WORD}=.*)", line):
            yield _ENV_LIST, option[1]
        else:
            name, sign, value = line.partition("=")
            if sign and re.fullmatch(r"[\w.]+", name.strip()):
                yield name.strip(), value.strip().strip("\"'")


def parse_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield ``NAME=value`` lines, as NCCL and UCX write them; sections are passed over."""
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and re.fullmatch(_WORD, name.strip()):
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


def parse_flags(text: str) -> Iterator[tuple[str, str]]:
    """Yield the flags of a file that a variable of XLA's names, as one value without a name."""
    if text.split():
        yield "", " ".join(text.split())


def parse_env_list(text: str) -> Iterator[tuple[str, str]]:
    """Yield the variables that ``mca_base_env_list`` gives the ranks: ``NAME=value;NAME;…``.

    A name alone hands a variable on as it is.
    """
    for part in text.split(";"):
        name, sign, value = part.strip().partition("=")
        if sign and re.fullmatch(_WORD, name):
            yield name, value


_OF_SRUN = {
    "mpi": "SLURM_MPI_TYPE", "export": "SLURM_EXPORT_ENV", "cpu-bind": "SLURM_CPU_BIND",
    "mem-bind": "SLURM_MEM_BIND", "gpu-bind": "SLURM_GPU_BIND",
    "distribution": "SLURM_DISTRIBUTION", "hint": "SLURM_HINT",
    "threads-per-core": "SLURM_THREADS_PER_CORE",
}  # fmt: skip
_OMPI, _PMIX, _PRTE = "OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_"
# Of an installation's folder of system files, in the order in which each is looked at.
_OF_INSTALLATION = (
    ("openmpi-mca-params.conf", parse_mca, _OMPI),
    ("openmpi-default-hostfile", parse_hosts, _OMPI),
    ("pmix-mca-params.conf", parse_mca, _PMIX),
    ("prte-mca-params.conf", parse_mca, _PRTE),
    ("prte-default-hostfile", parse_hosts, _OMPI),
)
_OVERRIDE = "openmpi-mca-params-override.conf"
_SYSTEM = ("/etc/openmpi", "/etc/openmpi-x86_64", "/etc/openmpi-aarch64", "/etc", "/etc/pmix",
           "/etc/prte")  # fmt: skip
_OF_USER = (
    ConfigFile("~/.openmpi/mca-params.conf", parse_mca, _OMPI),
    ConfigFile("~/.pmix/mca-params.conf", parse_mca, _PMIX),
    ConfigFile("~/.prte/mca-params.conf", parse_mca, _PRTE),
)
_OTHERS = (
    ConfigFile("~/.nccl.conf", parse_pairs),
    ConfigFile("/etc/nccl.conf", parse_pairs),
    ConfigFile("~/ucx.conf", parse_pairs),
    ConfigFile("~/.ucx/ucx.conf", parse_pairs),
    ConfigFile("~/.config/ucx/ucx.conf", parse_pairs),
    ConfigFile("/etc/ucx/ucx.conf", parse_pairs),
    ConfigFile("~/ucc.conf", parse_pairs),
    ConfigFile("/etc/psm3.conf", parse_pairs),
    ConfigFile("~/.keras/keras.json", parse_keras, "keras.json/"),
    ConfigFile("~/.slurm/defaults", parse_slurm),
    ConfigFile("/etc/ld.so.preload", parse_preload),
)
# Variables that name one more file, or a folder that holds one.
_NAMED = (
    ("NCCL_CONF_FILE", "", parse_pairs, ""),
    ("UCX_CONFIG_DIR", "ucx.conf", parse_pairs, ""),
    ("UCC_CONFIG_FILE", "", parse_pairs, ""),
    ("OMPI_MCA_mca_param_files", "", parse_mca, _OMPI),
    ("OMPI_MCA_mca_base_param_files", "", parse_mca, _OMPI),
    ("OMPI_MCA_mca_base_param_file_prefix", "", parse_mca, _OMPI),
    ("OMPI_MCA_mca_base_envar_file_prefix", "", parse_mca, _OMPI),
    ("PMIX_MCA_mca_base_param_files", "", parse_mca, _PMIX),
    ("PRTE_MCA_mca_base_param_files", "", parse_mca, _PRTE),
    ("KERAS_HOME", "keras.json", parse_keras, "keras.json/"),
)
# Variables whose whole value may be the name of a file of flags.
_FLAGS = ("XLA_FLAGS", "TF_XLA_FLAGS")
# ... and files that are used, but not for settings that we read.
_USED = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE", "CUDA_INJECTION64_PATH", "HOSTALIASES",
         "OMPI_MCA_coll_tuned_dynamic_rules_filename", "OMPI_MCA_orte_default_hostfile",
         "PRTE_MCA_prte_default_hostfile", "OMPI_MCA_rmaps_rank_file_path")  # fmt: skip


def config_files(root: Path, environ: Mapping[str, str]) -> Iterator[ConfigFile]:
    """Yield every file that may hold settings, of one tool the first that counts first.

    Args:
        root: the folder in which /etc, the home and installations lie.
        environ: the process's environment.
    """
    named = environ.get("OMPI_MCA_mca_base_override_param_file", "")
    installed = list(dict.fromkeys(_installations(root, environ)))
    # Open MPI's file of overrides comes before variables; no other tool has such.
    overrides = [named] if named else [f"{folder}/{_OVERRIDE}" for folder in (*installed, *_SYSTEM)]
    for path in overrides:
        yield ConfigFile(path, parse_mca, _OMPI, overrides=True)
    for variable in _FLAGS:
        value = environ.get(variable, "").strip()
        if value and not value.startswith("-"):
            yield ConfigFile(value, parse_flags, variable, overrides=True)
    for variable, name, parse, prefix in _NAMED:
        for place in _places(environ.get(variable, "")):
            yield ConfigFile(f"{place}/{name}" if name else place, parse, prefix)
    yield from _OF_USER
    for folder in dict.fromkeys((*installed, *_SYSTEM)):
        for name, parse, prefix in _OF_INSTALLATION:
            yield ConfigFile(f"{folder}/{name}", parse, prefix)
    yield from _OTHERS


def _installations(root: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield where Open MPI has its system files: where it is told, and above its mpirun."""
    if environ.get("OPAL_SYSCONFDIR", "").startswith("/"):
        yield environ["OPAL_SYSCONFDIR"]
    if environ.get("OPAL_PREFIX", "").startswith("/"):
        yield f"{environ['OPAL_PREFIX']}/etc"
    for folder in environ.get("PATH", "").split(os.pathsep):
        program = root / folder.lstrip("/") / "mpirun"
        if folder.startswith("/") and is_file(program) and os.access(program, os.X_OK):
            real, top = os.path.realpath(program), os.path.realpath(root)
            inside = os.path.relpath(real, top) if real.startswith(top) else real.lstrip("/")
            yield f"/{Path(inside).parent.parent}/etc"
            return


def place_of(path: str, root: Path, environ: Mapping[str, str]) -> Path | None:
    """Return where a file lies, None where it would be in a home that nobody has."""
    if path.startswith("~"):
        home = environ.get("HOME", "")
        return root / home.lstrip("/") / path[2:] if home.startswith("/") else None
    return root / path.lstrip("/")


def missing_files(
    root: Path, environ: Mapping[str, str], values: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Yield files that are not where a setting says; its tool goes on without them.

    Args:
        root: the folder in which they would lie.
        environ: where the home is named.
        values: the settings that count.
    """
    for variable in (*(named[0] for named in _NAMED if not named[1]), *_USED):
        for place in _places(values.get(variable, "")):
            path = place_of(place, root, environ)
            # What is looked for from the current folder is not looked for by us.
            if path and place.startswith(("/", "~")) and not os.path.lexists(path):
                problem = f"is not there, where {variable} says"
                yield {"path": str(path), "problem": problem, "variable": variable}


def _places(value: str) -> Iterator[str]:
    # Open MPI's own variables may list several files.
    return filter(None, re.split("[:,]", value))
