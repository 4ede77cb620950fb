"""The overlays of a prediction: which are drawn, and where they are put.

Knows that a heat map is drawn of the chosen findings of every film, by threads. Leaves the
picture to ``overlay`` and its name to ``prediction_files``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import numpy as np

from chexnet.labels import FINDINGS
from chexnet.prediction.choice import Choice
from chexnet.prediction.film_stream import ReadFilm
from chexnet.prediction.overlay import Caption, draw_overlay
from chexnet.prediction.prediction_files import Names


def remove_overlays(folder: Path, *, keep: Iterable[Path] = ()) -> None:
    """Remove overlays of earlier predictions, so that none stands for one of this one.

    Args:
        folder: whose files of names FILE__FINDING.png go; links go, not what they lead to.
        keep: files that stay all the same.
    """
    kept = {os.path.realpath(path) for path in keep}
    for path in folder.glob("*__*.png"):
        is_ours = path.stem.rpartition("__")[2] in FINDINGS
        if is_ours and not path.is_dir() and os.path.realpath(path) not in kept:
            path.unlink()


class HeatmapFiles:
    """Draws overlays into a folder; use as a context.

    Attributes:
        folder: where; None draws nothing.
    """

    def __init__(
        self, folder: Path | None, *, choice: Choice, note: str, keep: Iterable[Path] = ()
    ) -> None:
        """Get ready.

        Args:
            folder: made if need be; None draws nothing.
            choice: which findings of a film.
            note: a line under every picture.
            keep: files that must stay, the films themselves, whatever their names.
        """
        self.folder = folder
        self._choice = choice
        self._note = note
        self._keep = keep
        self._names = Names()
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def __enter__(self) -> HeatmapFiles:
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_overlays(self.folder, keep=self._keep)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def draw(
        self, batch: Sequence[ReadFilm], *, probabilities: np.ndarray, maps: np.ndarray | None
    ) -> list[dict[str, str]]:
        """Draw the chosen findings of some films.

        Args:
            batch: B films, read with ``keep``.
            probabilities: float [B, 14].
            maps: float32 [B, h, w, 14]; None where nothing is drawn.

        Returns:
            For each film, the file names by finding.
        """
        if self.folder is None or maps is None:
            return [{} for _ in batch]
        named: list[dict[str, str]] = []
        work = []
        for film, row, heat in zip(batch, probabilities, maps, strict=True):
            named.append({})
            for index in self._choice.pick(row):
                name = self._names.give(film.source.name, finding=FINDINGS[index])
                named[-1][FINDINGS[index]] = name
                work.append((film, heat[..., index], index, float(row[index]), name))
        for _ in self._pool.map(lambda task: self._draw(*task), work):
            pass  # an error of one comes up here
        return named

    def _draw(
        self, film: ReadFilm, heat: np.ndarray, index: int, probability: float, name: str
    ) -> None:
        caption = Caption(FINDINGS[index], probability, film.source.name, tuple(self._notes(film)))
        picture = draw_overlay(film.shown, heat=heat, caption=caption, covered=film.covered)
        # Beside its place first: never half a picture, and never through a link that lies there.
        temporary = self.folder / f".{name}.{os.getpid()}.tmp"
        # The usual level takes three times as long, for hardly fewer bytes.
        picture.save(temporary, format="PNG", compress_level=3)
        temporary.replace(self.folder / name)

    def _notes(self, film: ReadFilm) -> Iterator[str]:
        yield self._note
        yield from (f"Warning: {note}" for note in film.notes)
