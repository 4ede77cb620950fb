"""The run folder: what a training leaves behind so that it can be understood and continued.

Knows its files: config.json, environment.json, record.json, metrics.jsonl, checkpoints/.
Only rank 0 writes them. Leaves checkpoints to ``checkpoint`` and what is measured to
``train``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from chexnet.config import TrainConfig, find_differences, parse_config, render_config
from chexnet.errors import UserError
from chexnet.fitting import best_pipeline, check_crop, check_pipeline
from chexnet.records import Dataset

SCHEMA_VERSION = 1
CONFIG = "config.json"
ENVIRONMENT = "environment.json"
RECORD = "record.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
# What a launcher may put there before the training starts.
ALLOWED_BEFORE = frozenset({ENVIRONMENT, "plan.json", "records"})
FINISHED = "finished"
PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "numpy")


@dataclass(frozen=True)
class RunRecord:
    """What was run, on what, from what, and what came out.

    Attributes:
        status: ``running``, ``finished``, ``interrupted`` or ``failed``.
        command: the words of the command line.
        started: when, ISO 8601 in UTC; of the first start, if resumed.
        ended: when it finished or stopped; None while it runs.
        resumed_from: the epochs after which it was continued.
        ranks: how many processes trained together.
        hosts: names of their hosts, in the order of the ranks.
        device: ``cpu`` or ``gpu``.
        data: folder of the training data.
        data_sha256: hash of its dataset.json, which names every record file's hash.
        lock_sha256: hash of the image's lock ($CHEXNET_LOCK); None outside an image.
        git_revision: of the program's checkout; None where there is none.
        versions: of Python and the packages that compute.
        horovod: what Horovod was built with.
        startup_s: seconds to the first step, by part.
        throughput: images_per_s over all ranks and seconds trained.
        results: the final metrics.
        error: why it stopped, where it did.
    """

    status: str
    command: tuple[str, ...]
    started: str
    ranks: int
    hosts: tuple[str, ...]
    device: str
    data: str
    data_sha256: str
    lock_sha256: str | None
    git_revision: str | None
    versions: Mapping[str, str]
    horovod: Mapping[str, bool]
    ended: str | None = None
    resumed_from: tuple[int, ...] = ()
    startup_s: Mapping[str, float] = field(default_factory=dict)
    throughput: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


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
    on_gpu = device == "gpu"
    chosen: dict[str, Any] = {}
    if config.precision == "auto":
        chosen["precision"] = "mixed_float16" if on_gpu else "float32"
    return replace(config, **chosen)


def begin_run(
    folder: Path,
    *,
    config: TrainConfig,
    record: RunRecord,
    resume: bool,
    environment: Path | None = None,
) -> bool:
    """Make or check the run folder and write the record of the run that begins.

    Args:
        folder: the run folder.
        config: what will be trained.
        record: from `make_record`.
        resume: continue what is there; an empty or missing folder is begun.
        environment: the validation report, copied to ``environment.json``.

    Returns:
        Whether there is anything to do; a finished run is left as it is.

    Raises:
        UserError: the folder may not be used, or holds a run on other data.
    """
    before = check_folder(folder, config=config, data_sha256=record.data_sha256, resume=resume)
    if before and before.status == FINISHED:
        return False
    _open_folder(folder, config=config, environment=environment)
    if before:
        record = replace(
            record,
            started=before.started,
            resumed_from=before.resumed_from,
            throughput=before.throughput,
            results=before.results,
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
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    there = [name for name in there if name not in ALLOWED_BEFORE and not name.endswith(".log")]
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


def _open_folder(folder: Path, *, config: TrainConfig, environment: Path | None) -> None:
    """Make the run folder and put its first files there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / CONFIG, text=render_config(config))
        if environment and environment.resolve() != (folder / ENVIRONMENT).resolve():
            shutil.copyfile(environment, folder / ENVIRONMENT)
    except OSError as error:
        raise UserError(
            f"a run folder that can be written at {folder}",
            found=f"{error.filename}: {error.strerror}",
            fix="choose another --run",
        ) from error


def make_record(
    dataset: Dataset,
    *,
    hosts: Sequence[str],
    device: str,
    command: Sequence[str],
    horovod: Mapping[str, bool],
) -> RunRecord:
    """Return the record of a run that begins now.

    Args:
        dataset: what it trains on.
        hosts: the host of each rank, in the order of the ranks.
        device: ``cpu`` or ``gpu``.
        command: the command line.
        horovod: what Horovod was built with.
    """
    return RunRecord(
        status="running",
        command=tuple(command),
        started=now(),
        ranks=len(hosts),
        hosts=tuple(hosts),
        device=device,
        data=str(dataset.root.resolve()),
        data_sha256=dataset.sha256,
        lock_sha256=hash_lock(),
        git_revision=find_revision(),
        versions=list_versions(),
        horovod=dict(horovod),
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


def load_record(folder: Path) -> RunRecord | None:
    """Read the record of a run; None if there is none.

    Raises:
        UserError: it is not a record of this schema.
    """
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError("another schema_version")
        tuples = {key: tuple(data[key]) for key in ("command", "hosts", "resumed_from")}
        return RunRecord(**data | tuples)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"a run record of schema_version {SCHEMA_VERSION}",
            found=f"{path}: {error!r}",
            fix="remove that file; the run can still be continued and evaluated",
        ) from error


def write_record(folder: Path, *, record: RunRecord) -> None:
    """Write ``record.json``."""
    values = {"schema_version": SCHEMA_VERSION} | asdict(record)
    write_text(folder / RECORD, text=json.dumps(values, indent=1) + "\n")


def append_metrics(folder: Path, *, values: Mapping[str, Any]) -> None:
    """Add one object to ``metrics.jsonl``."""
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"schema_version": SCHEMA_VERSION} | dict(values)) + "\n")


def trim_metrics(folder: Path, *, last_epoch: int) -> None:
    """Drop what was logged after an epoch: those steps are about to be done again.

    A last line that a kill cut short is dropped too.
    """
    path = folder / METRICS
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["epoch"] <= last_epoch:
                kept.append(line)
        except (ValueError, KeyError):
            continue
    write_text(path, text="".join(f"{line}\n" for line in kept))


def write_text(path: Path, *, text: str) -> None:
    """Write a file whole or not at all, also where the power fails in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def now() -> str:
    """Return the time, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def list_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def hash_lock() -> str | None:
    """Return the hash of the file that $CHEXNET_LOCK names; None without one."""
    name = os.environ.get("CHEXNET_LOCK")
    path = Path(name) if name else None
    return hashlib.sha256(path.read_bytes()).hexdigest() if path and path.is_file() else None


def find_revision() -> str | None:
    """Return the git revision of the program; None where it is not known.

    An image holds it in a file; elsewhere the checkout is asked. It ends in ``-dirty``
    where files differ from it.
    """
    package = Path(__file__).resolve().parent
    if (package / "REVISION").is_file():
        return (package / "REVISION").read_text(encoding="utf-8").strip()
    root = package.parent
    if not (root / ".git").exists():  # installed, perhaps below somebody else's repository
        return None
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root)]
    try:
        done = subprocess.run(
            [*command, "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
