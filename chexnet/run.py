"""The run folder: what a training leaves behind so that it can be understood and continued.

Knows its files: config.json, environment.json, record.json, metrics.jsonl, checkpoints/.
Only rank 0 writes them. Leaves checkpoints to ``checkpoint``, the record to ``run_record``,
the metrics to ``metrics_log``, and who may write to ``run_lock``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from chexnet.config import TrainConfig, find_differences, parse_config, render_config
from chexnet.errors import UserError
from chexnet.files import write_text
from chexnet.input.fitting import best_pipeline, check_crop, check_pipeline
from chexnet.records import Dataset
from chexnet.training.metrics_log import METRICS
from chexnet.training.run_lock import LOCK
from chexnet.training.run_record import FINISHED, RECORD, RunRecord, load_record, write_record
from chexnet.training.speed import settle_speed

CONFIG = "config.json"
ENVIRONMENT = "environment.json"
PLAN = "plan.json"
CHECKPOINTS = "checkpoints"
BAD_BATCH = "bad-batch.json"
# What a launcher may put there before the training starts, and the lock.
ALLOWED_BEFORE = frozenset({ENVIRONMENT, LOCK, PLAN, "records"})
# Logs, and what is left where a program was killed while it wrote its first file.
_ALLOWED_PATTERNS = ("*.log", "autotune*.csv", ".*.tmp")
# The files of a run, by the names of those who write them.
FILES = (CONFIG, ENVIRONMENT, RECORD, METRICS, CHECKPOINTS, BAD_BATCH)


def fit_config(config: TrainConfig, *, dataset: Dataset) -> TrainConfig:
    """Return the configuration with the values that follow the data filled in.

    Raises:
        UserError: the pipeline does not read this data, or the crop is larger than its films.
    """
    pipeline = best_pipeline(dataset) if config.pipeline == "auto" else config.pipeline
    check_pipeline(pipeline, dataset=dataset)
    crop = check_crop(config.crop_size, dataset=dataset)
    size = config.image_size or crop
    return replace(config, pipeline=pipeline, crop_size=crop, image_size=size)


def settle_config(config: TrainConfig, *, device: str) -> TrainConfig:
    """Return the configuration with what is ``auto`` chosen for the device, ``gpu`` or ``cpu``.

    config.json keeps what was asked for, so that a run may go on elsewhere; record.json tells
    what was chosen.
    """
    return settle_speed(config, device=device)


def begin_run(
    folder: Path,
    *,
    config: TrainConfig,
    record: RunRecord,
    resume: bool,
    environment: Path | None = None,
    plan: Path | None = None,
) -> bool:
    """Make or check the run folder and write the record of the run that begins.

    Args:
        folder: the run folder.
        config: what will be trained.
        record: from `make_record`.
        resume: continue what is there; an empty or missing folder is begun.
        environment: the validation report, copied to ``environment.json``.
        plan: the binding plan, copied to ``plan.json``.

    Returns:
        Whether there is anything to do; a finished run is left as it is.

    Raises:
        UserError: the folder may not be used, or holds a run on other data.
    """
    before = check_folder(folder, config=config, data_sha256=record.data_sha256, resume=resume)
    if before and before.status == FINISHED:
        return False
    _open_folder(folder, config=config, kept={ENVIRONMENT: environment, PLAN: plan})
    if before:
        record = replace(
            record,
            started=before.started,
            resumed_from=before.resumed_from,
            position=before.position,
            throughput=before.throughput,
            results=before.results,
            weights_sha256=before.weights_sha256,
        )
    write_record(folder, record=record)
    return True


def check_folder(
    folder: Path, *, config: TrainConfig, data_sha256: str, resume: bool
) -> RunRecord | None:
    """Check, without writing, that a run may begin or go on in a folder.

    Args:
        folder: the run folder.
        config: what will be trained, with the values that follow the data filled in.
        data_sha256: hash of the data's description.
        resume: continue what is there.

    Returns:
        The record of the run that is there, None if there is none.

    Raises:
        UserError: something else is there, or a run of another configuration or on
            other data.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    there = [name for name in names if name not in ALLOWED_BEFORE
             and not any(fnmatch(name, pattern) for pattern in _ALLOWED_PATTERNS)]  # fmt: skip
    if there and not resume:
        raise UserError(
            f"an empty or new run folder at {folder}",
            found=f"{', '.join(there[:5])}",
            fix="choose another --run, or continue that run with --resume",
        )
    if (folder / CONFIG).exists():
        differences = find_differences(load_run_config(folder), config)
        if differences:
            raise UserError(
                f"the configuration of the run in {folder}",
                found=f"other values (that run's, and now) for {'; '.join(differences)}",
                fix="give the same configuration (with --resume alone it is taken from the "
                "run), or choose another --run",
            )
    elif there:
        raise UserError(
            f"a run to continue in {folder}",
            found=f"no {CONFIG} beside {', '.join(there[:5])}",
            fix="choose the folder of a run, or a new one",
        )
    before = load_record(folder)
    if before and before.data_sha256 != data_sha256:
        raise UserError(
            f"the data that the run in {folder} was begun with, {before.data}",
            found="other data, by the hash of its dataset.json",
            fix="give that data, or choose another --run",
        )
    return before


def make_folder(folder: Path) -> None:
    """Make the run folder, if it is not there.

    Raises:
        UserError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _open_folder(folder: Path, *, config: TrainConfig, kept: Mapping[str, Path | None]) -> None:
    """Make the run folder and put its first files there."""
    make_folder(folder)
    try:
        write_text(folder / CONFIG, text=render_config(config))
        for name, path in kept.items():
            if path and path.resolve() != (folder / name).resolve():
                shutil.copyfile(path, folder / name)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"a run folder that can be written at {folder}",
        found=f"{error.filename}: {error.strerror}",
        fix="choose another --run, or make room",
    )


def load_run_config(folder: Path) -> TrainConfig:
    """Read the configuration of a run.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    path = folder / CONFIG
    try:
        return parse_config(path.read_text(encoding="utf-8"), where=str(path))
    except OSError as error:
        raise UserError(
            f"a run folder at {folder}",
            found=f"{path}: {error.strerror}",
            fix="give the --run of a training",
        ) from error
