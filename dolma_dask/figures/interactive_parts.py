"""Parts that all Bokeh figures share: an empty plot, the look of axes, colours that read on light and dark backgrounds."""

from typing import Any

from bokeh.models import Axis, Range1d
from bokeh.plotting import figure

from dolma_dask.display import printable

HEIGHT_PX = 230

ALL, KEPT, BOUND, MUTED = "#d98f4b", "#4a86e8", "#8a94a3", "#8a94a3"
"""Colours of all values, of the kept ones, of bounds and of axes; a page may set its own."""


def plain(text: str) -> str:
    """Return a name of the data that Bokeh draws as it is: it takes what stands between dollar signs or escaped brackets for mathematics."""
    return printable(text).replace("$", "$\u200b").replace("\\", "\\\u200b")


def style(axis: Axis) -> None:
    """Set the look of an axis."""
    axis.update(major_label_text_color=MUTED, axis_label_text_color=MUTED)
    axis.update(axis_line_color=MUTED, major_tick_line_color=MUTED, minor_tick_line_color=None)
    axis.major_tick_in = 0
    axis.major_label_text_font = "system-ui, sans-serif"
    axis.major_label_text_font_size = "12px"


def empty_figure(
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
