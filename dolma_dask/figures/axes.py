"""Positions of values on the horizontal axis of a histogram, choice of those that are labelled, and length of labels, whoever draws them."""

import math
from collections.abc import Iterator

import numpy as np

from dolma_dask.display import real
from dolma_dask.figures.histogram import Floats
from dolma_dask.figures.model import HeatMap, Ranges, SignalHistogram, cut

MAX_TICKS = 6

LARGEST_DRAWN = 1e200
"""Size of values from which on drawing libraries compute infinite places; those of its inverse are lost beside zero."""


def positions(values: Floats, signal: SignalHistogram) -> Floats:
    """Return positions on the horizontal axis: `values` themselves, or the bin number plus the share of the bin on a log scale and for values that no
    drawing library can take."""
    if not len(signal.counts) or not (signal.scale == "log" or _is_extreme(signal)):
        return values
    edges = signal.edges
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    low, high = edges[bins], edges[bins + 1]
    share = np.empty(len(values))
    for i, (value, a, b) in enumerate(zip(values.tolist(), low.tolist(), high.tolist(), strict=True)):
        same_side = signal.scale == "log" and a * b > 0 and a * value > 0
        share[i] = math.log(value / a) / math.log(b / a) if same_side else value / (b - a) - a / (b - a)
    return np.asarray(bins + np.clip(share, 0, 1), np.float64)


def inside(value: float, signal: SignalHistogram) -> bool:
    """Tell whether a threshold lies within the drawn range."""
    return bool(len(signal.edges)) and float(signal.edges[0]) <= value <= float(signal.edges[-1])


def _is_extreme(signal: SignalHistogram) -> bool:
    return not 1 / LARGEST_DRAWN < float(np.abs(signal.edges).max()) < LARGEST_DRAWN


def fixed_ticks(signal: SignalHistogram) -> list[float] | None:
    """Return the values that are labelled, None where the drawing library finds them."""
    if signal.scale == "log":
        return log_ticks(signal)
    return _apart(signal.edges.tolist(), signal) if _is_extreme(signal) else None


def log_ticks(signal: SignalHistogram) -> list[float]:
    """Round values for a log scale: zero and powers of ten, and between them 2 and 5 where their labels fit."""
    low, high = float(signal.edges[0]), float(signal.edges[-1])
    sizes = np.abs(signal.edges[signal.edges != 0])
    decades = range(math.floor(math.log10(sizes.min())), math.floor(math.log10(sizes.max())) + 1)
    stride = math.ceil(len(decades) / MAX_TICKS)
    first = [float(f"1e{decade}") for decade in decades if decade % stride == 0]
    second = [float(f"{digit}e{decade}") for decade in decades for digit in (2, 5)] if stride == 1 else []
    ticks = [0.0, *(sign * size for sizes in (first, second) for sign in (1, -1) for size in sizes)]
    return _apart([tick for tick in ticks if low <= tick <= high], signal)


def _apart(ticks: list[float], signal: SignalHistogram) -> list[float]:
    """Leave out ticks whose labels would touch an earlier one: 2.6 % of the width per character on a phone."""
    shares = positions(np.array(ticks), signal) / max(len(signal.counts), 1)
    taken: list[tuple[float, float, float]] = []
    for tick, share in zip(ticks, shares.tolist(), strict=True):
        half = 0.013 * len(real(tick)) + 0.015
        if all(share + half <= low or high <= share - half for low, high, _ in taken):
            taken.append((share - half, share + half, tick))
    return [tick for _, _, tick in sorted(taken)]


def drawable(values: Floats) -> Floats:
    """Return finite values that drawing libraries can take."""
    return np.clip(values, -LARGEST_DRAWN, LARGEST_DRAWN)


def range_ends(panel: Ranges) -> tuple[Floats, Floats, Floats, Floats]:
    """Return from where to where the thin line of each group goes, and the bar before it: first, low, high, last."""
    p1, p99 = drawable(panel.p1), drawable(panel.p99)
    with np.errstate(invalid="ignore"):
        low = drawable(np.where(np.isinf(panel.lower), np.fmin(p1, panel.upper), panel.lower))
        high = drawable(np.where(np.isinf(panel.upper), np.fmax(p99, panel.lower), panel.upper))
        return np.fmin(p1, low), low, high, np.fmax(p99, high)


MAX_WRITTEN = 12
"""Conditions of a heat map whose numbers are written in it."""

DARK = 0.55
"""Share from which on a cell is dark, and its number light."""


def written_shares(panel: HeatMap) -> Iterator[tuple[int, int, float]]:
    """Yield row, column and share of the cells whose numbers are written."""
    if len(panel.labels) > MAX_WRITTEN:
        return
    for row, shares in enumerate(panel.shares.tolist()):
        for column, share in enumerate(shares):
            if not math.isnan(share):
                yield row, column, share


def row_label(name: str) -> str:
    """Return a name as it stands beside a row, which leaves room for the picture."""
    return cut(name, 44)
