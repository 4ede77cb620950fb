"""The record that every benchmark writes: what was run, on what, with which result.

Knows the fields of `record.schema.json` and how the machine and the versions are
read. Leaves measuring to the programs beside it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

SCHEMA_VERSION = 1


def describe_machine() -> dict[str, object]:
    """Return what a reader needs to judge the numbers: processor, cores, memory."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": names[0] if names else platform.machine(),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "load_1_min": round(os.getloadavg()[0], 1),
        "memory_gib": round(memory / 2**30, 1),
        "system": platform.platform(),
    }


def describe_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python and of the named distributions that are installed."""
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def write_record(
    output: Path,
    *,
    command: Sequence[str],
    packages: Iterable[str],
    results: Sequence[Mapping[str, object]],
    ratios: Mapping[str, float],
    versions: Mapping[str, str] | None = None,
) -> None:
    """Write a benchmark's record, whole or not at all.

    Args:
        output: the JSON file.
        command: what was run, as tokens.
        packages: distributions whose versions matter.
        results: one object a number: name, value, unit and what else describes it.
        ratios: quotients of numbers of this same run, by name.
        versions: of distributions in other environments that took part.
    """
    record = {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "machine": describe_machine(),
        "versions": describe_versions(packages) | dict(versions or {}),
        "results": list(results),
        "ratios": dict(ratios),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.partial")
    partial.write_text(json.dumps(record, indent=1) + "\n")
    partial.replace(output)


def render_results(record: Path) -> str:
    """Return what a record holds as lines to print: each result with its unit, each ratio."""
    told = json.loads(record.read_text(encoding="utf-8"))
    names = [*(one["name"] for one in told["results"]), *told["ratios"]]
    width = max(map(len, names))
    lines = [
        f"{one['name']:<{width}}  {one['value']:>9,.1f} {one['unit']}" for one in told["results"]
    ]
    lines += [f"{name:<{width}}  {ratio:>9.2f}" for name, ratio in told["ratios"].items()]
    return "\n".join([*lines, f"wrote {record}"])
