"""Panels with a row for each name, as Bokeh figures: bars, heat maps and ranges. Rows are numbers from the top; names are labels of the axis."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    LogTicker,
    NumeralTickFormatter,
    Quad,
    Range1d,
    Segment,
)
from bokeh.models.scales import LogScale

from dolma_dask.display import integer, percent, real
from dolma_dask.figures.axes import drawable, range_ends, row_label
from dolma_dask.figures.interactive_parts import KEPT, MUTED, empty_figure, plain, style
from dolma_dask.figures.model import Bars, HeatMap, Ranges

ROW_PX = 30

Columns = dict[str, Sequence[Any]]


def bars_figure(bars: Bars) -> Any:
    """Make the figure of bars."""
    lengths = [math.log10(1 + value) if bars.has_log_axis else value for value in bars.values]
    names = list(map(row_label, bars.labels))
    plot = _rows(names, (0, 1.06 * max(lengths, default=1)), bars.label_name, bars.value_name)
    if bars.has_log_axis:
        counts = [0, *(10**power for power in range(len(str(int(max(bars.values))))))]
        places = [math.log10(1 + count) for count in counts]
        plot.xaxis[0].update(
            ticker=FixedTicker(ticks=places),
            major_label_overrides=dict(zip(places, map(integer, counts), strict=True)),
        )
    else:
        plot.xaxis[0].formatter = NumeralTickFormatter(format="0,0")
    columns: Columns = {"right": lengths, "value": [real(value) for value in bars.values]}
    _add_quads(
        plot, bars.labels, columns, 0, "right", [(bars.label_name, "@name"), (bars.value_name, "@value")]
    )
    return plot


def heat_figure(panel: HeatMap) -> Any:
    """Make the figure of a heat map; the tooltip has its numbers."""
    count = len(panel.labels)
    numbers = [f"({number})" for number in range(1, count + 1)]
    named = [f"{row_label(label)} {number}" for label, number in zip(panel.labels, numbers, strict=True)]
    plot = _rows(named, (0, max(count, 1)), "", "")
    places = [number + 0.5 for number in range(count)]
    plot.xaxis[0].update(
        ticker=FixedTicker(ticks=places), major_label_overrides=dict(zip(places, numbers, strict=True))
    )
    plot.xgrid.visible = plot.ygrid.visible = False
    row, column = (part.ravel() for part in np.indices(panel.shares.shape))
    shares = panel.shares.ravel()
    known = [panel.labels[at] for at in row]
    columns: Columns = {
        "row": row.tolist(),
        "left": column.tolist(),
        "right": (column + 1).tolist(),
        "alpha": np.nan_to_num(shares).round(4).tolist(),
        "other": [plain(panel.labels[at]) for at in column],
        "share": [percent(None if math.isnan(share) else share) for share in shares.tolist()],
    }
    words = [("dropped by", "@name"), ("and by", "@other"), ("share", "@share")]
    _add_quads(plot, known, columns, "left", "right", words, fill_alpha="alpha", half=0.5)
    return plot


def ranges_figure(panel: Ranges) -> Any:
    """Make the figure of ranges."""
    first, low, high, last = range_ends(panel)
    ends = _ends(first, last, panel.scale == "log")
    plot = _rows(list(map(row_label, panel.groups)), ends, "", plain(panel.key))
    plot.xaxis[0].ticker = BasicTicker(desired_num_ticks=6)
    if panel.scale == "log":
        plot.x_scale = LogScale()
        plot.xaxis[0].ticker = plot.xgrid[0].ticker = LogTicker()
        plot.xaxis[0].formatter = NumeralTickFormatter(format="0,0.[000]")
    rows = list(range(len(panel.groups)))
    thin = ColumnDataSource(
        {"row": rows, "first": _known(first), "last": _known(last), "median": _known(drawable(panel.median))}
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
        "left": _known(low),
        "right": _known(high),
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


def _known(values: Any) -> list[float | None]:
    """Return numbers for Bokeh, which draws nothing where there is none."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _rows(names: Sequence[str], ends: tuple[float, float], y_label: str, x_label: str) -> Any:
    """Return an empty plot with a row for each name, the first at the top."""
    plot = empty_figure(ends, 1, "linear", 60 + ROW_PX * max(len(names), 1))
    plot.y_range = Range1d(start=len(names) - 0.5, end=-0.5)
    rows = list(range(len(names)))
    plot.yaxis[0].update(
        ticker=FixedTicker(ticks=rows),
        major_label_overrides={row: plain(name) for row, name in zip(rows, names, strict=True)},
        axis_label=y_label or None,
    )
    plot.xaxis[0].axis_label = x_label or None
    for axis in (*plot.xaxis, *plot.yaxis):
        style(axis)
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
        "name": list(map(plain, names)),
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
