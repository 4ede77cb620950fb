"""The heat-map gallery of a run: for each finding, the film that shows it most surely.

Knows which film is chosen, and the files ``plots/gallery-NN.png`` and ``plots/gallery.json``.
Leaves maps to ``heatmaps``, painting to ``overlay`` and the page that shows them to the report.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import numpy as np
from PIL import Image

from chexnet.data.films import load_films
from chexnet.data.stored import read_films
from chexnet.errors import UserError
from chexnet.labels import FINDINGS
from chexnet.prediction.heatmaps import Maps, make_heatmaps
from chexnet.prediction.overlay import NOT_CLINICAL, Caption, draw_overlay
from chexnet.records import Dataset
from chexnet.run import write_text

SCHEMA_VERSION = 1
PLOTS = "plots"
GALLERY = "gallery.json"
PANEL_PX = 224
MOST_BYTES = 60_000  # of a picture: a report of 14 stays small
_FEWER_COLOURS = (256, 128, 64, 32, 16)


@dataclass(frozen=True)
class Picture:
    """One picture of the gallery.

    Attributes:
        file: its name in the folder ``plots``.
        finding: what its map is of.
        film: name of the film.
        probability: of the finding on that film, 0 .. 1.
        label: whether the film has the finding, by its label; always 1 here.
    """

    file: str
    finding: str
    film: str
    probability: float
    label: int


def write_gallery(
    run: Path,
    *,
    model: keras.Model,
    dataset: Dataset,
    split: str,
    names: Sequence[str],
    labels: np.ndarray,
    probabilities: np.ndarray,
    checkpoint_sha256: str,
    crop_px: int = 0,
    method: str = "cam",
    calibrated: bool | None = None,
) -> tuple[Picture, ...]:
    """Draw the surest of the films that have each finding, and list the pictures.

    A finding without a positive film has none. Pictures of an earlier gallery are removed.

    Args:
        run: the run folder.
        model: takes uint8 [B, crop, crop, 1].
        dataset: the data that was predicted.
        split: the side of it.
        names: names of the films, N, in the order of the rows below.
        labels: [N, 14], 0 or 1.
        probabilities: float [N, 14], 0 .. 1.
        checkpoint_sha256: of the file that the model's weights come from.
        crop_px: the middle of the film that the model looks at; 0 for all of it.
        method: as in `heatmaps.make_heatmaps`.
        calibrated: whether the probabilities are; None where that is not known.

    Returns:
        The pictures, in the order of the findings.

    Raises:
        UserError: a name that the split's table of films does not have.
    """
    chosen = _choose(np.asarray(labels), np.asarray(probabilities))
    films = _read(dataset, split=split, names=[names[row] for row in chosen.values()])
    heatmaps = make_heatmaps(model, method=method)
    folder = _empty_folder(run)
    pictures = []
    for finding, row in chosen.items():
        film, index = films[names[row]], FINDINGS.index(finding)
        picture = Picture(
            f"gallery-{index + 1:02d}.png", finding, names[row],
            round(float(probabilities[row, index]), 6), int(labels[row, index]),
        )  # fmt: skip
        drawn = _draw(picture, film=film, crop_px=crop_px, heatmaps=heatmaps)
        (folder / picture.file).write_bytes(encode_small(drawn))
        pictures.append(picture)
    values = {
        "schema_version": SCHEMA_VERSION, "note": NOT_CLINICAL, "split": split, "method": method,
        "data_sha256": dataset.sha256, "checkpoint_sha256": checkpoint_sha256,
        **({} if calibrated is None else {"calibrated": calibrated}),
        "pictures": [asdict(picture) for picture in pictures],
    }  # fmt: skip
    write_text(folder / GALLERY, text=json.dumps(values, indent=1) + "\n")
    return tuple(pictures)


def _empty_folder(run: Path) -> Path:
    folder = run / PLOTS
    folder.mkdir(parents=True, exist_ok=True)
    # The list first and, later, last: it never names pictures of another evaluation.
    (folder / GALLERY).unlink(missing_ok=True)
    for old in folder.glob("gallery-*.png"):
        old.unlink()
    return folder


def _draw(picture: Picture, *, film: np.ndarray, crop_px: int, heatmaps: Maps) -> Image.Image:
    middle, covered = cut_middle(film, size_px=crop_px or film.shape[0])
    heat = heatmaps(middle[None, ..., None])[0, ..., FINDINGS.index(picture.finding)]
    caption = Caption(picture.finding, picture.probability, picture.film)
    return draw_overlay(
        film, heat=heat, caption=caption, covered=covered, panel_px=PANEL_PX, beside=False
    )


def load_gallery(run: Path) -> tuple[Picture, ...]:
    """Return the pictures of a run's gallery that are there; none where none was drawn.

    Raises:
        UserError: the list cannot be read.
    """
    path = run / PLOTS / GALLERY
    if not path.exists():
        return ()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["schema_version"] != SCHEMA_VERSION:
            raise ValueError("another schema_version")
        pictures = tuple(Picture(**one) for one in values["pictures"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"a list of pictures of schema_version {SCHEMA_VERSION}",
            found=f"{path}: {error!r}",
            fix="evaluate the run again: that draws them anew",
        ) from error
    return tuple(one for one in pictures if (run / PLOTS / Path(one.file).name).is_file())


def cut_middle(film: np.ndarray, *, size_px: int) -> tuple[np.ndarray, tuple[float, ...]]:
    """Return the middle of a square film, and which share of it that is.

    Args:
        film: uint8 [H, H].
        size_px: height and width of the middle, at most H.

    Returns:
        uint8 [size_px, size_px], as validation and test films are cut; and left, top, right
        and bottom as `overlay.spread` wants them.
    """
    whole = film.shape[0]
    first = (whole - size_px) // 2
    low, high = first / whole, (first + size_px) / whole
    return film[first : first + size_px, first : first + size_px], (low, low, high, high)


def encode_small(picture: Image.Image, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a picture as a PNG of at most so many bytes, with as many colours as that allows."""
    for colours in _FEWER_COLOURS:
        stream = io.BytesIO()
        # The median cut would give the small bright areas of a map the colours of its rest.
        few = picture.quantize(colours, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(stream, format="PNG", optimize=True)
        if stream.tell() <= most_bytes:
            break
    return stream.getvalue()


def _choose(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, int]:
    """Return the row of the surest positive film of each finding that has one."""
    shown = np.where(labels > 0, probabilities, -1.0)
    rows = shown.argmax(axis=0) if len(shown) else np.zeros(len(FINDINGS), int)
    return {
        finding: int(row)
        for index, (finding, row) in enumerate(zip(FINDINGS, rows, strict=True))
        if len(shown) and labels[row, index] > 0
    }


def _read(dataset: Dataset, *, split: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return some films by name: uint8 [H, W], as they are stored."""
    described = dataset.splits[split]
    table = load_films(dataset.root / described.films.name, num_films=described.num_examples)
    places = {name: number for number, name in enumerate(table.names)}
    missing = [name for name in names if name not in places]
    if missing:
        raise UserError(
            f"films of the split {split} of {dataset.root}",
            found=f"no {missing[0]} in {described.films.name}",
            fix="evaluate the run on that data again",
        )
    wanted = {places[name] for name in names}
    return {
        table.names[number]: film
        for number, film in read_films(dataset, split=split, numbers=wanted)
    }
