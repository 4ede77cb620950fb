"""Shows the binding plan of this machine or of a recorded one: table, picture, JSON.

Leaves the plan itself to ``env.binding`` and the drawing to ``containers.picture``.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from containers.launch_lines import render_launch
from containers.launchers import Launch, Launcher, find_launcher
from containers.picture import render_picture
from env.atomic import write_text
from env.binding import BindingPlan, HostShare, plan_job, render_plan
from env.cpulist import render_cpu_list
from env.errors import UserError
from env.lstopo import load_lstopo
from env.probes.topology import probe_topology
from env.topology import HostTopology


@dataclass(frozen=True)
class Request:
    """What the user asked of ``plan-binding``.

    Attributes:
        ranks: processes; 0 for one a GPU, or one a memory node without GPUs.
        topology: a file of ``lstopo --of xml``, None for this machine.
        device: ``"cpu"`` plans without the GPUs; ``"gpu"`` and ``"auto"`` with them.
        json: where to write the plan as JSON; ``-`` prints it instead of the table.
        svg: where to write the picture.
    """

    ranks: int = 0
    topology: Path | None = None
    device: str = "auto"
    json: Path | None = None
    svg: Path | None = None


def show_plan(request: Request) -> None:
    """Print the plan, and write it where it was asked for.

    Raises:
        UserError: the file or the device is wrong, or so many ranks do not fit.
    """
    if request.device not in ("auto", "cpu", "gpu"):
        raise UserError("a device", found=repr(request.device), fix="use one of: auto, cpu, gpu")
    if request.svg is not None and request.svg.suffix != ".svg":
        raise UserError("an .svg file", found=str(request.svg), fix="give the picture such a name")
    topology = load_lstopo(request.topology) if request.topology else probe_topology()
    use_gpus = request.device != "cpu" and bool(topology.gpus)
    if request.device == "gpu" and not use_gpus:
        fix = "load the driver, allow the job its GPUs, or mean it: --device cpu"
        raise UserError(f"GPUs on {topology.host}", found="none", fix=fix)
    ranks = request.ranks or (len(topology.gpus) if use_gpus else max(1, len(topology.nodes)))
    plan = plan_job([HostShare(topology, ranks)], use_gpus=use_gpus)
    if request.svg is not None:
        _write(request.svg, render_picture(plan, topology))
    if request.json == Path("-"):
        sys.stdout.write(render_plan(plan))
        return
    if request.json is not None:
        _write(request.json, render_plan(plan))
    print_plan(plan, topology)


def print_plan(plan: BindingPlan, topology: HostTopology) -> None:
    """Print a table of the ranks, and how a launcher has to be told."""
    table = Table()
    for name in ("rank", "GPU", "CPUs", "memory node", "threads"):
        table.add_column(name, overflow="fold")
    for rank in plan.ranks:
        gpu = "-" if rank.gpu is None else f"{rank.gpu} ({rank.gpu_pci})"
        node = "-" if rank.memory_node is None else str(rank.memory_node)
        cpus = render_cpu_list(rank.cores)
        table.add_row(str(rank.rank), gpu, cpus, node, str(rank.threads))
    print(describe_host(topology))
    Console().print(table)
    for rank in plan.ranks:
        if rank.note:
            print(f"rank {rank.rank}: {rank.note}")
    print(describe_launch(plan, launcher=find_launcher(remote=False)))


def describe_host(topology: HostTopology) -> str:
    """Return one line on a machine: what it has and what this job may use of it."""
    cores, usable = len(topology.cores), len(topology.usable)
    sockets = len({core.socket for core in topology.cores})
    nodes = len(topology.known_nodes)
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    parts = [f"{sockets} sockets" if sockets != 1 else "1 socket"]
    parts += [f"{nodes} memory nodes"] if nodes > 1 else []
    parts += [f"{cores} cores" + (f" of {threads} threads" if threads > 1 else "")]
    parts += [f"{usable} of them allowed"] if usable < cores else []
    parts += [f"time of {topology.quota:g} cores"] if topology.quota is not None else []
    parts += [f"{len(topology.gpus)} GPUs" if len(topology.gpus) != 1 else "1 GPU"]
    return f"{topology.host}: {', '.join(parts)}"


def describe_launch(plan: BindingPlan, *, launcher: Launcher) -> str:
    """Return the command line that starts a plan's ranks, with the files that it names."""
    launch = Launch(plan, launcher, folder=Path())
    line = shlex.join(render_launch(launch, command=["COMMAND"]))
    files = [f"{path}:\n{text}" for path, text in launch.files().items()]
    return "\n\n".join([line, *files]).rstrip()


def _write(path: Path, text: str) -> None:
    if not path.absolute().parent.is_dir():
        raise UserError("a folder for the file", found=f"no {path.parent}", fix="make it first")
    write_text(path, text)
