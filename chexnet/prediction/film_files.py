"""A user's file into a film, or the reason why it is none.

Knows what a file is by its first bytes, never by its name; that a colour photograph is no
film; and how a film comes to the size of a run's training films, as `prepare-data` brought
those. Leaves grey values to ``pixels``, DICOM to ``dicom_films`` and oddities to
``film_checks``.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from chexnet.data.pixels import BadImageError, load_grey, resize_square
from chexnet.prediction.dicom_films import read_dicom
from chexnet.prediction.film_checks import MUCH_COLOUR, SOME_COLOUR, colour_share, find_oddities

SUFFIXES = (".png", ".jpg", ".jpeg", ".dcm", ".dicom", ".dic")
READ = "PNG, JPEG and DICOM are read"
_HEAD_BYTES = 512
_MAGIC_AT = 128  # where a DICOM file says that it is one
_GREY_MODES = ("L", "1", "LA", "La", "I", "F")
# First bytes, and what such a file is.
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF", "a PDF"),
    (4, b"ftypheic", "a HEIC image"),
    (4, b"ftypheix", "a HEIC image"),
    (4, b"ftypmif1", "a HEIF image"),
    (4, b"ftypavif", "an AVIF image"),
    (4, b"ftyp", "a video"),
    (0, b"\x1aE\xdf\xa3", "a video"),
    (0, b"\x00\x00\x01\xba", "a video"),
    (0, b"\x00\x00\x01\xb3", "a video"),
    (8, b"AVI ", "a video"),
    (0, b"FLV\x01", "a video"),
    (8, b"WEBP", "a WebP image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"BM", "a BMP image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (0, b"\x00\x00\x00\x0cjP  ", "a JPEG 2000 image"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ", "an xz archive"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (0, b"\x89HDF", "an HDF5 file"),
)


@dataclass(frozen=True)
class FilmFile:
    """A film that was read.

    Attributes:
        kind: ``PNG``, ``JPEG`` or ``DICOM``.
        grey: mode ``L``, at its own size.
        notes: why it may be no chest film, or what is unusual about it.
    """

    kind: str
    grey: Image.Image
    notes: tuple[str, ...]


def read_film(path: Path, *, trained_px: int) -> FilmFile:
    """Return the film that a file holds.

    Args:
        path: the file.
        trained_px: height and width of the films that the network was trained on; smaller
            ones are noted.

    Raises:
        BadImageError: it is no film that can be read; the text says why.
    """
    kind = find_kind(path)
    if kind == "DICOM":
        grey, notes = read_dicom(path)
    else:
        notes = _check_colour(path)
        grey = load_grey(path)
    return FilmFile(kind, grey, (*notes, *find_oddities(grey, trained_px=trained_px)))


def fit_film(grey: Image.Image, *, size_px: int) -> np.ndarray:
    """Return a film at the size of a data set, as `prepare-data` stores it: uint8 [size, size]."""
    return np.asarray(resize_square(grey, size_px=size_px))


def find_kind(path: Path) -> str:
    """Return ``PNG``, ``JPEG`` or ``DICOM`` by a file's content.

    Raises:
        BadImageError: it is empty, cannot be read, or something else; the text names it.
    """
    try:
        if path.is_dir():
            raise BadImageError("a folder that cannot be searched")
        if not path.is_file():
            raise BadImageError("not a file" if path.exists() else "no such file")
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise BadImageError(error.strerror or str(error)) from error
    if not head:
        raise BadImageError("an empty file")
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if head.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    other = _name_content(head)
    # Old DICOM files begin at once, without saying what they are.
    if is_dicom(head) or (not other and path.suffix.lower() in SUFFIXES[3:]):
        return "DICOM"
    raise BadImageError(f"{other or 'no image, whatever its name says'}; {READ}")


def is_dicom(head: bytes) -> bool:
    """Return whether a file that begins so says that it is DICOM."""
    return head[_MAGIC_AT : _MAGIC_AT + 4] == b"DICM"


def quieten_decoders() -> None:
    """Set up, once a process, what reading films in several threads needs.

    Python's filters of warnings belong to the whole process: `pixels` makes Pillow's warning
    of too many pixels an error for a moment only, which threads would undo for each other.
    """
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    warnings.filterwarnings("ignore", module="pydicom")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)


def _check_colour(path: Path) -> tuple[str, ...]:
    """Return a note on a few coloured marks; raise for a photograph."""
    try:
        with Image.open(path) as image:
            if image.mode in _GREY_MODES or image.mode.startswith("I;16"):
                return ()
            if getattr(image, "n_frames", 1) > 1:
                raise BadImageError(f"{image.n_frames} pictures in one file: an animation")
            share = colour_share(image)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, Warning):
        return ()  # whatever is wrong with it, reading it says so
    if share > MUCH_COLOUR:
        raise BadImageError(
            f"a colour image ({share:.0%} of it coloured): a photograph, or a film with something "
            "painted over it; a tinted scan has to be turned into grey first"
        )
    return (f"coloured marks on {share:.0%} of it",) if share > SOME_COLOUR else ()


def _name_content(head: bytes) -> str:
    """Return what a file is that begins so; nothing where it cannot be told."""
    for place, magic, name in _OTHERS:
        if head[place : place + len(magic)] == magic:
            return name
    printable = sum(byte >= 32 or byte in b"\t\n\r\f" for byte in head)
    return "text" if b"\x00" not in head and printable > 0.95 * len(head) else ""
