"""The record of a run: what was run, where, on what, from what, and what came out.

Knows record.json and where its facts come from. Leaves the folder around it to ``run`` and
what is measured to ``train``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from chexnet.errors import UserError
from chexnet.files import write_text
from chexnet.records import Dataset

SCHEMA_VERSION = 2
RECORD = "record.json"
RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"
PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "numpy")


@dataclass(frozen=True)
class RunRecord:
    """What was run, on what, from what, and what came out.

    Attributes:
        status: ``running``, ``finished``, ``interrupted`` or ``failed``.
        command: the words of the command line.
        started: when, ISO 8601 in UTC; of the first start, if resumed.
        ended: when it finished or stopped; None while it runs.
        resumed_from: where it was continued: the epochs completed, the steps and films of the
            run until then, and how many ranks had done them.
        ranks: how many processes trained together.
        hosts: names of their hosts, in the order of the ranks.
        device: ``cpu`` or ``gpu``.
        data: folder of the training data.
        data_sha256: hash of its dataset.json, which names every record file's hash.
        weights_sha256: hash of the file that the network began from; None for random weights.
        lock_sha256: hash of the image's lock ($CHEXNET_LOCK); None outside an image.
        git_revision: of the program's checkout; None where there is none.
        versions: of Python and the packages that compute.
        horovod: what Horovod was built with.
        effective: what was chosen where the configuration said ``auto``, and what else holds.
        position: how far it has come: epochs completed, steps, films.
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
    weights_sha256: str | None = None
    ended: str | None = None
    resumed_from: tuple[Mapping[str, int], ...] = ()
    effective: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, int] = field(default_factory=dict)
    startup_s: Mapping[str, float] = field(default_factory=dict)
    throughput: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


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
        status=RUNNING,
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


def update_record(folder: Path, **changes: object) -> None:
    """Change fields of a run's record, where there is one."""
    record = load_record(folder)
    if record:
        write_record(folder, record=replace(record, **changes))


def end_record(folder: Path, *, status: str, error: str) -> bool:
    """Say in the record why a run stopped, unless that is said already.

    Returns:
        Whether it was still open.
    """
    record = load_record(folder)
    if record is None or record.status != RUNNING:
        return False
    write_record(folder, record=replace(record, status=status, ended=now(), error=error))
    return True


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
    package = Path(__file__).resolve().parents[1]
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
