"""Trainings that are killed at random moments and continued: what is left of them.

One run is left alone. Another, of the same configuration, is ended again and again: one rank by
SIGKILL, all of them and the launcher by SIGKILL, or all by SIGUSR1, as a scheduler does that wants
the machine. It is resumed each time. At its end its weights and losses are compared with those of
the first, bit by bit, and the checkpoints never have gone back.

    python -m benchmarks.kills --data DIR --output FILE.json [--kills 30] [--ranks 2] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.record import write_record
from chexnet.checkpoint import Checkpoint, list_checkpoints, load_newest, place_of
from chexnet.training.metrics_log import METRICS
from containers.launch import plan_ranks, project_environ
from containers.launch_lines import render_launch
from containers.launchers import Launch, find_launcher
from env.errors import EXIT_FAILED, EXIT_REQUEUE, UserError

RANK, ALL, ASKED = "kill -9 of one rank", "kill -9 of all", "SIGUSR1"
KINDS = (RANK, ALL, ASKED)
SETTINGS = ("preset=demo", "model=tiny", "device=cpu", "batch_size=8", "epochs=3",
            "checkpoint_steps=5")  # fmt: skip
PACKAGES = ("tensorflow-cpu", "keras", "horovod")
PATIENCE_S = 600

Start = Callable[[Sequence[str]], subprocess.Popen]


@dataclass(frozen=True)
class Kill:
    """One end of a training.

    Attributes:
        kind: one of ``KINDS``.
        rank: who was killed; None for all.
        lines: of metrics.jsonl when it was.
        code: of the launcher; negative for a signal.
        seconds: until the last rank had ended.
        epoch: epochs completed, by the newest checkpoint that is whole.
        films: of the next epoch, likewise.
        error: in the run's record afterwards.
    """

    kind: str
    rank: int | None
    lines: int
    code: int
    seconds: float
    epoch: int
    films: int
    error: str | None


def survive(
    program: Sequence[str], *, run: Path, start: Start, kinds: Sequence[str], seed: int
) -> list[Kill]:
    """End a training at random moments, resume it each time and let it finish.

    Args:
        program: the words of the training, without ``--resume``.
        run: its run folder.
        start: starts some words on the ranks, in a session of their own.
        kinds: how it is ended, in this order.
        seed: of the moments and the ranks.

    Returns:
        What each end was like.

    Raises:
        UserError: it did not finish in the end.
    """
    chance = random.Random(seed)
    kills = [_kill(start([*program, "--resume"]), run=run, kind=kind, chance=chance)
             for kind in kinds]  # fmt: skip
    finish(start([*program, "--resume"]), run=run)
    return kills


def finish(child: subprocess.Popen, *, run: Path) -> None:
    """Let a training finish.

    Raises:
        UserError: it did not, or took too long.
    """
    err = _wait(child, run=run)
    if child.returncode:
        raise _failure("a training that finishes", found=err)


def _kill(child: subprocess.Popen, *, run: Path, kind: str, chance: random.Random) -> Kill:
    """Let a training take a random number of steps more and end it.

    Raises:
        UserError: it had ended by itself, stood still, or did not end.
    """
    wanted = _count_lines(run) + chance.randint(1, 3)
    try:
        _await(lambda: child.poll() is not None or _count_lines(run) >= wanted,
               what=f"a training that reaches line {wanted} of {run / METRICS}")  # fmt: skip
        time.sleep(chance.uniform(0, 0.1))
        ranks, lines = find_ranks(run), _count_lines(run)
        if child.poll() is not None or not ranks:
            raise _failure("a training to end", found=f"one that has ended, {lines} lines in {run}")
        rank = chance.choice(sorted(ranks)) if kind == RANK else None
        begun = time.perf_counter()
        if kind == ASKED:
            child.send_signal(signal.SIGUSR1)
        elif rank is not None:
            _end(ranks[rank])
        else:
            for pid in (child.pid, *ranks.values()):
                _end(pid)
        _await(lambda: not find_ranks(run), what="ranks that end")
    except UserError:
        _end_all(child, run=run)
        raise
    seconds = time.perf_counter() - begun
    _wait(child, run=run)
    newest = load_newest(run / "checkpoints", say=_refuse)
    place = place_of(newest.path) if newest else (0, 0)
    error = json.loads((run / "record.json").read_text(encoding="utf-8"))["error"]
    return Kill(kind, rank, lines, child.returncode, round(seconds, 2), *place, error)


def _await(true: Callable[[], bool], *, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise _failure(what, found=f"none within {PATIENCE_S} s")
        time.sleep(0.01)


def _wait(child: subprocess.Popen, *, run: Path) -> str:
    """Return what a training said once it has ended; end it where it does not."""
    try:
        return str(child.communicate(timeout=PATIENCE_S)[1])
    except subprocess.TimeoutExpired as error:
        _end_all(child, run=run)
        raise _failure("a training that ends", found=f"none within {PATIENCE_S} s") from error


def _end_all(child: subprocess.Popen, *, run: Path) -> None:
    """End a launcher, what is in its session's group, and the ranks, which may have their own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in find_ranks(run).values():
        _end(pid)
    child.communicate()


def _failure(expected: str, *, found: str) -> UserError:
    return UserError(expected, found=found, fix="see its output", exit_code=EXIT_FAILED)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _refuse(text: str) -> None:
    raise UserError("whole checkpoints after a kill", found=text, fix="see there", exit_code=1)


def find_ranks(run: Path) -> dict[int, int]:
    """Return the process of each rank that trains in a run folder now."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            variables = (path / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [v.partition(b"=")[2] for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank and str(run).encode() in words:
            found[int(rank[0])] = int(path.name)
    return found


def _count_lines(run: Path) -> int:
    try:
        return (run / METRICS).read_bytes().count(b"\n")
    except OSError:
        return 0


def compare(run: Path, *, alone: Path) -> list[str]:
    """Return in what a run differs from one that was left alone; nothing if in nothing."""
    ends = [_last(folder) for folder in (run, alone)]
    values = [(*end.model_values, *end.optimizer_values) for end in ends]
    differences = [
        f"variable {number}"
        for number, (one, other) in enumerate(zip(*values, strict=True))
        if not np.array_equal(one, other)
    ]
    for one, other in zip(*(_losses(folder) for folder in (run, alone)), strict=False):
        if one != other:
            differences.append(f"{METRICS}: {one} and {other}")
    if len(_losses(run)) != len(_losses(alone)):
        differences.append(f"{METRICS}: {len(_losses(run))} and {len(_losses(alone))} lines")
    return differences


def _last(folder: Path) -> Checkpoint:
    checkpoint = load_newest(folder / "checkpoints", say=_refuse)
    if checkpoint is None:
        _refuse(f"none in {folder}")
    return checkpoint


def _losses(folder: Path) -> list[tuple[object, ...]]:
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    keys = ("kind", "epoch", "step", "examples", "lr", "loss", "validation_auroc")
    return [tuple(json.loads(line).get(key) for key in keys) for line in lines]


def is_forward(kills: Sequence[Kill]) -> bool:
    """Return whether no end lost a checkpoint that an earlier one had left."""
    places = [(kill.epoch, kill.films) for kill in kills]
    return places == sorted(places)


def is_named(kill: Kill) -> bool:
    """Return whether the run's record tells which rank was killed; True where none was."""
    return kill.kind != RANK or f"rank {kill.rank} ended: process " in str(kill.error)


def launcher(ranks: int) -> Start:
    """Return what starts the training program on some ranks of this machine."""
    plan = plan_ranks(ranks, oversubscribe=True, device="cpu")
    launch = Launch(plan, find_launcher(remote=False))

    def start(words: Sequence[str]) -> subprocess.Popen:
        line = render_launch(launch, command=[sys.executable, "-m", "chexnet", *words])
        return subprocess.Popen(
            line, env=project_environ(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    return start


def words_for(data: Path, run: Path, *, settings: Sequence[str] = SETTINGS) -> list[str]:
    """Return the words of a training."""
    program = ["train", "--data", str(data), "--run", str(run)]
    return [*program, *(word for setting in settings for word in ("--set", setting))]


def count_faults(
    kills: Sequence[Kill], *, differences: Sequence[str]
) -> dict[str, tuple[int, str]]:
    """Return by name how often something was not as promised, and of what; 0 where all was."""
    asked = [kill for kill in kills if kill.kind == ASKED]
    return {
        "differences to the run left alone": (len(differences), "values and lines"),
        "checkpoints lost": (0 if is_forward(kills) else 1, "checkpoints"),
        "asked to stop and not 75": (sum(kill.code != EXIT_REQUEUE for kill in asked), "ends"),
        "killed ranks that no record names": (sum(not is_named(kill) for kill in kills), "ends"),
    }


def summarise(kills: Sequence[Kill], *, differences: Sequence[str]) -> list[dict[str, object]]:
    """Return the results for the record."""
    numbers: list[tuple[str, object, str]] = [
        (name, count, unit)
        for name, (count, unit) in count_faults(kills, differences=differences).items()
    ]
    for kind in KINDS:
        times = [kill.seconds for kill in kills if kill.kind == kind]
        numbers.append((kind, len(times), "ends"))
        if times:
            numbers.append((f"{kind}: longest until all had ended", max(times), "s"))
    results = [{"name": name, "value": value, "unit": unit} for name, value, unit in numbers]
    return [*results, *({"name": kill.kind, "unit": "end", "value": place} | asdict(kill)
                        for place, kill in enumerate(kills, 1))]  # fmt: skip


def main() -> int:
    """Train, kill, compare, write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="prepared data")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    parser.add_argument("--kills", type=int, default=30, metavar="N")
    parser.add_argument("--ranks", type=int, default=2, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="K")
    arguments = parser.parse_args()
    start = launcher(arguments.ranks)
    # Between two ends it does at most an epoch or so.
    settings = (*SETTINGS, f"epochs={2 * arguments.kills + 2}")
    with tempfile.TemporaryDirectory(prefix="chexnet_kills_") as name:
        alone, run = Path(name) / "alone", Path(name) / "killed"
        finish(start(words_for(arguments.data, alone, settings=settings)), run=alone)
        kinds = [KINDS[number % len(KINDS)] for number in range(arguments.kills)]
        program = words_for(arguments.data, run, settings=settings)
        kills = survive(program, run=run, start=start, kinds=kinds, seed=arguments.seed)
        differences = compare(run, alone=alone)
        kept = len(list_checkpoints(run / "checkpoints"))
    for difference in differences:
        print(f"differs: {difference}", file=sys.stderr)
    words = f"--kills {arguments.kills} --ranks {arguments.ranks} --seed {arguments.seed}"
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.kills", *words.split()],
        packages=PACKAGES,
        results=[*summarise(kills, differences=differences),
                 {"name": "checkpoints kept", "value": kept, "unit": "files"}],
        ratios={},
    )  # fmt: skip
    faults = count_faults(kills, differences=differences)
    return EXIT_FAILED if any(count for count, _ in faults.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
