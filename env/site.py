"""What a site expects of its nodes: written down on one that is known to be good.

Knows the file's format and which facts are worth expecting of every node. Leaves
holding a machine against it to ``env.checks.site``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from env.errors import UserError
from env.facts import CannotTellError, Facts

SCHEMA_VERSION = 1

# Equal on every node of a kind. A path after the slash leads into the fact's value.
EQUAL = (
    "host.machine", "host.os/id", "host.os/version_id", "host.numa_nodes",
    "gpu.nvml/driver",
)  # fmt: skip
# At least as good as on the good node, less a share that differs from boot to boot.
AT_LEAST = {
    "host.memory_total": 0.98, "host.shm/total": 0.98, "host.open_files": 1.0,
    "host.processes": 0.9,
}  # fmt: skip


@dataclass(frozen=True)
class Site:
    """What nodes are held against.

    Attributes:
        host: the node it was written on; empty in a file written by hand.
        equal: the value to find, by fact; ``host.os/id`` names a part of a fact's value.
        at_least: the smallest number to find, by fact, in the fact's unit.
        thresholds: the smallest results of measurements, by name with its unit, e.g.
            ``{"allreduce_gb_s": 10.0}``.
    """

    host: str
    equal: Mapping[str, Any]
    at_least: Mapping[str, float]
    thresholds: Mapping[str, float]


def look_up(facts: Facts, key: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a fact's value or, after a slash, one part of it; None where it is absent.

    Raises:
        CannotTellError: the fact could not be read.
    """
    name, _, inner = key.partition("/")
    value = facts.value(name)
    for part in filter(None, inner.split("/")):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def record_site(facts: Facts) -> Site:
    """Return what is worth expecting of other nodes, from the facts of a good one.

    What could not be read here, or is not there, is not expected elsewhere.
    """
    equal = {key: _known(facts, key) for key in EQUAL}
    numbers = {key: (_known(facts, key), share) for key, share in AT_LEAST.items()}
    return Site(
        host=str(_known(facts, "host.name") or ""),
        equal={key: value for key, value in equal.items() if value is not None},
        at_least={
            key: int(value * share)
            for key, (value, share) in numbers.items()
            if isinstance(value, int | float)
        },
        thresholds={},
    )


def render_site(site: Site) -> str:
    """Return the site's file as JSON text, to be edited by people."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(site), indent=1) + "\n"


def load_site(path: Path) -> Site:
    """Read a site's file.

    Raises:
        UserError: the file is missing, is not JSON, or holds another key or type.
    """
    fix = "write one on a good node: invoke validate-env --record-site FILE"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("a site file", found=f"{path}: {error.strerror}", fix=fix) from error
    except ValueError as error:
        raise UserError("a site file in JSON", found=f"{path}: {error}", fix=fix) from error
    tables = ("equal", "at_least", "thresholds")
    if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
        raise UserError(f"a site file of schema_version {SCHEMA_VERSION}", found=str(path), fix=fix)
    unknown = sorted(set(data) - {"host", *tables})
    if unknown:
        raise UserError(f"only host, {', '.join(tables)}", found=f"{path}: {unknown[0]!r}", fix=fix)
    for table in tables:
        if not isinstance(data.get(table, {}), dict):
            raise UserError("a table", found=f"{path}: {table!r}", fix=fix)
    for table in tables[1:]:
        for key, value in data.get(table, {}).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError("a number", found=f"{path}: {table}: {key!r}", fix=fix)
    return Site(str(data.get("host", "")), *(data.get(table, {}) for table in tables))


def _known(facts: Facts, key: str) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return look_up(facts, key)
    except CannotTellError:
        return None
