"""A user's films in batches, read ahead by threads.

Knows how many are under way at once, so that any number of films takes the same memory, and
that one bad file stops no other. Leaves reading one to ``film_files``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from chexnet.data.pixels import BadImageError
from chexnet.input.stream import make_ahead
from chexnet.parallel import with_progress
from chexnet.prediction.film_files import fit_film, quieten_decoders, read_film
from chexnet.prediction.gallery import cut_middle
from chexnet.prediction.inputs import Input

SHOWN_PX = 768  # longer side of a film that is kept to be drawn on
FEW = 20  # films that need no line about progress
_MOST_THREADS = 16


@dataclass(frozen=True)
class ReadFilm:
    """A film as the network takes it, and what is known of its file.

    Attributes:
        source: the file.
        pixels: uint8 [input_px, input_px].
        kind: ``PNG``, ``JPEG`` or ``DICOM``.
        width, height: as it came, px.
        notes: warnings.
        shown: uint8 [H, W], at most `SHOWN_PX`, to be drawn on; None where nothing is drawn.
        covered: the part of the film that the network looks at, as in `overlay.spread`.
    """

    source: Input
    pixels: np.ndarray
    kind: str
    width: int
    height: int
    notes: tuple[str, ...]
    shown: np.ndarray | None
    covered: tuple[float, ...]


def read_batches(
    inputs: Sequence[Input],
    *,
    data_px: int,
    input_px: int,
    batch_size: int,
    bad: list[tuple[str, str]],
    keep: bool = False,
) -> Iterator[list[ReadFilm]]:
    """Yield the films that can be read, in order, in batches of which the last may be smaller.

    Args:
        inputs: the files.
        data_px: height and width of the films that the network was trained on.
        input_px: height and width of their middle that it takes.
        batch_size: films in a batch.
        bad: is given path and reason of every file that is no film.
        keep: keep what can be drawn on.
    """
    quieten_decoders()

    def read(number: int) -> ReadFilm | str:
        source = inputs[number]  # its IndexError ends the stream
        try:
            return _read(source, data_px=data_px, input_px=input_px, keep=keep)
        except BadImageError as error:
            return str(error)
        # Whatever one file brings a decoder to, the others are still to be done.
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS)
    films = make_ahead(read, first=0, threads=threads, ahead=batch_size + threads)
    if len(inputs) > FEW:
        films = with_progress(films, total=len(inputs), label="films read")
    batch: list[ReadFilm] = []
    for source, film in zip(inputs, films, strict=True):
        if isinstance(film, str):
            bad.append((str(source.path), film))
            continue
        batch.append(film)
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch:
        yield batch


def _read(source: Input, *, data_px: int, input_px: int, keep: bool) -> ReadFilm:
    film = read_film(source.path, trained_px=data_px)
    pixels, covered = cut_middle(fit_film(film.grey, size_px=data_px), size_px=input_px)
    width, height = film.grey.size
    shown = np.asarray(_reduce(film.grey)) if keep else None
    return ReadFilm(source, pixels, film.kind, width, height, film.notes, shown, covered)


def _reduce(film: Image.Image) -> Image.Image:
    film.thumbnail((SHOWN_PX, SHOWN_PX), Image.Resampling.BOX)
    return film
