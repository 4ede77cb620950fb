"""Is input the bottleneck? Images/s that a rank is fed here, and what stops it from more.

Knows which rates tell: synthetic (nothing is read), cached (from memory) and cold (from
storage), on one core and on all; and what they mean for GPUs. Each is measured in a
process of its own, in rounds that alternate, so that another load on the machine hits
each alike. Leaves one measurement to `benchmarks.input_rate`.

    python -m benchmarks.pipeline --data DIR --output FILE.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.input_rate import SYNTHETIC
from benchmarks.record import write_record
from chexnet.errors import UserError
from chexnet.input.fast import MOST_THREADS
from chexnet.records import load_dataset

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy")
BUSY = 0.9  # of the time a GPU shall compute: input must be that much faster
SLOWER = 0.8  # a rate below this share of another is told as slower


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Attributes:
        data: a prepared data folder.
        pipeline: what reads it, or ``synthetic``.
        cores: the logical CPUs it may use.
        cold: from storage instead of from memory.
    """

    data: Path
    pipeline: str
    cores: tuple[int, ...]
    cold: bool = False

    @property
    def name(self) -> str:
        """Return its name in the record, e.g. ``fast, cached, 2 cores``."""
        cache = "cold" if self.cold else "cached"
        what = [self.pipeline] if self.pipeline == SYNTHETIC else [self.pipeline, cache]
        return ", ".join([*what, f"{len(self.cores)} core{'s' * (len(self.cores) > 1)}"])


def plan_cases(folders: Sequence[Path], *, cores: Sequence[int]) -> list[Case]:
    """Return what to measure of some prepared folders, each with every pipeline that reads it."""
    from chexnet.input.fitting import pipelines_here

    every, first = tuple(cores), tuple(cores[:1])
    cases = [Case(folders[0], SYNTHETIC, every)]
    for folder in folders:
        dataset = load_dataset(folder)
        for name in pipelines_here(dataset.format):
            case = Case(folder, name, every)
            cases += [case, replace(case, cold=True)]
            cases += [replace(case, cores=first)] if len(every) > 1 else []
    return cases


def measure_cases(
    cases: Sequence[Case], *, rounds: int, seconds: float, batch_size: int, crop: int
) -> dict[str, list[dict[str, float]]]:
    """Return every round of every case: images, seconds and peak memory in MB."""
    found: dict[str, list[dict[str, float]]] = {case.name: [] for case in cases}
    for nth in range(rounds):
        for case in cases:
            command = [
                sys.executable, "-m", "benchmarks.input_rate", "--data", str(case.data),
                "--pipeline", case.pipeline, "--seconds", str(seconds),
                "--batch-size", str(batch_size), "--crop", str(crop),
                "--cores", ",".join(map(str, case.cores)), *(["--cold"] if case.cold else []),
            ]  # fmt: skip
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})  # fmt: skip
            one = json.loads(done.stdout)
            found[case.name].append(one)
            rate = one["images"] / one["seconds"]
            print(f"round {nth + 1}/{rounds}  {case.name}: {rate:,.0f} images/s",
                  file=sys.stderr, flush=True)  # fmt: skip
    return found


def describe_rates(
    cases: Sequence[Case], *, found: Mapping[str, Sequence[Mapping[str, float]]]
) -> list[dict[str, object]]:
    """Return the results of a record: the median, with the slowest and fastest round."""
    results = []
    for case in cases:
        rates = [one["images"] / one["seconds"] for one in found[case.name]]
        results.append({
            "name": case.name,
            "value": round(statistics.median(rates), 1),
            "unit": "images/s",
            "slowest": round(min(rates), 1),
            "fastest": round(max(rates), 1),
            "rounds": len(rates),
            "pipeline": case.pipeline,
            "cores": len(case.cores),
            "cold": case.cold,
            "peak_mb": round(max(one["peak_mb"] for one in found[case.name])),
        })  # fmt: skip
    return results


def advise(results: Sequence[Mapping[str, object]], *, gpu_rate: float) -> list[str]:
    """Return what the rates mean, as lines to read.

    Args:
        results: what `describe_rates` returned.
        gpu_rate: images/s that one GPU computes.
    """
    rates = {(r["pipeline"], r["cores"], r["cold"]): float(r["value"]) for r in results}
    most_cores = max(int(r["cores"]) for r in results)
    need = gpu_rate / BUSY
    lines = []
    for pipeline in dict.fromkeys(str(r["pipeline"]) for r in results):
        if pipeline == SYNTHETIC:
            continue
        cached, cold = (rates[pipeline, most_cores, c] for c in (False, True))
        one = rates.get((pipeline, 1, False), cached)
        gpus = min(cached, cold) / need
        lines.append(
            f"{pipeline}: one rank is fed as {gpus:.1f} GPUs of {gpu_rate:,.0f} images/s each need "
            f"({need:,.0f} for {BUSY:.0%} busy), {need / one:.2f} cores a GPU; "
            f"next limit: {_limit(pipeline, cached=cached, cold=cold, one=one, cores=most_cores)}"
        )
    return lines


def _limit(pipeline: str, *, cached: float, cold: float, one: float, cores: int) -> str:
    if cold < SLOWER * cached:
        return "storage (cold is slower than cached): put the data on local disks or in memory"
    if pipeline != "fast":
        return "decoding: prepare the data with --format fast"
    if cores > 1 and cached < SLOWER * min(cores, MOST_THREADS) * one:
        return "memory and the interpreter's lock: more cores a rank bring little"
    if cores > MOST_THREADS:
        return f"the {MOST_THREADS} threads of a rank: several ranks bring more"
    return "copying: more cores bring more"


def run_benchmark(
    folders: Sequence[Path],
    *,
    output: Path,
    batch_size: int = 32,
    crop: int = 0,
    rounds: int = 3,
    seconds: float = 4.0,
    gpu_rate: float = 700.0,
) -> None:
    """Measure every pipeline that reads the data, write the record and print what it means.

    Args:
        folders: prepared data, one folder a format.
        output: the record.
        batch_size: images in a batch.
        crop: px cut out of each film; 0 for all of it.
        rounds: how often each case is measured.
        seconds: of one measurement.
        gpu_rate: images/s that one GPU computes.

    Raises:
        UserError: numbers or folders that cannot be measured; nothing was.
    """
    _check(folders, batch_size=batch_size, crop=crop, rounds=rounds, gpu_rate=gpu_rate)
    cases = plan_cases(folders, cores=sorted(os.sched_getaffinity(0)))
    found = measure_cases(cases, rounds=rounds, seconds=seconds, batch_size=batch_size, crop=crop)
    results = describe_rates(cases, found=found)
    command = ["python", "-m", "benchmarks.pipeline"]
    command += [word for folder in folders for word in ("--data", folder.name)]
    command += ["--output", output.name, "--batch-size", str(batch_size), "--crop", str(crop)]
    command += ["--rounds", str(rounds), "--seconds", str(seconds)]
    write_record(
        output, command=command, packages=PACKAGES, results=results, ratios=_ratios(results)
    )
    for result in results:
        print(f"{result['name']:<24} {result['value']:>10,.0f} images/s  {result['peak_mb']:>5} MB")
    for line in advise(results, gpu_rate=gpu_rate):
        print(line)


def _check(
    folders: Sequence[Path], *, batch_size: int, crop: int, rounds: int, gpu_rate: float
) -> None:
    """Raise if the numbers cannot be measured, or two folders would share their names."""
    if min(batch_size, rounds, gpu_rate) <= 0:
        found = f"--batch-size {batch_size}, --rounds {rounds}, --gpu-rate {gpu_rate:g}"
        raise UserError("numbers above 0", found=found, fix="correct them")
    datasets = [load_dataset(folder) for folder in folders]
    smallest = min(dataset.image_size for dataset in datasets)
    if not 0 <= crop <= smallest:
        raise UserError(f"--crop of 0 to {smallest} px, the films' size", found=str(crop),
                        fix="0 takes all of a film")  # fmt: skip
    formats = [dataset.format for dataset in datasets]
    if len(set(formats)) < len(formats):
        raise UserError("one --data folder a format", found=", ".join(formats),
                        fix="measure the other folder in a run of its own")  # fmt: skip


def _ratios(results: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return each cached rate over that of `new` on all cores, where that was measured."""
    cached = {str(r["name"]): float(r["value"]) for r in results if "cached" in str(r["name"])}
    base = next((value for name, value in cached.items() if name.startswith("new")), None)
    return (
        {f"{name} / new": round(value / base, 3) for name, value in cached.items()} if base else {}
    )


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--data", type=Path, action="append", required=True,
        help="a prepared data folder; again for another format")  # fmt: skip
    add("--output", type=Path, required=True, help="the record, a JSON file")
    add("--batch-size", type=int, default=32)
    add("--crop", type=int, default=0, help="px cut out of each film; 0 for all of it")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=4.0, help="of one measurement")
    add("--gpu-rate", type=float, default=700.0, help="images/s that one of your GPUs computes")
    options = vars(parser.parse_args())
    run_benchmark(options.pop("data"), **options)


if __name__ == "__main__":
    main()
