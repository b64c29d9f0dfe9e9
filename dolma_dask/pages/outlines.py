"""Figures as outlines: SVG for tables, for two datasets beside each other, and for paper and readers without scripts, in place of the plots that react.

The style of the page gives the colours, so that they suit its dark mode too.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from dolma_dask.display import real
from dolma_dask.figures import axes
from dolma_dask.figures.model import Line, Panel, SignalHistogram

WIDTH, HEIGHT, MAX_TICKS = 480, 150, 5
"""Size of a plot of two datasets, and labels below it."""

SMALL_WIDTH, SMALL_HEIGHT = 120, 26
"""Size of an outline in a table."""

_SMALL = Markup(
    '<svg viewBox="0 0 {0} {1}" width="{0}" height="{1}" preserveAspectRatio="none" aria-hidden="true"><path class="dropped" d="{2}"/><path class="kept" d="{3}"/></svg>'
)
_OVERLAY = Markup(
    '<svg viewBox="0 0 {0} {1}" class="overlay" aria-hidden="true"><path class="dropped" d="{3}Z"/><path class="line" d="{4}"/><path class="axis" d="M0 {2}H{0}"/>{5}</svg>'
)
_STILL = Markup(
    '<svg viewBox="0 0 {0} {1}" class="overlay still" aria-hidden="true">{2}<path class="axis" d="M0 {3}H{0}"/>{4}{5}</svg>'
)
_SHAPE = Markup('<path class="{}" d="{}"/>')
_BOUND = Markup('<path class="bound" d="M{0:.1f} 0V{1}"/>')
_LABEL = Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>')


def is_drawn(*sides: SignalHistogram) -> bool:
    """Tell whether a plot says something: of flags, which are all 1, it does not."""
    low = [side.min for side in sides if side.min is not None]
    high = [side.max for side in sides if side.max is not None]
    return len(low) == len(sides) and min(low) != max(high)


def small_outline(signal: SignalHistogram) -> Markup:
    """Draw a signal as two small outlines: all values, and the kept ones before them."""
    kept = signal.counts if signal.kept_counts is None else signal.kept_counts
    most = int(signal.counts.max(initial=0))
    paths = (
        f"{_path(counts / most, signal, SMALL_WIDTH, SMALL_HEIGHT)}Z" if most and is_drawn(signal) else ""
        for counts in (signal.counts, kept)
    )
    return _SMALL.format(SMALL_WIDTH, SMALL_HEIGHT, *paths)


def overlay(before: SignalHistogram, after: SignalHistogram) -> Markup:
    """Draw the shares of two datasets by value, in the same bins: the older one filled, the newer one as a line before it."""
    shares = [side.counts / max(int(side.counts.sum()), 1) for side in (before, after)]
    most = max(float(share.max(initial=0.0)) for share in shares) or 1.0
    room = (HEIGHT - 4) / HEIGHT  # for the width of the line
    paths = (_path(room * share / most, before, WIDTH, HEIGHT) for share in shares)
    labels = Markup("").join(
        _LABEL.format(place, HEIGHT + 16, _anchor(place), real(value)) for place, value in _ticks(before)
    )
    return _OVERLAY.format(WIDTH, HEIGHT + 20, HEIGHT, *paths, labels)


def still(panel: Panel) -> Markup:
    """Draw a histogram or a line for paper; nothing of panels of other kinds."""
    if isinstance(panel, SignalHistogram):
        shapes, bounds, ticks = _histogram(panel)
    elif isinstance(panel, Line):
        shapes, bounds, ticks = _line(panel)
    else:
        return Markup("")
    labels = (_LABEL.format(place, HEIGHT + 16, _anchor(place), real(value)) for place, value in ticks)
    marks = (_BOUND.format(place, HEIGHT) for place in bounds)
    return _STILL.format(
        WIDTH, HEIGHT + 20, Markup("").join(shapes), HEIGHT, Markup("").join(marks), Markup("").join(labels)
    )


_Parts = tuple[list[Markup], list[float], Iterator[tuple[float, float]]]
"""Shapes, places of bounds, and places and values of labels."""


def _histogram(signal: SignalHistogram) -> _Parts:
    """Return the parts of a histogram: all values, and the kept ones before them."""
    both = signal.counts, signal.counts if signal.kept_counts is None else signal.kept_counts
    sizes = [np.log10(1 + counts) if signal.count_scale == "log" else counts for counts in both]
    most = float(sizes[0].max(initial=0)) or 1.0
    names = ("dropped", "kept") if signal.kept_counts is not None else ("kept", "kept")
    shapes = [
        _SHAPE.format(name, f"{_path(size / most, signal, WIDTH, HEIGHT)}Z")
        for name, size in dict(zip(names, sizes, strict=True)).items()
    ]
    inside = [bound for _, bound in signal.threshold if axes.inside(bound, signal)]
    return shapes, _places(np.array(inside), signal, WIDTH).tolist(), _ticks(signal)


def _line(line: Line) -> _Parts:
    """Return the parts of a line, whose axes both go from 0 to 1."""
    points = " ".join(
        f"{WIDTH * x:.1f},{HEIGHT * (1 - y):.1f}"
        for x, y in zip(line.x.tolist(), line.y.tolist(), strict=True)
    )
    ticks = ((WIDTH * share, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return [_SHAPE.format("line", f"M{points}")], [WIDTH * bound for _, bound in line.threshold], ticks


def _path(heights: npt.NDArray[Any], signal: SignalHistogram, width: int, height: int) -> str:
    """Return the outline of bars of some heights (n_bins,), 0 to 1, in a box."""
    x, y = _places(signal.edges, signal, width), height * (1 - heights)
    steps = "".join(f"V{y[i]:.1f}H{x[i + 1]:.1f}" for i in range(len(y)))
    return f"M0 {height}{steps}V{height}"


def _places(values: npt.NDArray[np.float64], signal: SignalHistogram, width: int) -> npt.NDArray[np.float64]:
    """Return where values are between the ends of the bins, from 0 to `width`."""
    first, last = axes.positions(signal.edges[[0, -1]], signal)
    places: npt.NDArray[np.float64] = (axes.positions(values, signal) - first) / (last - first) * width
    return places


def _ticks(signal: SignalHistogram) -> Iterator[tuple[float, float]]:
    """Yield places and values of the labels below a plot."""
    if signal.scale == "log":
        values = np.array(axes.log_ticks(signal))
        places = axes.positions(values, signal) / len(signal.counts) * WIDTH
    else:
        chosen = np.unique(np.linspace(0, len(signal.edges) - 1, MAX_TICKS).round().astype(int))
        values, places = signal.edges[chosen], _places(signal.edges, signal, WIDTH)[chosen]
    return zip(places.tolist(), values.tolist(), strict=True)


def _anchor(place: float) -> str:
    return "start" if place < 20 else "end" if place > WIDTH - 20 else "middle"
