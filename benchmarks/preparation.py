"""How fast prepare-data is beside what decoding alone would take, and what NIH's films will take.

    python -m benchmarks.preparation --source NIH_DIR --output FILE.json

Decodes the same films on one thread with each PNG library at hand and with Pillow in one process
a core at once, and prepares them with one process a core, in rounds that alternate. The goal is
0.9 of cores times the fastest decoder; what decoding alone loses with every core busy is told.
Films come under several names each (`--names`), so that the command's start weighs little, as it
does in a night's run.
"""

from __future__ import annotations

import argparse
import multiprocessing.pool
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from PIL import Image

from benchmarks.record import write_record
from chexnet import nih

PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy", "pillow")
GOAL = 0.9
NIH_FILMS = 112_120


def decode_with_pillow(path: Path) -> None:
    """Decode a film to its pixels."""
    with Image.open(path) as image:
        image.load()


def decode_with_tensorflow(path: Path) -> None:
    """Decode a film to its pixels, on the calling thread."""
    tf.io.decode_png(path.read_bytes(), channels=1)


TOGETHER = "decode: pillow, one process a core"
DECODERS: dict[str, Callable[[Path], None]] = {
    "pillow": decode_with_pillow, "tensorflow": decode_with_tensorflow,
}  # fmt: skip


def measure_decoder(decode: Callable[[Path], None], *, films: list[Path]) -> float:
    """Return films/s of one thread, all of them from memory."""
    begun = time.perf_counter()
    for path in films:
        decode(path)
    return len(films) / (time.perf_counter() - begun)


def measure_together(pool: multiprocessing.pool.Pool, *, films: list[Path], cores: int) -> float:
    """Return films/s of Pillow in one process a core, all at once."""
    parts = [films[number::cores] for number in range(cores)]
    begun = time.perf_counter()
    pool.map(_decode_all, parts, chunksize=1)
    return len(films) / (time.perf_counter() - begun)


def _decode_all(films: list[Path]) -> None:
    for path in films:
        decode_with_pillow(path)


def repeat_films(source: Path, *, folder: Path, names: int) -> Path:
    """Return a folder in NIH's layout with each film of another under several names, as links."""
    repeated = folder / "source"
    (repeated / "images").mkdir(parents=True)
    for name, path in nih.find_images(source).items():
        for copy in _names(name, names):
            (repeated / "images" / copy).symlink_to(path.resolve())
    table = nih.find_table(source)
    for listed in (table, source / nih.TRAIN_VAL_LIST, source / nih.TEST_LIST):
        lines = listed.read_text().splitlines()
        new = lines[:1] if listed == table else []
        for name, sign, rest in (line.partition(",") for line in lines[len(new) :]):
            new += [f"{copy}{sign}{rest}" for copy in _names(name, names)]
        (repeated / listed.name).write_text("\n".join(new) + "\n")
    return repeated


def _names(name: str, count: int) -> list[str]:
    path = Path(name)
    return [f"{path.stem}_{number}{path.suffix}" for number in range(count)]


def measure_preparation(source: Path, *, format: str, size_px: int, num_films: int) -> float:
    """Return films/s of the command with one process a core, from its start to its end.

    A process of its own: workers import what the process that starts them began with, here
    TensorFlow.
    """
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable, "-m", "chexnet", "prepare-data", "--source", str(source), "--output",
            str(Path(name) / "data"), "--format", format, "--size", str(size_px),
        ]  # fmt: skip
        begun = time.perf_counter()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        return num_films / (time.perf_counter() - begun)


def measure(source: Path, *, films: list[Path], rounds: int, names: int) -> dict[str, list[float]]:
    """Return films/s of every decoder and every preparation, by round.

    Args:
        source: what is prepared.
        films: what is decoded.
        rounds: how often.
        names: how many films of the source each of those is.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    found: dict[str, list[float]] = {}
    cores = len(os.sched_getaffinity(0))
    pool = multiprocessing.get_context("spawn").Pool(cores)
    pool.map(_decode_all, [films[:1]] * (4 * cores), chunksize=1)  # until all have started
    for nth in range(rounds):
        for name, decode in DECODERS.items():
            found.setdefault(f"decode: {name}, one thread", []).append(
                measure_decoder(decode, films=films)
            )
        found.setdefault(TOGETHER, []).append(measure_together(pool, films=films, cores=cores))
        for format, size_px in (("fast", 256), ("fast", 320), ("encoded", 256)):
            rate = measure_preparation(source, format=format, size_px=size_px,
                                       num_films=names * len(films))  # fmt: skip
            found.setdefault(f"prepare-data: {format}, {size_px} px", []).append(rate)
        told = ", ".join(f"{name} {rates[-1]:.0f}/s" for name, rates in found.items())
        print(f"round {nth + 1}/{rounds}: {told}", file=sys.stderr, flush=True)
    pool.terminate()
    return found


def describe(
    found: dict[str, list[float]], *, films: list[Path], names: int
) -> tuple[list[dict[str, object]], dict[str, float]]:
    """Return the results and ratios of the record."""
    cores = len(os.sched_getaffinity(0))
    rates = {name: statistics.median(values) for name, values in found.items()}
    best = max(rates[f"decode: {name}, one thread"] for name in DECODERS)
    results: list[dict[str, object]] = [
        {"name": name, "value": round(rate, 1), "unit": "films/s",
         "slowest": round(min(found[name]), 1), "fastest": round(max(found[name]), 1)}
        for name, rate in rates.items()
    ]  # fmt: skip
    ratios = {
        f"{name} / (cores x fastest decoder)": round(rate / (cores * best), 3)
        for name, rate in rates.items()
        if name == TOGETHER or name.startswith("prepare")
    }
    reached = ratios["prepare-data: fast, 256 px / (cores x fastest decoder)"]
    results += [
        {"name": "films", "value": len(films), "unit": "films", "cores": cores, "names": names,
         "bytes_per_film": round(sum(path.stat().st_size for path in films) / len(films))},
        {"name": "goal: prepare-data, fast, 256 px", "value": reached, "unit": "times",
         "goal": GOAL, "met": reached >= GOAL},
        {"name": "extrapolated: NIH's 112,120 films, fast, 256 px",
         "value": round(NIH_FILMS / rates["prepare-data: fast, 256 px"] / 60, 1), "unit": "min",
         "cores": cores},
    ]  # fmt: skip
    return results, ratios


def main() -> None:
    """Measure, write the record, and say what was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preparation")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--source", type=Path, required=True, help="films as NIH ships them")
    parser.add_argument("--output", type=Path, required=True, help="the record, a JSON file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--names", type=int, default=1, help="under which each film is prepared")
    options = parser.parse_args()
    films = sorted(nih.find_images(options.source).values())
    with tempfile.TemporaryDirectory(dir=options.output.parent) as folder:
        source = repeat_films(options.source, folder=Path(folder), names=options.names)
        found = measure(source, films=films, rounds=options.rounds, names=options.names)
    results, ratios = describe(found, films=films, names=options.names)
    write_record(
        options.output, packages=PACKAGES, results=results, ratios=ratios,
        command=["python", "-m", "benchmarks.preparation", "--source", options.source.name,
                 "--rounds", str(options.rounds), "--names", str(options.names)],
    )  # fmt: skip
    for name, ratio in ratios.items():
        print(f"{ratio:.3f}  {name}")


if __name__ == "__main__":
    main()
