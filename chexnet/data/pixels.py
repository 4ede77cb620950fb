"""One image file into one grey channel of one size.

Knows how every kind of image that such folders hold becomes grey bytes, and when
a file is no readable image. Leaves which files are read to `prepare`. Imports no
TensorFlow: worker processes load this module.
"""

from __future__ import annotations

import io
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image

_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I")
# Detectors give 10 to 14 bits, which some programs save as they are in files of 16.
LEAST_WHITE = 2**14
# Rows of a result made at once: what is in between stays in the processor's cache.
_BAND = 32
# What turns a film upright, by the orientation that its EXIF block notes (TIFF 6.0).
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class BadImageError(Exception):
    """A file that cannot be read as an image; the text says why."""


class Converted(NamedTuple):
    """What became of a film.

    Attributes:
        data: its bytes as a data set stores them.
        mode: Pillow's mode of the file, such as ``L``, ``RGBA`` or ``RGB of 16 bit``.
        bad: why there are no bytes.
        enlarged: whether the file has fewer pixels a side than are stored.
    """

    data: bytes
    mode: str = ""
    bad: str = ""
    enlarged: bool = False


def load_grey(path: Path) -> Image.Image:
    """Return an image file as one 8 bit channel (mode ``L``), at its own size.

    Colour becomes luma (ITU-R 601), palettes are looked up first, and 16 bits are
    scaled to 8 over their full range. Alpha is dropped: it says nothing of the
    tissue, and multiplying by it would paint the film black.

    Raises:
        BadImageError: the file is empty, truncated, too large or no image.
    """
    return _load(path)[0]


def _load(path: Path) -> tuple[Image.Image, str]:
    """Return an image file as `load_grey` does, and the mode that it had (see `Converted`)."""
    try:
        if not path.stat().st_size:
            raise BadImageError("an empty file")
        # Pillow only warns of an image of 89 to 178 million pixels.
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                # Of colour with 16 bits Pillow keeps the upper 8; only here it says so.
                wide_colour = ";16" in str(image.tile) and image.mode not in _SIXTEEN_BIT
                image.load()
                if wide_colour:
                    _check_white(256 * max(high for _, high in image.getextrema()[:3]) + 255)
                # Photographs of films carry a note which way is up.
                turn = _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation))
                grey = _to_grey(image)
                mode = f"{image.mode} of 16 bit" if wide_colour else image.mode
                return grey if turn is None else grey.transpose(turn), mode
    except BadImageError:
        raise
    except Image.UnidentifiedImageError as error:
        raise BadImageError("not an image, whatever its name says") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImageError("too many pixels to be a film") from error
    except Exception as error:  # whatever a decoder says of a file that is damaged
        raise BadImageError(f"{type(error).__name__}: {error}") from error


def _check_white(highest: int) -> None:
    """Raise if a film of 16 bits has no bright value: over the full range it would be dark."""
    if 0 < highest < LEAST_WHITE:
        bits = max(12, highest.bit_length())
        raise BadImageError(
            f"16 bit, but no value above {highest}: {bits} bit data (0 to {2**bits - 1}), "
            "to be rescaled to 0 to 65535 first"
        )


def _to_grey(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BIT:
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise BadImageError("grey values beyond 16 bits")
        _check_white(int(values.max()))
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode == "F":
        raise BadImageError("floating-point grey values, whose range is not known")
    if image.mode == "L":
        return image
    if image.mode in ("1", "LA", "La"):
        return image.getchannel(0).convert("L")
    return image.convert("RGB").convert("L")


def resize_square(image: Image.Image, *, size_px: int) -> Image.Image:
    """Return a grey image of size_px by size_px, each pixel the mean of its area.

    An image that is not square is squeezed, as the article's resize to 256 does,
    so that nothing at the edges is cut off. One that is smaller is interpolated.

    Args:
        image: mode ``L``.
        size_px: height and width of the result.
    """
    if image.size == (size_px, size_px):
        return image
    if min(image.size) < size_px:
        return image.resize((size_px, size_px), Image.Resampling.BILINEAR)
    if not any(edge % size_px for edge in image.size):
        return image.reduce((image.width // size_px, image.height // size_px))
    # Where pixels do not divide evenly, Pillow's box filter takes or leaves whole ones: up to 25
    # grey levels off for 300 to 256 px.
    return Image.fromarray(_mean_areas(np.asarray(image), size_px))


def _mean_areas(values: np.ndarray, size: int) -> np.ndarray:
    """Return the means of size by size equal areas, uint8 [size, size], rounded half to even.

    Args:
        values: uint8 [H, W], neither less than ``size``.
        size: number of areas a side.
    """
    height, width = values.shape
    down, across = _shares(height, size), _shares(width, size)
    means = np.empty((size, size), np.uint8)
    for start in range(0, size, _BAND):
        band = slice(start, start + _BAND)
        rows = sum(values[taken[band]] * units[band, None] for taken, units in down)
        columns = np.ascontiguousarray(rows.T)
        sums = sum(columns[taken] * units[:, None].astype(np.float64) for taken, units in across)
        means[band] = np.rint(sums.T / (height * width))
    return means


def _shares(count: int, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return which of N values lie in each of ``size`` equal parts of them, and how far.

    A value is ``size`` units long and a part N, so that each lies in a part with a whole number.

    Returns:
        For the first, second … value of every part: its index, int64 [size], and its units in
        the part, uint32 [size], 0 where the part has no such value.
    """
    start = np.arange(size) * count
    shares = []
    for step in range(-(-count // size) + 1):
        taken = start // size + step
        ends = np.minimum((taken + 1) * size, start + count)
        units = np.maximum(ends - np.maximum(taken * size, start), 0)
        shares.append((np.minimum(taken, count - 1), units.astype(np.uint32)))
    return shares


def encode_png(image: Image.Image) -> bytes:
    """Return a grey image as the bytes of a PNG file."""
    stream = io.BytesIO()
    # Half the time of zlib's other ways, and films of 256 px come out no larger: what PNG's filters
    # leave of a film repeats little but the last value.
    image.save(stream, format="PNG", compress_type=zlib.Z_RLE)
    return stream.getvalue()


def encode_plain(image: Image.Image) -> bytes:
    """Return a grey image as its bytes, row by row."""
    return image.tobytes()


ENCODERS = {"encoded": encode_png, "fast": encode_plain}
"""How a film is stored, by the format of the data set."""


def convert_film(task: tuple[Path, int, str]) -> Converted:
    """Return a film as a data set stores it, or why it cannot.

    Args:
        task: path of the image, height and width of the result in px, and the format.
    """
    path, size_px, format = task
    try:
        image, mode = _load(path)
        data = ENCODERS[format](resize_square(image, size_px=size_px))
        return Converted(data, mode=mode, enlarged=min(image.size) < size_px)
    except BadImageError as error:
        return Converted(b"", bad=str(error))
