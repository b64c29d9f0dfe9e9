"""Positions of a rule's slider: values between which all documents of a group are counted exactly, and the bars of its histogram.

A cut is a value; left of it are the documents with smaller ones. Cuts are edges of the bins that were counted, and the bounds as given and of every level,
whose documents the kernel has counted by themselves. An upper bound, which is inclusive, cuts just above.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dolma_dask.figures.histogram import Histogram, display_edges
from dolma_dask.questions.what_if import counting
from dolma_dask.questions.what_if.counting import bins_of, lower_ends
from dolma_dask.questions.what_if.ladder import LevelBounds
from dolma_dask.questions.what_if.stage import DropSums
from dolma_dask.text.kernels import Counts, Floats

FINE_CUTS = 100
"""Cuts at equal shares of the documents, beside the edges of the bars."""

MISSING = 255
"""Rank of a document without a value; there are fewer cuts."""


@dataclass(frozen=True, eq=False)
class Cuts:
    """Cuts of one rule in one group, or in all (then those of bins alone)."""

    values: Floats  # (n,) ascending, each once
    places: Floats  # (n,) where they stand among the bars, from 0 to their number
    left: Counts  # (n, 2) documents and units with smaller values
    whole: Counts  # (2,) documents and units that have a value
    edges: Floats  # (bars + 1,) of the bars
    bars: Counts  # (bars,) documents
    inclusive: frozenset[
        int
    ]  # cuts that are upper bounds: their number is that of the bound, which stands just below
    lower: tuple[int, ...]  # cut of each step, as given and at each level; -1: none
    upper: tuple[int, ...]


def cuts_of(ladder: LevelBounds, tally: DropSums, rule: int, group: int | None) -> Cuts:
    """Return the cuts of a rule in a group that has a place, or in all of these."""
    place = slice(None) if group is None else slice(int(ladder.places[group]), int(ladder.places[group]) + 1)
    counts = tally.bins[rule, place].sum(axis=0)
    used = np.flatnonzero(counts[:, 0])
    whole = counts.sum(axis=0)
    if not len(used):
        none = np.zeros(0)
        off = (-1,) * (len(ladder.levels) + 1)
        empty = np.zeros((0, 2), np.int64)
        return Cuts(none, none, empty, whole, none, empty[:, 0], frozenset(), off, off)
    edges = _edges(used, counts[used, 0], not tally.fractions[rule, 0])
    below = np.concatenate([np.zeros((1, 2), np.int64), np.cumsum(counts, axis=0)])
    known = {float(edge): below[at] for edge, at in zip(edges, bins_of(edges), strict=True)}
    known |= {float(edge): below[at] for edge, at in _fine(used, counts[used, 0])}
    lower: list[float | None] = []
    upper: list[float | None] = []
    if group is not None:
        for step in range(len(ladder.levels) + 1):
            low, high = ladder.lower[rule, group, step], ladder.upper[rule, group, step]
            fails = tally.fails(rule, step)[group]
            lower.append(_take(known, low, fails[0]))
            upper.append(_take(known, np.nextafter(high, np.inf), whole - fails[1]))
    values = np.array(sorted(known))
    numbers = {value: number for number, value in enumerate(values.tolist())}
    places = [-1 if value is None else numbers[value] for value in (*lower, *upper)]
    half = len(lower)
    return Cuts(
        values,
        _positions(values, edges),
        np.array([known[value] for value in values.tolist()], np.int64).reshape(-1, 2),
        whole,
        edges,
        np.diff(below[bins_of(edges)][:, 0]),
        frozenset(place for place in places[half:] if place >= 0),
        tuple(places[:half]),
        tuple(places[half:]),
    )


def _take(known: dict[float, Counts], value: float, left: Counts) -> float | None:
    """Add the cut of a bound, if it is one; return its value."""
    if not np.isfinite(value):
        return None
    value = float(value) + 0.0
    known[value] = left
    return value


def _edges(used: Counts, documents: Counts, are_whole: bool) -> Floats:
    """Return the edges of the bars, all of them edges of bins; the last is above all values."""
    ends = lower_ends(used)
    keys = np.where(ends < 0, -(np.abs(ends).view(np.int64)), ends.view(np.int64)) >> counting.SHIFT
    top = float(lower_ends(np.minimum(used[-1:] + 1, counting.BINS - 1))[0])
    histogram = Histogram(
        keys.astype(np.int32), documents, counting.SHIFT, 0, 0, float(ends[0]), float(ends[-1]), are_whole
    )
    edges = display_edges(histogram)[0]
    edges = np.unique(lower_ends(bins_of(edges)))
    return edges if edges[-1] > ends[-1] else np.append(edges, max(top, np.nextafter(ends[-1], np.inf)))


def _fine(used: Counts, documents: Counts) -> list[tuple[float, int]]:
    """Return edges of bins at about equal shares of the documents, each with its bin."""
    total = np.cumsum(documents)
    wanted = np.linspace(0, total[-1], FINE_CUTS + 1)[1:-1]
    at = np.unique(used[np.searchsorted(total, wanted)])
    return list(zip(lower_ends(at).tolist(), at.tolist(), strict=True))


def _positions(values: Floats, edges: Floats) -> Floats:
    """Return where values stand among the bars: the number of the bar and the share of it."""
    bars = len(edges) - 1
    bar = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, bars - 1)
    with np.errstate(over="ignore", invalid="ignore"):
        share = (values - edges[bar]) / (edges[bar + 1] - edges[bar])
    found: Floats = np.clip(bar + np.nan_to_num(share), 0, bars)
    return found


def ranks_of(cuts: Sequence[Cuts], values: Floats) -> npt.NDArray[np.uint8]:
    """Return how many cuts lie at or below each value (n, rules), `MISSING` without a value."""
    ranks = np.full(values.shape, MISSING, np.uint8)
    for rule, each in enumerate(cuts):
        column = values[:, rule]
        there = ~np.isnan(column)
        ranks[there, rule] = np.searchsorted(each.values, column[there], side="right")
    return ranks
