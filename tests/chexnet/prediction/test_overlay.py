"""Overlays against matplotlib's colours and places worked out by hand."""

import matplotlib
import numpy as np
import pytest

from chexnet.prediction import overlay
from chexnet.prediction.overlay import Caption, colour, draw_overlay, paint, spread


def test_colours_are_those_of_viridis():
    values = np.linspace(0, 1, 256)
    known = matplotlib.colormaps["viridis"](values)[:, :3] * 255
    difference = np.abs(colour(values).astype(float) - known)
    assert difference[::16].max() <= 1  # the colours that are listed
    assert difference.max() < 6  # those between them: nothing that an eye tells apart


def test_colours_grow_lighter_so_that_a_grey_printer_shows_their_order():
    luma = colour(np.linspace(0, 1, 50)) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(luma) > 0).all()


def test_a_map_keeps_its_place_and_its_range_when_it_is_drawn_out():
    heat = np.zeros((7, 7), np.float32)
    heat[1, 5] = 2.0
    wide = spread(heat, width=140, height=70)
    assert wide.shape == (70, 140)
    assert (wide >= 0).all()
    assert wide.max() <= 2.0
    row, column = np.unravel_index(wide.argmax(), wide.shape)
    assert 10 <= row < 20  # the second of seven rows of 10 px
    assert 100 <= column < 120  # the sixth of seven columns of 20 px


def test_a_map_of_the_middle_stays_in_the_middle():
    wide = spread(np.ones((2, 2), np.float32), width=100, height=50, covered=(0.1, 0.2, 0.9, 0.8))
    rows, columns = np.nonzero(wide)
    assert (rows.min(), rows.max() + 1) == (10, 40)
    assert (columns.min(), columns.max() + 1) == (10, 90)


def test_where_the_map_is_zero_the_film_stays_as_it_is():
    film = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    heat = np.zeros((8, 8), np.float32)
    heat[:, 4:] = 1.0
    painted = paint(film, heat=heat)
    assert (painted[:, :4] == film[:, :4, None]).all()
    assert (painted[:, 5:] != film[:, 5:, None]).any(axis=-1).all()
    # The line round the half runs on the side that is inside it.
    assert (painted[:, 4] == 255).all()


def test_a_map_of_zeros_leaves_the_film_alone():
    film = np.full((8, 8), 77, np.uint8)
    assert (paint(film, heat=np.zeros((8, 8), np.float32)) == 77).all()


@pytest.mark.parametrize("shape", [(300, 200), (16, 900), (32, 32)])
def test_a_picture_holds_both_films_in_their_proportions(shape):
    film = np.full(shape, 200, np.uint8)
    heat = np.ones((7, 7), np.float32)
    caption = Caption("Pleural_Thickening", 0.5, "フィルム.png", ("not calibrated",))
    both = draw_overlay(film, heat=heat, caption=caption, panel_px=128)
    one = draw_overlay(film, heat=heat, caption=caption, panel_px=128, beside=False)
    width = round(shape[1] * 128 / max(shape))
    assert both.width - one.width == width + 10
    bare = np.asarray(both)[:, 10 : 10 + width]
    rows = (bare == 200).all(axis=(1, 2)).sum()
    assert abs(int(rows) - shape[0] * 128 / max(shape)) <= 2


def test_the_footer_says_that_it_is_not_for_clinical_use(monkeypatch):
    written = []
    monkeypatch.setattr(overlay, "_shorten", lambda text, **_: written.append(text) or text)
    draw_overlay(
        np.zeros((8, 8), np.uint8), heat=np.zeros((2, 2), np.float32),
        caption=Caption("Mass", 0.1, "a.png"), panel_px=64,
    )  # fmt: skip
    assert written == ["a.png", "Not for clinical use"]
