"""Why `old` does not scale: the scaling study's first figures, with a stand-in device.

Each pipeline is run as one rank of N, alone on this machine as if every rank had a node of
its own, and feeds a stand-in for a device: a wait of a given time that uses no core. Rates of
N ranks are N times that of the one measured; storage and network that ranks would share, and
the exchange of gradients, are left out. Knows the figures as numbers; leaves pictures to
others, and measuring one rank to `stand_in_rank`.

    python -m benchmarks.stand_in --data ENCODED --data FAST --output FILE.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import write_record

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy")
RANKS = (1, 2, 4, 8)
DEVICE = "stand-in: waits for the step time and uses no core"


@dataclass(frozen=True)
class Case:
    """One pipeline on a number of ranks.

    Attributes:
        data: a prepared data folder.
        pipeline: what reads it.
        ranks: how many share the films; one of them is measured.
    """

    data: Path
    pipeline: str
    ranks: int

    @property
    def name(self) -> str:
        """Return its name in the record, e.g. ``old, 4 ranks``."""
        return f"{self.pipeline}, {self.ranks} rank{'s' * (self.ranks > 1)}"


def plan_cases(folders: Sequence[Path], *, ranks: Sequence[int]) -> list[Case]:
    """Return every pipeline that reads one of the folders, on every number of ranks."""
    from chexnet.input.fitting import pipelines_here
    from chexnet.records import load_dataset

    return [
        Case(folder, name, number)
        for folder in folders
        for name in pipelines_here(load_dataset(folder).format)
        for number in ranks
    ]


def measure_cases(
    cases: Sequence[Case], *, rounds: int, batch_size: int, step_ms: float, seconds: float
) -> dict[str, list[dict[str, float]]]:
    """Return every round of every case, in ms a step: input alone, the device, both together.

    Rounds alternate between the cases, and every round measures another rank.
    """
    found: dict[str, list[dict[str, float]]] = {case.name: [] for case in cases}
    for nth in range(rounds):
        for case in cases:
            command = [
                sys.executable, "-m", "benchmarks.stand_in_rank", "--data", str(case.data),
                "--pipeline", case.pipeline, "--rank", str(nth % case.ranks),
                "--ranks", str(case.ranks), "--batch-size", str(batch_size),
                "--step-ms", str(step_ms), "--seconds", str(seconds),
            ]  # fmt: skip
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                                  env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})  # fmt: skip
            one = json.loads(done.stdout)
            found[case.name].append(one)
            print(f"round {nth + 1}/{rounds}  {case.name}: {one['step_ms']:.1f} ms a step, input "
                  f"alone {one['input_ms']:.1f} ms", file=sys.stderr, flush=True)  # fmt: skip
    return found


def describe_cases(
    cases: Sequence[Case], *, found: Mapping[str, Sequence[Mapping[str, float]]], batch_size: int
) -> list[dict[str, object]]:
    """Return the results of a record, medians over the rounds.

    Each has the rate of all ranks, and of a step the times without overlap (the sum of input
    and device), with full overlap (the longer of both) and as measured, in ms; and the share
    of the time that the stand-in device had nothing to do.
    """
    results = []
    for case in cases:
        rounds = found[case.name]
        input_ms, device_ms, step_ms = (
            statistics.median(one[key] for one in rounds)
            for key in ("input_ms", "device_ms", "step_ms")
        )
        rates = [1000 * case.ranks * batch_size / one["step_ms"] for one in rounds]
        results.append({
            "name": case.name,
            "value": round(statistics.median(rates), 1),
            "unit": "images/s",
            "slowest": round(min(rates), 1),
            "fastest": round(max(rates), 1),
            "rounds": len(rounds),
            "device": DEVICE,
            "pipeline": case.pipeline,
            "ranks": case.ranks,
            "device_limit": round(1000 * case.ranks * batch_size / device_ms, 1),
            "input_ms": round(input_ms, 3),
            "device_ms": round(device_ms, 3),
            "step_ms": round(step_ms, 3),
            "no_overlap_ms": round(input_ms + device_ms, 3),
            "full_overlap_ms": round(max(input_ms, device_ms), 3),
            "device_idle_share": round(max(0.0, 1 - device_ms / step_ms), 4),
        })  # fmt: skip
    return results


def compare_cases(results: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the scaling efficiencies: each rate over N times that of the fewest ranks."""
    ratios = {}
    for one in results:
        base = min((r for r in results if r["pipeline"] == one["pipeline"]),
                   key=lambda r: int(r["ranks"]))  # fmt: skip
        each = float(base["value"]) / int(base["ranks"])
        if one is not base:
            efficiency = float(one["value"]) / (int(one["ranks"]) * each)
            ratios[f"scaling efficiency: {one['name']}"] = round(efficiency, 4)
    return ratios


def main() -> None:
    """Measure every pipeline that reads the data, write the record and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stand_in")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--data", type=Path, action="append", required=True,
        help="a prepared data folder of 4,000 films or more; again for another format")  # fmt: skip
    add("--output", type=Path, required=True, help="the record, a JSON file")
    add("--ranks", type=int, nargs="+", default=list(RANKS))
    add("--batch-size", type=int, default=32)
    add("--step-ms", type=float, default=20.0, help="of the stand-in device")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=2.0, help="of one measurement, at least")
    options = parser.parse_args()
    cases = plan_cases(options.data, ranks=options.ranks)
    found = measure_cases(cases, rounds=options.rounds, batch_size=options.batch_size,
                          step_ms=options.step_ms, seconds=options.seconds)  # fmt: skip
    results = describe_cases(cases, found=found, batch_size=options.batch_size)
    command = ["python", "-m", "benchmarks.stand_in"]
    command += [word for folder in options.data for word in ("--data", folder.name)]
    command += ["--ranks", *map(str, options.ranks), "--batch-size", str(options.batch_size)]
    command += ["--step-ms", str(options.step_ms), "--rounds", str(options.rounds)]
    command += ["--seconds", str(options.seconds)]
    ratios = compare_cases(results)
    write_record(options.output, command=command, packages=PACKAGES, results=results, ratios=ratios)
    print(f"device: {DEVICE}")
    for one in results:
        efficiency = ratios.get(f"scaling efficiency: {one['name']}", 1.0)
        print(f"{one['name']:<14} {one['value']:>9,.0f} images/s  efficiency {efficiency:>4.0%}  "
              f"step {one['step_ms']:>6.1f} ms (no overlap {one['no_overlap_ms']:.1f}, full "
              f"{one['full_overlap_ms']:.1f})  idle {one['device_idle_share']:.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
