"""What the training loop costs around the compiled step, and what a start takes.

Three things, each in rounds that alternate where two are compared:

- the loop that training uses (films from disk, meters, metrics.jsonl, curves, signals; without the
  validation and checkpoint of an epoch's end) against the bare compiled step on as many blank
  films in memory, in one process on one rank;
- two ranks that exchange gradients against two processes that do not, in the same two processes;
- the seconds of a training's start by part, beside those of the first release's demo.

    python -m benchmarks.loop --output FILE.json [--model densenet121] [--rounds 5] [--steps 12]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.loop_parts import configure, join, make_films, set_up
from benchmarks.record import write_record
from chexnet.training.run_record import load_record
from containers.launch import plan_ranks, project_environ
from containers.launch_lines import render_launch
from containers.launchers import Launch, find_launcher
from env.errors import EXIT_FAILED, UserError

PACKAGES = ("tensorflow-cpu", "keras", "horovod")
RANKS = 2
BATCH_SIZE = 16
MODEL = "densenet121"
# Seconds to the first step in the first release, DenseNet-121, two ranks: from the record of its
# demo, which later demos replace; one start.
BEFORE = Path(__file__).parent / "results" / "start-old.json"
STARTS = 3
PREFIX = "to the first step: "
START_FILMS = 200

Result = dict[str, object]


def measure_loop(data: Path, folder: Path, *, model: str, steps: int, rounds: int) -> list[Result]:
    """Return the seconds of some steps in the loop and bare, medians over rounds."""
    config = configure(model, batch_size=BATCH_SIZE)
    bench = set_up(data, folder=folder, config=config, ranks=join(config), steps=steps)
    works: tuple[Callable[[], None], ...] = (bench.loop, bench.bare)
    for work in works:
        work()
    pairs = [[_time(work) for work in works] for _ in range(rounds)]
    results = [
        {"name": f"{name}, {model}, a step", "value": statistics.median(column) / steps,
         "unit": "s", "rounds": [seconds / steps for seconds in column]}
        for name, column in zip(("loop", "bare"), zip(*pairs, strict=True), strict=True)
    ]  # fmt: skip
    share = statistics.median(loop / bare for loop, bare in pairs) - 1
    return [*results, {"name": f"loop over bare, {model}", "value": share, "unit": "fraction"}]


def measure_ranks(data: Path, folder: Path, *, model: str, steps: int, rounds: int) -> list[Result]:
    """Return the rates of two ranks together and of two processes apart."""
    folder.mkdir(parents=True)
    output = folder / "ranks.json"
    options = {"data": data, "folder": folder, "model": model, "batch-size": BATCH_SIZE,
               "steps": steps, "rounds": rounds, "output": output}  # fmt: skip
    words = (str(word) for name, value in options.items() for word in (f"--{name}", value))
    _launch(["-m", "benchmarks.loop_rank", *words])
    pairs = json.loads(output.read_text(encoding="utf-8"))
    results = [
        {"name": f"{RANKS} ranks {name}, {model}", "unit": "images/s",
         "value": statistics.median(pair[name] for pair in pairs),
         "rounds": [pair[name] for pair in pairs]}
        for name in ("together", "apart")
    ]  # fmt: skip
    efficiency = statistics.median(pair["together"] / pair["apart"] for pair in pairs)
    return [*results, {"name": f"efficiency, {model}", "value": efficiency, "unit": "fraction"}]


def measure_start(folder: Path, *, model: str) -> list[Result]:
    """Return the seconds of each part of a start of two ranks on few films, medians of some."""
    data = make_films(folder / "few", num_images=START_FILMS)
    starts = [_start(data, folder / f"start-{number}", model=model) for number in range(STARTS)]
    return [
        {"name": f"{PREFIX}{name}", "value": statistics.median(start[name] for start in starts),
         "unit": "s", "rounds": [start[name] for start in starts]}
        for name in starts[0]
    ]  # fmt: skip


def _start(data: Path, run: Path, *, model: str) -> dict[str, float]:
    """Return the seconds of each part of one start, and of all."""
    settings = ("preset=demo", f"model={model}", "device=cpu", "epochs=1")
    words = ["-m", "chexnet", "train", "--data", str(data), "--run", str(run)]
    _launch([*words, *(word for setting in settings for word in ("--set", setting))])
    record = load_record(run)
    parts = dict(record.startup_s) if record else {}
    return parts | {"total": sum(parts.values())}


def compare_start(results: Sequence[Result]) -> dict[str, float]:
    """Return each part of a start as a fraction of what it took in the first release."""
    before = {
        row["name"]: row["value"]
        for row in json.loads(BEFORE.read_text(encoding="utf-8"))["results"]
        if row["name"].startswith(PREFIX)
    }
    before[f"{PREFIX}total"] = sum(before.values())
    now: dict[str, Any] = {str(row["name"]): row["value"] for row in results}
    return {name: now[name] / value for name, value in before.items() if name in now}


def _launch(words: Sequence[str]) -> None:
    launch = Launch(plan_ranks(RANKS, device="cpu"), find_launcher(remote=False))
    line = render_launch(launch, command=[sys.executable, *words])
    done = subprocess.run(
        line, env=project_environ(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise UserError(
            f"{RANKS} ranks that finish", found=done.stderr[-2000:], fix="see there",
            exit_code=EXIT_FAILED,
        )  # fmt: skip


def _time(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--model", default=MODEL, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--steps", type=int, default=12, metavar="N", help="of a round")
    arguments = parser.parse_args()
    sizes = {"model": arguments.model, "steps": arguments.steps, "rounds": arguments.rounds}
    with tempfile.TemporaryDirectory(prefix="chexnet_loop_") as name:
        folder = Path(name)
        data = make_films(folder, num_images=2 * BATCH_SIZE * arguments.steps)
        start = measure_start(folder, model=arguments.model)
        ranks = measure_ranks(data, folder / "ranks", **sizes)
        loop = measure_loop(data, folder / "loop", **sizes)
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.loop", *(f"--{k}={v}" for k, v in sizes.items())],
        packages=PACKAGES,
        results=[*start, *ranks, *loop],
        ratios=compare_start(start) if arguments.model == MODEL else {},
    )


if __name__ == "__main__":
    main()
