"""What a prediction leaves: predictions.csv, predictions.json, and the names of heat maps.

Knows both files and writes them film by film, so that the number of films does not matter.
They hold no more of a DICOM file than its path. Leaves predicting to ``predict``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.prediction.overlay import NOT_CLINICAL

SCHEMA_VERSION = 1
TABLE, DOCUMENT = "predictions.csv", "predictions.json"
LONGEST_NAME = 150  # bytes; file systems take 255, and the finding and what guards it come on top


@dataclass(frozen=True)
class Predicted:
    """What is known of one film.

    Attributes:
        file: its path.
        kind: ``PNG``, ``JPEG`` or ``DICOM``.
        width, height: of the film as it came, px.
        probabilities: 14 numbers, 0 .. 1, in the order of `FINDINGS`.
        warnings: why it may be no chest film, or what is unusual about it.
        heatmaps: file names of its overlays, by finding.
    """

    file: str
    kind: str
    width: int
    height: int
    probabilities: tuple[float, ...]
    warnings: tuple[str, ...] = ()
    heatmaps: Mapping[str, str] = field(default_factory=dict)


class PredictionFiles:
    """The files while they grow; use as a context. They take their names when it ends well.

    Attributes:
        paths: where they will be.
    """

    def __init__(
        self, folder: Path | None, *, head: Mapping[str, Any], stream: TextIO | None = None
    ) -> None:
        """Begin the files.

        Args:
            folder: where they belong; None for none.
            head: what the document says of the whole: the run, its checkpoint, …
            stream: gets the document too.
        """
        self.paths = [folder / TABLE, folder / DOCUMENT] if folder else []
        self._head = head
        self._stream = stream
        self._growing: list[tuple[Path, TextIO]] = []
        self._separator = "\n"

    def __enter__(self) -> PredictionFiles:
        for path in self.paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
            self._growing.append((temporary, _open(temporary)))
        if self._growing:
            self._rows = csv.writer(self._growing[0][1], lineterminator="\n")
            calibrated = self._head["calibration"]["method"] != "none"
            said = "calibrated" if calibrated else "not calibrated"
            self._growing[0][1].write(f"# {NOT_CLINICAL}. Probabilities are {said}.\n")
            self._rows.writerow(["file", *FINDINGS, "warnings"])
        self._write(f'{json.dumps(_head(self._head), indent=1)[:-2]},\n "films": [')
        return self

    def add(self, film: Predicted) -> None:
        """Write down one film."""
        rounded = [round(value, 6) for value in film.probabilities]
        if self._growing:
            numbers = [f"{value:.6f}" for value in rounded]
            self._rows.writerow([film.file, *numbers, "; ".join(film.warnings)])
        values = {
            "file": film.file, "kind": film.kind, "width": film.width, "height": film.height,
            "probabilities": dict(zip(FINDINGS, rounded, strict=True)),
            "warnings": list(film.warnings), "heatmaps": dict(film.heatmaps),
        }  # fmt: skip
        self._write(f"{self._separator}  {json.dumps(values)}")
        self._separator = ",\n"

    def end(self, *, unreadable: Sequence[tuple[str, str]], totals: Mapping[str, Any]) -> None:
        """Write what is known only in the end.

        Args:
            unreadable: path and reason of each file that is no film.
            totals: number of films, seconds, films a second.
        """
        bad = [{"file": file, "reason": reason} for file, reason in unreadable]
        tail = json.dumps({"unreadable": bad, **totals}, indent=1)
        self._write(f"\n ],{tail[1:]}\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for (temporary, file), path in zip(self._growing, self.paths, strict=True):
            if kind:
                with suppress(OSError):  # of the full disk, perhaps, that is told already
                    file.close()
                temporary.unlink(missing_ok=True)
                continue
            file.flush()
            os.fsync(file.fileno())
            file.close()
            temporary.replace(path)

    def _write(self, text: str) -> None:
        for file in [*(stream for _, stream in self._growing[1:]), self._stream]:
            if file:
                file.write(text)


class Names:
    """Names of heat maps: FILE__FINDING.png, each once, none that leaves its folder."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def give(self, name: str, *, finding: str) -> str:
        """Return the file name for a film and a finding.

        Args:
            name: of the film, with the folders it lies in.
            finding: out of `FINDINGS`.
        """
        # Letters of any script stay; separators, and what a shell or Windows minds, do not.
        safe = re.sub(r"[^\w.\-]", "_", name).lstrip(".") or "film"
        if len(safe.encode()) > LONGEST_NAME:
            mark = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:10]
            safe = f"{safe.encode()[:LONGEST_NAME].decode(errors='ignore')}-{mark}"
        number, chosen = 1, f"{safe}__{finding}.png"
        # Some file systems do not tell large from small letters.
        while chosen.lower() in self._given:
            number += 1
            chosen = f"{safe}-{number}__{finding}.png"
        self._given.add(chosen.lower())
        return chosen


def check_free(output: Path | None, *, heatmap: Path | None, force: bool) -> None:
    """Refuse to write over what is there.

    Args:
        output: folder for the two files, if they are wanted.
        heatmap: folder for the overlays, if they are wanted.
        force: earlier results may go.

    Raises:
        UserError: a file is there, or a folder of overlays that is not empty.
    """
    for folder in (output, heatmap):
        if folder and folder.exists() and not folder.is_dir():
            raise UserError(f"a folder at {folder}", found="a file", fix="choose another folder")
    fix = "choose another folder, or replace them with --force"
    there = [output / name for name in (TABLE, DOCUMENT) if output and (output / name).exists()]
    if there and not force:
        raise UserError("no earlier predictions", found=str(there[0]), fix=fix)
    if heatmap and heatmap.is_dir() and not force:
        old = next(heatmap.glob("*__*.png"), None)
        if old:
            raise UserError(f"no earlier heat maps in {heatmap}", found=old.name, fix=fix)


def _open(path: Path) -> TextIO:
    # A file's name may hold bytes that are no text.
    return path.open("w", encoding="utf-8", errors="backslashreplace", newline="")


def _head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "note": NOT_CLINICAL, **head, "findings": [*FINDINGS]}
