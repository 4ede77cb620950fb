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

from chexnet.input.order import Turns

WORD = 8


class FilmArrays:
    """The films of one split, as they lie in their files.

    Args:
        paths: the files, in order.
        counts: films in each of them.
        size_px: height and width of a film.
    """

    def __init__(self, paths: Sequence[Path], *, counts: Sequence[int], size_px: int) -> None:
        self.paths = tuple(paths)
        self._maps = [_map_file(path) for path, count in zip(paths, counts, strict=True) if count]
        self._arrays = [
            np.frombuffer(mapped, np.uint8).reshape(-1, size_px, size_px) for mapped in self._maps
        ]
        self._film_bytes = size_px**2
        filled = [count for count in counts if count]
        self._starts = np.concatenate([[0], np.cumsum(filled)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def ask_for(self, turns: Turns) -> None:
        """Let the kernel read films that will be copied soon, many at a time, without waiting."""
        files, rows = self._find(turns.films)
        for file, row in zip(files.tolist(), rows.tolist(), strict=True):
            start = row * self._film_bytes
            page = start - start % mmap.PAGESIZE
            self._maps[file].madvise(mmap.MADV_WILLNEED, page, start - page + self._film_bytes)

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
        files, rows = self._find(turns.films)
        columns = (rows, turns.tops, turns.lefts, turns.flips)
        arrays = (self._arrays[file] for file in files.tolist())
        return list(zip(arrays, *(column.tolist() for column in columns), strict=True))

    def _find(self, films: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return in which file each film lies, and in which row of it."""
        files = np.searchsorted(self._starts, films, side="right") - 1
        return files, films - self._starts[files]


def _map_file(path: Path) -> mmap.mmap:
    with Path(path).open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
