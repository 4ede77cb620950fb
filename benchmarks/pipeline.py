"""Images per second of the input pipelines, with nothing behind them.

Knows how a pipeline's rate is measured: batches are drawn as fast as they come,
in rounds that alternate between the pipelines, so that another load on the
machine hits each alike. Leaves the pipelines to `chexnet.pipeline`.

    python -m benchmarks.pipeline --data DIR --output FILE.json
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import write_record

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy")


def measure_rates(
    data: Path, *, names: list[str], batch_size: int, rounds: int, round_s: float
) -> dict[str, list[float]]:
    """Return the images/s of each pipeline in each round.

    Args:
        data: a prepared data folder; its training side is read as one rank.
        names: the pipelines.
        batch_size: images in a batch.
        rounds: how often each is measured.
        round_s: length of one measurement, seconds.
    """
    from chexnet.pipeline import make_pipeline
    from chexnet.records import load_dataset

    dataset = load_dataset(data)
    streams = {
        name: iter(make_pipeline(dataset, split="train", name=name, batch_size=batch_size))
        for name in names
    }
    rates: dict[str, list[float]] = {name: [] for name in names}
    # The first round fills buffers and starts threads; it does not count.
    for nth in range(rounds + 1):
        for name, stream in streams.items():
            rate = _time_stream(stream, batch_size=batch_size, round_s=round_s)
            if nth:
                rates[name].append(rate)
    return rates


def _time_stream(stream: Iterator[object], *, batch_size: int, round_s: float) -> float:
    # Batches that the stream prepared while the other one was measured come at
    # once; they are thrown away first.
    _draw(stream, seconds=round_s / 4)
    num_batches, elapsed_s = _draw(stream, seconds=round_s)
    return num_batches * batch_size / elapsed_s


def _draw(stream: Iterator[object], *, seconds: float) -> tuple[int, float]:
    started = now = time.perf_counter()
    num_batches = 0
    while now - started < seconds:
        next(stream)
        num_batches += 1
        now = time.perf_counter()
    return num_batches, now - started


def describe_rates(rates: dict[str, list[float]]) -> list[dict[str, object]]:
    """Return the results of a record: the median, with the slowest and fastest round."""
    return [
        {
            "name": name,
            "value": round(statistics.median(values), 1),
            "unit": "images/s",
            "slowest": round(min(values), 1),
            "fastest": round(max(values), 1),
            "rounds": len(values),
        }
        for name, values in rates.items()
    ]


def main() -> None:
    """Measure every pipeline on one rank and write the record."""
    from chexnet.pipeline import PIPELINES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline")
    parser.add_argument("--data", type=Path, required=True, help="a prepared data folder")
    parser.add_argument("--output", type=Path, required=True, help="the record, a JSON file")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-s", type=float, default=4.0)
    options = parser.parse_args()
    rates = measure_rates(
        options.data,
        names=list(PIPELINES),
        batch_size=options.batch_size,
        rounds=options.rounds,
        round_s=options.round_s,
    )
    results = describe_rates(rates)
    command = ["python", "-m", "benchmarks.pipeline", "--data", options.data.name]
    command += ["--output", options.output.name, "--batch-size", str(options.batch_size)]
    command += ["--rounds", str(options.rounds), "--round-s", str(options.round_s)]
    median = {result["name"]: result["value"] for result in results}
    write_record(
        options.output,
        command=command,
        packages=PACKAGES,
        results=results,
        ratios={"new/old": round(median["new"] / median["old"], 3)},
    )
    for result in results:
        print(f"{result['name']}: {result['value']} {result['unit']}")


if __name__ == "__main__":
    main()
