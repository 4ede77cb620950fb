"""What a run has become: scores, predictions, pages.

Each task parses, calls one function, prints and returns an exit code. No logic.
Imports lazily, so that ``invoke --list`` loads neither hpccm nor TensorFlow.
"""

from __future__ import annotations

from pathlib import Path

from invoke import Context

from commands.command import (
    HOSTS_HELP,
    LAUNCHER_HELP,
    UNSAID,
    at_least,
    command,
    enterable,
    optional_path,
    required,
    said,
)

RESAMPLES = 1000


@command(
    help={
        "run": "a run folder",
        "split": "test, validation or train",
        "data": "prepared data, if not the run's own",
        "checkpoint": "best by validation AUROC, last, or a file",
        "calibrate": "temperature, platt or none: fit probabilities on validation and keep that",
        "boxes": "NIH's BBox_List_2017.csv, to compare heat maps with",
        "beside": "a published result to show beside; refused where it is on other films",
        "method": "of the heat maps: cam or gradcam",
        "resamples": "draws of patients for the intervals; 0 for none",
        "seed": "of those draws",
        "gallery": "draw heat maps of another split than test, too",
        "no-gallery": "draw no heat maps",
        "device": "auto takes a GPU where there is one; gpu; cpu; if not that of the run",
        "json": "print evaluation.json, no tables",
        "ranks": "processes that share the films; the numbers stay the same",
        "hosts": HOSTS_HELP,
        "launcher": LAUNCHER_HELP,
        "oversubscribe": "allow more ranks than cores",
        "image": "evaluate inside this image",
        "dry-run": "print the command line and run nothing",
    }
)
def evaluate(
    c: Context,
    run: str = "",
    split: str = "test",
    data: str = "",
    checkpoint: str = "best",
    calibrate: str = "",
    boxes: str = "",
    beside: str = "",
    method: str = "cam",
    resamples: int = RESAMPLES,
    seed: int = 0,
    gallery: bool = False,
    no_gallery: bool = False,
    device: str = "",
    json: bool = False,
    ranks: int = UNSAID,
    hosts: str = "",
    launcher: str = "auto",
    oversubscribe: bool = False,
    image: str = "",
    dry_run: bool = False,
) -> int:
    """Score a run: AUROC and average precision with intervals, calibration, thresholds, boxes."""
    from containers.evaluate import Evaluation, options_of
    from containers.evaluate import evaluate as start
    from containers.hosts import parse_hosts
    from containers.job import Job

    required(run=run)
    at_least(0, resamples=resamples, seed=seed)
    launched = said(ranks) is not None or hosts
    job = Job(said(ranks), parse_hosts(hosts), launcher, oversubscribe) if launched else None
    options = options_of(
        calibrate=calibrate, beside=beside, method=method, resamples=str(resamples),
        seed=str(seed), gallery=gallery, no_gallery=no_gallery, json=json,
    )  # fmt: skip
    asked = Evaluation(
        Path(run), split, optional_path(data), optional_path(boxes), checkpoint,
        options, job, enterable(image), device or None,
    )  # fmt: skip
    return start(asked, dry_run=dry_run)
