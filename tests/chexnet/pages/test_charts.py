"""Charts: ticks, places, lines that are thinned out, and text that cannot break out."""

import re
import xml.etree.ElementTree as ET

import pytest

from chexnet.pages.charts import (
    MOST_POINTS,
    Axis,
    Line,
    make_ticks,
    render_chart,
    show_tick,
    thin_out,
)
from chexnet.pages.report_text import show_bytes, show_command, show_seconds, show_share


def draw(*lines, x=None, y=None):
    svg = render_chart(lines, x=x or Axis("x", low=0, high=1), y=y or Axis("y", low=0, high=1),
                       title="t")  # fmt: skip
    return ET.fromstring(svg)


def places(svg):
    """Return the points of every line that is drawn, px."""
    paths = [one.get("d") for one in svg.iter("path") if "line" in one.get("class", "").split()]
    return [[tuple(map(float, at.split())) for at in path[1:].split("L")] for path in paths]


@pytest.mark.parametrize(
    ("low", "high", "count", "ticks"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 1, 2, [0, 0.5, 1]),
        (0.72, 0.84, 5, [0.725, 0.75, 0.775, 0.8, 0.825]),
        (0, 5200, 5, [0, 2000, 4000]),
        (-3, 3, 3, [-2, 0, 2]),
    ],
)
def test_ticks_are_round_numbers_within(low, high, count, ticks):
    assert make_ticks(low, high, count) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("value", "step", "percent", "text"),
    [
        (0.5, 0.5, False, "0.5"),
        (0.025, 0.025, False, "0.025"),
        (0.00025, 0.00025, False, "0.00025"),
        (2e-5, 1e-5, False, "2e-5"),
        (4000, 2000, False, "4,000"),
        (0.02, 0.02, True, "2%"),
        (0.005, 0.0025, True, "0.50%"),
        (1, 0.5, False, "1.0"),
    ],
)
def test_a_tick_has_the_digits_that_its_step_needs(value, step, percent, text):
    assert show_tick(value, step=step, percent=percent) == text


def test_points_lie_where_the_axes_say():
    corners = Line("", [(0, 0), (1, 1), (0.5, 0.25)])
    ((low, high, middle),) = places(draw(corners))
    assert low[0] < high[0]
    assert low[1] > high[1]  # y grows downwards on a screen
    assert middle[0] == pytest.approx((low[0] + high[0]) / 2, abs=0.1)
    assert middle[1] == pytest.approx(low[1] + 0.25 * (high[1] - low[1]), abs=0.1)


def test_every_number_at_the_left_fits_into_the_picture():
    svg = draw(Line("", [(0, 1e-5), (1, 123_456_789)]), y=Axis("y"))
    for text in svg.iter("text"):
        if text.get("class") == "end":
            assert float(text.get("x")) - 6.2 * len(text.text) >= 0


@pytest.mark.parametrize("points", [[], [(0, 3)], [(0, 3), (1, 3)], [(0, 0), (1, 0)]])
def test_few_or_equal_points_are_no_mistake(points):
    svg = draw(Line("", points), x=Axis("x"), y=Axis("y"))
    assert len(places(svg)) == bool(points)
    assert len(list(svg.iter("circle"))) == (len(points) == 1)


def test_thinning_keeps_the_extremes_the_ends_and_the_order():
    points = [(float(n), float(n % 7)) for n in range(10_000)]
    points[5_001] = (5_001.0, 99.0)
    points[7_003] = (7_003.0, -99.0)
    thin = thin_out(points)
    assert len(thin) <= MOST_POINTS
    assert {points[0], points[-1], (5_001.0, 99.0), (7_003.0, -99.0)} <= set(thin)
    assert [x for x, _ in thin] == sorted(x for x, _ in thin)
    assert thin_out(points[:MOST_POINTS]) == points[:MOST_POINTS]


def test_names_in_a_chart_are_text():
    hostile = "</svg><script>alert(1)</script>\x00"
    svg = draw(Line(hostile, [(0, 0), (1, 1)]), y=Axis(hostile, low=0, high=1))
    assert not list(svg.iter("script"))
    assert "</svg><script>alert(1)</script>�" in [text.text for text in svg.iter("text")]


def test_a_legend_names_each_line_in_its_colour():
    svg = draw(Line("one", [(0, 0), (1, 1)], 2), Line("other", [(0, 1), (1, 0)], 3))
    assert [text.text for text in svg.iter("text")][-2:] == ["one", "other"]
    classes = [path.get("class") for path in svg.iter("path")]
    assert [c for c in classes if "line" in c] == ["line line c2", "line line c3"] * 2


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (show_share(0.042), "4.2%"),
        (show_share(0.0996), "10%"),
        (show_share(None), "–"),
        (show_bytes(999), "999 B"),
        (show_bytes(1_234_000), "1.2 MB"),
        (show_seconds(2540), "42 min 20 s"),
        (show_seconds(7260), "2 h 1 min"),
        (show_seconds(3.21), "3.2 s"),
        (show_command(["a b", "c"]), "'a b' c"),
    ],
)
def test_values_read_well(shown, text):
    assert re.sub(r"\s+", " ", shown) == text
