"""Figures that react, drawn by Bokeh: one JSON item for each panel, which a page or a notebook draws when it scrolls into view.

Evenly spaced bins are drawn on a plain axis. Logarithmic bins are drawn equally wide with the powers of ten as ticks, so
that zero and negative values have their place. All values stand behind the kept ones: what still shows was dropped.
Counts have two axes, linear and logarithmic; the page switches between them and sets the colours (dark mode). Bars, heat maps and ranges have a row for each
name: rows are numbers from the top, names are labels of the axis.

No text of the data enters a figure but names of rows and axes, as labels: other names and rules are on the page, as HTML, escaped by the template.
Cost: 1.27 MB once per page for Bokeh itself, about 10 kB and 40 CPU-ms for each figure.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import bokeh
import numpy as np
from bokeh.document import Document
from bokeh.embed.bundle import bundle_for_objs_and_resources
from bokeh.models import (
    Axis,
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    FixedTicker,
    Grid,
    HoverTool,
    LinearAxis,
    LogTicker,
    NumeralTickFormatter,
    Quad,
    Range1d,
    Segment,
    Text,
)
from bokeh.models import Line as LineGlyph
from bokeh.models.annotations import Span
from bokeh.models.scales import LogScale
from bokeh.plotting import figure
from bokeh.resources import INLINE

from dolma_dask.display import integer, percent, printable, real
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
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges, SignalHistogram

HEIGHT_PX = 230

ALL, KEPT, BOUND, MUTED = "#d98f4b", "#4a86e8", "#8a94a3", "#8a94a3"
"""Colours of all values, of the kept ones, of bounds and of axes; a page may set its own."""

ROW_PX = 30
"""Height of a row."""

Columns = dict[str, Sequence[Any]]


def library() -> list[str]:
    """Return the scripts of Bokeh that plain figures need, as source text."""
    return [str(script) for script in bundle_for_objs_and_resources([figure()], INLINE).js_raw]


# ------------------------------------------------------------------------------------------------ parts of all figures


def _label(text: str) -> str:
    """Return a name of the data that Bokeh draws as it is: it takes what stands between dollar signs or escaped brackets for mathematics."""
    return printable(text).replace("$", "$\u200b").replace("\\", "\\\u200b")


def _style(axis: Axis) -> None:
    """Set the look of an axis."""
    axis.update(major_label_text_color=MUTED, axis_label_text_color=MUTED)
    axis.update(axis_line_color=MUTED, major_tick_line_color=MUTED, minor_tick_line_color=None)
    axis.major_tick_in = 0
    axis.major_label_text_font = "system-ui, sans-serif"
    axis.major_label_text_font_size = "12px"


def _empty_figure(
    x_range: tuple[float, float], highest: float, scale: str | None, height: int = HEIGHT_PX
) -> Any:
    """Make a figure without tools, whose colours read on light and dark; a page shows what is of `scale`, and if that is None of the one that the reader chooses."""
    plot = figure(
        name=scale,
        height=height,
        sizing_mode="stretch_width",
        x_range=Range1d(start=x_range[0], end=x_range[1]),
        y_range=Range1d(start=0, end=1.06 * highest),
        tools=[],
        toolbar_location=None,
        background_fill_alpha=0,
        border_fill_alpha=0,
        outline_line_color=None,
        min_border_right=12,
    )
    for grid in plot.grid:
        grid.update(grid_line_color=MUTED, grid_line_alpha=0.25)
    return plot


def _ticks(places: Sequence[float], labels: Iterable[str]) -> dict[str, Any]:
    """Return the options of an axis that is labelled at some places."""
    return {
        "ticker": FixedTicker(ticks=places),
        "major_label_overrides": dict(zip(places, labels, strict=True)),
    }


def _count_ticks(most: int) -> dict[str, Any]:
    """Return the options of an axis for log10(1 + count), labelled with the counts."""
    counts = [0, *(10**power for power in range(len(str(most))))]
    counts = counts[:1] + counts[1 :: math.ceil(len(counts) / MAX_TICKS)]
    return _ticks([math.log10(1 + count) for count in counts], map(integer, counts))


def _add_bound(plot: Any, location: float) -> None:
    plot.add_layout(
        Span(
            location=location,
            dimension="height",
            line_dash="dashed",
            line_width=2,
            line_color=BOUND,
            name="bound",
        )
    )


# ------------------------------------------------------------------------------------------------ histograms and lines


def _histogram_figure(signal: SignalHistogram) -> Any:
    """Make the figure of one signal that has at least one bin."""
    most = int(signal.counts.max())
    ends = positions(signal.edges[[0, -1]], signal).tolist()
    plot = _empty_figure((ends[0], ends[1]), max(most, 1), signal.count_scale)
    plot.extra_y_ranges = {"log": Range1d(start=0, end=1.06 * math.log10(1 + max(most, 1)))}
    plot.yaxis[0].update(
        name="linear",
        formatter=NumeralTickFormatter(format="0,0"),
        ticker=BasicTicker(desired_num_ticks=5, min_interval=1),
    )
    log_axis = _log_count_axis(max(most, 1))
    plot.add_layout(log_axis, "left")
    plot.ygrid[0].name = "linear"
    plot.add_layout(Grid(axis=log_axis, dimension=1, y_range_name="log", visible=False, name="log"))
    _value_axis(plot, signal)
    for axis in (*plot.xaxis, *plot.yaxis):
        _style(axis)
    plot.xgrid.visible = False  # the page shows a grid whose name is the scale of the counts
    _add_bars(plot, signal)
    for _, bound in signal.threshold:
        if inside(bound, signal):
            _add_bound(plot, positions(np.array([bound]), signal).item())
    return plot


def _add_bars(plot: Any, signal: SignalHistogram) -> None:
    """Add all values, the kept ones before them, each for both count axes, and the tooltip."""
    source = _source(signal)
    layers = ["kept"] if signal.kept_counts is None else ["all", "kept"]
    hovered = []
    for scale, prefix in (("linear", ""), ("log", "log_")):
        extra = {"y_range_name": "log"} if scale == "log" else {}
        for layer in layers:
            color = ALL if layer == "all" else KEPT
            shape = Quad(
                left="left",
                right="right",
                bottom=0,
                top=f"{prefix}{layer}",
                fill_color=color,
                line_color=None,
            )
            bars = plot.add_glyph(source, shape, name=f"{scale} {layer}", **extra)
            bars.visible = scale == "linear"
            hovered += [bars] if layer == layers[0] else []
    words = [("from", "@from"), ("to below", "@to"), ("values", "@n")]
    words += [("kept", "@k")] if signal.kept_counts is not None else []
    plot.add_tools(HoverTool(renderers=hovered, tooltips=words, mode="vline", point_policy="follow_mouse"))


def _source(signal: SignalHistogram) -> ColumnDataSource:
    """Columns of the bars: ends, counts, their logarithms, and the words of the tooltip."""
    ends = positions(signal.edges, signal)
    kept = signal.counts if signal.kept_counts is None else signal.kept_counts
    columns: Any = {
        "left": ends[:-1].tolist(),
        "right": ends[1:].tolist(),
        "all": signal.counts.tolist(),
        "kept": kept.tolist(),
        "log_all": np.log10(1.0 + signal.counts).round(4).tolist(),
        "log_kept": np.log10(1.0 + kept).round(4).tolist(),
        "from": [real(x) for x in signal.edges[:-1].tolist()],
        "to": [real(x) for x in signal.edges[1:].tolist()],
        "n": [integer(x) for x in signal.counts.tolist()],
        "k": [
            f"{integer(k)} ({percent(k, n)})" if n else "0"
            for k, n in zip(kept.tolist(), signal.counts.tolist(), strict=True)
        ],
    }
    return ColumnDataSource(columns)


def _value_axis(plot: Any, signal: SignalHistogram) -> None:
    axis = plot.xaxis[0]
    if (ticks := fixed_ticks(signal)) is not None:
        axis.update(**_ticks(positions(np.array(ticks), signal).tolist(), map(real, ticks)))
        return
    axis.ticker = BasicTicker(desired_num_ticks=MAX_TICKS)
    largest = float(np.abs(signal.edges).max())
    axis.formatter = (
        NumeralTickFormatter(format="0,0")
        if 1000 <= largest < 1e9
        else BasicTickFormatter(power_limit_high=9)
    )


def _log_count_axis(most: int) -> LinearAxis:
    """Axis for log10(1 + count), labelled with the counts."""
    return LinearAxis(**_count_ticks(most), y_range_name="log", visible=False, name="log")


def _line_figure(line: Line) -> Any:
    """Make the figure of a line; both axes show shares from 0 to 1."""
    plot = _empty_figure((float(line.x[0]), float(line.x[-1])), 1, "linear")
    plot.yaxis[0].update(name="linear", formatter=NumeralTickFormatter(format="0 %"))
    for axis, label in ((plot.xaxis[0], line.x_label), (plot.yaxis[0], line.y_label)):
        axis.update(axis_label=_label(label), ticker=BasicTicker(desired_num_ticks=MAX_TICKS))
        _style(axis)
    plot.ygrid[0].name = "linear"
    plot.xgrid.visible = False
    shares = [percent(share) for share in line.y.tolist()]
    columns: Any = {
        "x": line.x.round(4).tolist(),
        "y": line.y.round(4).tolist(),
        "at": [real(x) for x in line.x.round(4).tolist()],
        "share": shares,
    }
    drawn = plot.add_glyph(
        ColumnDataSource(columns),
        LineGlyph(x="x", y="y", line_width=2.5, line_color=KEPT),
        name="linear line",
    )
    words = [(_label(line.x_label), "@at"), (_label(line.y_label), "@share")]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=words, mode="vline", point_policy="follow_mouse"))
    for _, bound in line.threshold:
        _add_bound(plot, bound)
    return plot


# ------------------------------------------------------------------------------------------------ a row for each name


def _bars_figure(bars: Bars) -> Any:
    """Make the figure of bars."""
    lengths = [math.log10(1 + value) if bars.has_log_axis else value for value in bars.values]
    names = list(map(row_label, bars.labels))
    plot = _rows(names, (0, 1.06 * max(lengths, default=1)), bars.label_name, bars.value_name)
    if bars.has_log_axis:
        plot.xaxis[0].update(**_count_ticks(int(max(bars.values))))
    else:
        plot.xaxis[0].formatter = NumeralTickFormatter(format="0,0")
    columns: Columns = {"right": lengths, "value": [real(value) for value in bars.values]}
    _add_quads(
        plot, bars.labels, columns, 0, "right", [(bars.label_name, "@name"), (bars.value_name, "@value")]
    )
    return plot


def _heat_figure(panel: HeatMap) -> Any:
    """Make the figure of a heat map; the tooltip has its numbers."""
    count = len(panel.labels)
    numbers = [f"({number})" for number in range(1, count + 1)]
    rows = [f"{row_label(label)} {number}" for label, number in zip(panel.labels, numbers, strict=True)]
    plot = _rows(rows, (0, max(count, 1)), "", "")
    plot.xaxis[0].update(**_ticks([number + 0.5 for number in range(count)], numbers))
    plot.xgrid.visible = plot.ygrid.visible = False
    row, column = (part.ravel() for part in np.indices(panel.shares.shape))
    shares = panel.shares.ravel()
    known = [panel.labels[at] for at in row]
    columns: Columns = {
        "row": row.tolist(),
        "left": column.tolist(),
        "right": (column + 1).tolist(),
        "alpha": np.nan_to_num(shares).round(4).tolist(),
        "other": [_label(panel.labels[at]) for at in column],
        "share": [percent(None if math.isnan(share) else share) for share in shares.tolist()],
    }
    words = [("dropped by", "@name"), ("and by", "@other"), ("share", "@share")]
    _add_quads(plot, known, columns, "left", "right", words, fill_alpha="alpha", half=0.5)
    for is_dark, color in ((False, MUTED), (True, "white")):
        cells = [(row, at, share) for row, at, share in written_shares(panel) if (share > DARK) is is_dark]
        texts: Any = {
            "x": [at + 0.5 for _, at, _ in cells],
            "y": [row for row, _, _ in cells],
            "text": [f"{100 * share:.0f} %" for _, _, share in cells],
        }
        plot.add_glyph(ColumnDataSource(texts), Text(**_CELL, text_color=color))
    return plot


_CELL: Any = {
    "x": "x",
    "y": "y",
    "text": "text",
    "text_align": "center",
    "text_baseline": "middle",
    "text_font_size": "12px",
}


def _ranges_figure(panel: Ranges) -> Any:
    """Make the figure of ranges."""
    first, low, high, last = range_ends(panel)
    ends = _ends(first, last, panel.scale == "log")
    plot = _rows(list(map(row_label, panel.groups)), ends, "", _label(panel.key))
    plot.xaxis[0].ticker = BasicTicker(desired_num_ticks=6)
    if panel.scale == "log":
        plot.x_scale = LogScale()
        plot.xaxis[0].ticker = plot.xgrid[0].ticker = LogTicker()
        plot.xaxis[0].formatter = NumeralTickFormatter(format="0,0.[000]")
    rows = list(range(len(panel.groups)))
    thin = ColumnDataSource(
        {
            "row": rows,
            "first": _finite(first),
            "last": _finite(last),
            "median": _finite(drawable(panel.median)),
        }
    )
    plot.add_glyph(thin, Segment(x0="first", x1="last", y0="row", y1="row", line_color=MUTED, line_width=2))
    words = [
        ("group", "@name"),
        ("from", "@from"),
        ("to", "@to"),
        ("median", "@middle"),
        ("1 to 99 %", "@outer"),
    ]
    columns: Columns = {
        "left": _finite(low),
        "right": _finite(high),
        "from": ["no bound" if math.isinf(end) else real(end) for end in panel.lower.tolist()],
        "to": ["no bound" if math.isinf(end) else real(end) for end in panel.upper.tolist()],
        "middle": [real(value) for value in panel.median.tolist()],
        "outer": [
            f"{real(a)} to {real(b)}" for a, b in zip(panel.p1.tolist(), panel.p99.tolist(), strict=True)
        ],
    }
    _add_quads(plot, panel.groups, columns, "left", "right", words, half=0.2)
    upright: Any = {
        **dict(thin.data),
        "above": [row - 0.3 for row in rows],
        "below": [row + 0.3 for row in rows],
    }
    plot.add_glyph(
        ColumnDataSource(upright),
        Segment(x0="median", x1="median", y0="above", y1="below", line_color=MUTED, line_width=3),
    )
    return plot


def _ends(first: Any, last: Any, is_log: bool) -> tuple[float, float]:
    known = np.concatenate([first, last])
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if is_log:
        return low / 1.2, high * 1.2
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def _finite(values: Any) -> list[float | None]:
    """Return numbers for Bokeh, which draws nothing where there is none."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _rows(names: Sequence[str], ends: tuple[float, float], y_label: str, x_label: str) -> Any:
    """Return an empty plot with a row for each name, the first at the top."""
    plot = _empty_figure(ends, 1, "linear", 60 + ROW_PX * max(len(names), 1))
    plot.y_range = Range1d(start=len(names) - 0.5, end=-0.5)
    plot.yaxis[0].update(**_ticks(list(range(len(names))), map(_label, names)), axis_label=y_label or None)
    plot.xaxis[0].axis_label = x_label or None
    for axis in (*plot.xaxis, *plot.yaxis):
        _style(axis)
    plot.ygrid.visible = False
    return plot


def _add_quads(
    plot: Any,
    names: Sequence[str],
    columns: Columns,
    left: str | int,
    right: str,
    words: list[tuple[str, str]],
    fill_alpha: str | float = 1.0,
    half: float = 0.36,
) -> None:
    """Add a rectangle for each of the columns, in the row of its number or of ``row``, and the tooltip."""
    rows = list(columns.get("row", range(len(names))))
    data: Any = {
        **columns,
        "name": list(map(_label, names)),
        "top": [row - half for row in rows],
        "bottom": [row + half for row in rows],
    }
    shape: Any = Quad(
        left=left,
        right=right,
        top="top",
        bottom="bottom",
        fill_color=KEPT,
        line_color=None,
        fill_alpha=fill_alpha,
    )
    drawn = plot.add_glyph(ColumnDataSource(data), shape)
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=words, point_policy="follow_mouse"))


# ------------------------------------------------------------------------------------------------ items


_FIGURES: dict[type, Callable[[Any], Any]] = {
    SignalHistogram: _histogram_figure,
    Line: _line_figure,
    Bars: _bars_figure,
    HeatMap: _heat_figure,
    Ranges: _ranges_figure,
}

_MODEL_ID = re.compile(r'"(id|root_id)": "([^"]+)"')


def figure_items(drawn: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    """Yield one Bokeh JSON item for each; Bokeh counts models through the life of the process, here they are numbered from 1."""
    numbers: dict[str, str] = {}

    def renumbered(match: re.Match[str]) -> str:
        return f'"{match[1]}": "{numbers.setdefault(match[2], f"p{len(numbers) + 1}")}"'

    for one in drawn:
        plot = _FIGURES[type(one)](one)
        item: dict[str, Any] = json.loads(_MODEL_ID.sub(renumbered, json.dumps(_json_item(plot))))
        yield item


def _json_item(plot: Any) -> dict[str, Any]:
    """Return the same as `bokeh.embed.json_item`, which walks over the models three times."""
    document = Document(title="")
    document.add_root(plot)
    return {
        "target_id": None,
        "root_id": plot.id,
        "doc": document.to_json(deferred=False),
        "version": bokeh.__version__,
    }
