"""Figures in a real browser: Bokeh takes the place of the picture once its library is there, before or after; without it the picture stays."""

from pathlib import Path

import numpy as np
import pytest
from browser import HOSTILE, IN_BROWSER, Browser

from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.figures.model import Bars, HeatMap, Ranges
from dolma_dask.figures.notebook import fragment, library_html

pytestmark = IN_BROWSER

NUMBERS = Histogram.of(np.arange(200.0))

FIGURE = Figure(
    f"words {HOSTILE}",
    (
        signal_histogram(HOSTILE, NUMBERS, NUMBERS, [(">=", 50.0)]),
        Bars("bars", (HOSTILE, "$$x$$"), (3.0, 1.0), "kind", "files"),
        HeatMap("heat", ("a", HOSTILE), np.array([[np.nan, 0.5], [1.0, np.nan]]), "condition"),
        Ranges("range", (HOSTILE,), *(np.array([float(n)]) for n in (1, 9, 0.5, 4, 12)), "log"),
    ),
)

IS_DRAWN = "[...document.querySelectorAll('[data-panel]')].every(panel => panel.childElementCount) && document.querySelector('img').style.display == 'none'"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("chromium"))


def test_bokeh_draws_and_without_it_the_picture_stays(browser: Browser, tmp_path: Path) -> None:
    shown, page = fragment(FIGURE, FIGURE.png()), tmp_path / "page.html"
    try:
        for content in (library_html() + shown, shown + library_html()):
            page.write_text(f"<!doctype html><meta charset=utf-8>{content}")
            browser.open(page)
            browser.wait_for(IS_DRAWN)
            assert browser.complaints() == []
        page.write_text(f"<!doctype html><meta charset=utf-8>{shown}")
        browser.open(page)
        assert browser.run("document.querySelector('img').naturalWidth") == 1440
        assert browser.run("document.querySelector('img').getBoundingClientRect().width") == 720
        assert browser.run("document.querySelector('img').alt") == FIGURE.describe()
        assert browser.run("window.hit") is None
        assert browser.complaints() == []
        assert not [url for url in browser.requests() if not url.startswith(("file:", "data:"))]
    finally:
        browser.close()
