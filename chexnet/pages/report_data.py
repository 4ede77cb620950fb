"""What lies in a run folder, read for a page: everything may be missing, cut short or damaged.

Knows which files a run leaves, and says of each that cannot be shown why. Leaves what the
scores mean to ``report_scores`` and how it looks to ``report``. Needs no TensorFlow.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chexnet.errors import UserError
from chexnet.pages.report_scores import Evaluation, number, parse_evaluation
from chexnet.run import CHECKPOINTS, CONFIG, ENVIRONMENT, PLAN
from chexnet.training.metrics_log import METRICS
from chexnet.training.run_record import RECORD

PLOTS = "plots"
GALLERY = "gallery.json"
EVALUATIONS = ("evaluation.json", "evaluation-validation.json", "evaluation-train.json")
# Enough for a finding's best and worst films, and for a page below 3 MB.
MOST_PICTURES, MOST_PICTURES_BYTES = 42, 1_600_000
# One that is larger is packed as a small JPEG.
MOST_PICTURE_BYTES, PICTURE_PX = 80_000, 448

_Read = TypeVar("_Read")
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError,
            RecursionError)  # fmt: skip


@dataclass(frozen=True)
class Metrics:
    """The lines of metrics.jsonl: windows of steps, ends of epochs, and how many were damaged."""

    steps: tuple[Mapping[str, Any], ...] = ()
    epochs: tuple[Mapping[str, Any], ...] = ()
    damaged: int = 0

    def curve(self, kind: str, key: str) -> tuple[tuple[float, float], ...]:
        """Return (epochs done, value) of the lines of a kind, ``steps`` or ``epoch``."""
        lines = self.steps if kind == "steps" else self.epochs
        length = self._length()
        pairs = ((_count(line), number(line.get(key))) for line in lines)
        return tuple((x / length, y) for x, y in pairs if x is not None and y is not None)

    def _length(self) -> float:
        """Return how much of what `_count` counts is an epoch."""
        for line in reversed(self.epochs):
            count, epoch = _count(line), number(line.get("epoch"))
            if count and epoch:
                return count / epoch
        return max([1.0, *(_count(line) or 0 for line in self.steps)])


def _count(line: Mapping[str, Any]) -> float | None:
    """Return the films up to a line; in older files the steps."""
    # Steps are of other lengths where a run went on with another number of ranks.
    return number(line.get("examples")) or number(line.get("step"))


@dataclass(frozen=True)
class Picture:
    """One picture of the gallery, small enough to lie inside a page.

    Attributes:
        uri: a ``data:`` address with all of it.
        width: px.
        height: px.
        finding: what the heat map is of.
        film: the film's name.
        probability: of the finding, 0 .. 1; None where it does not say.
        label: whether the film has the finding; None where it does not say.
    """

    uri: str
    width: int
    height: int
    finding: str
    film: str
    probability: float | None
    label: bool | None


@dataclass(frozen=True)
class RunFolder:
    """A run folder as far as it can be read; a dictionary of what is missing is empty.

    Attributes:
        path: the folder.
        config: ``config.json``.
        record: ``record.json``.
        metrics: ``metrics.jsonl``.
        evaluations: test, validation, train, then of other data: those that are there.
        environment: ``environment.json``.
        plan: ``plan.json``.
        dataset: ``dataset.json`` of the data folder that the record names.
        pictures: the heat maps of ``plots/gallery.json``.
        num_pictures: how many it lists.
        gallery: what it says of them all: split and method.
        files: name and bytes of every file, in order.
        notes: what cannot be shown, and why.
    """

    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)
    evaluations: tuple[Evaluation, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()
    num_pictures: int = 0
    gallery: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the folder's own name."""
        return self.path.resolve().name or str(self.path)


def load_folder(run: Path) -> RunFolder:
    """Read what is there of a run.

    Raises:
        UserError: the folder holds no file of a run at all.
    """
    names = (CONFIG, RECORD, METRICS, *EVALUATIONS)
    if not any((run / name).is_file() for name in names):
        raise UserError(
            f"a run folder at {run}",
            found=f"none of {', '.join(names[:4])} in it" if run.is_dir() else "no such folder",
            fix="give the --run of a training",
        )
    notes: list[str] = []
    record = _object(run / RECORD, notes)
    gallery, rows = _read(run / PLOTS / GALLERY, _load_gallery, notes) or ({}, [])
    others = {path.name for path in run.glob("evaluation-*.json")} - {*EVALUATIONS}
    scores = (
        _read(run / name, _load_evaluation, notes) for name in (*EVALUATIONS, *sorted(others))
    )
    return RunFolder(
        path=run,
        config=_object(run / CONFIG, notes),
        record=record,
        metrics=_load_metrics(run / METRICS, notes),
        evaluations=tuple(one for one in scores if one),
        environment=_object(run / ENVIRONMENT, notes),
        plan=_object(run / PLAN, notes),
        dataset=_load_dataset(record, notes),
        pictures=_load_pictures(run / PLOTS, rows, notes),
        num_pictures=len(rows),
        gallery=gallery,
        files=_list_files(run),
        notes=tuple(notes),
    )


def _read(path: Path, load: Callable[[Path], _Read], notes: list[str]) -> _Read | None:
    """Return what a file holds; None where there is none, or where it is damaged: noted."""
    if not path.exists():
        return None
    try:
        return load(path)
    except _DAMAGED as error:
        reason = error.strerror if isinstance(error, OSError) else repr(error)
        notes.append(f"{path.name} cannot be read and is left out: {reason}")
        return None


def _object(path: Path, notes: list[str]) -> Mapping[str, Any]:
    return _read(path, _load_object, notes) or {}


def _load_object(path: Path) -> dict[str, Any]:
    values = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _load_evaluation(path: Path) -> Evaluation:
    return parse_evaluation(_load_object(path))


def _load_gallery(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    values = _load_object(path)
    return values, [dict(row) for row in values["pictures"]]


def _load_metrics(path: Path, notes: list[str]) -> Metrics:
    """Read the lines; one that a kill cut short is counted, not shown."""
    text = _read(path, lambda file: file.read_text(encoding="utf-8", errors="replace"), notes)
    kinds: dict[str, list[Mapping[str, Any]]] = {"steps": [], "epoch": []}
    damaged = 0
    for line in (text or "").splitlines():
        try:
            values = json.loads(line)
            kinds[values["kind"]].append(values)
        except _DAMAGED:
            damaged += 1
    if damaged:
        lines = "1 damaged line is" if damaged == 1 else f"{damaged} damaged lines are"
        notes.append(f"{path.name}: {lines} left out")
    return Metrics(tuple(kinds["steps"]), tuple(kinds["epoch"]), damaged)


def _load_dataset(record: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """Read the description of the run's data, if it is still what the run was trained on."""
    if not isinstance(record.get("data"), str) or "\0" in record["data"]:
        return {}
    path = Path(record["data"]) / "dataset.json"
    content = _read(path, Path.read_bytes, notes)
    if content is None:
        return {}
    if hashlib.sha256(content).hexdigest() != record.get("data_sha256"):
        notes.append(f"{path} was written anew since the training: its counts are left out")
        return {}
    return _object(path, notes)


def _load_pictures(
    folder: Path, rows: list[dict[str, Any]], notes: list[str]
) -> tuple[Picture, ...]:
    pictures: list[Picture] = []
    size = 0
    for row in rows[:MOST_PICTURES]:
        # Only the name: a list cannot make the page hold a file from elsewhere.
        path = folder / Path(str(row.get("file", ""))).name
        made = _read(path, lambda file, row=row: _load_picture(file, row), notes)
        size += len(made.uri) if made else 0
        if size > MOST_PICTURES_BYTES:
            break
        pictures += [made] if made else []
    return tuple(pictures)


def _load_picture(path: Path, row: Mapping[str, Any]) -> Picture:
    from PIL import Image

    content = path.read_bytes()
    with Image.open(io.BytesIO(content)) as image:
        kind, small = image.format, image.convert("RGB")  # reads all of it: it is whole
    if kind not in ("PNG", "JPEG") or len(content) > MOST_PICTURE_BYTES:
        small.thumbnail((PICTURE_PX, PICTURE_PX))
        packed = io.BytesIO()
        small.save(packed, "JPEG", quality=82, optimize=True)
        kind, content = "JPEG", packed.getvalue()
    label = row.get("label")
    return Picture(
        uri=f"data:image/{kind.lower()};base64,{base64.b64encode(content).decode('ascii')}",
        width=small.width,
        height=small.height,
        finding=str(row.get("finding", "")),
        film=str(row.get("film", "")),
        probability=number(row.get("probability")),
        label=bool(label) if isinstance(label, int | float | bool) else None,
    )


def _list_files(run: Path) -> tuple[tuple[str, int], ...]:
    """List the folder's files, those of checkpoints and logs by their folder."""
    found: dict[str, int] = {}
    paths = [Path(folder, name) for folder, _, names in os.walk(run) for name in names]
    for path in sorted(paths):
        if path.name.startswith("."):
            continue
        try:
            size = path.stat().st_size
        except OSError:  # a training that goes on removes old checkpoints
            continue
        parts = path.relative_to(run).parts
        deep = parts[0] in (CHECKPOINTS, "tensorboard", "records")
        name = "/".join(parts[:1] if deep else parts) + ("/" if deep else "")
        found[name] = found.get(name, 0) + size
    return tuple(found.items())
