"""Shows the catalogue of stacks, as a table or as JSON.

Leaves the catalogue itself to ``env.stack``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from env.stack import Gpu, Stack

SCHEMA_VERSION = 1
SHOWN = (
    "python", "tensorflow", "keras", "horovod", "openmpi", "ucx", "pmix", "gcc", "cuda", "cudnn",
    "nccl",
)  # fmt: skip


def render_stacks(stacks: Mapping[str, Stack]) -> str:
    """Return the stacks as JSON text (stacks.schema.json), each with its hash."""
    rows = [asdict(stack) | {"sha256": stack.sha256} for stack in stacks.values()]
    return json.dumps({"schema_version": SCHEMA_VERSION, "stacks": rows}, indent=1)


def print_stacks(stacks: Mapping[str, Stack]) -> None:
    """Print a table of the stacks: a column each, and what each is for."""
    table = Table("", *stacks, title="Stacks (env/stacks.toml)")
    table.add_row("status", *(stack.status for stack in stacks.values()))
    table.add_row("device", *(stack.device for stack in stacks.values()))
    bases = (f"{stack.base.distribution} {stack.base.release}" for stack in stacks.values())
    table.add_row("base", *bases)
    for name in SHOWN:
        table.add_row(name, *(stack.components.get(name, "") for stack in stacks.values()))
    table.add_row("driver from", *(stack.driver_minimum for stack in stacks.values()))
    console = Console()
    console.print(table)
    for stack in stacks.values():
        console.print(f"{stack.name}: {stack.summary}", highlight=False, soft_wrap=True)
        for gpu in stack.gpus:
            console.print(f"  {describe_gpu(gpu)}", highlight=False, soft_wrap=True)


def describe_gpu(gpu: Gpu) -> str:
    """Return a line on a generation of GPUs: which, how it is served, from which driver on."""
    code = {"binary": "machine code", "ptx": "compiled by the driver at the start"}[gpu.code]
    return f"{gpu.name}, {gpu.compute_capability}: {code}, driver {gpu.driver} or later"
