"""The project's pipelines beside DALI, PyTorch's DataLoader and Grain, on the same films.

Knows what is compared, from three inputs (PNG as shipped, 256 px JPEG, decoded bytes), in
rounds that alternate, so that another load on the machine hits each alike; and the goals
for `fast`. Every film is shuffled by itself, cropped at a place of its own and mirrored on
the host; the rate is what reaches the consumer as a batch. Leaves the films to `inputs`,
one loader to each program in `peers`, and their environment to `peers.environment`.

    python -m benchmarks.loaders --data DIR [--source NIH_DIR] --output FILE.json
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

from benchmarks.inputs import ensure_inputs
from benchmarks.peers.common import BYTES, JPEG, PNG
from benchmarks.peers.environment import ensure_environment, read_versions
from benchmarks.record import write_record

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy", "pillow")
OURS, FLOOR = "ours", "floor"
# The peers, and the distributions that they are.
PEERS = {"dali": "nvidia-dali-cuda120", "torch": "torch", "grain": "grain"}
PROGRAMS = {
    OURS: "our_loader", FLOOR: "floor", "dali": "dali_loader", "torch": "torch_loader",
    "grain": "grain_loader",
}  # fmt: skip
SIZE, CROP = 256, 224  # px
LONGEST = 120  # seconds that one measurement may take before it counts as hanging


@dataclass(frozen=True)
class Case:
    """One loader on one input.

    Attributes:
        input: ``png``, ``jpeg`` or ``bytes``.
        name: the loader, as the record calls it.
        program: a key of `PROGRAMS`: what runs it.
        case: what that program calls it.
    """

    input: str
    name: str
    program: str
    case: str

    @property
    def label(self) -> str:
        """Return its name in the record, e.g. ``bytes: fast``."""
        return f"{self.input}: {self.name}"


FAST, NEW = Case(BYTES, "fast", OURS, "fast"), Case(PNG, "new", OURS, "new-png")
FLOOR_CASE = Case(BYTES, "floor", FLOOR, BYTES)
STEP = Case(BYTES, "fast, crop and flip in the step", OURS, "fast-step")
CASES = (
    Case(PNG, "old", OURS, "old-png"),
    NEW,
    *(Case(PNG, peer, peer, PNG) for peer in PEERS),
    Case(JPEG, "old", OURS, "old-jpeg"),
    Case(JPEG, "new", OURS, "new-jpeg"),
    *(Case(JPEG, peer, peer, JPEG) for peer in PEERS),
    FAST,
    Case(BYTES, "fast, whole films", OURS, "fast-whole"),
    STEP,
    *(Case(BYTES, f"{peer}, mapped array", peer, BYTES) for peer in PEERS),
    Case(BYTES, "dali, numpy files", "dali", "npy"),
    Case(BYTES, "grain, ArrayRecord", "grain", "records"),
    FLOOR_CASE,
)


@dataclass(frozen=True)
class Goal:
    """A quotient that `fast` shall reach."""

    name: str
    least: float


GOALS = (
    Goal("fast / new from PNG", 150),
    Goal("fast / best peer from bytes", 1.5),
    Goal("fast / floor", 0.10),
)


def plan_cases(peers: Sequence[str]) -> list[Case]:
    """Return what is measured: everything of ours, and the peers that are asked for."""
    return [case for case in CASES if case.program not in PEERS.keys() - set(peers)]


def render_command(
    case: Case, *, folder: Path, python: Path, batch_size: int, seconds: float
) -> list[str]:
    """Return the command that measures a case once.

    Args:
        case: what to measure.
        folder: the inputs.
        python: of the peers' environment; ours and the floor run in the project's own.
        batch_size: images in a batch.
        seconds: to measure.
    """
    program = str(python) if case.program in PEERS else sys.executable
    return [
        program, "-m", f"benchmarks.peers.{PROGRAMS[case.program]}", case.case,
        "--folder", str(folder), "--size", str(SIZE), "--crop", str(CROP),
        "--batch-size", str(batch_size), "--seconds", str(seconds),
    ]  # fmt: skip


def measure_cases(
    cases: Sequence[Case], *, rounds: int, folder: Path, python: Path, batch_size: int,
    seconds: float,
) -> dict[str, list[dict[str, float]]]:  # fmt: skip
    """Return every round of every case: images, seconds and memory in MB."""
    found: dict[str, list[dict[str, float]]] = {case.label: [] for case in cases}
    environ = {**os.environ, "PYTHONPATH": str(PROJECT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    for nth in range(rounds):
        for case in cases:
            command = render_command(
                case, folder=folder, python=python, batch_size=batch_size, seconds=seconds
            )
            done = subprocess.run(command, check=False, capture_output=True, text=True,
                                  env=environ, timeout=LONGEST)  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{case.label} exited {done.returncode}:\n{done.stderr[-2000:]}")
            one = json.loads(done.stdout.splitlines()[-1])
            found[case.label].append(one)
            rate = one["images"] / one["seconds"]
            print(f"round {nth + 1}/{rounds}  {case.label}: {rate:,.0f} images/s",
                  file=sys.stderr, flush=True)  # fmt: skip
    return found


def describe_rates(
    cases: Sequence[Case], *, found: Mapping[str, Sequence[Mapping[str, float]]]
) -> list[dict[str, object]]:
    """Return the rates for a record: the median, with the slowest and fastest round."""
    results = []
    for case in cases:
        rounds = found[case.label]
        rates = [one["images"] / one["seconds"] for one in rounds]
        results.append({
            "name": case.label,
            "value": round(statistics.median(rates), 1),
            "unit": "images/s",
            "slowest": round(min(rates), 1),
            "fastest": round(max(rates), 1),
            "rounds": len(rates),
            "input": case.input,
            "loader": case.name,
            "peak_mb": round(max(one["peak_mb"] for one in rounds)),
            "worker_peak_mb": round(max(one["worker_peak_mb"] for one in rounds)),
        })  # fmt: skip
    return results


def compare_rates(
    cases: Sequence[Case], *, found: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, float]:
    """Return the quotients of this run: each is the median of its rounds' quotients."""
    rates = {case: [one["images"] / one["seconds"] for one in found[case.label]] for case in cases}
    fast = rates[FAST]
    peers = [case for case in cases if case.input == BYTES and case.program in PEERS]
    ratios = {GOALS[0].name: _quotient(fast, rates[NEW]), GOALS[2].name: _quotient(
        fast, rates[FLOOR_CASE])}  # fmt: skip
    if peers:
        best = max(peers, key=lambda case: statistics.median(rates[case]))
        ratios[GOALS[1].name] = _quotient(fast, rates[best])
    ratios |= {f"fast / {case.label}": _quotient(fast, rates[case]) for case in peers}
    ratios[f"{STEP.name} / fast"] = _quotient(rates[STEP], fast)
    return ratios


def _quotient(above: Sequence[float], below: Sequence[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(above, below, strict=True)), 4)


def describe_goals(ratios: Mapping[str, float]) -> list[dict[str, object]]:
    """Return how far each goal is reached, for those whose quotient is there."""
    return [
        {"name": f"goal: {goal.name}", "value": ratios[goal.name], "unit": "times",
         "goal": goal.least, "met": ratios[goal.name] >= goal.least}
        for goal in GOALS if goal.name in ratios
    ]  # fmt: skip


def describe_inputs(
    made: Mapping[str, object], *, rates: Mapping[str, float]
) -> list[dict[str, object]]:
    """Return bytes and preparation of each input, and the epochs that pay it back.

    Args:
        made: what `ensure_inputs` returned.
        rates: images/s, by the cases' labels.
    """
    images, seconds, sizes = made["images"], made["seconds"], made["bytes"]
    results = [
        {"name": f"bytes on disk: {form}", "value": round(size / images), "unit": "bytes/image"}
        for form, size in sizes.items()
    ]
    for form, label in (("fast", FAST.label), (JPEG, "jpeg: new")):
        results.append({"name": f"preparation: {form}", "value": seconds[form], "unit": "s"})
        saved = images / rates[NEW.label] - images / rates[label]
        if saved > 0:
            results.append({
                "name": f"preparation: {form}, paid back against new from PNG",
                "value": round(seconds[form] / saved, 2),
                "unit": "epochs",
            })  # fmt: skip
    return results


def main() -> None:
    """Measure everything, write the record, and say what was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loaders")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--data", type=Path, required=True, help="takes the inputs; made on the first run")
    add("--source", type=Path, help="an NIH folder of some hundred films; else made up")
    add("--output", type=Path, required=True, help="the record, a JSON file")
    add("--images", type=int, default=360, help="films to make up; most are for training")
    add("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    add("--batch-size", type=int, default=32)
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=2.5, help="of one measurement, at least")
    options = parser.parse_args()
    python = ensure_environment() if options.peers else Path(sys.executable)
    made = ensure_inputs(options.data, source=options.source, images=options.images, size=SIZE)
    cases = plan_cases(options.peers)
    found = measure_cases(cases, rounds=options.rounds, folder=options.data, python=python,
                          batch_size=options.batch_size, seconds=options.seconds)  # fmt: skip
    rates = describe_rates(cases, found=found)
    ratios = compare_rates(cases, found=found)
    by_name = {str(one["name"]): float(one["value"]) for one in rates}
    goals = describe_goals(ratios)
    results = [*rates, *goals, *describe_inputs(made, rates=by_name),
               {"name": "films", "value": made["images"], "unit": "images",
                "made_up": made["made_up"], "shipped_px": made["shipped_px"]}]  # fmt: skip
    command = ["python", "-m", "benchmarks.loaders", "--data", options.data.name,
               "--rounds", str(options.rounds), "--seconds", str(options.seconds),
               "--batch-size", str(options.batch_size)]  # fmt: skip
    versions = read_versions(python, [PEERS[peer] for peer in options.peers])
    write_record(options.output, command=command, packages=PACKAGES, results=results,
                 ratios=ratios, versions=versions)  # fmt: skip
    for one in rates:
        print(f"{one['name']:<40} {one['value']:>10,.0f} images/s  {one['peak_mb']:>5} MB, "
              f"workers {one['worker_peak_mb']} MB")  # fmt: skip
    for one in goals:
        print(f"{one['name']}: {one['value']:.2f} of {one['goal']}, "
              f"{'met' if one['met'] else 'MISSED'}")  # fmt: skip


if __name__ == "__main__":
    main()
