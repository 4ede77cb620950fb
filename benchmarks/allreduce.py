"""What the exchange of DenseNet-121's gradients costs, each way, over shared memory and TCP.

Every way is timed in turn with a plain MPI_Allreduce of as many bytes: a ratio compares
numbers of one process that saw the same load. Horovod reads its settings when it starts,
so that each setting is a launch of its own.

    python -m benchmarks.allreduce --output FILE.json [--ranks 2] [--rounds 20]
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
from typing import Any

from benchmarks.record import write_record
from containers.launch import plan_ranks, project_environ
from containers.launch_lines import render_launch
from containers.launchers import Launch, find_launcher
from env.binding import NONE
from env.errors import EXIT_FAILED, UserError

PACKAGES = ("tensorflow-cpu", "tensorflow", "keras", "horovod")
PLAIN = "plain MPI_Allreduce"
# Open MPI's own names; without the choice it takes shared memory within a host.
TRANSPORTS = {"shared memory": "self,vader", "TCP": "self,tcp"}
# Groups stay apart only where Horovod is told not to fuse them; alone they are one anyway.
_APART = {"HOROVOD_DISABLE_GROUP_FUSION": "1"}
SETTINGS: dict[str, dict[str, str]] = {
    "default": _APART,
    "cycle time 0.1 ms": {**_APART, "HOROVOD_CYCLE_TIME": "0.1"},
    "fusion off": {**_APART, "HOROVOD_FUSION_THRESHOLD": "0"},
}


def render_command(transport: str, *, ranks: int, rounds: int, output: Path) -> list[str]:
    """Return the command line of one launch, each rank on a core of its own.

    Args:
        transport: one of ``TRANSPORTS``.
        ranks: processes on this machine.
        rounds: how often each way is timed.
        output: what rank 0 writes.
    """
    program = [sys.executable, "-m", "benchmarks.allreduce_rank"]
    program += ["--output", str(output), "--rounds", str(rounds)]
    launch = Launch(replace(plan_ranks(ranks), mapping=NONE), find_launcher(remote=False))
    line = render_launch(launch, command=program)
    # ob1 is what uses the transports named; another layer would choose for itself.
    chosen = ["--bind-to", "core", "--mca", "pml", "ob1", "--mca", "btl", TRANSPORTS[transport]]
    return [*line[: line.index("-np") + 2], *chosen, *program]


def measure(
    *, ranks: int, rounds: int, folder: Path
) -> dict[tuple[str, str], dict[str, dict[str, list[float]]]]:
    """Return the milliseconds of every way, and of the plain one, by transport and setting.

    Args:
        ranks: processes on this machine.
        rounds: how often each way is timed.
        folder: takes what the ranks write.
    """
    taken = {}
    for setting, environ in SETTINGS.items():
        for transport in TRANSPORTS:
            output = folder / f"{len(taken)}.json"
            command = render_command(transport, ranks=ranks, rounds=rounds, output=output)
            _run(command, environ=environ)
            taken[transport, setting] = json.loads(output.read_text(encoding="utf-8"))["ms"]
    return taken


def describe(
    taken: Mapping[tuple[str, str], Mapping[str, Mapping[str, Sequence[float]]]],
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return a result for each way, and its median over that of the plain one in turn with it."""
    results: list[dict[str, Any]] = []
    ratios = {}
    for (transport, setting), ways in taken.items():
        for way, times in ways.items():
            name = f"{transport}, {setting}, {way}"
            median, plain = statistics.median(times[way]), statistics.median(times[PLAIN])
            results.append(
                {
                    "name": name,
                    "value": round(median, 2),
                    "unit": "ms",
                    "fastest": round(min(times[way]), 2),
                    "plain_ms": round(plain, 2),
                    "rounds": len(times[way]),
                    "transport": transport,
                    "setting": setting,
                    "way": way,
                }
            )
            ratios[f"{name} / {PLAIN}"] = round(median / plain, 3)
    return results, ratios


def run_benchmark(output: Path, *, ranks: int, rounds: int) -> None:
    """Measure, and write the record.

    Raises:
        UserError: nothing to exchange or to count, more ranks than cores, or a launch failed.
    """
    cores = len(os.sched_getaffinity(0))
    if not (2 <= ranks <= cores and rounds >= 1):
        raise UserError(
            f"--ranks of 2 to {cores} (cores of this machine), --rounds of at least 1",
            found=f"--ranks {ranks}, --rounds {rounds}",
            fix="each rank needs a core of its own to time an exchange",
        )
    with tempfile.TemporaryDirectory(prefix="chexnet-allreduce-") as name:
        taken = measure(ranks=ranks, rounds=rounds, folder=Path(name))
    results, ratios = describe(taken)
    argv = ["--ranks", str(ranks), "--rounds", str(rounds)]
    write_record(
        output,
        command=["python", "-m", "benchmarks.allreduce", *argv],
        packages=PACKAGES,
        results=results,
        ratios=ratios,
    )


def _run(argv: Sequence[str], *, environ: Mapping[str, str]) -> None:
    whole = {**project_environ(os.environ), "TF_CPP_MIN_LOG_LEVEL": "3", **environ}
    done = subprocess.run(argv, env=whole, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)  # fmt: skip
    if done.returncode != 0:
        last = "\n".join(done.stderr.splitlines()[-15:])
        raise UserError(
            "ranks that exchange gradients",
            found=f"exit code {done.returncode} of {shlex.join(argv)}\n{last}",
            fix="prove the machine first: invoke validate-env",
            exit_code=EXIT_FAILED,
        )


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--ranks", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=20, metavar="N")
    arguments = parser.parse_args()
    run_benchmark(arguments.output, ranks=arguments.ranks, rounds=arguments.rounds)


if __name__ == "__main__":
    main()
