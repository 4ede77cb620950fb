"""Decoded films in plain files, mapped into memory and copied by number.

Knows how the films of a `fast` data set lie in their files (uint8, one film after the
other, row by row, no header) and how one is cropped and mirrored into a batch with a
single copy. Leaves which films, and where they are cropped, to `order`, and threads to
`stream`. Numpy only.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from chexnet.order import Turns

WORD = 8


class FilmArrays:
    """The films of one split, as they lie in their files.

    Args:
        paths: the files, in order.
        counts: films in each of them.
        size_px: height and width of a film.
    """

    def __init__(self, paths: Sequence[Path], *, counts: Sequence[int], size_px: int) -> None:
        self._arrays = [
            _map_file(path, shape=(count, size_px, size_px))
            for path, count in zip(paths, counts, strict=True)
        ]
        self._starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def copy(self, out: np.ndarray, *, turns: Turns) -> None:
        """Fill a batch.

        The copy of a film runs outside the interpreter's lock, so that several threads
        copy at once.

        Args:
            out: uint8 [B, H, W], C order; H and W may be smaller than a film.
            turns: B films with their crops and flips.
        """
        height, width = out.shape[1:]
        # Eight pixels are mirrored by one swap of a word's bytes, instead of one by one:
        # twice to three times as fast.
        by_words = width % WORD == 0
        words = out.view(">u8") if by_words else out
        for place, (array, row, top, left, flip) in enumerate(self._places(turns)):
            crop = array[row, top : top + height, left : left + width]
            if not flip:
                out[place] = crop
            elif by_words:
                words[place] = crop.view("<u8")[:, ::-1]
            else:
                out[place] = crop[:, ::-1]

    def _places(self, turns: Turns) -> list[tuple[np.ndarray, int, int, int, bool]]:
        files = np.searchsorted(self._starts, turns.films, side="right") - 1
        rows = turns.films - self._starts[files]
        columns = (rows, turns.tops, turns.lefts, turns.flips)
        arrays = (self._arrays[file] for file in files.tolist())
        return list(zip(arrays, *(column.tolist() for column in columns), strict=True))


def _map_file(path: Path, *, shape: tuple[int, int, int]) -> np.ndarray:
    if not shape[0]:
        return np.empty(shape, np.uint8)
    with Path(path).open("rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    # The page cache reads ahead what neighbours in a file are; films come in random order.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, np.uint8).reshape(shape)
