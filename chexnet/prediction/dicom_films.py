"""DICOM files into grey films, as a viewer would first show them.

Knows which DICOM images are chest films by what they say of themselves, and how stored values
become grey: rescale or modality table, window or VOI table, padding, MONOCHROME1. Leaves
other files to ``film_files``. Reads nothing that names the patient.

The standard: DICOM PS3.3, C.7.6.3 (pixels), C.11.1 (modality), C.11.2 (windows).
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from chexnet.data.pixels import LEAST_WHITE, BadImageError
from chexnet.prediction.film_checks import MUCH_COLOUR, colour_share

if TYPE_CHECKING:
    from pydicom import Dataset

XRAY = ("CR", "DX", "DR", "RG")  # computed, digital, and older names for plain radiography
UNSURE = ("OT", "SC", "")
MOST_PIXELS = 89_478_485  # Pillow's own bound against images made to fill the memory
MOST_BYTES = 2 * MOST_PIXELS + 2**26  # inflated: 16 bits a pixel, and what is beside them
_DEFERRED_BYTES = 2**20
_META_AT = 132  # after the preamble and DICM: the length of the group that names the syntax
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_NAMES = {
    "CT": "computed tomography", "MR": "magnetic resonance", "US": "ultrasound",
    "MG": "mammography", "PT": "positron emission", "NM": "nuclear medicine",
    "XA": "angiography", "RF": "fluoroscopy", "IO": "dental", "PX": "dental",
    "ES": "endoscopy", "SM": "microscopy", "XC": "photography", "OP": "photography of the eye",
    "RTIMAGE": "radiotherapy", "RTDOSE": "radiotherapy", "ECG": "electrocardiogram",
}  # fmt: skip
_CHEST = ("CHEST", "THORAX", "LUNG", "RIB", "PECHO", "TORAX", "BRUST")
_LATERAL = ("LL", "RL", "LATERAL", "LAT", "LLD")
# What pydicom needs beside itself, by the transfer syntax.
_PACKAGES = {
    "1.2.840.10008.1.2.4.50": "pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.51": "pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.57": "pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.70": "pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.80": "pyjpegls, or pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.81": "pyjpegls, or pylibjpeg and pylibjpeg-libjpeg",
    "1.2.840.10008.1.2.4.90": "pylibjpeg and pylibjpeg-openjpeg",
    "1.2.840.10008.1.2.4.91": "pylibjpeg and pylibjpeg-openjpeg",
    "1.2.840.10008.1.2.4.201": "pylibjpeg and pylibjpeg-openjpeg",
    "1.2.840.10008.1.2.4.202": "pylibjpeg and pylibjpeg-openjpeg",
    "1.2.840.10008.1.2.4.203": "pylibjpeg and pylibjpeg-openjpeg",
}


def read_dicom(path: Path) -> tuple[Image.Image, tuple[str, ...]]:
    """Return a DICOM file's image as 8 bit grey, and what is unusual about it.

    Returns:
        The film, mode ``L``, bone white; and warnings.

    Raises:
        BadImageError: no single image of plain radiography, or one that cannot be decoded.
    """
    dataset = _open(path)
    notes = _check_kind(dataset)
    stored = _decode(dataset)
    if stored.ndim == 3:
        return _from_colour(stored), tuple(notes)
    return Image.fromarray(_to_grey(dataset, stored, notes)), tuple(notes)


def _open(path: Path) -> Dataset:
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
    except ModuleNotFoundError as error:
        raise BadImageError("DICOM, for which the package pydicom has to be installed") from error
    try:
        # Pixels are read once it is clear that they are wanted: a series may be gigabytes. What
        # is deflated has to be inflated as a whole.
        size = None if _check_inflated(path) else _DEFERRED_BYTES
        return dcmread(path, defer_size=size)
    except InvalidDicomError:
        dataset = dcmread(path, force=True)
        # Any bytes can be read by force; an image they are not.
        if "Rows" not in dataset or "PixelData" not in dataset:
            raise BadImageError("no DICOM file, whatever its name says") from None
        return dataset


def _check_inflated(path: Path) -> bool:
    """Return whether a file is deflated as a whole, and by no more than a film can be.

    Raises:
        BadImageError: it would fill the memory.
    """
    with path.open("rb") as stream:
        head = stream.read(_META_AT + 12)
        if head[_META_AT : _META_AT + 6] != b"\x02\x00\x00\x00UL":
            return False
        meta = stream.read(min(int.from_bytes(head[-4:], "little"), 2**20))
        if _DEFLATED not in meta:
            return False
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        total = 0
        while not inflate.eof and (piece := inflate.unconsumed_tail or stream.read(2**16)):
            total += len(inflate.decompress(piece, 2**20))
            if total > MOST_BYTES:
                raise BadImageError("DICOM that inflates to more than a film")
        return True


def _check_kind(dataset: Dataset) -> list[str]:
    """Return warnings; raise where this is no chest film for certain."""
    modality = str(dataset.get("Modality", "") or "").strip().upper()
    if modality not in (*XRAY, *UNSURE):
        name = f" ({_NAMES[modality]})" if modality in _NAMES else ""
        raise BadImageError(f"DICOM of modality {modality}{name}, and not a radiograph")
    if "PixelData" not in dataset:
        raise BadImageError("a DICOM file without an image")
    frames = _number(dataset, "NumberOfFrames", default=1)
    if frames > 1:
        raise BadImageError(f"DICOM of {frames:.0f} frames: a series or a film in motion")
    if _number(dataset, "Rows") * _number(dataset, "Columns") > MOST_PIXELS:
        raise BadImageError("too many pixels to be a film")
    photometric = str(dataset.get("PhotometricInterpretation", "MONOCHROME2"))
    if photometric.startswith("PALETTE"):
        raise BadImageError("DICOM in palette colours")
    notes = []
    if modality in UNSURE:
        notes.append(f"DICOM of modality {modality or '(none)'}: perhaps no radiograph")
    part = str(dataset.get("BodyPartExamined", "") or "").strip().upper()
    if part and not any(word in part for word in _CHEST):
        notes.append(f"DICOM of the body part {part}")
    view = str(dataset.get("ViewPosition", "") or "").strip().upper()
    if view in _LATERAL:
        notes.append(f"view {view}: networks here are trained on PA and AP films")
    if str(dataset.get("PresentationIntentType", "")).strip().upper() == "FOR PROCESSING":
        notes.append("raw detector values (FOR PROCESSING), not meant to be looked at")
    return notes


def _decode(dataset: Dataset) -> np.ndarray:
    """Return the stored values: [H, W], or [H, W, 3] in RGB."""
    from pydicom.pixels import get_decoder
    from pydicom.uid import ImplicitVRLittleEndian

    if not hasattr(dataset, "file_meta") or "TransferSyntaxUID" not in dataset.file_meta:
        dataset.ensure_file_meta()
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    syntax = dataset.file_meta.TransferSyntaxUID
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        raise BadImageError(f"DICOM compressed as {syntax.name}, which is no still image") from None
    if not available:
        needed = _PACKAGES.get(str(syntax), "another decoder for pydicom")
        raise BadImageError(
            f"DICOM compressed as {syntax.name} ({syntax}), which cannot be decoded here; "
            f"it needs {needed}"
        )
    try:
        return dataset.pixel_array
    # Whatever a damaged file brings a decoder to raise, it is this file that is at fault.
    except Exception as error:
        reason = " ".join((str(error).strip() or type(error).__name__).split())
        raise BadImageError(f"DICOM whose pixels cannot be decoded: {reason[:300]}") from error


def _from_colour(stored: np.ndarray) -> Image.Image:
    if stored.shape[-1] != 3 or stored.dtype != np.uint8:
        raise BadImageError("DICOM in colours of more than 8 bits")
    image = Image.fromarray(stored)
    share = colour_share(image)
    if share > MUCH_COLOUR:
        raise BadImageError(f"a colour image ({share:.0%} of it coloured), not a radiograph")
    return image.convert("L")


def _to_grey(dataset: Dataset, stored: np.ndarray, notes: list[str]) -> np.ndarray:
    """Return stored values [H, W] as uint8 [H, W], bone white."""
    from pydicom.pixels import apply_modality_lut, apply_voi

    padding = _padding(dataset, stored)
    values = apply_modality_lut(stored, dataset).astype(np.float64)
    window = _window(dataset)
    if dataset.get("VOILUTSequence"):  # some files have an empty one
        shares = apply_voi(values.astype(np.int64), dataset) / _find_white(dataset, notes)
    elif window:
        shares = apply_window(values, center=window[0], width=window[1], function=window[2])
    else:
        shares = _stretch(values, padding)
        notes.append("no window: grey spans its smallest to its largest value")
    shares = np.clip(shares, 0, 1)
    if str(dataset.get("PhotometricInterpretation", "")) == "MONOCHROME1":
        shares = 1 - shares
    shares[padding] = 0
    return np.rint(shares * 255).astype(np.uint8)


def _find_white(dataset: Dataset, notes: list[str]) -> int:
    """Return which entry of the VOI table is white: the highest that its bits can hold."""
    from pydicom.pixels import apply_voi

    count, first, bits = (int(value) for value in dataset.VOILUTSequence[0].LUTDescriptor)
    inputs = np.arange(first, first + (count or 2**16), dtype=np.int64)  # 0 stands for 65536
    highest = int(apply_voi(inputs, dataset).max())
    if bits == 16 and 0 < highest < LEAST_WHITE:
        notes.append(f"its table of grey values says 16 bits and ends at {highest}, taken as white")
        return highest
    return 2**bits - 1


def apply_window(
    values: np.ndarray, *, center: float, width: float, function: str = "LINEAR"
) -> np.ndarray:
    """Return values as shares of white, 0 .. 1 where the window is not left (C.11.2.1).

    Args:
        values: float [H, W], after the rescale.
        center: of the window.
        width: of the window, at least 1 for ``LINEAR`` and above 0 otherwise.
        function: ``LINEAR``, ``LINEAR_EXACT`` or ``SIGMOID``.
    """
    if function == "SIGMOID":
        return 1 / (1 + np.exp(np.clip(-4 * (values - center) / width, -700, 700)))
    if function == "LINEAR_EXACT":
        return np.clip((values - center) / width + 0.5, 0, 1)
    if width == 1:
        return (values > center - 0.5).astype(np.float64)
    return np.clip((values - (center - 0.5)) / (width - 1) + 0.5, 0, 1)


def _window(dataset: Dataset) -> tuple[float, float, str] | None:
    """Return center, width and function of the first window; None without a valid one."""
    center, width = (_first(dataset.get(name)) for name in ("WindowCenter", "WindowWidth"))
    function = str(dataset.get("VOILUTFunction", "") or "LINEAR").strip().upper()
    least = 1 if function == "LINEAR" else 0
    if center is None or width is None or width < least or width == 0:
        return None
    return center, width, function


def _stretch(values: np.ndarray, padding: np.ndarray) -> np.ndarray:
    seen = values[~padding]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _padding(dataset: Dataset, stored: np.ndarray) -> np.ndarray:
    """Return where there is no film, by the stored value that stands for nothing: bool [H, W]."""
    first = dataset.get("PixelPaddingValue")
    if first is None:
        return np.zeros(stored.shape, bool)
    last = dataset.get("PixelPaddingRangeLimit", first)
    low, high = sorted((int(first), int(last)))
    return (stored >= low) & (stored <= high)


def _first(value: object) -> float | None:
    """Return the first of one or many numbers; None for none that is finite."""
    values = [value] if np.isscalar(value) else list(value or ())
    number = float(values[0]) if values and not isinstance(values[0], str) else np.nan
    return number if np.isfinite(number) else None


def _number(dataset: Dataset, name: str, *, default: float = 0) -> float:
    return _first(dataset.get(name)) or default
