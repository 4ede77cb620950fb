"""Whether an image looks like a chest film at all, as far as its grey values tell.

Knows the bounds beyond which a film is odd, and how much of an image is coloured. It cannot
tell a chest from a hand: it names what a network trained on chest films would be misled by.
Leaves reading files to ``film_files``.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

WIDEST = 1.8  # longer side by shorter; films of the chest are 1.0 to 1.3, cut ones up to 1.75
NARROWEST_RANGE = 20  # grey levels that the middle 96 % of the pixels span
FEWEST_LEVELS = 32
MOST_BLACK_OR_WHITE = 0.7
# Channels of a grey JPEG differ by a few levels; those of a photograph by tens.
COLOUR_LEVELS = 24
MUCH_COLOUR, SOME_COLOUR = 0.25, 0.01
_LOOKED_AT_PX = 256


def find_oddities(film: Image.Image, *, trained_px: int) -> tuple[str, ...]:
    """Return why an image may be no chest film, or one that the network reads badly.

    Args:
        film: mode ``L``, at its own size.
        trained_px: height and width of the films that the network was trained on.
    """
    odd = []
    width, height = film.size
    shape = max(film.size) / min(film.size)
    if shape > WIDEST:
        odd.append(f"{width} x {height} px: {shape:.1f} times as long as wide, squeezed to square")
    if min(film.size) < trained_px:
        odd.append(f"{width} x {height} px: smaller than the {trained_px} px of the training films")
    counts = np.array(film.histogram(), np.int64)
    total = counts.sum()
    reached = counts.cumsum() / total
    low, high = np.searchsorted(reached, [0.02, 0.98])
    levels = int((counts > 0).sum())
    if high - low < NARROWEST_RANGE:
        odd.append(f"nearly constant: most of it lies between grey {low} and {high} of 255")
    elif levels < FEWEST_LEVELS:
        odd.append(f"only {levels} different grey values")
    for name, share in (("black", counts[:4].sum() / total), ("white", counts[252:].sum() / total)):
        if share > MOST_BLACK_OR_WHITE:
            odd.append(f"{share:.0%} of it is {name}")
    return tuple(odd)


def colour_share(image: Image.Image) -> float:
    """Return the share of an image, 0 .. 1, whose channels differ by more than noise.

    Args:
        image: of any mode that Pillow turns into RGB.
    """
    small = image.convert("RGB")
    factor = max(small.size) // _LOOKED_AT_PX
    if factor > 1:
        small = small.reduce(factor)
    channels = np.asarray(small).astype(np.int16)
    spread = channels.max(axis=-1) - channels.min(axis=-1)
    return float((spread > COLOUR_LEVELS).mean())
