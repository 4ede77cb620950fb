"""What evaluation costs: beside the bare forward pass, in memory, and for the intervals.

Knows a data set of as many films as NIH's test list (random bytes of 64 px: the numbers are of
the machinery, not of a network's scores) and an untrained run to evaluate on it.

    python -m benchmarks.evaluation --output FILE.json

The forward pass is DenseNet-121 over the same batches, held in memory; beside it stands
`predict_split` alone, on one split: no start, no second pass over the validation films, no
resamples and no heat maps. Both are timed in turns, in one process. Memory is the most that
`python -m chexnet evaluate` held, with the network `tiny`, on all films less that on a few: what
grows with the films.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.record import write_record

SIZE_PX = 64
BATCH = 32
OFFICIAL_TEST_FILMS = 25_596
OFFICIAL_TEST_PATIENTS = 2_797
FEW_FILMS = 256
FORWARD_FILMS = 512
REPEATS = 5
PACKAGES = ("tensorflow-cpu", "keras", "numpy")
FILMS_A_SHARD = 4096


def make_data(folder: Path, *, test_films: int, seed: int = 0) -> Path:
    """Write prepared data of random films, nearly all of them for the test."""
    from chexnet.data.shards import describe_split, write_description
    from chexnet.labels import FINDINGS
    from chexnet.nih import Film

    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    splits = {}
    for side, number in (("train", BATCH), ("validation", FEW_FILMS), ("test", test_films)):
        most = max(1, number * OFFICIAL_TEST_PATIENTS // OFFICIAL_TEST_FILMS)
        patients = np.sort(random.integers(most, size=number))
        present = random.random((number, len(FINDINGS))) < 0.1
        films = [
            Film(f"{side}{film:08d}_000.png", f"{side}{patients[film]}",
                 tuple(np.array(FINDINGS)[present[film]].tolist()), None, "")
            for film in range(number)
        ]  # fmt: skip
        shards = [
            _write_shard(
                folder, f"{side}-{first:08d}.u8", min(FILMS_A_SHARD, number - first), random
            )
            for first in range(0, number, FILMS_A_SHARD)
        ]
        splits[side] = describe_split(folder, side, films=films, shards=shards)
    description = {
        "schema_version": 2, "classes": [*FINDINGS], "split": "patient", "seed": seed,
        "image_size": SIZE_PX, "format": "fast", "source": {}, "quarantined": [],
        "splits": splits,
    }  # fmt: skip
    write_description(folder, description)
    return folder


def _write_shard(folder: Path, name: str, films: int, random: np.random.Generator):  # noqa: ANN202
    from chexnet.records import Shard, hash_file

    (folder / name).write_bytes(random.bytes(films * SIZE_PX**2))
    return Shard(name, films, hash_file(folder / name), films * SIZE_PX**2)


def make_run(folder: Path) -> Path:
    """Write a run folder of an untrained network ``tiny``."""
    from chexnet.checkpoint import save_checkpoint
    from chexnet.config import load_config, render_config
    from chexnet.labels import FINDINGS
    from chexnet.model import build_model
    from chexnet.networks.weights import find_normalisation
    from chexnet.training.checkpoint_file import Description

    settings = ["preset=demo", "model=tiny", "device=cpu", f"batch_size={BATCH}"]
    config = load_config(None, settings=[*settings, f"image_size={SIZE_PX}", "crop_size=0"])
    model = build_model("tiny", input_size=SIZE_PX, image_size=SIZE_PX)
    description = Description(
        1, 1, "tiny", SIZE_PX, SIZE_PX, SIZE_PX, "float32", FINDINGS, find_normalisation("tiny"),
        config.sha256, 0.5,
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(render_config(config))
    save_checkpoint(
        folder / "checkpoints", description=description, model=model.variables, optimizer=[]
    )
    return folder


def time_in_turns(works: Sequence[Callable[[], object]], *, repeats: int) -> np.ndarray:
    """Return what each piece of work took, one after the other: float [repeats, works, 2].

    Seconds that passed, and seconds of all processors that this process used: the second does not
    count what other programs took meanwhile.
    """
    for work in works:
        work()  # what the first time costs is not of interest
    seconds = np.empty((repeats, len(works), 2))
    for turn in range(repeats):
        for place, work in enumerate(works):
            begun = time.perf_counter(), time.process_time()
            work()
            seconds[turn, place] = time.perf_counter() - begun[0], time.process_time() - begun[1]
    return seconds


def measure_rates(data: Path) -> dict[str, tuple[float, float]]:
    """Return images a second, and a second of a processor, of the bare pass and an evaluation."""
    import horovod.tensorflow as hvd

    from chexnet.distributed import Ranks
    from chexnet.model import build_model
    from chexnet.pipeline import make_pipeline
    from chexnet.records import load_dataset
    from chexnet.results.predictions import make_predict, predict_split

    hvd.init()
    dataset = load_dataset(data)
    model = build_model("densenet121", input_size=SIZE_PX, image_size=SIZE_PX)
    predict = make_predict(model, input_size=SIZE_PX)
    asked = {"split": "test", "batch_size": BATCH}
    batches = [x for x, _, _ in make_pipeline(dataset, name="fast", training=False, **asked)]

    def forward() -> None:
        for logits in [predict(images) for images in batches]:
            logits.numpy()

    def evaluate() -> None:
        predict_split(predict, dataset=dataset, ranks=Ranks(0, 1, 0), **asked)

    seconds = np.median(time_in_turns([forward, evaluate], repeats=REPEATS), axis=0)
    rates = dataset.splits["test"].num_examples / seconds
    return {"bare forward pass": tuple(rates[0]), "predictions of an evaluation": tuple(rates[1])}


def measure_memory(run: Path, data: Path) -> tuple[float, float]:
    """Return the most memory that an evaluation held, MiB, and the seconds it took."""
    line = [sys.executable, "-m", "chexnet", "evaluate", "--run", str(run), "--data", str(data)]
    begun = time.perf_counter()
    with subprocess.Popen([*line, "--no-gallery"], stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the evaluation ended with exit code {child.returncode}")
    return usage.ru_maxrss / 1024, time.perf_counter() - begun


def measure_intervals() -> float:
    """Return the seconds that 1,000 resamples of NIH's test films and 14 findings take."""
    from chexnet.results.intervals import Bootstrap, make_intervals

    random = np.random.default_rng(0)
    labels = random.random((OFFICIAL_TEST_FILMS, 14)) < 0.06
    scores = random.normal(size=labels.shape) + labels
    patients = random.integers(OFFICIAL_TEST_PATIENTS, size=len(labels)).astype(str)
    begun = time.perf_counter()
    make_intervals(labels, scores=scores, patients=patients, how=Bootstrap())
    return time.perf_counter() - begun


def _describe_rates(rates: dict[str, tuple[float, float]]) -> list[dict[str, object]]:
    of = f"{FORWARD_FILMS} films of {SIZE_PX} px, DenseNet-121, batch {BATCH}, {REPEATS} turns"
    of += ", median; one split, neither start, resamples nor heat maps"
    return [
        {"name": name, "value": round(float(rate), 1), "unit": unit, "of": of}
        for name, found in rates.items()
        for rate, unit in zip(found, ("images/s", "images/processor-s"), strict=True)
    ]


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chexnet-evaluation-") as name:
        folder = Path(name)
        run = make_run(folder / "run")
        few = make_data(folder / "few", test_films=FEW_FILMS)
        some = make_data(folder / "some", test_films=FORWARD_FILMS)
        whole = make_data(folder / "whole", test_films=OFFICIAL_TEST_FILMS)
        few_mib, _ = measure_memory(run, few)
        all_mib, seconds = measure_memory(run, whole)
        rates = measure_rates(some)
    results = [
        *_describe_rates(rates),
        {"name": f"memory, {FEW_FILMS} films", "value": round(few_mib), "unit": "MiB",
         "of": "tiny, the most that the process held"},
        {"name": f"memory, {OFFICIAL_TEST_FILMS} films", "value": round(all_mib), "unit": "MiB",
         "of": "tiny, the most that the process held"},
        {"name": f"evaluation of {OFFICIAL_TEST_FILMS} films", "value": round(seconds, 1),
         "unit": "s", "of": "tiny, start and 1,000 resamples included"},
        {"name": "1,000 resamples by patient", "value": round(measure_intervals(), 2),
         "unit": "s", "of": f"{OFFICIAL_TEST_FILMS} films, 14 findings"},
    ]  # fmt: skip
    bare, evaluated = rates.values()
    write_record(
        arguments.output,
        command=["python", "-m", "benchmarks.evaluation", "--output", arguments.output.name],
        packages=PACKAGES,
        results=results,
        ratios={
            "predictions of one split over bare forward pass": round(evaluated[0] / bare[0], 3),
            "the same by processor time": round(evaluated[1] / bare[1], 3),
            "memory of all films over that of few": round(all_mib / few_mib, 3),
        },
    )


if __name__ == "__main__":
    main()
