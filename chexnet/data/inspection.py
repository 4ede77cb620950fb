"""What is in a folder of films: counts by finding, side and view, and what is odd.

Knows both kinds of folder, NIH's as downloaded and prepared data, and what about a
table or an image is worth telling. Leaves reading them to `nih`, `splits`, `boxes` and
`films`, and preparing to `prepare`.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from chexnet import nih
from chexnet.data.boxes import BOX_LIST, load_boxes
from chexnet.data.films import load_films
from chexnet.data.pixels import BadImageError, load_grey
from chexnet.data.shards import allowed_bad
from chexnet.data.splits import check_patients_apart
from chexnet.errors import UserError, name_some
from chexnet.labels import FINDINGS, NO_FINDING, encode_findings
from chexnet.parallel import map_in_order
from chexnet.records import DESCRIPTION, Dataset, load_dataset

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).with_name("inspection.schema.json")
OLDEST_YEARS = 110
ARCHIVES = "images_*.tar.gz"
NORMAL_MODE = "L"  # 8 bit grey
UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Inspection:
    """What was found.

    Attributes:
        folder: the folder.
        kind: ``nih`` or ``prepared``.
        num_films: films in the table.
        num_patients: patients they are of.
        findings: films with each finding, and with none, by the name of the side; ``all``
            counts every film.
        views: films by view (``PA``, ``AP`` or empty), by the name of the side.
        together: int [14][14]: films that have both findings; the diagonal, one.
        odd: what is unusual, each as a line to read; a file or a line of one is named.
        wrong: what will stop `prepare-data`, each as a line to read.
        images: number of images by kind, such as ``1024x1024 L``; empty where not looked at.
        boxes: number of boxes by finding.
    """

    folder: str
    kind: str
    num_films: int
    num_patients: int
    findings: Mapping[str, Mapping[str, int]]
    views: Mapping[str, Mapping[str, int]]
    together: Sequence[Sequence[int]]
    odd: Sequence[str] = ()
    wrong: Sequence[str] = ()
    images: Mapping[str, int] = field(default_factory=dict)
    boxes: Mapping[str, int] = field(default_factory=dict)


def inspect_data(
    folder: Path,
    *,
    look_at_images: bool = True,
    decode: bool = False,
    workers: int | None = None,
) -> Inspection:
    """Return what is in a folder of films.

    Args:
        folder: NIH's files as downloaded, or prepared data.
        look_at_images: open every image and read its header (NIH's: a minute or two).
        decode: read all of every image as preparing does, which takes as long: only so are
            files found that are cut off.
        workers: processes for that; None for one a core.

    Raises:
        UserError: the folder is neither, or its table cannot be read.
    """
    folder = Path(folder)
    if (folder / DESCRIPTION).is_file():
        return _inspect_prepared(load_dataset(folder))
    look = (read_kind_decoded if decode else read_kind) if look_at_images else None
    return _inspect_nih(folder, look=look, workers=workers)


def render_inspection(inspection: Inspection) -> str:
    """Return an inspection as JSON text, in the form of ``inspection.schema.json``."""
    return json.dumps({"schema_version": SCHEMA_VERSION} | asdict(inspection), indent=1) + "\n"


def _inspect_prepared(dataset: Dataset) -> Inspection:
    sides = {}
    for name, split in dataset.splits.items():
        table = load_films(dataset.root / split.films.name, num_films=split.num_examples)
        sides[name] = [
            (patient, view, label)
            for patient, view, label in zip(
                table.patients, table.views, table.labels.astype(int).tolist(), strict=True
            )
        ]
    left_out = [f"{one.film} was left out: {one.reason}" for one in dataset.quarantined]
    return _count(dataset.root, kind="prepared", sides=sides, odd=left_out)


def _inspect_nih(
    folder: Path, *, look: Callable[[Path], str] | None, workers: int | None
) -> Inspection:
    table = nih.find_table(folder)
    films = nih.load_table(table)
    odd, wrong = _odd_rows(films), []
    listed = _listed(folder, films, wrong=wrong)
    images = _find_images(folder, films, table, odd=odd, wrong=wrong)
    kinds = _open(images, look=look, workers=workers) if look else {}
    used = {film.name for part in listed.values() for film in part} or {f.name for f in films}
    _judge(images, kinds, used=used, odd=odd, wrong=wrong)
    boxes = load_boxes(folder / BOX_LIST) if (folder / BOX_LIST).is_file() else []
    known = {film.name for film in films}
    strange = sorted({box.film for box in boxes} - known)
    odd += [f"{BOX_LIST} names {len(strange)} films that the table lacks"] if strange else []
    rows = {
        side: [(film.patient, film.view, encode_findings(film.findings)) for film in part]
        for side, part in {"all": films, **listed}.items()
    }
    drawn = Counter(box.finding for box in boxes)
    return _count(
        folder, kind="nih", sides=rows, odd=odd, wrong=wrong,
        images=Counter(sorted(kinds.values())),
        boxes={name: drawn[name] for name in FINDINGS if drawn[name]},
    )  # fmt: skip


def _listed(
    folder: Path, films: Sequence[nih.Film], *, wrong: list[str]
) -> dict[str, list[nih.Film]]:
    """Return the films of NIH's two lists, where they are there; say what is wrong with them."""
    known = {film.name: film for film in films}
    sides = {}
    for name in (nih.TRAIN_VAL_LIST, nih.TEST_LIST):
        if not (folder / name).is_file():
            wrong.append(f"no {name}: only prepare-data --split patient or lists can do without")
            continue
        try:
            names = nih.load_list(folder / name, known=set(known))
        except UserError as error:
            wrong.append(error.found)
            continue
        sides[name.removesuffix("_list.txt")] = [film for film in films if film.name in names]
    try:
        check_patients_apart(sides)
    except UserError as error:
        wrong.append(error.found)
    return sides


def _odd_rows(films: Iterable[nih.Film]) -> list[str]:
    """Return what the table holds that a person should know."""
    films = list(films)
    old = [film for film in films if (film.age_years or 0) > OLDEST_YEARS]
    odd = []
    if old:
        most = max(old, key=lambda film: film.age_years or 0)
        odd.append(
            f"{len(old)} films of patients above {OLDEST_YEARS} years, up to "
            f"{most.age_years:.0f} ({most.name})"
        )
    for name, count in (
        ("age", sum(film.age_years is None for film in films)),
        ("view", sum(not film.view for film in films)),
        ("follow-up number", sum(film.follow_up is None for film in films)),
    ):
        odd += [f"{count} films without {name}"] if count else []
    return odd


def _find_images(
    folder: Path,
    films: Sequence[nih.Film],
    table: Path,
    *,
    odd: list[str],
    wrong: list[str],
) -> dict[str, Path]:
    """Return the images by name; say which are missing or in no table."""
    packed = sorted(folder.glob(ARCHIVES))
    if packed and not nih.image_folders(folder):
        wrong.append(
            f"{len(packed)} archives are not unpacked: cd {folder} && "
            "for a in images_*.tar.gz; do mkdir -p ${a%.tar.gz} && tar -xzf $a -C ${a%.tar.gz}; "
            "done"
        )
        return {}
    try:
        images = nih.find_images(folder)
    except UserError as error:
        wrong.append(f"expected {error.expected}; found {error.found}")
        return {}
    try:
        nih.check_images_present(films, images=images, table=table)
    except UserError as error:
        wrong.append(error.found)
    unlisted = sorted(set(images) - {film.name for film in films})
    if unlisted:
        odd.append(f"{len(unlisted)} images that the table does not name: {name_some(unlisted)}")
    return images


def _open(
    images: Mapping[str, Path], *, look: Callable[[Path], str], workers: int | None
) -> dict[str, str]:
    """Return the kind of each image, by its name."""
    seen = map_in_order(
        look, items=list(images.values()), workers=workers, chunk=64, label="images opened"
    )
    return dict(zip(images, seen, strict=True))


def _judge(
    images: Mapping[str, Path],
    kinds: Mapping[str, str],
    *,
    used: set[str],
    odd: list[str],
    wrong: list[str],
) -> None:
    """Say which images are unusual or unreadable, and whether prepare-data stops at those.

    Args:
        images: where they lie, by name.
        kinds: of each image, by name.
        used: names of the films that are to be prepared: it leaves out a few of them.
        odd: takes what is unusual.
        wrong: takes what stops it.
    """
    by_kind: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        by_kind.setdefault(kind, []).append(name)
    bad = {name for name, kind in kinds.items() if kind.startswith(UNREADABLE)}
    num_bad, most = len(bad & used), allowed_bad(len(used))
    told = wrong if num_bad > most else odd
    for kind, names in by_kind.items():
        if kind.startswith(UNREADABLE):
            told.append(f"{kind}: {name_some([str(images[name]) for name in names])}")
        elif not kind.endswith(f" {NORMAL_MODE}"):
            odd.append(f"{len(names)} images of kind {kind}: {name_some(names)}")
    if bad:
        told.append(f"{num_bad} of {len(used)} films to prepare are unreadable: prepare-data "
                    f"leaves out {most} unless told otherwise (--max-bad)")  # fmt: skip


def read_kind(path: Path) -> str:
    """Return the kind of an image by its header, e.g. ``1024x1024 L``, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return f"{image.width}x{image.height} {image.mode}"
    except Image.UnidentifiedImageError:
        return f"{UNREADABLE}, no image whatever the name says"
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return f"{UNREADABLE}, too many pixels to be a film"
    except Exception as error:  # whatever Pillow says of a file that is damaged
        return f"{UNREADABLE}, {type(error).__name__}"


def read_kind_decoded(path: Path) -> str:
    """Return the kind of an image as `read_kind` does, once all of it was read."""
    try:
        load_grey(path)
    except BadImageError as error:
        return f"{UNREADABLE}, {error}"
    return read_kind(path)


def _count(
    folder: Path,
    *,
    kind: str,
    sides: Mapping[str, Sequence[tuple[str, str, Sequence[int]]]],
    odd: Sequence[str] = (),
    wrong: Sequence[str] = (),
    images: Mapping[str, int] | None = None,
    boxes: Mapping[str, int] | None = None,
) -> Inspection:
    """Return the counts of the rows (patient, view, label vector) of each side."""
    rows = {side: list(part) for side, part in sides.items()}
    if "all" not in rows:
        rows = {"all": [row for part in rows.values() for row in part], **rows}
    labels = {
        side: np.array([row[2] for row in part], np.int64).reshape(-1, len(FINDINGS))
        for side, part in rows.items()
    }
    findings = {}
    for side, vectors in labels.items():
        counts = dict(zip(FINDINGS, vectors.sum(axis=0).tolist(), strict=True))
        findings[side] = counts | {NO_FINDING: int((~vectors.any(axis=1)).sum())}
    return Inspection(
        folder=str(folder),
        kind=kind,
        num_films=len(rows["all"]),
        num_patients=len({row[0] for row in rows["all"]}),
        findings=findings,
        views={side: dict(Counter(row[1] for row in part)) for side, part in rows.items()},
        together=(labels["all"].T @ labels["all"]).tolist(),
        odd=tuple(odd),
        wrong=tuple(wrong),
        images=dict(images or {}),
        boxes=dict(boxes or {}),
    )
