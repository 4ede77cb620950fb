"""The pages, opened in a real browser."""

import pytest

from benchmarks.report_run import make_run
from chexnet.pages.report import render_report
from chexnet.pages.report_compare import write_comparison
from chexnet.pages.report_data import load_folder
from tests.browser import browser, contrast  # noqa: F401 - a fixture

# WCAG 2.2, AA: of text below 24 px.
LEAST_CONTRAST = 4.5


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    runs = [make_run(folder / name, data=folder / f"{name}-data", seed=seed)
            for seed, name in enumerate(("one", "other"))]  # fmt: skip
    (folder / "report.html").write_text(render_report(load_folder(runs[0])))
    return {
        "report": folder / "report.html",
        "compare": write_comparison(runs, output=folder / "compare.html"),
    }


@pytest.fixture(params=("report", "compare"))
def page(request, pages):
    return pages[request.param]


def test_a_page_asks_for_nothing_and_has_no_complaint(browser, page):  # noqa: F811
    visit = browser.open(page)
    assert visit.requests == [page.as_uri()]
    assert visit.complaints == []


def test_the_log_of_requests_sees_one(browser, tmp_path):  # noqa: F811
    page = tmp_path / "asks.html"
    page.write_text('<!DOCTYPE html><img src="missing.png"><script>nothing()</script>')
    visit = browser.open(page)
    assert visit.requests == [page.as_uri(), (tmp_path / "missing.png").as_uri()]
    assert len(visit.complaints) == 2


def test_every_picture_and_chart_is_drawn(browser, pages):  # noqa: F811
    browser.open(pages["report"])
    widths = browser.ask("return [...document.images].map((i) => i.complete && i.naturalWidth)")
    assert widths == [224] * 14
    sizes = browser.ask("return [...document.querySelectorAll('svg')].map((s) => "
                        "[s.getBoundingClientRect().width, s.getBBox().width])")  # fmt: skip
    # ROC and precision-recall, calibration, bars with scale and mean, learning, speed, binding.
    assert len(sizes) == 14 * 2 + 14 + 16 + 3 + 2 + 2
    assert all(shown > 50 and drawn > 50 for shown, drawn in sizes)


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_screen_need_not_scroll_sideways(browser, page, width):  # noqa: F811
    browser.open(page, width=width)
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    assert browser.ask("return window.innerWidth") == width


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_stands_out_in_light_and_dark(browser, page, dark):  # noqa: F811
    browser.open(page, dark=dark)
    paper = browser.ask("return getComputedStyle(document.body).backgroundColor")
    assert (contrast(paper, "rgb(0,0,0)") < 2) == dark
    weak = {kind: ratio for kind, ratio in browser.contrasts().items() if ratio < LEAST_CONTRAST}
    assert weak == {}


def test_contrast_is_that_of_wcag():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    # #767676 on white is the well-known lightest grey that passes AA: 4.54.
    assert contrast("rgb(118, 118, 118)", "rgb(255, 255, 255)") == pytest.approx(4.54, abs=0.01)


def test_a_dark_screen_prints_light_and_whole(browser, pages):  # noqa: F811
    browser.open(pages["report"], dark=True, media="print")
    paper = browser.ask("return getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    browser.open(pages["report"], dark=True)
    pdf = browser.print()
    assert pdf.startswith(b"%PDF")
    assert 4 <= pdf.count(b"/Type /Page\n") <= 14


def test_what_is_folded_on_the_screen_is_printed(browser, pages):  # noqa: F811
    seen = (
        "return [...document.querySelectorAll('#thresholds table')].map((t) => t.checkVisibility())"
    )
    browser.open(pages["report"])
    assert browser.ask(seen) == [True, False]
    browser.open(pages["report"], media="print")
    assert browser.ask(seen) == [True, True]
