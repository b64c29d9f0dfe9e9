"""Figures as pictures, drawn by matplotlib: the same data give the same bytes, on any machine with the same version.

Letters that matplotlib's font lacks are drawn with another font of the machine. Where none has them, an SVG holds its text as text, for which
browsers find a font, and a PNG has boxes and says so.

The background is white, so that a picture reads in a dark notebook as well as in a light one. Names of the data are drawn as they are:
nothing in them is taken for mathematics.
"""

import math
import textwrap
import warnings
from collections.abc import Callable
from io import BytesIO
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from dolma_dask.display import integer, printable, real
from dolma_dask.figures.axes import (
    DARK,
    MAX_TICKS,
    drawable,
    fixed_ticks,
    inside,
    positions,
    range_ends,
    row_label,
    written_shares,
)
from dolma_dask.figures.fonts import families_with, quiet
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges, SignalHistogram

ALL, KEPT, BOUND, TEXT, MUTED = "#e09b57", "#2f6fde", "#1a2330", "#1a2330", "#566273"
"""Colours of the report page in light mode."""

WIDTH = 7.2
"""Inches; a notebook shows 100 pixels for each."""

LINE = 100
"""Characters of a note on a line."""

DPI = 200

MAX_PIXELS = 40_000_000
"""Pixels of a picture; very tall ones have fewer to the inch."""

COLORS = 64

_STYLE: Any = {
    "font.size": 9,
    "text.parse_math": False,
    "text.color": TEXT,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": "#c3cbd5",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e6eaef",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "svg.hashsalt": "dolma-dask",
    "svg.fonttype": "path",
}

_BOXES = "boxes stand for letters that no font of this machine has; as SVG or HTML a browser shows them"

Format = Literal["png", "svg"]


def render(title: str, panels: tuple[Panel, ...], axis: str, notes: tuple[str, ...], to: Format) -> bytes:
    """Return a picture of panels below each other, or in two columns where there are several histograms."""
    with quiet():
        return _rendered(title, panels, axis, notes, to)


def _rendered(title: str, panels: tuple[Panel, ...], axis: str, notes: tuple[str, ...], to: Format) -> bytes:
    families, left = families_with(set(repr((title, panels, axis, notes))))
    notes = (*notes, _BOXES) if left and to == "png" else notes
    notes = tuple(line for note in notes for line in textwrap.wrap(note, LINE) or [""])
    style = {**_STYLE, "font.family": families, **({"svg.fonttype": "none"} if left else {})}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box is drawn for it
        drawing = _drawn(title, panels, axis, notes)
        out = BytesIO()
        metadata: dict[str, Any] = {"Software": None} if to == "png" else {"Date": None, "Creator": None}
        dpi = min(DPI, math.sqrt(MAX_PIXELS / (drawing.get_figwidth() * drawing.get_figheight())))
        drawing.savefig(out, format=to, dpi=dpi, metadata=metadata)
    return out.getvalue() if to == "svg" else _with_palette(out)


def _with_palette(picture: BytesIO) -> bytes:
    """Return a PNG in `COLORS` colours, which takes a third of the bytes."""
    out = BytesIO()
    Image.open(picture).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(
        out, format="png", optimize=True
    )
    return out.getvalue()


def _drawn(title: str, panels: tuple[Panel, ...], axis: str, notes: tuple[str, ...]) -> Drawing:
    columns = 2 if len(panels) > 1 and all(isinstance(panel, SignalHistogram) for panel in panels) else 1
    rows = -(-len(panels) // columns)
    heights = [max(map(_height, panels[row * columns : (row + 1) * columns])) for row in range(rows)]
    if not panels:  # of no documents: title and notes alone
        rows, heights = 1, [0.3]
    margin = 0.45 + 0.17 * len(notes)
    drawing = Drawing(
        figsize=(WIDTH, sum(heights) / (1.35 if columns == 2 else 1) + margin), layout="constrained"
    )
    FigureCanvasAgg(drawing)
    top = drawing.get_figheight()
    drawing.get_layout_engine().set(rect=(0, 0, 1, 1 - margin / top), h_pad=0.06, w_pad=0.06)  # type: ignore[union-attr, call-arg]
    drawing.text(0.012, 1 - 0.12 / top, printable(title), fontsize=11.5, fontweight="bold", va="top")
    for line, note in enumerate(notes):
        drawing.text(
            0.012, 1 - (0.36 + 0.17 * line) / top, printable(note), fontsize=8.5, color=MUTED, va="top"
        )
    grid = drawing.add_gridspec(rows, columns, height_ratios=heights)
    for number, panel in enumerate(panels):
        axes = drawing.add_subplot(grid[number // columns, number % columns])
        _DRAW[type(panel)](axes, panel)
        if len(panels) > 1 or isinstance(panel, Ranges):
            axes.set_title(_panel_title(panel), color=TEXT)
        if number == 0 and axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize=8, handlelength=1, handleheight=0.8, reverse=True)
    if axis and panels and isinstance(panels[0], SignalHistogram):
        drawing.supxlabel(printable(axis), fontsize=9, color=MUTED)
    return drawing


def _height(panel: Panel) -> float:
    match panel:
        case Bars():
            return 0.5 + 0.24 * max(len(panel.labels), 1)
        case HeatMap():
            return 0.6 + 0.3 * len(panel.labels)
        case Ranges():
            return 0.65 + 0.27 * len(panel.groups)
        case _:
            return 2.6


def _panel_title(panel: Panel) -> str:
    return (
        printable(panel.key)
        if not isinstance(panel, SignalHistogram)
        else f"{printable(panel.key)} ({integer(panel.n)})"
    )


# ------------------------------------------------------------------------------------------------ panels


def _draw_nothing(axes: Axes, words: str) -> None:
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes, color=MUTED)
    axes.set(xticks=[], yticks=[])


def _draw_histogram(axes: Axes, signal: SignalHistogram) -> None:
    if not len(signal.counts):
        _draw_nothing(axes, "no values")
        return
    ends = positions(signal.edges, signal)
    if signal.kept_counts is None:
        axes.stairs(signal.counts, ends, fill=True, color=KEPT)
    else:
        axes.stairs(signal.counts, ends, fill=True, color=ALL, label="dropped")
        axes.stairs(signal.kept_counts, ends, fill=True, color=KEPT, label="kept")
    bounds = [value for _, value in signal.threshold if inside(value, signal)]
    for bound, place in zip(bounds, positions(np.array(bounds), signal).tolist(), strict=True):
        _draw_bound(axes, place, real(bound))
    axes.set_xlim(ends[0], ends[-1])
    _count_axis(axes, signal)
    _value_ticks(axes, signal)


def _draw_bound(axes: Axes, place: float, label: str) -> None:
    axes.axvline(place, color=BOUND, linestyle=(0, (4, 3)), linewidth=1.2)
    axes.annotate(
        label,
        (place, 1),
        (3, -1),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        fontsize=7.5,
    )


def _count_axis(axes: Axes, signal: SignalHistogram) -> None:
    if signal.count_scale == "log":
        axes.set_yscale("symlog", linthresh=1)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: integer(int(value))))


def _value_ticks(axes: Axes, signal: SignalHistogram) -> None:
    if (ticks := fixed_ticks(signal)) is not None:
        axes.set_xticks(positions(np.array(ticks), signal), [real(tick) for tick in ticks])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS))
        axes.xaxis.set_major_formatter(_as_real())


def _as_real() -> FuncFormatter:
    return FuncFormatter(lambda value, _: real(float(f"{value:.9g}")))


def _draw_line(axes: Axes, line: Line) -> None:
    axes.plot(line.x, line.y, color=KEPT, linewidth=2)
    for _, bound in line.threshold:
        _draw_bound(axes, bound, real(bound))
    axes.set(
        xlim=(line.x[0], line.x[-1]),
        ylim=(0, 1.02),
        xlabel=printable(line.x_label),
        ylabel=printable(line.y_label),
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))


def _categories(axes: Axes, names: tuple[str, ...]) -> None:
    """Name the rows, the first at the top."""
    axes.set_yticks(range(len(names)), [row_label(name) for name in names], color=TEXT)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _draw_bars(axes: Axes, bars: Bars) -> None:
    if not bars.labels:
        _draw_nothing(axes, f"no {bars.value_name}")
        return
    places = range(len(bars.labels))
    axes.barh(places, bars.values, height=0.72, color=KEPT)
    if bars.has_log_axis:
        axes.set_xscale("symlog", linthresh=1)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS, integer=True))
    axes.xaxis.set_major_formatter(_as_real())
    for place, value in zip(places, bars.values, strict=True):
        axes.annotate(
            real(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set(xlabel=bars.value_name, ylabel=bars.label_name)
    _categories(axes, bars.labels)
    axes.grid(visible=True, axis="x")


def _draw_heat(axes: Axes, panel: HeatMap) -> None:
    axes.imshow(panel.shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    count = len(panel.labels)
    rows = [
        f"{row_label(label)} ({number})" if count > 1 else row_label(label)
        for number, label in enumerate(panel.labels, 1)
    ]
    _categories(axes, tuple(rows))
    axes.set_xticks(range(count), [f"({number})" for number in range(1, count + 1)], color=TEXT)
    axes.tick_params(axis="x", length=0, top=False)
    axes.spines[:].set_visible(False)
    for row, column, share in written_shares(panel):
        color = "white" if share > DARK else TEXT
        axes.text(column, row, f"{100 * share:.0f} %", ha="center", va="center", fontsize=8, color=color)


def _draw_ranges(axes: Axes, panel: Ranges) -> None:
    places = np.arange(len(panel.groups))
    first, low, high, last = range_ends(panel)
    axes.hlines(places, first, last, color="#c3cbd5", linewidth=1.6)
    axes.hlines(places, low, high, color=KEPT, linewidth=7)
    axes.vlines(drawable(panel.median), places - 0.28, places + 0.28, color=BOUND, linewidth=1.6)
    for bounds in (panel.lower, panel.upper):
        for place, bound, at in zip(places.tolist(), bounds.tolist(), drawable(bounds).tolist(), strict=True):
            if math.isfinite(bound):
                axes.annotate(
                    real(bound),
                    (at, place),
                    (0, -8),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=7.5,
                )
    if panel.scale == "log":
        axes.set_xscale("log")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MAX_TICKS))
    axes.xaxis.set_major_formatter(_as_real())
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    _categories(axes, panel.groups)
    axes.set_ylim(bottom=len(panel.groups) - 0.3)
    axes.grid(visible=True, axis="x")


_DRAW: dict[type, Callable[[Axes, Any], None]] = {
    SignalHistogram: _draw_histogram,
    Line: _draw_line,
    Bars: _draw_bars,
    HeatMap: _draw_heat,
    Ranges: _draw_ranges,
}
