"""Shows the catalogue of stacks, as a table or as JSON.

Leaves the catalogue itself to ``env.stack``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from env.stack import Stack

SCHEMA_VERSION = 1
SHOWN = ("python", "tensorflow", "keras", "horovod", "openmpi", "gcc")


def render_stacks(stacks: Mapping[str, Stack]) -> str:
    """Return the stacks as JSON text, each with its hash."""
    rows = [asdict(stack) | {"sha256": stack.sha256} for stack in stacks.values()]
    return json.dumps({"schema_version": SCHEMA_VERSION, "stacks": rows}, indent=1)


def print_stacks(stacks: Mapping[str, Stack]) -> None:
    """Print a table of the stacks: a column each, and what each is for."""
    table = Table("", *stacks, title="Stacks (env/stacks.toml)")
    table.add_row("status", *(stack.status for stack in stacks.values()))
    bases = (f"{stack.base.distribution} {stack.base.release}" for stack in stacks.values())
    table.add_row("base", *bases)
    for name in SHOWN:
        table.add_row(name, *(stack.components[name] for stack in stacks.values()))
    console = Console()
    console.print(table)
    for stack in stacks.values():
        console.print(f"{stack.name}: {stack.summary}", highlight=False)
