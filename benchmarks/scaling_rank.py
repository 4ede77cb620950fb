"""One rank of a scaling series: real training steps behind each pipeline and kind of input.

Knows how a case is timed: the same number of steps on every rank, in rounds that alternate
between the cases. ``synthetic`` trains on one batch again and again: what network and exchange
alone allow. ``cached`` reads films that are in memory, ``real`` empties the page cache first.
Leaves which numbers of ranks make a series to `benchmarks.scaling`, which launches this.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.storage import drop_from_cache

if TYPE_CHECKING:
    from chexnet.distributed import Ranks
    from chexnet.records import Dataset
    from chexnet.training.step import Trainer

SYNTHETIC, CACHED, REAL = "synthetic", "cached", "real"
INPUTS = (SYNTHETIC, CACHED, REAL)
RATE = 1e-4  # learning rate: what is trained does not matter here, only how fast
WARM_UP = 2  # steps before the clock runs


@dataclass(frozen=True)
class Bench:
    """What does not change from case to case.

    Attributes:
        trainer: the compiled step.
        datasets: the data by their format.
        ranks: who this process is.
        options: of the command line.
    """

    trainer: Trainer
    datasets: Mapping[str, Dataset]
    ranks: Ranks
    options: argparse.Namespace


def repeat_batch(batch: Sequence[object]) -> Iterator[Sequence[object]]:
    """Yield the same batch without end."""
    while True:
        yield batch


def count_steps(wanted: int, *, films: int, per_step: int, kind: str) -> int:
    """Return how many steps are timed: ``real`` input has to end within one epoch.

    Args:
        wanted: steps asked for.
        films: in an epoch.
        per_step: films that all ranks take in a step.
        kind: one of `INPUTS`.
    """
    return max(1, min(wanted, films // per_step - WARM_UP)) if kind == REAL else wanted


def plan_cases(formats: Iterable[str], *, inputs: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of pipeline and input; ``synthetic`` has no pipeline.

    Args:
        formats: the formats of which there is data.
        inputs: some of `INPUTS`.
    """
    from chexnet.input.fitting import pipelines_here

    cases = [(SYNTHETIC, SYNTHETIC)] if SYNTHETIC in inputs else []
    return cases + [
        (pipeline, kind)
        for form in formats
        for pipeline in pipelines_here(form)
        for kind in inputs
        if kind != SYNTHETIC
    ]


def main() -> None:
    """Time every case, and let rank 0 write what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_rank")
    add = parser.add_argument
    add("--data", type=Path, action="append", required=True, help="a prepared data folder")
    add("--inputs", nargs="+", default=list(INPUTS), choices=INPUTS)
    add("--model", default="tiny")
    add("--batch-size", type=int, default=32)
    add("--crop", type=int, default=0, help="px cut out of each film; 0 for all of it")
    add("--device", default="auto")
    add("--steps", type=int, default=20, help="timed in each round of each case")
    add("--repeats", type=int, default=3)
    add("--plan", type=Path, help="the binding plan")
    add("--output", type=Path, required=True, help="what rank 0 writes, JSON")
    options = parser.parse_args()

    from chexnet import distributed

    ranks = distributed.start()
    device = distributed.select_device(options.device, ranks=ranks, plan=options.plan)
    bench = _build(options, device=device, ranks=ranks)
    cases = plan_cases(bench.datasets, inputs=options.inputs)
    time_case(bench, *cases[0], seed=0)  # the very first steps fill caches and pools of memory
    rounds = [
        {"pipeline": pipeline, "input": kind, **time_case(bench, pipeline, kind, seed=nth)}
        for nth in range(options.repeats)
        for pipeline, kind in cases
    ]
    if ranks.is_first:
        found = {"device": device, "ranks": ranks.size, "rounds": rounds}
        options.output.write_text(json.dumps(found), encoding="utf-8")


def _build(options: argparse.Namespace, *, device: str, ranks: Ranks) -> Bench:
    """Return the compiled step, with the same weights on every rank, and the data."""
    from chexnet import distributed
    from chexnet.config import load_config
    from chexnet.model import build_model
    from chexnet.records import load_dataset
    from chexnet.run import fit_config, settle_config
    from chexnet.training.step import Trainer

    datasets = {one.format: one for one in map(load_dataset, options.data)}
    given = {"preset": "demo", "model": options.model, "batch_size": options.batch_size,
             "crop_size": options.crop, "device": options.device}  # fmt: skip
    config = load_config(settings=[f"{key}={value}" for key, value in given.items()])
    config = fit_config(config, dataset=next(iter(datasets.values())))
    # One step a call: each asks for its own films, and its wait is told apart.
    config = replace(settle_config(config, device=device), steps_per_call=1)
    model = build_model(
        config.model, input_size=config.crop_size, image_size=config.image_size,
        weights=config.weights, batch_statistics=config.batch_statistics,
        batch_norm_momentum=config.batch_norm_momentum, precision=config.precision,
    )  # fmt: skip
    trainer = Trainer(model, config=config)
    distributed.broadcast_state(trainer.variables)
    trainer.trace()
    return Bench(trainer, datasets, ranks, options)


def time_case(bench: Bench, pipeline: str, kind: str, *, seed: int) -> dict[str, float]:
    """Return images/s of all ranks, and the share of the time that steps waited for films."""
    from chexnet import distributed
    from chexnet.input.fitting import FORMATS_READ, best_pipeline
    from chexnet.pipeline import make_pipeline
    from chexnet.training.step import Meter

    options, ranks = bench.options, bench.ranks
    if kind == SYNTHETIC:  # whatever gives one batch
        pipeline = best_pipeline(list(bench.datasets.values())[-1])
    dataset = bench.datasets[FORMATS_READ[pipeline]]
    if kind == REAL and ranks.local_rank == 0:
        drop_from_cache(Path(dataset.root).iterdir())
    # Nobody starts before the cache is empty.
    distributed.gather_objects(seed, name=f"begin {pipeline} {kind} {seed}")
    per_step = options.batch_size * ranks.size
    films = dataset.splits["train"].num_examples
    steps = count_steps(options.steps, films=films, per_step=per_step, kind=kind)
    stream = iter(make_pipeline(
        dataset, split="train", name=pipeline, batch_size=options.batch_size, rank=ranks.rank,
        size=ranks.size, seed=seed, crop_px=options.crop,
    ))  # fmt: skip
    batches = repeat_batch(next(stream)) if kind == SYNTHETIC else stream
    for number in (WARM_UP, steps):
        meter = Meter()
        for _ in range(number):
            bench.trainer.timed_steps(batches, rates=[RATE], meters=[meter])
        measured = meter.measure(images_per_step=per_step)  # waits for the device
    if hasattr(stream, "close"):  # the threads of `fast` would disturb the next case
        stream.close()
    return {"images_per_s": measured.images_per_s, "steps": steps,
            "input_wait_fraction": measured.input_wait_fraction}  # fmt: skip


if __name__ == "__main__":
    main()
