"""A made-up data set in NIH's layout, to try the whole chain without NIH's data.

Knows patients, tables, lists and boxes: `images/*.png`, `Data_Entry_2017.csv` in
the shape of the 2017 release, `train_val_list.txt`, `test_list.txt` and
`BBox_List_2017.csv`. Leaves what the films look like to `planted`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PIL import Image

from chexnet.data.planted import Box, draw_film
from chexnet.errors import UserError
from chexnet.folders import new_folder
from chexnet.labels import format_findings
from chexnet.nih import TEST_LIST, TRAIN_VAL_LIST
from chexnet.parallel import map_in_order

TABLE = "Data_Entry_2017.csv"
BOX_TABLE = "BBox_List_2017.csv"
FEWEST_FILMS = 20
SMALLEST_PX, LARGEST_PX = 32, 2048
TEST_SHARE = 0.15
MOST_FILMS_OF_A_PATIENT = 6

# The header of the 2017 release, its last comma included; that of the boxes
# names four columns in one pair of brackets and ends in three commas.
_TABLE_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
    "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],"
)
_BOX_HEADER = "Image Index,Finding Label,Bbox [x,y,w,h],,,"


@dataclass(frozen=True)
class _Place:
    """Where a film stands: its number in the sample, its patient's, its follow-up's."""

    index: int
    patient: int
    follow_up: int

    @property
    def name(self) -> str:
        return f"{self.patient:08d}_{self.follow_up:03d}.png"


def make_sample_data(
    output: Path,
    *,
    num_images: int = 4000,
    size_px: int = 64,
    seed: int = 0,
    random_labels: bool = False,
    workers: int | None = None,
    force: bool = False,
) -> Path:
    """Make a learnable data set in NIH's layout.

    The same options give the same files, whatever the number of workers.

    Args:
        output: a new or empty folder.
        num_images: films, at least 20; about 15 % of them for testing.
        size_px: height and width, 32 to 2048.
        seed: another one gives other patients and other films.
        random_labels: deal the films' findings out to other films, so that
            nothing can be learned; no boxes are written then.
        workers: number of processes; None for one a core.
        force: replace an output of this program that exists.

    Returns:
        The output.

    Raises:
        UserError: too few films, an impossible size, a negative seed, or an
            output with something in it.
    """
    output = Path(output)
    _check_options(num_images, size_px, seed=seed)
    rng = random.Random(seed)
    places = _place_films(num_images, rng=rng)
    with new_folder(output, marker=TABLE, force=force) as folder:
        (folder / "images").mkdir()
        write = partial(_write_film, folder=folder, size_px=size_px, seed=seed)
        boxes = list(
            map_in_order(write, items=places, workers=workers, chunk=64, label="films drawn")
        )
        findings = [tuple(film_boxes) for film_boxes in boxes]
        if random_labels:
            rng.shuffle(findings)
            boxes = [{} for _ in boxes]
        _write_table(folder / TABLE, places=places, findings=findings, size_px=size_px, rng=rng)
        _write_boxes(folder / BOX_TABLE, places=places, boxes=boxes)
        _write_lists(folder, places=places, rng=rng)
    return output


def _check_options(num_images: int, size_px: int, *, seed: int) -> None:
    if seed < 0:
        raise UserError("--seed of 0 or more", found=str(seed), fix="use --seed 0, 1, 2 …")
    if num_images < FEWEST_FILMS:
        raise UserError(
            f"at least {FEWEST_FILMS} films, so that every side of the split has some",
            found=str(num_images),
            fix=f"use --images {FEWEST_FILMS} or more",
        )
    if not SMALLEST_PX <= size_px <= LARGEST_PX:
        raise UserError(
            f"an image size of {SMALLEST_PX} to {LARGEST_PX} px",
            found=str(size_px),
            fix="use --size 64; below 32 px the planted shapes cannot be told apart",
        )


def _place_films(num_images: int, *, rng: random.Random) -> list[_Place]:
    places: list[_Place] = []
    patient = 0
    while len(places) < num_images:
        patient += 1
        first = len(places)
        num_films = min(rng.randint(1, MOST_FILMS_OF_A_PATIENT), num_images - first)
        places.extend(_Place(first + nth, patient, nth) for nth in range(num_films))
    return places


def _write_film(place: _Place, *, folder: Path, size_px: int, seed: int) -> dict[str, Box]:
    """Write one film and return where its findings are; a worker process runs this."""
    film = draw_film(seed=seed, index=place.index, size_px=size_px)
    Image.fromarray(film.image).save(folder / "images" / place.name)
    return film.boxes


def _write_table(
    path: Path,
    *,
    places: list[_Place],
    findings: list[tuple[str, ...]],
    size_px: int,
    rng: random.Random,
) -> None:
    lines = [_TABLE_HEADER]
    ages: dict[int, tuple[int, str]] = {}
    for place, names in zip(places, findings, strict=True):
        age, sex = ages.setdefault(place.patient, (rng.randint(18, 85), rng.choice("MF")))
        years, view = f"{age + place.follow_up:03d}Y", rng.choice(["PA", "PA", "AP"])
        lines.append(
            f"{place.name},{format_findings(names)},{place.follow_up},{place.patient},"
            f"{years},{sex},{view},{size_px},{size_px},0.143,0.143,"
        )
    path.write_text("\n".join(lines) + "\n")


def _write_boxes(path: Path, *, places: list[_Place], boxes: list[dict[str, Box]]) -> None:
    lines = [_BOX_HEADER]
    for place, film_boxes in zip(places, boxes, strict=True):
        for finding, box in film_boxes.items():
            lines.append(f"{place.name},{finding},{','.join(map(str, box))}")
    path.write_text("\n".join(lines) + "\n")


def _write_lists(folder: Path, *, places: list[_Place], rng: random.Random) -> None:
    names: dict[int, list[str]] = {}
    for place in places:
        names.setdefault(place.patient, []).append(place.name)
    patients = sorted(names)
    rng.shuffle(patients)
    test: list[str] = []
    while len(test) < TEST_SHARE * len(places):
        test.extend(names[patients.pop()])
    train_val = [name for patient in sorted(patients) for name in names[patient]]
    for file_name, listed in ((TRAIN_VAL_LIST, train_val), (TEST_LIST, sorted(test))):
        (folder / file_name).write_text("\n".join(listed) + "\n")
