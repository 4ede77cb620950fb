"""Takes measured numbers for a scaling plan from where they lie: run folders, benchmarks' records.

Knows the few fields that matter in each. A number that was given on the command line stands.
Leaves what the numbers mean to ``containers.scaling``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from containers.scaling import GRADIENT_MIB
from containers.scaling_plan import Request
from env.errors import UserError

_WHAT = (
    "a folder of a run or of invoke profile, a report of validate-env, or a record of "
    "bench-pipeline, bench-allreduce or bench-scaling"
)
_IN_FOLDERS = ("record.json", "profile.json")
# A step takes its time for so many films, and for no other number.
_STEP = ("step_ms", "batch")
# As the check ranks.allreduce tells it: bytes x 2 (n - 1) / n / seconds.
_ALLREDUCE, _RATE = "ranks.allreduce", re.compile(r"([0-9.]+) GB/s")


def settle(request: Request, sources: Sequence[Path]) -> Request:
    """Return the request with what it leaves open taken from the sources.

    Args:
        request: 0 stands for a step and a batch that were not given.
        sources: run folders and records; the first that has a number gives it.

    Raises:
        UserError: a source that cannot be read or holds nothing of use, or a step of another batch
            than the given one; no step or batch at all, or a network of unknown size.
    """
    for name, value in request.given.items():
        request = _take(request, name, value)
    known = {*request.given, *(name for name in _STEP if getattr(request.work, name))}
    for path in sources:
        found = _choose(read_numbers(path), request=request, known=known, path=path)
        for name, value in found.items():
            request = _take(request, name, value)
        found = {name: value for name, value in found.items() if value}
        known |= found.keys()
        said = {f"{name} {value:,.4g}": str(path) for name, value in found.items()}
        request = replace(request, sources={**request.sources, **said})
    missing = [
        f"--{name.replace('_', '-')}"
        for name in (*_STEP, "gradient_mib")
        if not getattr(request.work, name)
    ]
    if missing:
        raise UserError(
            " and ".join(missing), found="nothing",
            fix="measure it and name the folder of invoke profile: --from profile; or give the "
            "numbers",
        )  # fmt: skip
    return request


def _choose(
    numbers: Mapping[str, float], *, request: Request, known: Set[str], path: Path
) -> dict[str, float]:
    """Return what is not known yet of a source's numbers; a step and its batch from one source."""
    new = {name: value for name, value in numbers.items() if name not in known}
    if not numbers.keys() >= {*_STEP} or known >= {*_STEP}:
        return {name: value for name, value in new.items() if name not in _STEP}
    if "step_ms" in known or ("batch" in known and request.work.batch != numbers["batch"]):
        raise UserError(
            f"a step and its batch from one place: {path} has {numbers['step_ms']:,.4g} ms for "
            f"{numbers['batch']} films",
            found=" and ".join(f"--{name.replace('_', '-')} {getattr(request.work, name):g}"
                               for name in _STEP if name in known),
            fix="give both --step-ms and --batch, or none",
        )  # fmt: skip
    return new


def read_numbers(path: Path) -> dict[str, float]:
    """Return the numbers that a run folder or a record holds, by the plan's names.

    Raises:
        UserError: it cannot be read, or holds none.
    """
    file = path
    if path.is_dir():
        files = [path / name for name in _IN_FOLDERS]
        file = next((one for one in files if one.exists()), files[0])
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if "throughput" in data:
            found = _of_run(file, data)
        elif "times" in data:
            found = _of_profile(data["times"])
        else:
            found = _of_results(data["results"]) | _of_sums(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(_WHAT, found=f"{file}: {error!r}", fix="correct the path") from error
    if not found:
        raise UserError(_WHAT, found=f"{file}, which has no number for this",
                        fix="give another, or the numbers themselves: see --help")  # fmt: skip
    return found


def read_rates(folders: Sequence[Path]) -> dict[int, float]:
    """Return the images/s that runs reached, by their ranks; the best of those that are alike.

    Args:
        folders: run folders, or folders of such, as an array job of invoke slurm-script leaves.

    Raises:
        UserError: no run has ended there.
    """
    rates: dict[int, float] = {}
    for folder in folders:
        files = [folder / "record.json", *sorted(folder.glob("*/record.json"))]
        found = [one for one in map(_rate_of, files) if one]
        if not found:
            raise UserError("run folders with images/s in their record", found=f"none at {folder}",
                            fix="correct --measured")  # fmt: skip
        for ranks, rate in found:
            rates[ranks] = max(rate, rates.get(ranks, 0.0))
    return dict(sorted(rates.items()))


def _rate_of(file: Path) -> tuple[int, float] | None:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        return int(record["ranks"]), float(record["throughput"]["images_per_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _of_run(file: Path, record: Mapping[str, Any]) -> dict[str, float]:
    """Return batch, step and gradients of a run, 0 for those of a network of unknown size.

    With several ranks the step holds their exchange too.
    """
    config = json.loads(file.with_name("config.json").read_text(encoding="utf-8"))
    rate = record["throughput"].get("images_per_s", 0)
    if not rate:
        return {}
    batch = config["batch_size"] * config.get("accumulation_steps", 1)
    size = GRADIENT_MIB if config.get("model", "densenet121") == "densenet121" else 0.0
    size /= 2 if config.get("compression") == "fp16" else 1
    step_ms = 1000 * batch * record["ranks"] / rate
    return {"batch": batch, "step_ms": step_ms, "gradient_mib": size}


def _of_profile(times: Mapping[str, Any]) -> dict[str, float]:
    """Return batch and gradients, and the step with films in memory, less the exchange."""
    found = {
        "batch": times["batch_size"],
        "step_ms": 1000 * (times["memory_step_s"] - times["exchange_s"]),
        "gradient_mib": times["exchange_mib"],
    }
    return {name: value for name, value in found.items() if value > 0}


def _of_results(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    fed = [one for one in results if {"pipeline", "cores", "cold"} <= one.keys()]
    fed = [one for one in fed if one["pipeline"] != "synthetic" and not one["cold"]]
    if fed:
        most = max(one["cores"] for one in fed)
        rates = {one["pipeline"]: one["value"] for one in fed if one["cores"] == most}
        found["input_images_per_s"] = rates.get("fast", max(rates.values()))
    alone = [
        one for one in results
        if one.get("ranks") == 1 and one.get("input") == "synthetic" and "batch" in one
    ]  # fmt: skip
    if alone:
        found["batch"] = alone[0]["batch"]
        found["step_ms"] = 1000 * alone[0]["batch"] / alone[0]["value"]
    for name in ("latency_us", "bandwidth_gb_s", "intra_latency_us", "intra_bandwidth_gb_s"):
        values = [one[name] for one in results if isinstance(one.get(name), int | float)]
        if values:
            found[name] = values[0]
    return found


def _of_sums(data: Mapping[str, Any]) -> dict[str, float]:
    """Return the bandwidth of sums over ranks: between hosts where there were several."""
    results = data["results"]
    for one in results:
        rate = _RATE.match(one.get("found", "")) if one.get("id") == _ALLREDUCE else None
        if rate:
            several = len(data.get("hosts", ())) > 1
            return {"bandwidth_gb_s" if several else "intra_bandwidth_gb_s": float(rate[1])}
    ways = {(one.get("transport"), one.get("setting"), one.get("way")): one for one in results}
    ours = ways.get(("shared memory", "default", "grouped"))
    if not ours:
        return {}
    ranks = int(data["command"][data["command"].index("--ranks") + 1])
    sent = 2 * (ranks - 1) / ranks * GRADIENT_MIB * 2**20
    return {"intra_bandwidth_gb_s": sent / (ours["value"] * 1e6)}


def _take(request: Request, name: str, value: float) -> Request:
    if hasattr(request.work, name):
        return replace(request, work=replace(request.work, **{name: value}))
    return replace(request, cluster=replace(request.cluster, **{name: value}))
