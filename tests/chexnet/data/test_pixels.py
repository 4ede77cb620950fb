import io
import struct
import zlib
from fractions import Fraction

import numpy as np
import pytest
import skimage.measure
import skimage.transform
from PIL import Image

from chexnet.data import pixels

GREY = np.arange(0, 256, 4, dtype=np.uint8).reshape(8, 8)


def saved(tmp_path, image, name="a.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def grey_of(path):
    image = pixels.load_grey(path)
    assert image.mode == "L"
    return np.asarray(image)


def test_grey_stays_as_it_is(tmp_path):
    assert np.array_equal(grey_of(saved(tmp_path, Image.fromarray(GREY))), GREY)


@pytest.mark.parametrize("alpha", [0, 128, 255])
def test_alpha_is_not_ink(tmp_path, alpha):
    channel = np.full_like(GREY, alpha)
    rgba = Image.fromarray(np.stack([GREY, GREY, GREY, channel], -1), "RGBA")
    assert np.array_equal(grey_of(saved(tmp_path, rgba)), GREY)
    la = Image.fromarray(np.stack([GREY, channel], -1), "LA")
    assert np.array_equal(grey_of(saved(tmp_path, la)), GREY)


def test_colour_becomes_luma(tmp_path):
    rgb = np.zeros((1, 3, 3), np.uint8)
    rgb[0, 0, 0] = rgb[0, 1, 1] = rgb[0, 2, 2] = 200
    # ITU-R 601: 0.299, 0.587, 0.114 of 200.
    assert grey_of(saved(tmp_path, Image.fromarray(rgb))).tolist() == [[60, 117, 23]]


def test_sixteen_bits_are_scaled_over_their_range(tmp_path):
    wide = np.array([[0, 257 * 7, 257 * 100 + 100, 65535]], np.uint16)
    assert grey_of(saved(tmp_path, Image.fromarray(wide))).tolist() == [[0, 7, 100, 255]]


@pytest.mark.parametrize(
    ("highest", "named"),
    [
        (4095, r"above 4095: 12 bit data \(0 to 4095\)"),
        (4096, r"above 4096: 13 bit data \(0 to 8191\)"),
        (8192, r"above 8192: 14 bit data \(0 to 16383\)"),
        (16383, r"above 16383: 14 bit data \(0 to 16383\)"),
    ],
)
def test_fewer_bits_in_sixteen_are_refused_rather_than_dark(tmp_path, highest, named):
    values = np.linspace(0, highest, 64).astype(np.uint16).reshape(8, 8)
    with pytest.raises(pixels.BadImageError, match=named):
        pixels.load_grey(saved(tmp_path, Image.fromarray(values)))


def test_a_dark_film_of_sixteen_bits_is_one(tmp_path):
    assert grey_of(
        saved(tmp_path, Image.fromarray(np.array([[0, 16384]], np.uint16)))
    ).tolist() == [
        [0, 64]  # 16384 / 65535 x 255 = 63.75
    ]


def wide_png(path, samples, *, colour_type):
    """Write a PNG of 16 bits by hand (its specification, 11.2): Pillow writes grey ones alone."""
    height, width, _ = samples.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    parts = {b"IHDR": header, b"IDAT": zlib.compress(rows), b"IEND": b""}
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return path


@pytest.mark.parametrize(("colour_type", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_colour_of_sixteen_bits_is_judged_as_grey_of_sixteen_is(tmp_path, colour_type, channels):
    grey = np.array([[0, 256 * 100, 65535]])
    samples = np.repeat(grey[..., None], channels, axis=-1)
    full = wide_png(tmp_path / "full.png", samples, colour_type=colour_type)
    assert grey_of(full).tolist() == [[0, 100, 255]]
    samples = samples // 16  # 12 bits: 0, 1600, 4095
    if channels in (2, 4):
        samples[..., -1] = 65535  # opaque: how bright a film is its alpha does not say
    dark = wide_png(tmp_path / "dark.png", samples, colour_type=colour_type)
    with pytest.raises(pixels.BadImageError, match="no value above 4095: 12 bit data"):
        pixels.load_grey(dark)


def odd_exif():
    """Return an EXIF block (TIFF 6.0): orientation 6, and a description that is a fraction."""
    entries = [(0x010E, 5, 1, struct.pack("<I", 38)), (0x0112, 3, 1, struct.pack("<HH", 6, 0))]
    packed = b"".join(struct.pack("<HHI", *entry[:3]) + entry[3] for entry in entries)
    count, end, fraction = struct.pack("<H", 2), bytes(4), struct.pack("<II", 1, 3)
    return b"Exif\0\0II*\0" + struct.pack("<I", 8) + count + packed + end + fraction


def test_an_odd_note_beside_the_orientation_does_not_matter(tmp_path):
    lying = np.zeros((16, 64), np.uint8)
    lying[:, :16] = 255
    path = saved(tmp_path, Image.fromarray(lying), "a.jpg", exif=odd_exif())
    assert grey_of(path)[:16].min() > 250  # bright on the left, which clockwise comes to the top


def test_whatever_a_decoder_raises_is_the_reason_of_that_film(tmp_path, monkeypatch):
    path = saved(tmp_path, Image.fromarray(GREY))
    monkeypatch.setattr(Image.Image, "getexif", lambda self: struct.unpack("<I", b""))
    assert pixels.convert_film((path, 8, "fast")).bad.startswith("error: unpack requires")


def test_a_film_is_turned_the_way_its_camera_notes(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # TIFF 6.0: row 0 is the right side, so it must be turned clockwise
    lying = np.zeros((8, 32), np.uint8)
    lying[:, :8] = 255  # bright on the left, which clockwise comes to the top
    turned = grey_of(saved(tmp_path, Image.fromarray(lying), "a.png", exif=exif))
    assert turned.shape == (32, 8)
    assert turned[:8].min() == 255
    assert turned[8:].max() == 0


def test_palette_is_looked_up(tmp_path):
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([250, 250, 250, 10, 10, 10, 99, 99, 99])
    assert grey_of(saved(tmp_path, image)).tolist() == [[250, 10, 99]]
    assert grey_of(saved(tmp_path, image, "t.png", transparency=0)).tolist() == [[250, 10, 99]]


def test_bilevel_and_jpeg(tmp_path):
    bits = Image.fromarray(np.array([[0, 255]], np.uint8)).convert("1")
    assert grey_of(saved(tmp_path, bits)).tolist() == [[0, 255]]
    flat = Image.new("RGB", (16, 16), (90, 90, 90))
    assert np.abs(grey_of(saved(tmp_path, flat, "a.jpg")).astype(int) - 90).max() <= 1
    cmyk = Image.new("CMYK", (16, 16), (0, 0, 0, 155))
    assert np.abs(grey_of(saved(tmp_path, cmyk, "c.jpg")).astype(int) - 100).max() <= 2


def png_bytes():
    stream = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    Image.fromarray(noise).save(stream, format="PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"<!doctype html><title>503</title>", "not an image"),
        (png_bytes()[:20], "."),
        (png_bytes()[:2000], "truncated"),
        (png_bytes()[:1500] + b"\xff" + png_bytes()[1501:], "."),
    ],
)
def test_bad_files_say_why(tmp_path, content, reason):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    with pytest.raises(pixels.BadImageError, match=reason):
        pixels.load_grey(path)
    image_bytes, _, text = pixels.convert_film((path, 8, "encoded"))[:3]
    assert (image_bytes, bool(text)) == (b"", True)


def test_decompression_bombs_are_refused(tmp_path):
    path = saved(tmp_path, Image.new("1", (20000, 5000)))
    with pytest.raises(pixels.BadImageError, match="too many pixels"):
        pixels.load_grey(path)


def test_shrinking_is_the_mean_of_the_area():
    image = np.random.default_rng(1).integers(0, 256, (64, 32), np.uint8)
    small = pixels.resize_square(Image.fromarray(image), size_px=8)
    means = image.reshape(8, 8, 8, 4).mean(axis=(1, 3))
    assert np.abs(np.asarray(small) - means).max() <= 1.0


def test_a_stripe_of_one_pixel_is_not_lost():
    image = np.zeros((256, 256), np.uint8)
    image[:, 101] = 255
    small = np.asarray(pixels.resize_square(Image.fromarray(image), size_px=32))
    assert small[0, 12] == 32  # an eighth of 255
    assert small.sum() == 32 * 32


def exact_means(image, size):
    """Return the means of size x size equal areas, in fractions, rounded half to even."""

    def share(pixel, pixels, part):
        ends = min(Fraction(pixel + 1), Fraction((part + 1) * pixels, size))
        return max(ends - max(Fraction(pixel), Fraction(part * pixels, size)), 0)

    height, width = image.shape
    rows = [[share(y, height, part) for y in range(height)] for part in range(size)]
    columns = [[share(x, width, part) for x in range(width)] for part in range(size)]
    area = Fraction(height * width, size**2)
    values = image.tolist()
    return [
        [
            round(
                sum(a * b * values[y][x] for y, a in enumerate(row) if a
                    for x, b in enumerate(column) if b) / area
            )
            for column in columns
        ]
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize(("height", "width"), [(20, 20), (13, 31), (9, 8)])
def test_means_are_exact_where_sizes_do_not_divide(height, width):
    image = np.random.default_rng(height).integers(0, 256, (height, width), np.uint8)
    small = np.asarray(pixels.resize_square(Image.fromarray(image), size_px=8))
    assert small.tolist() == exact_means(image, 8)


def test_sums_of_long_rows_do_not_overflow():
    image = Image.new("L", (300_000, 30), 255)
    assert pixels.resize_square(image, size_px=9).getextrema() == (255, 255)


def test_small_images_grow():
    assert pixels.resize_square(Image.new("L", (1, 3), 77), size_px=8).getextrema() == (77, 77)


def test_convert_gives_a_grey_png(tmp_path):
    path = saved(tmp_path, Image.fromarray(GREY))
    image_bytes, mode, reason = pixels.convert_film((path, 8, "encoded"))[:3]
    assert (mode, reason) == ("L", "")
    image = Image.open(io.BytesIO(image_bytes))
    assert (image.format, image.mode, image.size) == ("PNG", "L", (8, 8))
    assert np.array_equal(np.asarray(image), GREY)


def test_convert_gives_plain_bytes_row_by_row(tmp_path):
    path = saved(tmp_path, Image.fromarray(GREY))
    assert pixels.convert_film((path, 8, "fast")).data == GREY.tobytes()


@pytest.mark.parametrize(("height", "width"), [(1024, 1024), (999, 1300), (300, 257)])
def test_resizing_agrees_with_an_independent_area_mean(height, width):
    """Within rounding of scikit-image's means, for sizes that divide and that do not."""
    rough = np.random.default_rng(3).integers(0, 256, (40, 40)).astype(np.float64)
    film = np.clip(skimage.transform.resize(rough, (height, width), order=3), 0, 255)
    film = film.round().astype(np.uint8)
    ours = np.asarray(pixels.resize_square(Image.fromarray(film), size_px=256)).astype(float)
    # Each pixel cut into 256 parts a side, so that the areas are whole numbers of parts.
    rows = skimage.measure.block_reduce(np.repeat(film, 256, 0), (height, 1), np.mean)
    means = skimage.measure.block_reduce(np.repeat(rows, 256, 1), (1, width), np.mean)
    assert np.abs(ours - means).max() <= 1
    smoothed = skimage.transform.resize(film.astype(float), (256, 256), anti_aliasing=True)
    assert np.abs(ours - smoothed)[4:-4, 4:-4].mean() < 1.5  # another filter, the same film


def test_a_film_of_20000_by_20000_is_refused_before_it_is_decoded(tmp_path):
    path = saved(tmp_path, Image.new("1", (20000, 20000)))
    with pytest.raises(pixels.BadImageError, match="too many pixels"):
        pixels.load_grey(path)
