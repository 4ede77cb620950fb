"""Files of every kind, by their content: read, marked or refused, each with its reason."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from chexnet.data.pixels import BadImageError, convert_film
from chexnet.prediction.film_checks import find_oddities
from chexnet.prediction.film_files import find_kind, fit_film, quieten_decoders, read_film


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    quieten_decoders()


def chest(width=300, height=280, seed=0):
    """Return a smooth grey image with noise: uint8 [H, W]."""
    y, x = np.mgrid[:height, :width]
    grey = 120 + 80 * np.sin(x / 40) * np.cos(y / 50)
    return (grey + np.random.default_rng(seed).normal(0, 5, grey.shape)).clip(0, 255).astype("u1")


def claim_size(path, *, width, height):
    """Write a small PNG that claims another size in its header."""
    stream = io.BytesIO()
    Image.new("L", (8, 8)).save(stream, format="PNG")
    content = stream.getvalue()
    header = b"IHDR" + struct.pack(">II", width, height) + content[24:29]
    path.write_bytes(content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:])


def reason(path, trained_px=64):
    with pytest.raises(BadImageError) as raised:
        read_film(path, trained_px=trained_px)
    return str(raised.value)


CONTENTS = {
    "report.png": (b"%PDF-1.7\n%\xe2\xe3", "a PDF"),
    "clip.jpg": (b"\x00\x00\x00\x20ftypisom\x00\x00", "a video"),
    "photo.jpg": (b"\x00\x00\x00\x24ftypheic\x00\x00", "a HEIC image"),
    "photo.png": (b"\x00\x00\x00\x20ftypavif\x00\x00", "an AVIF image"),
    "film.avi": (b"RIFF\x00\x00\x00\x00AVI LIST", "a video"),
    "clip.webm": (b"\x1aE\xdf\xa3\x01\x00", "a video"),
    "scan.png": (b"II*\x00\x08\x00\x00\x00", "a TIFF image"),
    "films.png": (b"PK\x03\x04\x14\x00", "a zip archive"),
    "film.dcm.gz": (b"\x1f\x8b\x08\x00", "a gzip archive"),
    "notes.png": (b"these are my notes\n", "text"),
    "page.jpg": (b"<!DOCTYPE html><html>", "text"),
    "noise.png": (bytes(range(256)), "no image"),
    "report.dcm": (b"%PDF-1.7\n%\xe2\xe3", "a PDF"),
    "empty.png": (b"", "an empty file"),
    "empty.dcm": (b"", "an empty file"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_film_is_named_by_its_content(tmp_path, name):
    content, said = CONTENTS[name]
    (tmp_path / name).write_bytes(content)
    assert said in reason(tmp_path / name)


def test_a_name_does_not_make_a_film_nor_unmake_one(tmp_path):
    Image.fromarray(chest()).save(tmp_path / "film.txt", format="PNG")
    assert find_kind(tmp_path / "film.txt") == "PNG"
    Image.fromarray(chest()).save(tmp_path / "film.png", format="JPEG")
    assert find_kind(tmp_path / "film.png") == "JPEG"


def test_what_is_not_there_or_no_file_is_said(tmp_path):
    assert reason(tmp_path / "gone.png") == "no such file"
    assert reason(tmp_path) == "a folder that cannot be searched"


def test_a_truncated_image_is_refused(tmp_path):
    Image.fromarray(chest()).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(content[: len(content) // 2])
    assert "truncated" in reason(tmp_path / "cut.png")


def test_a_small_file_of_huge_pixels_is_refused_before_it_fills_the_memory(tmp_path):
    claim_size(tmp_path / "bomb.png", width=20000, height=20000)
    assert reason(tmp_path / "bomb.png") == "too many pixels to be a film"


def test_a_colour_photograph_is_refused(tmp_path):
    grey = chest().astype(int)
    photo = np.stack([grey + 40, grey, grey - 40], axis=-1).clip(0, 255).astype(np.uint8)
    for name in ("photo.png", "photo.jpg"):
        Image.fromarray(photo).save(tmp_path / name)
        assert "colour" in reason(tmp_path / name)


def test_a_grey_film_in_colour_channels_is_the_same_film(tmp_path):
    grey = chest()
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(np.repeat(grey[..., None], 3, -1)).save(tmp_path / "rgb.png")
    opaque = np.dstack([grey, grey, grey, np.full_like(grey, 9)])
    Image.fromarray(opaque, "RGBA").save(tmp_path / "rgba.png")
    films = [read_film(tmp_path / f"{name}.png", trained_px=64) for name in ("grey", "rgb", "rgba")]
    assert all(film.notes == () for film in films)
    assert all(film.grey.tobytes() == films[0].grey.tobytes() for film in films)


def test_jpeg_noise_in_the_channels_is_no_colour(tmp_path):
    Image.fromarray(np.repeat(chest()[..., None], 3, -1)).save(tmp_path / "low.jpg", quality=20)
    assert read_film(tmp_path / "low.jpg", trained_px=64).notes == ()


def test_a_coloured_mark_on_a_film_is_noted(tmp_path):
    marked = np.repeat(chest()[..., None], 3, -1)
    marked[20:60, 30:150] = (255, 0, 0)  # 40 x 120 of 280 x 300 px: 5.7 %
    Image.fromarray(marked).save(tmp_path / "marked.png")
    assert read_film(tmp_path / "marked.png", trained_px=64).notes == (
        "coloured marks on 6% of it",
    )


@pytest.mark.parametrize("size", [(300, 280), (64, 64), (50, 70), (1000, 300)])
def test_a_film_comes_to_the_network_as_prepare_data_stores_it(tmp_path, size):
    Image.fromarray(chest(*size)).save(tmp_path / "film.png")
    prepared, _, problem = convert_film((tmp_path / "film.png", 64, "fast"))[:3]
    assert problem == ""
    film = read_film(tmp_path / "film.png", trained_px=64)
    assert fit_film(film.grey, size_px=64).tobytes() == prepared


def test_values_of_12_bits_in_16_are_refused_rather_than_seen_as_black(tmp_path):
    values = (chest().astype(np.uint16) * 15).clip(1, 4095)
    Image.fromarray(values).save(tmp_path / "raw.png")
    assert "12 bit" in reason(tmp_path / "raw.png")


ODD = {
    "times as long as wide": chest(600, 200),
    "smaller than the 64 px": chest(60, 60),
    "nearly constant": np.random.default_rng(0).integers(100, 110, (200, 200), np.uint8),
    "different grey values": chest() // 20 * 20,
    "of it is black": np.where(np.arange(280)[:, None] < 220, 0, chest()).astype(np.uint8),
    "of it is white": np.where(np.arange(280)[:, None] < 220, 255, chest()).astype(np.uint8),
}


@pytest.mark.parametrize("said", ODD)
def test_a_film_that_looks_odd_is_marked_with_the_reason(said):
    [warning] = find_oddities(Image.fromarray(ODD[said]), trained_px=64)
    assert said in warning


def test_an_ordinary_film_is_not_marked():
    assert find_oddities(Image.fromarray(chest()), trained_px=64) == ()


def test_a_made_up_film_of_training_size_is_not_marked():
    from chexnet.data.planted import draw_film

    for index in range(5):
        film = draw_film(seed=1, index=index, size_px=64).image
        assert find_oddities(Image.fromarray(film), trained_px=64) == ()


def test_reading_in_threads_prints_no_warnings(tmp_path, launch):
    # Of so many pixels Pillow warns, and goes on.
    claim_size(tmp_path / "large.png", width=10000, height=10000)
    code = (
        "import sys; from pathlib import Path; from concurrent.futures import ThreadPoolExecutor\n"
        "from chexnet.prediction.film_files import *\n"
        "quieten_decoders()\n"
        "def read(path):\n"
        "    try: return read_film(path, trained_px=8).kind\n"
        "    except BadImageError as error: return str(error)\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    print(set(pool.map(read, [Path(sys.argv[1])] * 64)))\n"
    )
    done = launch("-c", code, tmp_path / "large.png")
    assert done.out.strip() == "{'too many pixels to be a film'}"
    assert done.err == ""
