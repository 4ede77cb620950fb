"""How heat maps agree with boxes that a radiologist drew.

Knows where a box of the source lies on a prepared film, and two measures: the share of the
map that lies inside the box, and whether its highest point does (the pointing game, Zhang et
al. 2018, here without a margin). The highest point is the middle of the highest cell of the
network's own coarse map. Leaves the list to ``boxes`` and the maps to ``heatmaps``.

By chance a map has as much inside a box as the box covers of the film; so that stands beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from chexnet import distributed, nih
from chexnet.data.boxes import BOX_LIST, Box, load_boxes
from chexnet.data.films import load_films
from chexnet.data.stored import read_films
from chexnet.distributed import Ranks
from chexnet.labels import FINDINGS
from chexnet.prediction.overlay import spread
from chexnet.records import Dataset

NIH_PX = 1024  # height and width of the films as NIH ships them

Area = tuple[float, float, float, float]
Heatmaps = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class PlacedBox:
    """A box on a prepared film.

    Attributes:
        film: place in the split's table.
        finding: place among the findings.
        area: left, top, right and bottom as shares of the film, 0 .. 1.
    """

    film: int
    finding: int
    area: Area


@dataclass(frozen=True)
class BoxList:
    """A list of boxes, and what of it lies on films of a split.

    Attributes:
        file: the list.
        placed: its boxes on films of the split.
        there: whether there is such a file; one that nobody asked for may be missing.
    """

    file: Path
    placed: list[PlacedBox]
    there: bool = True


def find_boxes(asked: Path | None, *, dataset: Dataset, split: str) -> BoxList:
    """Return the boxes of the list that was asked for, else of the one in the data folder.

    Raises:
        UserError: the list cannot be read.
    """
    file = asked or dataset.root / BOX_LIST
    if not asked and not file.is_file():
        return BoxList(file, [], there=False)
    return BoxList(
        file, place_boxes(load_boxes(file), dataset=dataset, split=split, source=file.parent)
    )


def place_boxes(
    boxes: Sequence[Box], *, dataset: Dataset, split: str, source: Path
) -> list[PlacedBox]:
    """Return the boxes on films of a split, by film.

    Preparing squeezes the whole film into a square, so shares stay what they were.

    Args:
        boxes: in px of the source's films.
        dataset: the prepared data.
        split: which side of it.
        source: the folder of the list; where the images lie beside it, they tell their size,
            else every film is of `NIH_PX`.
    """
    described = dataset.splits[split]
    table = load_films(dataset.root / described.films.name, num_films=described.num_examples)
    places = {name: place for place, name in enumerate(table.names)}
    images = nih.find_images(source) if nih.image_folders(source) else {}
    placed = []
    for box in boxes:
        if box.film not in places:
            continue
        width, height = (NIH_PX, NIH_PX)
        if box.film in images:
            with Image.open(images[box.film]) as image:  # its header alone is read
                width, height = image.size
        edges = (box.left, box.top, box.left + box.width, box.top + box.height)
        area = tuple(edge / size for edge, size in zip(edges, (width, height) * 2, strict=True))
        placed.append(PlacedBox(places[box.film], FINDINGS.index(box.finding), area))
    return sorted(placed, key=lambda box: (box.film, box.finding, box.area))


def measure_agreement(
    heatmaps: Heatmaps,
    *,
    placed: Sequence[PlacedBox],
    dataset: Dataset,
    split: str,
    crop_px: int,
    ranks: Ranks,
    progress: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Return what was measured of each box, in their order: float64 [N, 3].

    Every rank looks at its share of the films, and all get the result.

    Args:
        heatmaps: from `heatmaps.make_heatmaps`.
        placed: from `place_boxes`.
        dataset: the prepared data.
        split: which side of it.
        crop_px: height and width of the films' middle that the network looks at.
        ranks: who this process is.
        progress: told how many films this rank has done.

    Returns:
        The share of the map inside the box, the share of the looked-at part that the box
        covers, and 1 where the map's highest point is inside, else 0.
    """
    films = sorted({box.film for box in placed})[ranks.rank :: ranks.size]
    own = []
    chosen = read_films(dataset, split=split, numbers=films)
    for done, (number, film) in enumerate(chosen, start=1):
        first = (len(film) - crop_px) // 2
        middle = film[first : first + crop_px, first : first + crop_px]
        maps = heatmaps(middle[None, ..., None])[0]
        for place, box in enumerate(placed):
            if box.film == number:
                area = cut_area(box.area, size_px=len(film), crop_px=crop_px)
                own.append((place, *compare(maps[..., box.finding], area=area, size_px=crop_px)))
        progress(done)
    rows = np.array(own, np.float64).reshape(-1, 4)
    rows = distributed.gather_rows(rows, name=f"{split}.boxes")
    return rows[np.argsort(rows[:, 0]), 1:]


def compare(heat: np.ndarray, *, area: Area, size_px: int) -> tuple[float, float, float]:
    """Return the map's share inside an area, the area's share of it, and whether it is hit.

    A map that is 0 everywhere has nothing inside and hits nothing.

    Args:
        heat: float [h, w], 0 or more: the coarse map, whose cells cover the film evenly.
        area: left, top, right and bottom as shares, 0 .. 1; what is beyond is not counted.
        size_px: height and width at which the map, drawn out smoothly, is measured.
    """
    left, top, right, bottom = area
    across, down = _cover(left, right, size_px), _cover(top, bottom, size_px)
    chance = float(across.mean() * down.mean())
    smooth = spread(heat, width=size_px, height=size_px)
    total = float(smooth.sum())
    if total <= 0:
        return 0.0, chance, 0.0
    # Drawn out, a peak is a plateau, and that of a cell at the border runs to the film's edge.
    y, x = np.unravel_index(int(heat.argmax()), heat.shape)
    height, width = heat.shape
    hit = left <= (x + 0.5) / width <= right and top <= (y + 0.5) / height <= bottom
    return float(down @ smooth @ across) / total, chance, float(hit)


def cut_area(area: Area, *, size_px: int, crop_px: int) -> Area:
    """Return an area of a film as shares of its middle, which may lie outside 0 .. 1."""
    first = (size_px - crop_px) // 2
    left, top, right, bottom = ((edge * size_px - first) / crop_px for edge in area)
    return left, top, right, bottom


def summarise(
    measured: np.ndarray, *, placed: Sequence[PlacedBox], file: Path, method: str
) -> dict[str, Any]:
    """Return what evaluation.json says of it: means over all boxes, and by finding."""
    kinds = np.array([box.finding for box in placed])
    rows = [
        {"finding": FINDINGS[kind], **_means(measured[kinds == kind])} for kind in np.unique(kinds)
    ]
    return {"file": str(file), "method": method, **_means(measured), "findings": rows}


def _means(measured: np.ndarray) -> dict[str, Any]:
    inside, chance, hit = (float(value) for value in measured.mean(axis=0))
    return {
        "num_boxes": len(measured), "mass_inside": inside, "mass_by_chance": chance,
        "hit_rate": hit,
    }  # fmt: skip


def _cover(low: float, high: float, size: int) -> np.ndarray:
    """Return how much of each of ``size`` cells lies between two shares, 0 .. 1."""
    edges = np.clip(np.arange(size + 1), low * size, high * size)
    return np.maximum(np.diff(edges), 0)
