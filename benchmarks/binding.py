"""What binding does to a training: --map-by socket, core and slot, none, and the plan.

The comparison of the CheXNet scaling study, which found that ranks bound to one core each starve
their input threads. Every mapping trains the same small network on the same made-up films, in
rounds that alternate between them, so that another load on the machine hits each alike. Beside
the rates stand the cores that each mapping gave the ranks, as the ranks saw them.

    python -m benchmarks.binding --output FILE.json [--ranks 2] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.record import write_record
from containers.launch import plan_ranks, project_environ
from containers.launch_lines import render_launch
from containers.launchers import Launch, find_launcher
from env.binding import NONE, BindingPlan, render_plan
from env.cpulist import render_cpu_list
from env.errors import EXIT_FAILED, UserError

PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "horovod")
PLAN, BASELINE = "plan", "--map-by socket"
# What follows `mpirun -np N`; the plan's own options come from the launcher that training uses.
MAPPINGS = {
    BASELINE: ["--map-by", "socket"],
    "--map-by core": ["--map-by", "core"],
    "--map-by slot": ["--map-by", "slot"],
    "--bind-to none": ["--bind-to", "none"],
    PLAN: [],
}
SETTINGS = ("preset=demo", "model=tiny", "epochs=2")
# Each rank says its own mask in one line of a file: a launcher may mix the output of two.
_SHOW = """\
import os, sys
with open(os.path.join(sys.argv[1], os.environ["OMPI_COMM_WORLD_RANK"]), "w") as file:
    file.write(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
"""


def render_mapping(
    name: str, *, plan: BindingPlan, command: Sequence[str], folder: Path
) -> list[str]:
    """Return the command line that starts the ranks by a mapping.

    Args:
        name: one of ``MAPPINGS``.
        plan: the ranks; its cores count for the mapping ``PLAN`` alone.
        command: what every rank runs.
        folder: takes the files that the launcher reads.
    """
    launcher = find_launcher(remote=False)
    if name == PLAN:
        launch = Launch(plan, launcher, folder=folder)
        for path, text in launch.files().items():
            path.write_text(text, encoding="utf-8")
        return render_launch(launch, command=command)
    line = render_launch(Launch(replace(plan, mapping=NONE), launcher), command=["COMMAND"])
    at = line.index("-np") + 2
    return [*line[:at], *MAPPINGS[name], *command]


def measure_masks(name: str, *, plan: BindingPlan, folder: Path) -> list[str]:
    """Return the CPUs that a mapping gives each rank, in Linux's short form."""
    folder.mkdir()
    show = [sys.executable, "-c", _SHOW, str(folder)]
    _run(render_mapping(name, plan=plan, command=show, folder=folder.parent))
    texts = [(folder / str(rank)).read_text() for rank in range(len(plan.ranks))]
    return [render_cpu_list(map(int, text.split())) for text in texts]


def measure_training(name: str, *, plan: BindingPlan, data: Path, folder: Path) -> float:
    """Train once under a mapping and return the images/s of all ranks together."""
    program = [sys.executable, "-m", "chexnet", "train", "--data", str(data), "--run", str(folder)]
    program += [token for setting in SETTINGS for token in ("--set", setting)]
    if name == PLAN:
        path = folder.with_suffix(".plan.json")
        path.write_text(render_plan(plan), encoding="utf-8")
        program += ["--plan", str(path)]
    _run(render_mapping(name, plan=plan, command=program, folder=folder.parent))
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    return float(record["throughput"]["images_per_s"])


def make_data(folder: Path, *, num_images: int) -> Path:
    """Write made-up films, prepared for training, and return their folder."""
    program = [sys.executable, "-m", "chexnet"]
    size = ["--images", str(num_images), "--size", "64"]
    _run([*program, "make-sample-data", "--output", str(folder / "films"), *size])
    paths = ["--source", str(folder / "films"), "--output", str(folder / "data")]
    _run([*program, "prepare-data", *paths, "--size", "64"])
    return folder / "data"


def measure(ranks: int, *, rounds: int, num_images: int, folder: Path) -> list[dict[str, object]]:
    """Return the result of every mapping: the median rate, its range, and the ranks' CPUs.

    Args:
        ranks: processes on this machine.
        rounds: how often each mapping trains.
        num_images: made-up films.
        folder: takes everything that is written.
    """
    plan = plan_ranks(ranks)
    data = make_data(folder, num_images=num_images)
    masks = {
        name: measure_masks(name, plan=plan, folder=folder / f"masks-{n}")
        for n, name in enumerate(MAPPINGS)
    }
    rates: dict[str, list[float]] = {name: [] for name in MAPPINGS}
    for nth in range(rounds):
        for n, (name, values) in enumerate(rates.items()):
            run = folder / f"run-{nth}-{n}"
            values.append(measure_training(name, plan=plan, data=data, folder=run))
    return describe(rates, masks=masks)


def describe(
    rates: Mapping[str, Sequence[float]], *, masks: Mapping[str, Sequence[str]]
) -> list[dict[str, object]]:
    """Return one result for each mapping."""
    return [
        {
            "name": name,
            "value": round(statistics.median(values), 1),
            "unit": "images/s",
            "slowest": round(min(values), 1),
            "fastest": round(max(values), 1),
            "rounds": len(values),
            "cpus": list(masks[name]),
        }
        for name, values in rates.items()
    ]


def compare(rates: Mapping[str, float]) -> dict[str, float]:
    """Return each mapping's rate over that of the study's ``--map-by socket``."""
    return {
        f"{name} / {BASELINE}": round(value / rates[BASELINE], 3)
        for name, value in rates.items()
        if name != BASELINE
    }


def run_benchmark(output: Path, *, ranks: int, rounds: int, num_images: int) -> None:
    """Measure, and write the record."""
    with tempfile.TemporaryDirectory(prefix="chexnet-binding-") as name:
        results = measure(ranks, rounds=rounds, num_images=num_images, folder=Path(name))
    argv = ["--ranks", str(ranks), "--rounds", str(rounds), "--images", str(num_images)]
    write_record(
        output,
        command=["python", "-m", "benchmarks.binding", *argv],
        packages=PACKAGES,
        results=results,
        ratios=compare({str(r["name"]): float(str(r["value"])) for r in results}),
    )


def _run(argv: Sequence[str]) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    environ = {**project_environ(os.environ), **quiet}
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)  # fmt: skip
    if done.returncode != 0:
        last = "\n".join(done.stderr.splitlines()[-15:])
        raise UserError(
            "a training that ends well under every mapping",
            found=f"exit code {done.returncode} of {shlex.join(argv)}\n{last}",
            fix="prove the machine first: invoke validate-env",
            exit_code=EXIT_FAILED,
        )


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--ranks", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--images", type=int, default=2000, metavar="N")
    arguments = parser.parse_args()
    run_benchmark(arguments.output, ranks=arguments.ranks, rounds=arguments.rounds,
                  num_images=arguments.images)  # fmt: skip


if __name__ == "__main__":
    main()
