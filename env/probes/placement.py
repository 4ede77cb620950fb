"""What bears on where ranks run: topology, slots, threads, memory policy, GPUs' places.

Knows the variables of schedulers and thread pools, and how to ask the kernel for a memory
policy without changing one. Leaves the files of the topology to ``env.probes.topology`` and other
jobs to ``env.probes.neighbours``.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from env.facts import Fact
from env.probes.child import run_child
from env.probes.neighbours import probe_neighbours
from env.probes.settings import told_values
from env.probes.topology import probe_gpus, probe_topology
from env.topology import topology_to_json

# What sizes the thread pools of TensorFlow, oneDNN, MKL and numpy.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)  # fmt: skip
_BINDING_VARIABLES = re.compile(
    r"(OMPI|PRTE|PMIX)_MCA_\w*(bind|map|cpu_(set|list)|overload)\w*|SLURM_CPU_BIND\w*|"
    r"SLURM_CPUS_PER_TASK|(GOMP_CPU|KMP)_AFFINITY|OMP_(PROC_BIND|PLACES)"
)
_LONGEST = 200  # characters of a variable that a report shows
# set_mempolicy(MPOL_DEFAULT): the policy that a process has anyway. A child asks, since a
# filter of system calls may kill whoever does.
_ASK = """\
import ctypes, platform
number = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}.get(platform.machine())
if number is None:
    print("unknown")
else:
    libc = ctypes.CDLL(None, use_errno=True)
    print(ctypes.get_errno() if libc.syscall(number, 0, None, 0) else 0)
"""


def probe_placement(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return the facts ``topology.*`` of this host.

    ``host``: the topology (``env.topology.topology_to_json``). ``neighbours``: see
    ``env.probes.neighbours``. ``slots``: how many ranks a scheduler has given room for, or a
    default hostfile, as ``{"source", "nodes": [slots of each], "hostfile": whether it was that}``;
    None without either. ``threads``: numbers by name of
    the variable. ``bindings``: variables that bind or map ranks. ``memory_policy``: 0, or the
    name of the error that setting one gives.

    Args:
        root: the folder in which /proc and /sys lie.
        environ: the process's environment.
    """
    try:
        topology = probe_topology(root, environ=environ)
    except (ValueError, OverflowError) as error:
        lost = Fact(None, str(root / "sys/devices/system"), problem=f"not understood: {error}")
        shape = neighbours = lost
    else:
        shape = Fact(topology_to_json(topology), str(root / "sys/devices/system"))
        neighbours = probe_neighbours(root, topology=topology, environ=environ)
    return {
        "topology.host": shape,
        "topology.neighbours": neighbours,
        "topology.slots": _slots(root, environ),
        "topology.threads": _threads(environ),
        "topology.bindings": Fact(
            {
                k: v[:_LONGEST]
                for k, v in sorted(environ.items())
                if _BINDING_VARIABLES.fullmatch(k)
            },
            "environment",
        ),
        "topology.memory_policy": _memory_policy(environ),
    }


def probe_places(
    root: Path = Path("/"), *, environ: Mapping[str, str] = os.environ
) -> dict[str, Fact]:
    """Return ``places.gpus``: PCI address and memory node (or None) of each GPU a rank sees."""
    gpus = probe_gpus(root, environ=environ)
    places = [{"pci": gpu.pci, "node": gpu.node} for gpu in gpus]
    return {"places.gpus": Fact(places, str(root / "sys/bus/pci/devices"))}


def _slots(root: Path, environ: Mapping[str, str]) -> Fact:
    """Return what a scheduler gave, or what a default hostfile says, as Open MPI reads them."""
    readers = {
        "SLURM_TASKS_PER_NODE": _slurm_counts,
        "PBS_NODEFILE": _lines_of_file,
        "LSB_MCPU_HOSTS": lambda text: [int(n) for n in text.split()[1::2]],
        "OMPI_MCA_orte_default_hostfile": _slots_of_hostfile,
        "PRTE_MCA_prte_default_hostfile": _slots_of_hostfile,
    }
    given = [(name, environ[name]) for name in readers if environ.get(name)]
    hostfiles = [name for name, read in readers.items() if read is _slots_of_hostfile]
    # A file of MPI's may name the hostfile, or be one.
    given += [
        (name, value if value.startswith("/") else origin)
        for name, (value, origin) in told_values(root, environ, hostfiles).items()
    ]
    usual = root / "etc/openmpi/openmpi-default-hostfile"
    if not given and usual.is_file():
        given = [("OMPI_MCA_orte_default_hostfile", str(usual))]
    for name, text in given[:1]:
        hostfile = readers[name] is _slots_of_hostfile
        try:
            nodes = readers[name](text)
        except (ValueError, OSError) as error:
            problem = f"not understood: {text[:_LONGEST]!r}: {error}"
            return Fact(None, name, problem=problem)
        source = f"{name} ({text[:_LONGEST]})" if hostfile else name
        value = {"source": source, "nodes": nodes, "hostfile": hostfile} if nodes else None
        return Fact(value, name)
    return Fact(None, "environment")


def _slurm_counts(text: str) -> list[int]:
    """Return the numbers in Slurm's short form: ``"2(x3),1"`` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if match is None:
            raise ValueError("not Slurm's form of a list of numbers")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _lines_of_file(name: str) -> list[int]:
    hosts = Path(name).read_text(encoding="utf-8", errors="replace").split()
    return [hosts.count(host) for host in dict.fromkeys(hosts)]


def _slots_of_hostfile(name: str) -> list[int]:
    """Return the slots of each host; none where a host's are as many as it has cores."""
    lines = Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
    hosts = [line for line in (line.partition("#")[0].strip() for line in lines) if line]
    counts = [re.search(r"\bslots\s*=\s*(\d{1,6})\b", host) for host in hosts]
    return [int(count[1]) for count in counts if count] if all(counts) else []


def _threads(environ: Mapping[str, str]) -> Fact:
    threads: dict[str, int] = {}
    for name in THREAD_VARIABLES:
        first = environ.get(name, "").split(",")[0].strip()  # "4,2": of each level of nesting
        if first.isascii() and first.isdigit() and len(first) < 10:
            threads[name] = int(first)
    return Fact(threads, "environment")


def _memory_policy(environ: Mapping[str, str]) -> Fact:
    outcome = run_child([sys.executable, "-I", "-S", "-c", _ASK], environ=environ, timeout_s=20.0)
    told = outcome.stdout.strip()
    value: Any = errno.errorcode.get(int(told), told) if told.isdigit() and told != "0" else 0
    origin = "set_mempolicy(MPOL_DEFAULT)"
    if outcome.signal:
        return Fact(outcome.signal, origin)
    if outcome.exit_code != 0 or not told.isdigit():
        return Fact(None, origin, problem=outcome.end if outcome.exit_code else "not known here")
    return Fact(value, origin)
