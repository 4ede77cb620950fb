"""metrics.jsonl: a line for each window of training steps and for each epoch.

Knows how lines are added whole, and which of them a resumed run keeps. Leaves what is measured
to ``epochs`` and ``train``. Only rank 0 writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chexnet.files import append_line, write_text
from chexnet.training.position import Position

SCHEMA_VERSION = 2
METRICS = "metrics.jsonl"
STEPS, EPOCH = "steps", "epoch"


def append_metrics(folder: Path, *, values: Mapping[str, Any]) -> None:
    """Add one object to ``metrics.jsonl``.

    Raises:
        OSError: the disk is full or the file cannot be written; it is left as it was.
    """
    line = json.dumps({"schema_version": SCHEMA_VERSION} | dict(values))
    append_line(folder / METRICS, line=line)


def trim_metrics(folder: Path, *, position: Position) -> None:
    """Drop what was logged after a position: those steps are about to be done again.

    Films are compared, not steps, since their number grows even where a run went on with
    another number of ranks. A last line that a kill cut short is dropped too.
    """
    path = folder / METRICS
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            values = json.loads(line)
            is_past = values["examples"] <= position.examples
            if is_past and (values["kind"] != EPOCH or values["epoch"] <= position.epoch):
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue
    write_text(path, text="".join(f"{line}\n" for line in kept))
