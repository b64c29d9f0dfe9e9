"""Figures: one set of numbers for frames, tables, pictures and pages; equal data give equal bytes, and names of the data stay text."""

import base64
import html
import io
import json
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

from dolma_dask.display import printable
from dolma_dask.errors import UsageError
from dolma_dask.figures import fonts, notebook, static
from dolma_dask.figures.axes import positions
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.histogram import Histogram, display_edges, signal_histogram
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges
from dolma_dask.options.pictures import PictureOptions
from dolma_dask.rules.thresholds import Bounds, Thresholds

HOSTILE = "\N{CJK UNIFIED IDEOGRAPH-4E2D}</script><img src=x onerror=alert(1)> $x^2$ $$\\frac\\[ \x1b[31m"

CHINESE = "\N{CJK UNIFIED IDEOGRAPH-4E2D}\N{CJK UNIFIED IDEOGRAPH-6587}"

SCRIPT_G = "\N{SCRIPT SMALL G}"
"""In fonts that come with matplotlib, but not in the one that it draws with."""

VALUES = np.array([1, 2, 2, 3, 3, 3, 40.0, np.nan])


def histogram(name: str = "words") -> Panel:
    return signal_histogram(name, Histogram.of(VALUES), Histogram.of(VALUES[3:]), [(">=", 3.0)])


def bars(name: str = "3", is_log: bool = False) -> Panel:
    return Bars("sizes", ("2", name), (1000.0, 1.0), "documents in a cluster", "clusters", is_log)


def heat(name: str = "b < 2") -> Panel:
    shares = np.array([[np.nan, 0.25], [0.5, np.nan]])
    return HeatMap("overlap", ("a > 1", name), shares, "condition", {"dropped_documents": (8, 4)})


def ranges(name: str = "de", scale: Any = "linear") -> Panel:
    lower, upper = np.array([1.0, -np.inf]), np.array([9.0, 5.0])
    p1, median, p99 = np.array([0.5, np.nan]), np.array([4.0, np.nan]), np.array([12.0, np.nan])
    return Ranges("words", ("en", name), lower, upper, p1, median, p99, scale)


def line(name: str = "similarity") -> Panel:
    return Line("found pairs", np.linspace(0, 1, 5), np.linspace(0, 1, 5) ** 2, name, "found", [("~", 0.7)])


MAKERS: list[Callable[..., Panel]] = [
    histogram,
    bars,
    lambda name="3": bars(name, True),
    heat,
    ranges,
    lambda name="de": ranges(name, "log"),
    line,
]


def pixels(png: bytes) -> tuple[int, int]:
    """Check the chunks of a PNG; return its size."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, kinds = 8, []
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        body = png[at + 4 : at + 8 + size]
        assert zlib.crc32(body) == struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0]
        kinds.append(body[:4])
        at += 12 + size
    assert not {b"tEXt", b"iTXt", b"zTXt", b"tIME"} & set(kinds), "a date or a program"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_every_panel_is_drawn_and_equal_data_give_equal_bytes(make: Callable[..., Panel]) -> None:
    one, other = (Figure("title", (make(),), notes=("a note",)) for _ in range(2))
    png, svg = one.png(), one.svg()
    assert png == other.png()
    assert svg == other.svg()
    assert pixels(png)[0] == 1440
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "<dc:date>" not in svg
    assert len(one.frame())
    assert one.describe().startswith("title. ")


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_names_of_the_data_stay_text(make: Callable[..., Panel], tmp_path: Path) -> None:
    figure = Figure(HOSTILE, (make(HOSTILE), make()), HOSTILE, (HOSTILE,))
    ElementTree.fromstring(figure.svg())
    figure.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    own = page[page.index("<div data-dolma-figure") :]
    (png,) = re.findall(r'src="data:image/png;base64,([^"]+)"', own)
    pixels(base64.b64decode(png))
    assert "<img src=x" not in own
    assert own.count("</script>") == 1
    assert html.escape(printable(HOSTILE)) in own
    assert "\x1b" not in page
    assert "\x1b" not in str(figure)
    assert not re.search(r"\$\$|\\\\\\\\\[", own[own.index("<script>") :]), (
        "Bokeh would take it for mathematics, and fetch a library"
    )


def test_no_values_are_a_picture_too(tmp_path: Path) -> None:
    figure = Figure("nothing", (signal_histogram("words", Histogram()),))
    pixels(figure.png())
    assert figure.frame().empty
    assert "no values" in figure.describe()
    figure.save(tmp_path / "page.html")
    assert "<img" in (tmp_path / "page.html").read_text()


@pytest.mark.filterwarnings("error")
def test_pictures_without_bars_and_very_tall_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    none = Figure("sizes", (Bars("sizes", (), (), "documents in a cluster", "clusters"),))
    assert pixels(none.png())[0] == 1440
    monkeypatch.setattr(static, "MAX_PIXELS", 100_000)
    width, height = pixels(Figure("sizes", (bars(),)).png())[:2]
    assert width * height <= 100_000


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_values_near_the_ends_of_float64_are_drawn() -> None:
    for values in ([-1e308, 0.0, 1e308], [1e307, 1.5e308], [0.0, 5e-324], [1e-300, 3e-300]):
        every = Histogram.of(values)
        for log in (True, False):
            bins = display_edges(every, log)
            signal = signal_histogram("words", every, None, [(">=", values[-1])], bins)
            assert signal.counts.sum() == len(values)
            pixels(Figure("words", (signal,)).png())
            notebook.fragment(Figure("words", (signal,)), b"")
    linear = signal_histogram("words", Histogram.of([-1e308, 0.0, 1e308]), None, (), None)
    linear = replace(
        linear, scale="linear", edges=np.array([-1.5e308, 0.0, 1.5e308]), counts=np.array([1, 2])
    )
    assert positions(np.array([-1.5e308, 0.0, 0.75e308]), linear).tolist() == [0, 1, 1.5]
    one = Bounds("words", (("all", 1.0, None), ("de", -1e308, 1.5e308), ("en", 50.0, 1e308)))
    figure = Thresholds.of([one], "strict", "lang", "string").plot()
    pixels(figure.png())
    notebook.fragment(figure, b"")


def test_frames_have_the_numbers() -> None:
    frame = Figure("words", (histogram(),)).frame()
    assert frame["documents"].sum() == 7
    assert frame["kept_documents"].sum() == 4
    assert frame.loc[frame["from"] == 3, ["documents", "kept_documents"]].to_numpy().tolist() == [[3, 3]]
    both = Figure("words", (histogram("en"), histogram("de"))).frame()
    assert both.groupby("panel")["documents"].sum().to_dict() == {"en": 7, "de": 7}
    assert Figure("o", (heat(),)).frame()["dropped_documents"].tolist() == [8, 4]
    assert Figure("r", (ranges(),)).frame()["lower"].tolist() == [1.0, -np.inf]


def test_the_description_has_the_main_numbers() -> None:
    said = Figure("Words", (histogram(),)).describe()
    assert said == "Words: 7 values from 1 to 40, median 3, bounds >= 3; 4 of them (57.1 %) are kept."
    other = Figure("Words by source", (signal_histogram("en", Histogram.of([1.0]), Histogram.of([1.0])),))
    assert other.describe().startswith("Words by source. en: 1 value from 1 to 1")
    assert other.describe().endswith("1 of them (100 %) is kept.")


def test_the_numbers_are_json_too() -> None:
    found = Figure("all", (histogram(), heat(), ranges(), bars()), notes=("a note",)).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [panel["panel"] for panel in found["panels"]] == ["words", "overlap", "words", "sizes"]
    assert sum(found["panels"][0]["columns"]["documents"]) == 7
    assert found["panels"][1]["columns"]["share: a > 1"] == [None, 0.5]
    assert found["panels"][2]["columns"]["lower"] == [1.0, None]


@pytest.mark.parametrize("make", MAKERS)
def test_very_long_names_are_shown_by_their_beginnings_and_stay_whole_in_the_frame(
    make: Callable[..., Panel],
) -> None:
    name = "n" * 10_000
    figure = Figure(name, (make(name), make()), name)
    shown = [figure.describe(), str(figure), figure.svg(), notebook.fragment(figure._shown(), b"")]
    assert all(len(text) < 100_000 and "n" * 100 not in text for text in shown)
    assert name in figure.frame().to_csv()


def test_letters_that_matplotlibs_font_lacks_are_drawn_with_another(caplog: pytest.LogCaptureFixture) -> None:
    families, left = fonts.families_with({"a", SCRIPT_G})
    assert families[0] == "DejaVu Sans"
    assert len(families) == 2
    assert not left
    assert fonts.families_with({"a", "\n"}) == (["DejaVu Sans"], frozenset())
    svg = Figure(SCRIPT_G, (bars(SCRIPT_G),)).svg()
    assert "<text" not in svg
    assert not caplog.records


def test_letters_of_no_font_are_text_in_an_svg_and_boxes_with_a_word_in_a_png(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = fonts._files()["DejaVu Sans"]
    monkeypatch.setattr(fonts, "_files", lambda: {"DejaVu Sans": own})
    figure = Figure(CHINESE, (bars(CHINESE),))
    assert figure.svg().count(f">{CHINESE}</text>") == 2
    height = pixels(figure.png())[1]
    assert height > pixels(Figure("ab", (bars("ab"),)).png())[1], "a line more tells of the boxes"
    assert not caplog.records


@pytest.mark.slow
def test_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure("words", (histogram(),))
    figure.save(tmp_path / "below" / "words.svg")
    assert (tmp_path / "below" / "words.svg").read_text() == figure.svg()
    assert [path.name for path in (tmp_path / "below").iterdir()] == ["words.svg"]
    out = io.BytesIO()
    figure.save(out, "png")
    assert out.getvalue() == figure.png()
    with pytest.raises(UsageError, match=r"words\.gif.*png, \.svg or \.html"):
        figure.save(tmp_path / "words.gif")
    for url in ("s3://bucket/words.png", Path("s3://bucket/words.png")):
        with pytest.raises(UsageError, match="a URL"):
            figure.save(url)
    with pytest.raises(UsageError, match="format='gif'; expected"):
        figure.save(out, "gif")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"the file is None; expected a path"):
        figure.save(None)  # type: ignore[arg-type]
    monkeypatch.setenv("HOME", str(tmp_path))
    figure.save("~/home.svg")
    assert (tmp_path / "home.svg").read_text() == figure.svg()


def test_what_cannot_be_written_is_named_and_nothing_stays(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    targets = ["folder.png", "file/words.png", f"{'n' * 300}.png", "null\0.png"]
    for target in targets:
        with pytest.raises(UsageError, match="expected"):
            Figure("words", (histogram(),)).save(tmp_path / target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


@pytest.mark.slow
def test_notebooks_show_picture_text_and_what_bokeh_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure("words", (histogram(),))
    bundle, metadata = figure._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png", "text/html"}
    assert bundle["image/png"] == figure.png()
    assert metadata["image/png"]["alt"] == figure.describe()
    assert len(bundle["text/html"]) < 60_000, "the library itself is in no figure"
    assert figure._repr_mimebundle_()[0] == bundle
    monkeypatch.setenv(notebook.STATIC, "1")
    assert set(figure._repr_mimebundle_()[0]) == {"text/plain", "image/png"}


def test_without_matplotlib_text_is_shown_and_the_extra_named(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = Figure("words", (histogram(),))
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert set(figure._repr_mimebundle_()[0]) == {"text/plain", "image/png"}
    with pytest.raises(UsageError, match=r"bokeh.*dolma-dask\[report\]"):
        figure.save(io.BytesIO(), "html")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for use in (figure.png, figure.svg, lambda: figure.save(io.BytesIO(), "html")):
        with pytest.raises(UsageError, match=r"matplotlib.*dolma-dask\[report\]"):
            use()
    shown = figure._repr_mimebundle_()
    assert set(shown) == {"text/plain"}
    assert shown["text/plain"].startswith(str(figure))
    assert "dolma-dask[report]" in shown["text/plain"]
    with pytest.raises(UsageError, match="matplotlib"):
        PictureOptions(to="words.png")


@pytest.mark.slow
def test_neither_pyplot_nor_its_settings_are_touched() -> None:
    script = (
        "import sys, numpy as np, matplotlib\n"
        "names = 'svg.hashsalt', 'text.parse_math', 'font.size'\n"
        "before = [matplotlib.rcParams[name] for name in names]\n"
        "from dolma_dask.figures.figure import Figure\n"
        "from dolma_dask.figures.model import Bars\n"
        "Figure('t', (Bars('k', ('a',), (1.0,), 'l', 'v'),)).png()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert [matplotlib.rcParams[name] for name in names] == before\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_thresholds_of_many_groups_show_some_and_tell_how_many_more() -> None:
    groups = (("all", 1.0, None), *((f"g{number}", 1.0, 2.0) for number in range(41)))
    one = Thresholds.of([Bounds("words", groups)], "strict", "lang", "string").plot()
    assert len(one.panels[0].groups) == 40
    assert one.notes[-1] == "1 more group is not shown"
    many = [Bounds(f"signal{number}", groups) for number in range(50)]
    assert len(Thresholds.of(many, "strict", "lang", "string").plot().frame()) == 400
