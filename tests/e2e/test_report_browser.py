"""The report page in a real browser; see `browser`."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CONTRAST, HOSTILE, IN_BROWSER, INK, TIMEOUT_S, Browser, assert_clean
from msgspec.structs import replace

from dolma_dask.figures.histogram import Histogram, signal_histogram
from dolma_dask.figures.model import Line, SignalHistogram
from dolma_dask.pages import comparison_page, page
from dolma_dask.pages.model import (
    ClusterExample,
    ComparisonPart,
    Example,
    FailureRow,
    MemberExample,
    QuarantineRow,
    ReportData,
    RuleRow,
    SignalChange,
    SourceRow,
    StageRow,
)
from dolma_dask.results.table import Column, Table

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    tab = Browser(tmp_path_factory.mktemp("chromium"))
    yield tab
    tab.close()


def sample(signals: int, text: str = "") -> ReportData:
    rng = np.random.default_rng(0)
    words = np.round(rng.lognormal(5.5, 1.1, 3000))
    kept = words >= 50
    columns = [words, rng.beta(6, 2, 3000), -rng.lognormal(5, 2, 3000) + 300]
    return ReportData(
        f"Report {text}",
        f"wiki/v1{text}",
        "2025-01-01 12:00 UTC",
        "0.1.0",
        [StageRow(f"tag{text}", 3012, 3000, 900_000, 8_000_000, None, 4.5, 4, 0, 12, f"note{text}"),
         StageRow("mix", 3000, int(kept.sum()), 5_000_000, 7_500_000, 1_900_000, 2.0, 4, 1)],
        [SourceRow(f"{name}{text}", n, 1000 * n, n // 2, 500 * n, 125 * n) for name, n in (("books", 9), ("web", 2000), ("code", 991))],
        [signal_histogram(f"gopher__gopher__signal_{i}{text}", Histogram.of(columns[i % 3]), Histogram.of(columns[i % 3][kept]),
                          threshold=[(f">={text}", 50.0)] if i % 3 == 0 else [])
         for i in range(signals)],
        [RuleRow(f"words < 50{text}", int((~kept).sum()), float((~kept).mean()), 90, 9000, 80, 8000, f"words of 50 or more{text}")],
        [Example(side, f"words < 50{text}", f"gopher__gopher__words{text}", 49.0, f"web{text}", "id" + "x" * 900 + text,
                 f"documents/0.jsonl.gz{text}", 7, f"line one\n\tline two {text} \u202e" + "long" * 500)
         for side in ("just inside", "just outside")],
        f"words >= 50{text}",
        [FailureRow("mix", f"documents/3.jsonl.gz{text}", f"CorruptFileError: truncated {text}")],
        [QuarantineRow("tag", f"not JSON{text}", 12)],
        clusters=[ClusterExample(f"3 documents{text}", [MemberExample(f"survivor a{text}", [("same", "one"), ("cut", " [...]")]),
                                                        MemberExample(f"copy b{text}", [("removed", f"one{text}"), ("added", f"two{text}")])])],
    )  # fmt: skip


def written(folder: Path, data: ReportData) -> Path:
    path = folder / "report.html"
    path.write_text(page.render(data), "utf-8")
    return path


def test_plots_are_drawn_from_a_file_without_network_or_errors(browser, tmp_path):
    path = written(tmp_path, sample(3))
    browser.open(path)
    browser.draw_all()
    assert len(browser.run(INK)) == 3
    shot = base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"])
    assert shot.startswith(b"\x89PNG")
    assert len(shot) > 20_000
    assert_clean(browser, path)


def test_plots_of_results_keep_their_scale_whatever_there_is_of_signals(browser, tmp_path):
    shares = np.linspace(0, 1, 11)
    sizes = SignalHistogram(
        "sizes", np.array([2.0, 3.0, 4.0, 6.0]), np.array([900, 20, 1]), scale="log", count_scale="log"
    )
    results = [
        Table(HOSTILE, (Column("similarity", "real"),), [(0.5,)], section="Duplicates", plot=Line(HOSTILE, shares, shares**2, "similarity", "found", [(">=", 0.7)])),
        Table("sizes", (Column("documents", "name"),), [("2",)], section="Duplicates", plot=sizes),
    ]  # fmt: skip
    shown = "Bokeh.documents.flatMap(d => d.roots()).flatMap(p => p.renderers.filter(r => r.visible).map(r => r.name))"
    for signals in (0, 2):
        path = written(tmp_path, replace(sample(signals), results=results))
        browser.open(path)
        browser.draw_all()
        assert len(browser.run(INK)) == 2 + signals
        if signals:
            browser.run("document.getElementById('log-counts').click()")
        assert set(browser.run(shown)) - {"log all"} == {"linear line", "log kept"}
        assert browser.run("window.hit") is None
        assert_clean(browser, path)


def test_what_would_be_a_complaint_is_seen(browser, tmp_path):
    """The check above must be able to fail: a load and a script that the policy does not name."""
    path = written(tmp_path, sample(0))
    path.write_text(
        path.read_text("utf-8").replace(
            "</main>", "<img src='http://127.0.0.1:9/x'><script>window.hit = 1</script></main>"
        )
    )
    browser.open(path)
    browser.wait_for("true")
    assert len(browser.complaints()) >= 2
    assert browser.run("window.hit") is None


def test_many_signals_are_drawn_as_the_reader_scrolls(browser, tmp_path):
    path = written(tmp_path, sample(24))
    browser.open(path)
    assert browser.run("document.querySelectorAll('.plot[data-drawn]').length") < 24
    browser.draw_all()
    browser.run("(function focus(n) { for (const c of [...(n.shadowRoot?.children ?? []), ...n.children]) { if (c.tabIndex === 0) c.focus(); focus(c); } })(document.querySelector('.plot'))")  # fmt: skip
    assert browser.run("getComputedStyle(document.querySelector('.plot')).outlineStyle") == "solid"
    assert_clean(browser, path)


def test_hostile_text_stays_text(browser, tmp_path):
    path = written(tmp_path, sample(3, HOSTILE))
    browser.open(path)
    browser.draw_all()
    assert browser.run("window.hit") is None
    assert browser.run("document.images.length") == 0
    assert HOSTILE in browser.run("document.querySelector('#examples .excerpt').textContent")
    assert HOSTILE in browser.run("document.querySelector('#clusters .excerpt ins').textContent")
    assert HOSTILE in browser.run("document.title")
    middle = browser.run("(() => { const b = document.querySelector('.plot').getBoundingClientRect(); scrollBy(0, b.y - 300); return [b.x + b.width / 2, 300 + b.height / 2]; })()")  # fmt: skip
    for x in (0, 3, 6):
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=middle[0] + x, y=middle[1])
    assert browser.run("window.hit") is None
    assert_clean(browser, path)


def test_tooltip_names_the_bar(browser, tmp_path):
    browser.open(written(tmp_path, sample(1)))
    browser.draw_all()
    box = browser.run("(() => { const b = document.querySelector('.plot').getBoundingClientRect(); return [b.x + b.width * 0.6, b.y + 150]; })()")  # fmt: skip
    text = "(() => { const t = []; const v = n => { if (n.classList?.contains('bk-Tooltip') || /tooltip/i.test(n.className)) t.push((n.shadowRoot ?? n).textContent); for (const c of [...(n.shadowRoot?.children ?? []), ...n.children]) v(c); }; v(document.body); return t.join(' '); })()"  # fmt: skip
    deadline = time.monotonic() + TIMEOUT_S
    shown, x = "", 0
    while "kept" not in shown:
        assert time.monotonic() < deadline, f"no tooltip: {shown!r}"
        x = (x + 2) % 20
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + x, y=box[1])
        time.sleep(0.1)
        shown = browser.run(text)
    assert "from" in shown
    assert "to below" in shown


def press(browser: Browser, key: str) -> None:
    code = {"Tab": 9, "Enter": 13}[key]
    text = {"text": "\r"} if key == "Enter" else {}
    browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
    browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def test_tables_sort_by_keyboard_and_all_of_a_long_one_is_shown_on_demand(browser, tmp_path):
    data = sample(20)
    browser.open(written(tmp_path, data))
    names = "[...document.querySelectorAll('#sources tbody th')].map(cell => cell.textContent)"
    order = "document.querySelectorAll('#sources thead th')[1].getAttribute('aria-sort')"
    assert browser.run(names) == ["books", "web", "code"]
    browser.run("document.querySelectorAll('#sources thead button')[0].focus()")
    press(browser, "Tab")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(browser, "Enter")
    assert browser.run(names) == ["web", "code", "books"]  # by documents as numbers: 2,000, 991, 9
    assert browser.run(order) == "descending"
    press(browser, "Enter")
    assert (browser.run(names), browser.run(order)) == (["books", "code", "web"], "ascending")
    rows = "[...document.querySelectorAll('.index tbody tr')].filter(row => row.offsetParent).length"
    assert browser.run(rows) == 10
    browser.run("document.querySelector('.more').click()")
    assert browser.run(rows) == 20
    browser.run("location.hash = '#signal-20'")
    browser.wait_for("document.getElementById('signal-20').closest('details').open")


def test_a_printed_page_is_complete_and_light(browser, tmp_path):
    path = written(tmp_path, sample(10))
    browser.open(path, dark=True)
    browser.draw_all()  # drawn or not, on paper the pictures stand in their place
    closed = "document.querySelectorAll('details:not([open])').length"
    browser.run("document.querySelectorAll('.fold')[0].open = false")
    before = browser.run(closed)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run(closed) == before > 0, "what a reader folded stays so"
    assert (
        browser.run(
            "[...document.querySelectorAll('svg.still')].filter(each => each.checkVisibility()).length"
        )
        == 10
    )
    assert browser.run("[...document.querySelectorAll('.plot')].every(each => !each.checkVisibility())")
    assert (
        browser.run("getComputedStyle(document.documentElement).getPropertyValue('--panel').trim()")
        == "#ffffff"
    )
    assert browser.run("getComputedStyle(document.querySelector('.excerpt')).maxHeight") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")
    assert browser.run("document.querySelectorAll('svg.still')[0].checkVisibility()") is False
    assert_clean(browser, path)


def test_paper_has_the_pictures_and_few_pages(browser, tmp_path):
    path = written(tmp_path, sample(20))
    browser.open(path)
    paper = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert paper.count(b"/Type /Page\n") <= 8


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)], ids=["phone, light", "dark"])
def test_a_comparison_is_readable(browser, tmp_path, width, dark):
    text = " " + HOSTILE + "wide" * 100
    before, after = (
        sample(8, text),
        replace(sample(8, text), dataset="other" + text, sources=sample(1).sources),
    )
    changes = [
        SignalChange(one, replace(one, counts=one.kept_counts, n=one.n // 2), 0.25) for one in before.signals
    ]
    path = tmp_path / "comparison.html"
    path.write_text(
        comparison_page.render(ComparisonPart("a" + text, before, after, changes, only_after=["x" + text])),
        "utf-8",
    )
    browser.open(path, width, dark)
    buttons = "[...document.querySelectorAll('th button')].map(each => each.textContent)"
    assert "" not in browser.run(buttons)
    browser.run("for (const fold of document.querySelectorAll('details')) fold.open = true")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelectorAll('svg.overlay path.line').length") == 8
    ratio, where = browser.run(CONTRAST)
    assert ratio >= 4.5, where
    assert browser.run("window.hit") is None
    assert_clean(browser, path)


def test_log_counts_and_find(browser, tmp_path):
    path = written(tmp_path, sample(9))
    browser.open(path)
    browser.draw_all()
    shown = "Bokeh.documents.flatMap(d => d.roots()).flatMap(p => p.renderers.filter(r => r.visible).map(r => r.name))"
    assert set(browser.run(shown)) == {"linear all", "linear kept"}
    browser.run("document.getElementById('log-counts').click()")
    assert set(browser.run(shown)) == {"log all", "log kept"}
    browser.run(
        "find = document.getElementById('find'); find.value = 'NAL_7'; find.dispatchEvent(new Event('input'))"
    )
    assert (
        browser.run("[...document.querySelectorAll('article.signal')].filter(a => a.offsetParent).length")
        == 1
    )
    browser.run("find.value = 'nothing like it'; find.dispatchEvent(new Event('input'))")
    assert browser.run("document.getElementById('nothing-found').offsetParent !== null")
    assert_clean(browser, path)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_readable_at_any_width_in_light_and_dark(browser, tmp_path, width, dark):
    path = written(tmp_path, sample(3, " " + "wide" * 100))
    browser.open(path, width, dark)
    browser.draw_all()
    assert browser.run("document.documentElement.scrollWidth") <= width
    ratio, where = browser.run(CONTRAST)
    assert ratio >= 4.5, where  # WCAG 2.1 AA
    page_light = browser.run(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"
    )
    assert page_light is not dark
    assert_clean(browser, path)


def test_complete_without_script(browser, tmp_path):
    path = written(tmp_path, sample(2))
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(path)
        assert "complete without JavaScript" in browser.run("document.body.innerText")
        assert browser.run("document.getElementById('log-counts').offsetParent === null")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
