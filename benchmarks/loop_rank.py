"""One of the ranks that `benchmarks.loop` starts: together and apart in turn.

Each rank has the network twice: in one the gradients cross between ranks, in the other they do
not, which makes it a process of its own. Both take the same number of steps on the same blank films
in memory, in rounds that alternate, so that another load on the machine hits each alike.

    mpirun -np 2 python -m benchmarks.loop_rank --data DIR --folder DIR --model NAME --steps N
        --rounds N --output FILE.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.loop_parts import configure, join, set_up
from chexnet import distributed


def main() -> None:
    """Measure both and write the films a second of all ranks together, a pair a round."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("data", "folder", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    arguments = parser.parse_args()
    config = configure(arguments.model, batch_size=arguments.batch_size)
    ranks, steps = join(config), arguments.steps
    together, apart = (
        set_up(arguments.data, folder=arguments.folder / name, config=config, ranks=ranks,
               steps=steps)
        for name in ("together", "apart")
    )  # fmt: skip
    apart.trainer._exchange = list  # the gradients stay where they are
    for bench in (together, apart):
        bench.bare()
    films = steps * arguments.batch_size
    rates = [
        [films / _time(bench.bare) for bench in (together, apart)] for _ in range(arguments.rounds)
    ]
    sums = [
        [distributed.average_numbers([rate], name="rate")[0] * together.job.ranks.size
         for rate in pair] for pair in rates
    ]  # fmt: skip
    if together.job.ranks.is_first:
        pairs = [{"together": pair[0], "apart": pair[1]} for pair in sums]
        arguments.output.write_text(json.dumps(pairs), encoding="utf-8")


def _time(work: Callable[[], None]) -> float:
    """Return the seconds of some work that all ranks begin at once."""
    distributed.average_numbers([0.0], name="begin")
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
