"""One rank's input with a stand-in device behind it, and without.

Knows the stand-in: it waits for a step time and uses no core, as a GPU that computes leaves
the cores to the input. It is no device, and what is measured with it says nothing of one.
Leaves which pipelines and numbers of ranks make a picture to `benchmarks.stand_in`, which
starts this as a child. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.common import measure_epochs


class StandIn:
    """A device that waits instead of computing.

    Args:
        step_s: of one step, seconds.
    """

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._waited = 0.0
        self._steps = 0

    def feed(self, batches: Iterator[object]) -> Iterator[object]:
        """Yield every batch when the stand-in is done with it."""
        for batch in batches:
            begun = time.perf_counter()
            time.sleep(self._step_s)
            self._waited += time.perf_counter() - begun
            self._steps += 1
            yield batch

    @property
    def step_ms(self) -> float:
        """Return the mean time of a step as it was, ms: sleeping takes a little longer."""
        return 1000 * self._waited / self._steps


def main() -> None:
    """Measure without the stand-in, then with it, and print both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stand_in_rank")
    add = parser.add_argument
    add("--data", type=Path, required=True, help="a prepared data folder")
    add("--pipeline", required=True, help="old, new or fast")
    add("--batch-size", type=int, required=True)
    add("--rank", type=int, required=True)
    add("--ranks", type=int, required=True)
    add("--step-ms", type=float, required=True, help="of the stand-in device")
    add("--seconds", type=float, required=True)
    options = parser.parse_args()

    from chexnet.pipeline import make_pipeline
    from chexnet.records import load_dataset

    dataset = load_dataset(options.data)
    batches = iter(make_pipeline(
        dataset, split="train", name=options.pipeline, batch_size=options.batch_size,
        rank=options.rank, size=options.ranks,
    ))  # fmt: skip
    share = {
        "batch_size": options.batch_size,
        "epoch": -(-dataset.splits["train"].num_examples // options.ranks),
        "seconds": options.seconds,
    }
    alone = measure_epochs(batches, **share)
    device = StandIn(options.step_ms / 1000)
    fed = measure_epochs(device.feed(batches), **share)
    print(json.dumps({
        "input_ms": _step_ms(alone, options.batch_size),
        "step_ms": _step_ms(fed, options.batch_size),
        "device_ms": device.step_ms,
    }))  # fmt: skip


def _step_ms(found: dict[str, float], batch_size: int) -> float:
    return 1000 * found["seconds"] * batch_size / found["images"]


if __name__ == "__main__":
    main()
