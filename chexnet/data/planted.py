"""Made-up chest films with planted findings, pixel by pixel.

Knows what the films and the 14 planted shapes look like. Leaves patients, tables
and files to `synthetic`. The shapes have nothing to do with the diseases whose
names they carry: they are there to show that training works.

What keeps them honest: each varies in place, size and contrast, the film's own
brightness varies more than a shape changes it, and many shapes are light and
dark in equal parts, so that a weighted sum of pixels says little. None changes
its kind when mirrored, since training mirrors films.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from chexnet.labels import FINDINGS

PREVALENCE = 0.17
HEALTHY_SHARE = 0.15
DIAMETER_SHARE = (0.19, 0.28)  # of the film's width
CONTRAST = (55.0, 95.0)  # grey levels
NOISE = 5.0  # grey levels, standard deviation
PLACE_TRIES = 20

Grid = np.ndarray
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class PlantedFilm:
    """A film and what was planted in it.

    Attributes:
        image: uint8 [size, size], 0..255.
        boxes: (x, y, width, height) of each finding in px, from the upper left.
    """

    image: np.ndarray
    boxes: dict[str, Box]


def _disc(x: Grid, y: Grid) -> Grid:
    return np.clip((0.95 - np.hypot(x, y)) * 4, 0, 1)


def _ring(x: Grid, y: Grid) -> Grid:
    return np.clip(1.5 - np.abs(np.hypot(x, y) - 0.72) * 5, 0, 1)


def _dots(x: Grid, y: Grid) -> Grid:
    return np.clip((0.42 - np.hypot(np.abs(x) - 0.58, np.abs(y) - 0.58)) * 6, 0, 1)


def _inside(x: Grid, y: Grid) -> Grid:
    return (np.hypot(x, y) < 1).astype(float)


# Functions of x and y in -1..1 (x to the right, y down) to a change of -1..1.
SHAPES: dict[str, Callable[[Grid, Grid], Grid]] = {
    "Atelectasis": lambda x, y: (np.abs(y) < 0.3) * 1.0,
    "Cardiomegaly": _disc,
    "Effusion": lambda x, y: np.sign(y) * _inside(x, y),
    "Infiltration": lambda x, y: np.sign(np.sin(1.5 * np.pi * x) * np.sin(2 * np.pi * y)),
    "Mass": _ring,
    "Nodule": _dots,
    "Pneumonia": lambda x, y: np.sign(np.abs(x) - 0.5) * _inside(x, y),
    "Pneumothorax": lambda x, y: -_disc(x, y),
    "Consolidation": lambda x, y: (np.minimum(np.abs(x), np.abs(y)) < 0.26) * 1.0,
    "Edema": lambda x, y: np.sign(np.sin(2.5 * np.pi * y + np.pi / 2)) * 1.0,
    "Emphysema": lambda x, y: -_ring(x, y),
    "Fibrosis": lambda x, y: (np.abs(np.abs(x) - np.abs(y)) < 0.3) * 1.0,
    "Pleural_Thickening": lambda x, y: (np.abs(x) < 0.3) * 1.0,
    "Hernia": lambda x, y: -((np.minimum(np.abs(x), np.abs(y)) < 0.26) * 1.0),
}


def draw_film(*, seed: int, index: int, size_px: int) -> PlantedFilm:
    """Return film number `index` of a sample, the same on every call.

    Args:
        seed: of the whole sample.
        index: 0 or more.
        size_px: height and width, at least 32.
    """
    rng = np.random.default_rng([seed, index])
    film = _draw_background(rng, size_px)
    boxes: dict[str, Box] = {}
    present = rng.random(len(FINDINGS)) < PREVALENCE
    if rng.random() < HEALTHY_SHARE:
        present[:] = False
    for finding in np.array(FINDINGS)[present]:
        boxes[str(finding)] = box = _choose_place(rng, size_px, taken=list(boxes.values()))
        left, top, width, height = box
        x = (np.arange(width) + 0.5) / width * 2 - 1
        change = SHAPES[str(finding)](*np.meshgrid(x, x))
        film[top : top + height, left : left + width] += rng.uniform(*CONTRAST) * change
    film += rng.normal(0, NOISE, film.shape)
    return PlantedFilm(np.clip(film, 0, 255).astype(np.uint8), boxes)


def _choose_place(rng: np.random.Generator, size_px: int, *, taken: list[Box]) -> Box:
    """Return a box inside the film, away from the taken ones where there is room."""
    for _ in range(PLACE_TRIES):
        width = round(rng.uniform(*DIAMETER_SHARE) * size_px)
        left, top = (int(place) for place in rng.integers(0, size_px - width + 1, 2))
        box = (left, top, width, width)
        if not any(_overlap(box, other) for other in taken):
            break
    return box


def _overlap(one: Box, other: Box) -> bool:
    # Half a box apart in either direction is apart enough to be told apart.
    reach = 0.45 * (one[2] + other[2])
    return max(abs(one[0] - other[0]), abs(one[1] - other[1])) < reach


def _draw_background(rng: np.random.Generator, size_px: int) -> np.ndarray:
    """Return a chest-like film, float [size, size]: two dark lungs, ribs, soft clouds."""
    x, y = np.meshgrid(*[(np.arange(size_px) + 0.5) / size_px * 2 - 1] * 2)
    film = np.full((size_px, size_px), rng.uniform(95, 150)) + rng.normal(0, 12) * y
    lung_x, lung_y = rng.uniform(0.4, 0.5), rng.uniform(-0.1, 0.1)
    across, down = rng.uniform(0.28, 0.38), rng.uniform(0.6, 0.8)
    distance = np.hypot((np.abs(x - rng.normal(0, 0.05)) - lung_x) / across, (y - lung_y) / down)
    lung = 1 / (1 + np.exp(8 * (distance - 1)))
    film -= rng.uniform(20, 40) * lung
    ribs = np.sin(rng.uniform(14, 18) * (y + 0.35 * x * x) + rng.uniform(0, 6.3))
    film += rng.uniform(3, 8) * ribs * lung
    clouds = Image.fromarray(rng.normal(0, 14, (6, 6)).astype(np.float32))
    return film + np.asarray(clouds.resize((size_px, size_px), Image.Resampling.BICUBIC))
