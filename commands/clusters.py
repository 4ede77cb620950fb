"""Clusters with Slurm: a job's script, handing it over, looking after it.

Each task parses, calls one function, prints and returns an exit code. No logic.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from invoke import Context

from commands.command import at_least, command, enterable, optional_path, required


@command(
    iterable=["set"],
    help={
        "data": "a folder made by prepare-data, which every node sees",
        "run": "the run folder, on a file system that every node sees",
        "nodes": "how many nodes",
        "gpus-per-node": "GPUs and ranks of each node; 0 trains on the CPUs",
        "ranks-per-node": "without GPUs: ranks of each node; by default one",
        "image": "train inside this image; by default in the environment of this checkout",
        "cpus-per-gpu": "cores of each rank",
        "mem": "memory of each node, e.g. 64G; 0 for all of it",
        "time": "time limit, e.g. 24:00:00 or 2-12:00:00",
        "partition": "where to queue; by default the site's",
        "account": "who pays; by default yours",
        "array": "a scaling study: one run with each of these numbers of ranks, e.g. 1,2,4",
        "config": "a configuration file (TOML or JSON)",
        "set": "KEY=VALUE, repeatable: one configuration key",
        "max-restarts": "how often the job may be queued again by itself",
        "program": "what calls these tasks on a node, as a shell would read it, e.g. "
        "'/opt/venv/bin/invoke --search-root /opt/chexnet'; by default this checkout's "
        "env/bootstrap.sh, which needs Debian on the nodes",
        "output": "write the script there; by default it is printed",
    },
)
def slurm_script(
    c: Context,
    data: str = "",
    run: str = "",
    nodes: int = 1,
    gpus_per_node: int = 0,
    ranks_per_node: int = 0,
    image: str = "",
    cpus_per_gpu: int = 4,
    mem: str = "0",
    time: str = "24:00:00",
    partition: str = "",
    account: str = "",
    array: str = "",
    config: str = "",
    set: list[str] | None = None,
    max_restarts: int = 10,
    program: str = "",
    output: str = "",
) -> None:
    """Render a Slurm job: prove the nodes, train, go on after preemption and lost nodes."""
    from chexnet.config import load_config
    from containers.slurm_script import JobRequest, read_program, render_script
    from env.atomic import write_text

    required(data=data, run=run)
    at_least(1, nodes=nodes, cpus_per_gpu=cpus_per_gpu)
    at_least(0, gpus_per_node=gpus_per_node, ranks_per_node=ranks_per_node,
             max_restarts=max_restarts)  # fmt: skip
    place = enterable(image)
    there = str(place.absolute() if place and place.exists() else place or "")
    configuration = optional_path(config)
    # A mistake in it would be told by a job that has waited for its nodes.
    load_config(configuration, settings=set or ())
    request = JobRequest(
        Path(data).absolute(), Path(run).absolute(), nodes, gpus_per_node, ranks_per_node,
        there, cpus_per_gpu, mem, time, partition, account, array,
        configuration.absolute() if configuration else None, tuple(set or ()), max_restarts,
        read_program(program),
    )  # fmt: skip
    text = render_script(request, command=shlex.join(_as_asked()))
    if not gpus_per_node:
        print("trains on the CPUs; on GPUs with --gpus-per-node N", file=sys.stderr)
    if output:
        write_text(Path(output), text)
        print(f"{output}: read it, then: invoke submit {shlex.quote(output)}")
    else:
        print(text, end="")


@command(operands=("script",), help={"script": "a job script", "dry-run": "print the command line"})
def submit(c: Context, script: str, dry_run: bool = False) -> int:
    """Hand a job script to Slurm."""
    from containers.slurm_status import submit as hand_over

    return hand_over(Path(script), dry_run=dry_run)


@command(
    help={
        "run": "a run folder: its progress and its jobs; by default all jobs of this project",
        "json": "print it as JSON",
    }
)
def status(c: Context, run: str = "", json: bool = False) -> int:
    """Tell how the jobs are doing: Slurm's state, epoch, loss, images/s, time left."""
    from containers.slurm_status import show_status

    return show_status(optional_path(run), as_json=json)


def _as_asked() -> list[str]:
    """Return this command line without the options of Invoke itself, which the shim adds."""
    words = sys.argv[1:]
    begin = words.index("slurm-script") if "slurm-script" in words else 0
    return ["invoke", *words[begin:]]
