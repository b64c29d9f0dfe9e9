"""Where values stand on the horizontal axis of a histogram, which of them are labelled, and how long labels are, whoever draws them."""

import math

import numpy as np

from dolma_dask.display import real
from dolma_dask.figures.histogram import Floats
from dolma_dask.figures.model import SignalHistogram, cut

MOST_TICKS = 6


def positions(values: Floats, signal: SignalHistogram) -> Floats:
    """Return positions on the horizontal axis: `values` themselves, or on a log scale the bin number plus the share of the bin."""
    if signal.scale == "linear" or not len(signal.counts):
        return values
    edges = signal.edges
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    low, high = edges[bins], edges[bins + 1]
    share = np.empty(len(values))
    for i, (value, a, b) in enumerate(zip(values.tolist(), low.tolist(), high.tolist(), strict=True)):
        same_side = a * b > 0 and a * value > 0
        share[i] = math.log(value / a) / math.log(b / a) if same_side else value / (b - a) - a / (b - a)
    return np.asarray(bins + np.clip(share, 0, 1), np.float64)


def inside(value: float, signal: SignalHistogram) -> bool:
    """Tell whether a threshold lies within the drawn range."""
    return bool(len(signal.edges)) and float(signal.edges[0]) <= value <= float(signal.edges[-1])


def log_ticks(signal: SignalHistogram) -> list[float]:
    """Round values for a log scale: zero and powers of ten, and between them 2 and 5 where their labels fit."""
    low, high = float(signal.edges[0]), float(signal.edges[-1])
    sizes = np.abs(signal.edges[signal.edges != 0])
    decades = range(math.floor(math.log10(sizes.min())), math.floor(math.log10(sizes.max())) + 1)
    stride = math.ceil(len(decades) / MOST_TICKS)
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


def row_label(name: str) -> str:
    """Return a name as it stands beside a row, which leaves room for the picture."""
    return cut(name, 44)
