"""What two runs differ in: what went into them, and what came out.

Knows which of a run's files says what, and that a difference in what goes in may explain one in
what comes out, never the other way round. Reads the files as they lie, of any age; a file that is
missing or cannot be read is named, and the rest is compared. Leaves showing it to
``compare_text``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chexnet.errors import UserError

SCHEMA_VERSION = 1
FILES = ("config.json", "record.json", "environment.json", "metrics.jsonl", "evaluation.json")
# What goes into a run, in the order in which a reader asks; what comes out is compared apart.
CONFIGURATION, DATA, SOFTWARE, MACHINE, ENVIRONMENT = PARTS = (
    "configuration", "data", "software", "machine", "environment",
)  # fmt: skip
_RECORD_PARTS: dict[str, tuple[str, ...]] = {
    DATA: ("data", "data_sha256", "weights_sha256"),
    SOFTWARE: ("lock_sha256", "git_revision", "versions", "horovod"),
    MACHINE: ("device", "ranks", "hosts"),
}
# What was chosen where the configuration left it open. Some of it only follows from what differs
# anyway: the data, the ranks and the learning rate.
_EFFECTIVE = "effective"
_FOLLOWS = {"steps_per_epoch", "images_per_step", "peak_learning_rate"}
_FOLLOWS_RANKS = {"exchange", "fusion_groups", "compression"}
# It lies in the run folder, whose name is no cause of anything.
_PLACES = {"HOROVOD_AUTOTUNE_LOG"}

Facts = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """One thing that differs.

    Attributes:
        part: one of `PARTS`, or ``outcome``.
        name: such as ``seed`` or ``versions.keras``.
        values: in the one run and in the other; None where a run does not say.
    """

    part: str
    name: str
    values: tuple[Any, Any]


@dataclass(frozen=True)
class Losses:
    """How far the training losses of two runs are the same.

    Attributes:
        shared: windows of steps that both have.
        equal: how many of them have the same loss to the last digit.
        first: the first step whose loss differs; None where none does.
        largest: the largest difference; None where nothing is shared.
    """

    shared: int
    equal: int
    first: int | None
    largest: float | None


@dataclass(frozen=True)
class Comparison:
    """What two runs differ in.

    Attributes:
        runs: the folders.
        missing: for each, the files that are not there or cannot be read.
        causes: what differs of what went in.
        outcomes: what came out of either, alike or not.
        losses: of the training.
        compared: how many things of what went in were held against each other, by part.
    """

    runs: tuple[str, str]
    missing: tuple[tuple[str, ...], tuple[str, ...]]
    causes: tuple[Difference, ...]
    outcomes: tuple[Difference, ...]
    losses: Losses
    compared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Run:
    files: Mapping[str, Any]
    missing: tuple[str, ...]

    def facts(self, part: str) -> Facts:
        """Return the facts of one part, by flat names; nothing where no file tells."""
        if part == CONFIGURATION:
            return {k: v for k, v in self.get("config.json").items() if k != "schema_version"}
        if part == ENVIRONMENT:
            report = self.get("environment.json")
            checks = {one["id"]: one["status"] for one in report.get("results", [])}
            return ({"stack": report["stack"]} if "stack" in report else {}) | checks
        record = self.get("record.json")
        return flatten({key: record[key] for key in _RECORD_PARTS[part] if key in record})

    def get(self, name: str) -> Mapping[str, Any]:
        return self.files.get(name) or {}


def compare_runs(one: Path, other: Path) -> Comparison:
    """Compare two run folders.

    Raises:
        UserError: a folder is missing, or holds no file of a run.
    """
    runs = (_load(one), _load(other))
    causes, compared = [], {}
    for part in PARTS:
        facts = runs[0].facts(part), runs[1].facts(part)
        if not all(facts):
            continue  # one file is missing, and named: not everything differs
        names = dict.fromkeys([*facts[0], *facts[1]])
        compared[part] = len(names)
        causes += _differences(part, *facts)
    causes += _effective(runs, already={cause.name for cause in causes})
    outcomes = _outcomes(runs)
    return Comparison(
        runs=(str(one), str(other)),
        missing=(runs[0].missing, runs[1].missing),
        causes=tuple(causes),
        outcomes=tuple(outcomes),
        losses=_compare_losses(runs),
        compared=compared,
    )


def flatten(values: Mapping[str, Any], *, prefix: str = "") -> Facts:
    """Return nested mappings as one, with names such as ``versions.keras``."""
    flat: Facts = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, prefix=f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def without_places(facts: Facts) -> Facts:
    """Return facts less the variables of Horovod that only say where a file lies."""
    return {
        name: [one for one in value if not _is_place(one)] if isinstance(value, list) else value
        for name, value in facts.items()
    }


def _is_place(one: object) -> bool:
    return isinstance(one, Mapping) and one.get("variable") in _PLACES


def _differences(part: str, one: Facts, other: Facts) -> Iterator[Difference]:
    for name in dict.fromkeys([*one, *other]):
        values = one.get(name), other.get(name)
        if values[0] != values[1]:
            yield Difference(part, name, values)


def _effective(runs: tuple[_Run, _Run], *, already: set[str]) -> Iterator[Difference]:
    """Yield what was chosen otherwise though both asked for the same."""
    said = (run.get("record.json").get(_EFFECTIVE) or {} for run in runs)
    facts = [without_places(flatten(one)) for one in said]
    follows = already | _FOLLOWS | (_FOLLOWS_RANKS if "ranks" in already else set())
    if all(facts):
        for one in _differences(SOFTWARE, *facts):
            if one.name not in follows:
                yield Difference(one.part, f"{_EFFECTIVE}.{one.name}", one.values)


def _outcomes(runs: tuple[_Run, _Run]) -> Iterator[Difference]:
    """Yield what came out of either run; both values may be the same."""
    facts = [_outcome(run) for run in runs]
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        yield Difference("outcome", name, (facts[0].get(name), facts[1].get(name)))


def _outcome(run: _Run) -> Facts:
    record, scores = run.get("record.json"), run.get("evaluation.json")
    found: Facts = {"status": record["status"]} if "status" in record else {}
    found |= flatten({key: record.get(key) or {} for key in ("results", "throughput")})
    startup = record.get("startup_s") or {}
    if startup:
        found["startup_s"] = sum(startup.values())
    epochs = [line for line in run.files.get("metrics.jsonl") or [] if line.get("kind") == "epoch"]
    if epochs and "input_wait_fraction" in epochs[-1]:
        found["input_wait_fraction"] = epochs[-1]["input_wait_fraction"]
    if "mean_auroc" in scores:
        split = scores.get("split", "?")
        found[f"{split} mean AUROC"] = scores["mean_auroc"]
        for row in scores.get("findings", []):
            found[f"{split} AUROC {row.get('finding')}"] = row.get("auroc")
    return found


def _compare_losses(runs: tuple[_Run, _Run]) -> Losses:
    curves = [
        {line["step"]: line["loss"] for line in run.files.get("metrics.jsonl") or []
         if line.get("kind") == "steps" and "step" in line and "loss" in line}
        for run in runs
    ]  # fmt: skip
    shared = sorted(set(curves[0]) & set(curves[1]))
    gaps = {step: _gap(curves[0][step], curves[1][step]) for step in shared}
    unlike = [step for step in shared if gaps[step] != 0]
    finite = [gap for gap in gaps.values() if math.isfinite(gap)]
    return Losses(
        shared=len(shared),
        equal=len(shared) - len(unlike),
        first=unlike[0] if unlike else None,
        largest=max(finite) if finite else None,
    )


def _gap(one: float, other: float) -> float:
    """Return how far two losses are apart; two that are no numbers are alike: both runs broke."""
    alike = one == other or (math.isnan(one) and math.isnan(other))
    return 0.0 if alike else abs(one - other)


def _load(folder: Path) -> _Run:
    fix = "give the folders of two trainings: invoke compare RUN RUN"
    if not folder.is_dir():
        raise UserError("a run folder", found=f"no folder {folder}", fix=fix)
    files, missing = {}, []
    for name in FILES:
        try:
            text = (folder / name).read_text(encoding="utf-8")
            files[name] = _read_lines(text) if name.endswith("l") else _read_object(text)
        except FileNotFoundError:
            missing.append(name)
        except (OSError, ValueError):
            missing.append(f"{name} (cannot be read)")
    if not files:
        found = f"none of {', '.join(FILES)} in {folder}"
        raise UserError("a run folder", found=found, fix=fix)
    return _Run(files, tuple(missing))


def _read_object(text: str) -> Mapping[str, Any]:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("no JSON object")
    return values


def _read_lines(text: str) -> list[Mapping[str, Any]]:
    """Return the lines that are whole: the last may have been cut short."""
    lines = []
    for line in text.splitlines():
        try:
            lines.append(_read_object(line))
        except ValueError:
            continue
    return lines
