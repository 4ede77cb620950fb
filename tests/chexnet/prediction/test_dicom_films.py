"""DICOM against grey values worked out by hand, and against pydicom's own windowing."""

import io
import zlib
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.pixels import apply_windowing
from pydicom.sequence import Sequence
from pydicom.uid import (
    MPEG4HP41,
    ComputedRadiographyImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLosslessSV1,
    RLELossless,
)

from chexnet.data.pixels import BadImageError
from chexnet.prediction import dicom_films
from chexnet.prediction.dicom_films import read_dicom
from chexnet.prediction.film_files import quieten_decoders, read_film


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    quieten_decoders()


def ramp(bits=12):
    """Return every value of so many bits once: uint16 [H, W]."""
    side = 2 ** (bits // 2)
    return np.arange(2**bits, dtype=np.uint16).reshape(side, -1)


def make_dicom(path, stored, *, bits=12, syntax=ExplicitVRLittleEndian, **elements):
    """Write a film as a digital radiography system does, and return its path."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = ComputedRadiographyImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = syntax
    film = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    film.SOPClassUID, film.SOPInstanceUID = meta.MediaStorageSOPClassUID, "1.2.3"
    film.PatientName, film.PatientID = "Doe^Jane", "secret-7"
    film.Modality, film.BodyPartExamined, film.ViewPosition = "DX", "CHEST", "PA"
    film.Rows, film.Columns = stored.shape[:2]
    film.SamplesPerPixel, film.PhotometricInterpretation = 1, "MONOCHROME2"
    film.BitsAllocated = 8 if bits <= 8 else 16
    film.BitsStored, film.HighBit = bits, bits - 1
    film.PixelRepresentation = int(stored.dtype.kind == "i")
    film.PixelData = stored.astype(stored.dtype.newbyteorder("<")).tobytes()
    for name, value in elements.items():
        if value is None:
            delattr(film, name)
        else:
            setattr(film, name, value)
    film.save_as(path, enforce_file_format=True)
    return path


def grey_of(path):
    return np.asarray(read_dicom(path)[0])


def reason(path):
    with pytest.raises(BadImageError) as raised:
        read_film(path, trained_px=8)
    return str(raised.value)


@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_a_window_of_all_values_spreads_them_over_the_grey_scale(tmp_path, bits):
    stored = ramp(bits) if bits > 8 else ramp(8).astype(np.uint8)
    # Of width w around w / 2 the standard's line runs from 0 to w - 1: all 2^bits values.
    path = make_dicom(
        tmp_path / "a.dcm", stored, bits=bits, WindowCenter=2 ** (bits - 1), WindowWidth=2**bits
    )
    by_hand = np.rint(stored / (2**bits - 1) * 255)
    assert np.abs(grey_of(path) - by_hand).max() <= 1  # of ties that round either way
    assert (grey_of(path) == by_hand).mean() > 0.99


def test_monochrome1_is_the_negative_of_monochrome2(tmp_path):
    stored = ramp()
    window = {"WindowCenter": 2048, "WindowWidth": 4096}
    positive = grey_of(make_dicom(tmp_path / "2.dcm", stored, **window))
    negative = make_dicom(
        tmp_path / "1.dcm", 4095 - stored, PhotometricInterpretation="MONOCHROME1", **window
    )
    # The film is the same one, stored the other way round.
    assert np.abs(grey_of(negative).astype(int) - positive).max() <= 1
    assert grey_of(negative)[0, 0] == 0
    assert grey_of(negative)[-1, -1] == 255


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_are_those_of_pydicom(tmp_path, function):
    stored = ramp()
    path = make_dicom(
        tmp_path / "a.dcm", stored, WindowCenter=["1500", "9"], WindowWidth=["900", "9"],
        VOILUTFunction=function, RescaleSlope=2, RescaleIntercept=-500,
    )  # fmt: skip
    film = pydicom.dcmread(path)
    values = stored * 2.0 - 500
    seen = apply_windowing(values, film, index=0)
    # pydicom spreads over what the stored bits can hold: -500 .. 2 x 4095 - 500.
    by_pydicom = (seen + 500) / (2 * 4095) * 255
    assert np.abs(grey_of(path) - by_pydicom).max() < 0.51


def test_a_narrow_window_cuts_what_is_outside(tmp_path):
    path = make_dicom(tmp_path / "a.dcm", ramp(), WindowCenter=100, WindowWidth=1)
    grey = grey_of(path).ravel()
    assert (grey[:100] == 0).all()  # C.11.2.1.2.1: at most c - 0.5 is black
    assert (grey[100:] == 255).all()


@pytest.mark.parametrize("window", [{}, {"WindowCenter": 5, "WindowWidth": 0}])
def test_without_a_window_grey_spans_what_is_there_and_that_is_said(tmp_path, window):
    stored = np.array([[1000, 1500], [2000, 3000]], np.uint16)
    grey, notes = read_dicom(make_dicom(tmp_path / "a.dcm", stored, **window))
    assert np.asarray(grey).tolist() == [[0, 64], [128, 255]]  # of 2000: 0, 63.75, 127.5, 255
    assert notes == ("no window: grey spans its smallest to its largest value",)


def test_signed_values_are_read_as_such(tmp_path):
    stored = np.array([[-1000, 0], [500, 1000]], np.int16)
    grey = grey_of(make_dicom(tmp_path / "a.dcm", stored, bits=16))
    assert grey.tolist() == [[0, 128], [191, 255]]


def test_padding_is_black_and_does_not_stretch_the_film(tmp_path):
    stored = np.array([[4095, 100], [200, 300]], np.uint16)
    for photometric, by_hand in (
        ("MONOCHROME2", [[0, 0], [128, 255]]),
        ("MONOCHROME1", [[0, 255], [128, 0]]),
    ):
        path = make_dicom(
            tmp_path / "a.dcm", stored, PixelPaddingValue=4095,
            PhotometricInterpretation=photometric,
        )  # fmt: skip
        assert grey_of(path).tolist() == by_hand


def test_a_range_of_padding(tmp_path):
    stored = np.array([[4000, 4095], [200, 300]], np.uint16)
    path = make_dicom(
        tmp_path / "a.dcm", stored, PixelPaddingValue=4095, PixelPaddingRangeLimit=4000
    )
    assert grey_of(path).tolist() == [[0, 0], [0, 255]]


def test_tables_of_grey_values_are_followed(tmp_path):
    table = pydicom.Dataset()
    table.LUTDescriptor = [4, 0, 8]
    table.add_new("LUTData", "US", [0, 10, 100, 255])
    stored = np.array([[0, 1], [2, 3]], np.uint16)
    path = make_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=Sequence([table]))
    assert grey_of(path).tolist() == [[0, 10], [100, 255]]


def test_a_table_that_says_16_bits_and_holds_12_is_not_dark(tmp_path):
    table = pydicom.Dataset()
    table.LUTDescriptor = [4, 10, 16]
    table.add_new("LUTData", "US", [0, 1365, 2730, 4095])
    stored = np.array([[10, 11], [12, 13]], np.uint16)
    path = make_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=Sequence([table]))
    grey, notes = read_dicom(path)
    assert np.asarray(grey).tolist() == [[0, 85], [170, 255]]  # thirds of 255
    assert notes == ("its table of grey values says 16 bits and ends at 4095, taken as white",)


def test_a_table_of_16_bits_is_spread_over_them(tmp_path):
    table = pydicom.Dataset()
    table.LUTDescriptor = [3, 0, 16]
    table.add_new("LUTData", "US", [0, 257 * 50, 257 * 200])
    stored = np.array([[0, 1, 2]], np.uint16)
    grey, notes = read_dicom(
        make_dicom(tmp_path / "a.dcm", stored, VOILUTSequence=Sequence([table]))
    )
    assert np.asarray(grey).tolist() == [[0, 50, 200]]
    assert notes == ()


def test_an_empty_sequence_of_tables_is_none(tmp_path):
    stored = np.array([[1000, 1500], [2000, 3000]], np.uint16)
    path = make_dicom(
        tmp_path / "a.dcm", stored, VOILUTSequence=Sequence([]), WindowCenter=2000.5,
        WindowWidth=2001,
    )  # fmt: skip
    grey, notes = read_dicom(path)
    assert np.asarray(grey).tolist() == [[0, 64], [128, 255]]  # from 1000 to 3000, as its window
    assert notes == ()


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_compressed_films_that_can_be_decoded_are_the_same(tmp_path, syntax):
    stored = ramp(12)
    plain = grey_of(make_dicom(tmp_path / "a.dcm", stored))
    film = pydicom.dcmread(tmp_path / "a.dcm")
    if syntax == RLELossless:
        film.compress(syntax)
    else:
        stream = io.BytesIO()
        Image.fromarray(stored).save(stream, format="JPEG2000", irreversible=False, no_jp2=True)
        film.PixelData = encapsulate([stream.getvalue()])
        film.file_meta.TransferSyntaxUID = syntax
    film.save_as(tmp_path / "b.dcm")
    assert (grey_of(tmp_path / "b.dcm") == plain).all()


def test_deflated_and_baseline_jpeg_are_read(tmp_path):
    stored = ramp(8).astype(np.uint8)
    window = {"WindowCenter": 128, "WindowWidth": 256}
    deflated = make_dicom(
        tmp_path / "a.dcm", stored, bits=8, syntax=DeflatedExplicitVRLittleEndian, **window
    )
    assert (grey_of(deflated) == stored).all()
    stream = io.BytesIO()
    Image.fromarray(stored).save(stream, format="JPEG", quality=95)
    film = pydicom.dcmread(make_dicom(tmp_path / "b.dcm", stored, bits=8, **window))
    film.PixelData = encapsulate([stream.getvalue()])
    film.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    film.save_as(tmp_path / "c.dcm")
    assert np.abs(grey_of(tmp_path / "c.dcm").astype(int) - stored).max() < 12


@pytest.mark.parametrize(
    ("syntax", "words"),
    [
        (JPEGLosslessSV1, ["JPEG Lossless", "1.2.840.10008.1.2.4.70", "pylibjpeg-libjpeg"]),
        (MPEG4HP41, ["MPEG-4", "no still image"]),
    ],
)
def test_what_cannot_be_decoded_is_named_with_what_could(tmp_path, syntax, words):
    film = pydicom.dcmread(make_dicom(tmp_path / "a.dcm", ramp()))
    film.PixelData = encapsulate([b"\xff\xd8\xff\xd9"])
    film.file_meta.TransferSyntaxUID = syntax
    film.save_as(tmp_path / "b.dcm")
    said = reason(tmp_path / "b.dcm")
    assert all(word in said for word in words), said


NOTED = {
    "modality OT": {"Modality": "OT"},
    "modality (none)": {"Modality": None},
    "body part HAND": {"BodyPartExamined": "HAND"},
    "view LL": {"ViewPosition": "LL"},
    "FOR PROCESSING": {"PresentationIntentType": "FOR PROCESSING"},
}


@pytest.mark.parametrize("said", NOTED)
def test_what_the_header_says_against_it_is_noted(tmp_path, said):
    window = {"WindowCenter": 2048, "WindowWidth": 4096}
    _, [note] = read_dicom(make_dicom(tmp_path / "a.dcm", ramp(), **window, **NOTED[said]))
    assert said in note


@pytest.mark.parametrize("modality", ["CR", "DX", "DR", "RG"])
def test_radiographs_of_every_name_are_taken(tmp_path, modality):
    window = {"WindowCenter": 2048, "WindowWidth": 4096}
    path = make_dicom(tmp_path / "a.dcm", ramp(), Modality=modality, **window)
    film = read_film(path, trained_px=8)
    assert (film.kind, film.notes) == ("DICOM", ())


REFUSED = {
    "modality CT (computed tomography)": {"Modality": "CT"},
    "modality MG (mammography)": {"Modality": "MG"},
    "2 frames": {"NumberOfFrames": 2},
    "without an image": {"PixelData": None},
    "too many pixels": {"Rows": 60000, "Columns": 60000},
    "palette": {"PhotometricInterpretation": "PALETTE COLOR"},
    "cannot be decoded": {"Rows": 65},
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_no_film_is_refused_by_name(tmp_path, said):
    assert said in reason(make_dicom(tmp_path / "a.dcm", ramp(), **REFUSED[said]))


def test_a_truncated_file_is_refused(tmp_path):
    content = make_dicom(tmp_path / "a.dcm", ramp()).read_bytes()
    for length in (len(content) // 2, 200, 140):
        (tmp_path / "cut.dcm").write_bytes(content[:length])
        assert "DICOM" in reason(tmp_path / "cut.dcm")


def test_a_deflated_file_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(dicom_films, "MOST_BYTES", 2**22)
    small = np.zeros((4, 4), np.uint16)
    path = make_dicom(tmp_path / "a.dcm", small, syntax=DeflatedExplicitVRLittleEndian)
    content = path.read_bytes()
    start = 144 + int.from_bytes(content[140:144], "little")
    inside = zlib.decompress(content[start:], -15)
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    pieces = [bomb.compress(inside), bomb.compress(bytes(2**23))]
    path.write_bytes(content[:start] + b"".join(pieces) + bomb.flush())
    assert path.stat().st_size < 2**15
    assert reason(path) == "DICOM that inflates to more than a film"


def test_a_file_without_its_preamble_is_read(tmp_path):
    stored = np.array([[1000, 1500], [2000, 3000]], np.uint16)
    content = make_dicom(tmp_path / "a.dcm", stored, syntax=ImplicitVRLittleEndian).read_bytes()
    start = 144 + int.from_bytes(content[140:144], "little")
    (tmp_path / "bare.dcm").write_bytes(content[start:])
    assert grey_of(tmp_path / "bare.dcm").tolist() == [[0, 64], [128, 255]]


def test_a_large_film_is_read_when_it_is_wanted(tmp_path):
    stored = np.arange(1200 * 1000, dtype=np.uint16).reshape(1200, 1000) % 4096
    path = make_dicom(tmp_path / "a.dcm", stored, WindowCenter=2048, WindowWidth=4096)
    assert np.abs(grey_of(path) - stored / 4095 * 255).max() < 0.51


def test_a_colour_capture_is_refused_and_a_grey_one_noted(tmp_path):
    grey = np.repeat(ramp(8).astype(np.uint8)[..., None], 3, -1)
    colours = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    path = make_dicom(tmp_path / "a.dcm", grey, bits=8, Modality="OT", **colours)
    film, [note] = read_dicom(path)
    assert (np.asarray(film) == grey[..., 0]).all()
    assert "OT" in note
    grey[..., 0] = 255 - grey[..., 0]
    path = make_dicom(tmp_path / "b.dcm", grey, bits=8, Modality="OT", **colours)
    assert "colour" in reason(path)


# Files that pydicom's wheel holds; none of them is a chest film.
SHIPPED = {
    "CT_small.dcm": "CT (computed tomography)",
    "MR_truncated.dcm": "MR (magnetic resonance)",
    "JPEG2000.dcm": "NM (nuclear medicine)",
    "examples_palette.dcm": "US (ultrasound)",
    "rtdose_1frame.dcm": "RTDOSE (radiotherapy)",
    "test-SR.dcm": "modality SR",
    "SC_rgb_jpeg_dcmtk.dcm": "a colour image",
    "SC_rgb_rle_2frame.dcm": "2 frames",
    "JPEGLSNearLossless_16.dcm": "pyjpegls",
    "no_meta.dcm": "no DICOM file",
}


@pytest.mark.parametrize("name", SHIPPED)
def test_files_of_other_makers_are_refused_by_what_they_are(name):
    assert SHIPPED[name] in reason(Path(get_testdata_file(name, download=False)))


def test_a_film_of_another_maker_is_read_and_marked():
    film = read_film(Path(get_testdata_file("image_dfl.dcm", download=False)), trained_px=256)
    assert film.grey.size == (512, 512)
    assert film.notes[0] == "DICOM of modality OT: perhaps no radiograph"


def test_what_only_ends_like_dicom_is_none(tmp_path):
    (tmp_path / "notes.dcm").write_text("these are my notes\n" * 50)
    assert reason(tmp_path / "notes.dcm").startswith("text; ")
    (tmp_path / "noise.dcm").write_bytes(bytes(range(256)) * 8)
    assert reason(tmp_path / "noise.dcm") == "no DICOM file, whatever its name says"
