"""Programs that produce numbers; the records they write are JSON.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import command, required


@command(
    help={
        "data": "a prepared data folder; again for another format",
        "output": "the record, a JSON file",
        "batch-size": "images in a batch",
        "crop": "px cut out of each film; 0 for all of it",
        "rounds": "how often each case is measured",
        "gpu-rate": "images/s that one of your GPUs computes",
    },
    iterable=["data"],
)
def bench_pipeline(
    c: Context,
    data: list[str] | None = None,
    output: str = "",
    batch_size: int = 32,
    crop: int = 0,
    rounds: int = 3,
    gpu_rate: float = 700.0,
) -> None:
    """Measure what input this machine can feed, and say what stops it from more."""
    from chexnet.quiet import quiet_import

    with quiet_import():
        from benchmarks.pipeline import run_benchmark

    required(data=" ".join(data or ()), output=output)
    run_benchmark(
        [Path(folder) for folder in data or ()], output=Path(output), batch_size=batch_size,
        crop=crop, rounds=rounds, gpu_rate=gpu_rate,
    )  # fmt: skip


@command(
    help={
        "output": "the record, a JSON file",
        "ranks": "processes on this machine",
        "rounds": "how often each mapping trains; the median counts",
        "images": "made-up films to train on",
    }
)
def bench_binding(
    c: Context, output: str = "", ranks: int = 2, rounds: int = 3, images: int = 2000
) -> None:
    """Compare --map-by socket, core, slot, none and the plan on a real short training."""
    from benchmarks.binding import run_benchmark
    from benchmarks.record import render_results

    required(output=output)
    run_benchmark(Path(output), ranks=ranks, rounds=rounds, num_images=images)
    print(render_results(Path(output)))


@command(
    help={
        "output": "the record, a JSON file",
        "ranks": "processes on this machine",
        "rounds": "how often each way is timed; the median counts",
    }
)
def bench_allreduce(c: Context, output: str = "", ranks: int = 2, rounds: int = 20) -> None:
    """Time the exchange of DenseNet-121's gradients, each way, beside a plain MPI_Allreduce.

    Over shared memory and over TCP, with Horovod's settings as they come, a shorter cycle, and
    Tensor Fusion off.
    """
    from benchmarks.allreduce import run_benchmark
    from benchmarks.record import render_results

    required(output=output)
    run_benchmark(Path(output), ranks=ranks, rounds=rounds)
    print(render_results(Path(output)))
