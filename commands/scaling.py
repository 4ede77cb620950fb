"""Scaling: what more GPUs would bring, predicted; and what more ranks brought, measured.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

import math
from pathlib import Path

from invoke import Context

from commands.command import HOSTS_HELP, at_least, command, one_of, optional_path, required

NUMBERS = "1,2,…,512"
UNSAID = math.nan  # of a number that a source may give, and that may be 0


@command(
    iterable=["from_", "measured"],
    help={
        "step-ms": "of one GPU alone with its input at hand: batch / images/s x 1000",
        "batch": "films a GPU and step",
        "gradient-mib": "that cross in a step; by default DenseNet-121's with 14 outputs: 26.58",
        "latency-us": "of a message between nodes; by default 9.6",
        "bandwidth-gbs": "GB/s of a node's network, each way; by default 12.5, which are 100 Gb/s",
        "intra-latency-us": "of a message between GPUs of a node; by default 3.4",
        "intra-bandwidth-gbs": "GB/s between neighbouring GPUs of a node, each way; by default 50",
        "gpus-per-node": "ranks that share a node's network and cores",
        "input-images-per-s": "that one node prepares (bench-pipeline); 0: never waited for",
        "storage-images-per-s": "that storage gives all nodes together; 0: never waited for",
        "decodes-all": "every rank prepares the films of all ranks, as the pipeline old does",
        "overlap": "share of the exchange beside computing, 0 to 1; 0 for one grouped operation",
        "jitter-ms": "standard deviation of a rank's step",
        "cycle-ms": "Horovod's cycle time",
        "algorithm": "auto (the faster of ring and tree), ring, tree or hierarchical",
        "images": "films in an epoch; by default those of the published study",
        "epochs": "to train",
        "gpus": f"numbers of GPUs; … goes on by doubling; by default {NUMBERS}",
        "from_": "a run folder, report or benchmark's record to take numbers from; may be repeated",
        "measured": "run folders, or a folder of such, to hold the plan against; may be repeated",
        "validate": "a published table (or all) to hold the model against, instead of predicting",
        "json": "print JSON instead of tables",
        "picture": "also draw it there: a .png or .svg file",
    },
)
def plan_scaling(
    c: Context,
    step_ms: float = 0.0,
    batch: int = 0,
    gradient_mib: float = UNSAID,
    latency_us: float = UNSAID,
    bandwidth_gbs: float = UNSAID,
    intra_latency_us: float = UNSAID,
    intra_bandwidth_gbs: float = UNSAID,
    gpus_per_node: int = 4,
    input_images_per_s: float = UNSAID,
    storage_images_per_s: float = 0.0,
    decodes_all: bool = False,
    overlap: float = 0.0,
    jitter_ms: float = 0.0,
    cycle_ms: float = 1.0,
    algorithm: str = "auto",
    images: int = 77871,
    epochs: int = 10,
    gpus: str = "",
    from_: list[str] | None = None,
    measured: list[str] | None = None,
    validate: str = "",
    json: bool = False,
    picture: str = "",
) -> None:
    """Predict images/s, efficiency, hours and node-hours on N GPUs, and say what will bind."""
    from containers.scaling import Cluster, Work
    from containers.scaling_plan import Request, parse_numbers, show_plan, show_validation

    if validate:
        one_of(validate=validate, **{"from": from_, "measured": measured, "gpus": gpus,
                                     "step-ms": step_ms, "batch": batch})  # fmt: skip
        show_validation(validate, as_json=json, picture=optional_path(picture))
        return
    from containers.scaling_sources import read_rates, settle

    told = {
        "gradient_mib": gradient_mib, "latency_us": latency_us, "bandwidth_gb_s": bandwidth_gbs,
        "intra_latency_us": intra_latency_us, "intra_bandwidth_gb_s": intra_bandwidth_gbs,
        "input_images_per_s": input_images_per_s,
    }  # fmt: skip
    cluster = Cluster(gpus_per_node=gpus_per_node, storage_images_per_s=storage_images_per_s)
    work = Work(
        step_ms=step_ms, batch=batch, overlap=overlap, cycle_ms=cycle_ms, jitter_ms=jitter_ms,
        algorithm=algorithm, decodes_all=decodes_all, images=images, epochs=epochs,
    )  # fmt: skip
    request = Request(
        work, cluster, parse_numbers(gpus or NUMBERS), json, optional_path(picture),
        measured=read_rates([Path(one) for one in measured or ()]),
        given={name: value for name, value in told.items() if not math.isnan(value)},
    )  # fmt: skip
    show_plan(settle(request, [Path(one) for one in from_ or ()]))


@command(
    iterable=["data"],
    help={
        "output": "the record, a JSON file",
        "ranks": "numbers of ranks, joined by commas",
        "input": "some of synthetic, cached and real, joined by commas",
        "data": "a prepared data folder, again for another format; by default made-up films",
        "hosts": HOSTS_HELP,
        "model": "what is trained: tiny, or densenet121 and the other networks",
        "batch-size": "films of one rank in a step",
        "crop": "px cut out of each film; 0 for all of it",
        "device": "auto, gpu or cpu",
        "steps": "timed in each round of each case",
        "repeats": "rounds; the median counts, and the spread is kept",
        "picture": "also draw it there: a .png or .svg file",
        "stand-in": "a record of benchmarks.stand_in to draw below it",
        "dry-run": "print the command lines and run nothing",
    },
)
def bench_scaling(
    c: Context,
    output: str = "",
    ranks: str = "1,2",
    input: str = "synthetic,cached,real",
    data: list[str] | None = None,
    hosts: str = "",
    model: str = "tiny",
    batch_size: int = 32,
    crop: int = 64,
    device: str = "auto",
    steps: int = 20,
    repeats: int = 3,
    picture: str = "",
    stand_in: str = "",
    dry_run: bool = False,
) -> None:
    """Train on 1, 2, … ranks behind old, new and fast: images/s, efficiency, their spread."""
    from benchmarks.scaling import Series, parse_inputs, parse_ranks, run_benchmark
    from containers.hosts import parse_hosts

    required(output=output)
    at_least(1, batch_size=batch_size, steps=steps, repeats=repeats)
    at_least(0, crop=crop)
    series = Series(
        parse_ranks(ranks), parse_inputs(input), tuple(Path(one) for one in data or ()),
        parse_hosts(hosts), model, batch_size, crop, device, steps, repeats,
    )  # fmt: skip
    run_benchmark(series, output=Path(output), picture=optional_path(picture),
                  stand_in=optional_path(stand_in), dry_run=dry_run)  # fmt: skip
