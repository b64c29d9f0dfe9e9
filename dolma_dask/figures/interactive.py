"""Histograms as Bokeh figures, made small: one JSON item per signal, drawn by the page when it scrolls into view.

Evenly spaced bins are drawn on a plain axis. Logarithmic bins are drawn equally wide with the powers of ten as ticks, so
that zero and negative values have their place. All values stand behind the kept ones: what still shows was dropped.
Counts have two axes, linear and logarithmic; the page switches between them and sets the colours (dark mode).

No text of the data enters a figure: names and rules are on the page, as HTML, escaped by the template.
Cost: 1.27 MB once per page for Bokeh itself, about 10 kB and 40 CPU-ms for each figure.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from bokeh.embed import json_item
from bokeh.embed.bundle import bundle_for_objs_and_resources
from bokeh.models import (
    BasicTicker,
    BasicTickFormatter,
    ColumnDataSource,
    FixedTicker,
    Grid,
    HoverTool,
    LinearAxis,
    NumeralTickFormatter,
    Quad,
    Range1d,
)
from bokeh.models import Line as LineGlyph
from bokeh.models.annotations import Span
from bokeh.plotting import figure
from bokeh.resources import INLINE

from dolma_dask.display import integer, percent, real
from dolma_dask.figures.axes import MAX_TICKS, fixed_ticks, inside, positions
from dolma_dask.figures.interactive_parts import ALL, BOUND, KEPT, empty_figure, plain, style
from dolma_dask.figures.interactive_rows import bars_figure, heat_figure, ranges_figure
from dolma_dask.figures.model import Bars, HeatMap, Line, Panel, Ranges, SignalHistogram


def library() -> list[str]:
    """Return the scripts of Bokeh that plain figures need, as source text."""
    return [str(script) for script in bundle_for_objs_and_resources([figure()], INLINE).js_raw]


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
        locations = positions(np.array(ticks), signal).tolist()
        axis.ticker = FixedTicker(ticks=locations)
        axis.major_label_overrides = dict(zip(locations, map(real, ticks), strict=True))
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
    counts = [0, *(10**k for k in range(len(str(most))))]
    counts = counts[:1] + counts[1 :: math.ceil(len(counts) / MAX_TICKS)]
    locations = [math.log10(1 + n) for n in counts]
    labels: Any = {location: integer(n) for location, n in zip(locations, counts, strict=True)}
    ticker: Any = FixedTicker(ticks=locations)
    return LinearAxis(
        ticker=ticker, major_label_overrides=labels, y_range_name="log", visible=False, name="log"
    )


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


def line_figure(line: Line) -> Any:
    """Make the figure of a line; both axes show shares from 0 to 1."""
    plot = empty_figure((float(line.x[0]), float(line.x[-1])), 1, "linear")
    plot.yaxis[0].update(name="linear", formatter=NumeralTickFormatter(format="0 %"))
    for axis, label in ((plot.xaxis[0], line.x_label), (plot.yaxis[0], line.y_label)):
        axis.update(axis_label=plain(label), ticker=BasicTicker(desired_num_ticks=MAX_TICKS))
        style(axis)
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
    words = [(plain(line.x_label), "@at"), (plain(line.y_label), "@share")]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=words, mode="vline", point_policy="follow_mouse"))
    for _, bound in line.threshold:
        _add_bound(plot, bound)
    return plot


def histogram_figure(signal: SignalHistogram) -> Any:
    """Make the figure of one signal that has at least one bin."""
    most = int(signal.counts.max())
    ends = positions(signal.edges[[0, -1]], signal).tolist()
    plot = empty_figure((ends[0], ends[1]), max(most, 1), signal.count_scale)
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
        style(axis)
    plot.xgrid.visible = False  # the page shows a grid whose name is the scale of the counts
    _bars(plot, signal)
    for _, bound in signal.threshold:
        if inside(bound, signal):
            _add_bound(plot, positions(np.array([bound]), signal).item())
    return plot


def _bars(plot: Any, signal: SignalHistogram) -> None:
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


_FIGURES: dict[type, Callable[[Any], Any]] = {
    SignalHistogram: histogram_figure,
    Line: line_figure,
    Bars: bars_figure,
    HeatMap: heat_figure,
    Ranges: ranges_figure,
}

_MODEL_ID = re.compile(r'"(id|root_id)": "([^"]+)"')


def figure_items(drawn: Iterable[Panel]) -> Iterator[dict[str, Any]]:
    """Yield one Bokeh JSON item for each; Bokeh counts models through the life of the process, here they are numbered from 1."""
    numbers: dict[str, str] = {}

    def renumbered(match: re.Match[str]) -> str:
        return f'"{match[1]}": "{numbers.setdefault(match[2], f"p{len(numbers) + 1}")}"'

    for one in drawn:
        plot = _FIGURES[type(one)](one)
        item: dict[str, Any] = json.loads(_MODEL_ID.sub(renumbered, json.dumps(json_item(plot))))
        yield item
