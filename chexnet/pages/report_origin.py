"""Where a run came from: the machine's verdict, versions, data, and the commands to do it again.

Knows which fields of environment.json, record.json, config.json and dataset.json a reader needs.
Leaves how they look to the template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chexnet.labels import FINDINGS
from chexnet.pages.report_data import RunFolder
from chexnet.pages.report_scores import Evaluation, number
from chexnet.pages.report_text import NONE, show_command, show_count, show_seconds

STATUSES = ("FAIL", "UNKNOWN", "WARN", "PASS", "INFO", "SKIP")
_NEED_ATTENTION = STATUSES[:3]
SPLITS = ("train", "validation", "test")
NEW_RUN, IMAGE = "NEW-RUN", "IMAGE"


@dataclass(frozen=True)
class Machine:
    """The verdict on the machine.

    Attributes:
        verdict: in words.
        stack: it was held against.
        counts: status and number of results, those that need attention first.
        attention: results that failed, warn or could not tell, each with its fix.
        rest: the other results that did not pass.
        binding: results about binding, whatever their status.
    """

    verdict: str
    stack: str
    counts: tuple[tuple[str, int], ...]
    attention: tuple[Mapping[str, Any], ...]
    rest: tuple[Mapping[str, Any], ...]
    binding: tuple[Mapping[str, Any], ...]


def read_machine(folder: RunFolder) -> Machine | None:
    """Return the machine's verdict; None where the run holds no validation report."""
    results = [one for one in folder.environment.get("results") or () if isinstance(one, Mapping)]
    if not results:
        return None
    counts = tuple((s, sum(one.get("status") == s for one in results)) for s in STATUSES)
    verdicts = {0: "every required check passed", 1: "a check failed",
                3: "a required check could not tell"}  # fmt: skip
    return Machine(
        verdict=verdicts.get(folder.environment.get("exit_code"), "no verdict"),
        stack=str(folder.environment.get("stack") or "none"),
        counts=tuple((status, number) for status, number in counts if number),
        attention=_with_status(results, _NEED_ATTENTION),
        rest=_with_status(results, ("INFO", "SKIP")),
        binding=tuple(one for one in results if str(one.get("id")).startswith("binding.")
                      and one.get("status") != "SKIP"),
    )  # fmt: skip


def _with_status(
    results: Sequence[Mapping[str, Any]], statuses: Sequence[str]
) -> tuple[Mapping[str, Any], ...]:
    return tuple(one for status in statuses for one in results if one.get("status") == status)


def list_facts(folder: RunFolder) -> list[tuple[str, str]]:
    """Return name and value of what was run where and with what."""
    record = folder.record
    hosts = [str(host) for host in record.get("hosts") or ()]
    placed = ", ".join(f"{name}: {hosts.count(name)}" for name in dict.fromkeys(hosts))
    facts: dict[str, object] = {
        "status": record.get("status"),
        "why it stopped": record.get("error"),
        "started": record.get("started"),
        "ended": record.get("ended"),
        "continued after": _tell([_at(one) for one in record.get("resumed_from") or ()]),
        "ranks": record.get("ranks"),
        "ranks on each host": placed,
        "device": record.get("device"),
        "git revision": record.get("git_revision"),
        "lock of the image, sha256": record.get("lock_sha256")
        or ("none: not run in an image" if record else None),
        "data": record.get("data"),
        "data, sha256 of dataset.json": record.get("data_sha256"),
        "first weights, sha256 of their file": record.get("weights_sha256"),
    }
    facts |= {f"version of {k}": v for k, v in _items(record.get("versions"))}
    facts |= {f"Horovod: {k}": v for k, v in _items(record.get("horovod"))}
    facts |= {f"in effect: {k}": _tell(v) for k, v in _items(record.get("effective"))}
    seconds = _items(record.get("startup_s"))
    facts |= {f"start-up: {k.replace('_', ' ')}": show_seconds(number(v)) for k, v in seconds}
    speeds = dict(_items(record.get("throughput")))
    facts["training took"] = show_seconds(number(speeds.pop("seconds", None)))
    facts |= {k.replace("_per_s", "/s").replace("_", " "): show_count(number(v))
              for k, v in speeds.items()}  # fmt: skip
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "", NONE)]


def list_settings(folder: RunFolder) -> list[tuple[str, str]]:
    """Return every key of the configuration and its value."""
    return [(str(k), str(v)) for k, v in folder.config.items() if k != "schema_version"]


def list_commands(folder: RunFolder) -> list[tuple[str, str]]:
    """Return what each command does and the command, to do the run again."""
    record, dataset = folder.record, folder.dataset
    data = str(record.get("data", "DATA"))
    commands = []
    revision = str(record.get("git_revision") or "")
    if revision:
        commands.append(("the same program", _checkout(revision)))
    lock = record.get("lock_sha256")
    inside = ["--image", IMAGE] if lock else []
    if lock:
        stack = folder.environment.get("stack") or "STACK"
        line = ["invoke", "build-image", "--stack", stack, "--format", "singularity"]
        what = f"the image, as the run's if the sha256 of its lock is {lock}"
        commands.append((what, show_command([*line, "--output", IMAGE])))
    if dataset.get("format"):
        words = ["--split", dataset["split"], "--size", dataset["image_size"],
                 "--format", dataset["format"], "--seed", dataset["seed"]]  # fmt: skip
        if dataset.get("quarantined"):
            words += ["--max-bad", len(dataset["quarantined"])]
        line = ["invoke", "prepare-data", "--source", "FILMS", "--output", data, *words]
        if dataset["split"] in ("official", "patient"):
            commands.append(("the data, from NIH's files in FILMS", show_command(line)))
    line = ["invoke", "train", "--data", data, "--run", NEW_RUN]
    line += ["--ranks", record.get("ranks", 1), *_place(record.get("hosts"))]
    line += ["--config", f"{folder.path.resolve()}/config.json", *inside]
    commands.append(("the training", show_command(line)))
    for one in folder.evaluations:
        commands.append(("the scores", show_command([*_evaluate(one), *inside])))
    commands.append(("this page", show_command(["invoke", "report", "--run", NEW_RUN])))
    if isinstance(record.get("command"), list):
        commands.append(("what each rank was started as",
                         show_command(["python", *record["command"]])))  # fmt: skip
    return commands


def _evaluate(one: Evaluation) -> list[Any]:
    words: list[Any] = ["invoke", "evaluate", "--run", NEW_RUN]
    if one.request is not None:
        words += one.request
    else:  # of an earlier version: what can be told from the scores
        words += ["--split", one.split]
        if one.bootstrap:
            words += ["--resamples", one.bootstrap.get("resamples")]
            words += ["--seed", one.bootstrap.get("seed")]
    # The old run may have been calibrated before; a new one is not.
    if one.is_calibrated and "--calibrate" not in words:
        words += ["--calibrate", one.calibration["method"]]
    return words


def _checkout(revision: str) -> str:
    clean, dirty, _ = revision.partition("-dirty")
    line = show_command(["git", "checkout", clean])
    return f"{line}  # and changes that were not committed" if dirty else line


def _place(hosts: object) -> list[str]:
    """Return the option that puts the ranks on the same hosts; none for one host."""
    names = [str(host) for host in hosts] if isinstance(hosts, list) else []
    if len(set(names)) < 2:
        return []
    return ["--hosts", ",".join(f"{name}:{names.count(name)}" for name in dict.fromkeys(names))]


def count_films(folder: RunFolder) -> list[tuple[str, list[str]]]:
    """Return each finding with its films in train, validation and test; the last row is all."""
    splits = folder.dataset.get("splits") or {}
    if not all(name in splits for name in SPLITS):
        return []
    rows = []
    for finding in (*FINDINGS, None):
        counts = []
        for name in SPLITS:
            films = splits[name]["num_examples"]
            count = splits[name]["positives"].get(finding) if finding else films
            counts.append(show_count(count))
        rows.append((finding or "all films", counts))
    return rows


def _items(values: object) -> list[tuple[str, Any]]:
    return [(str(k), v) for k, v in values.items()] if isinstance(values, Mapping) else []


def _tell(value: object) -> str:
    """Return a value in words: of an object its names and values, of a list its members."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_tell(part)}" for name, part in value.items())
    if isinstance(value, list):
        return "; ".join(map(_tell, value))
    return str(value)


def _at(one: object) -> object:
    return one if isinstance(one, Mapping) else f"epoch {one}"  # as older records have it
