"""Histograms that can be added up over shards before the range of the values is known, and the bars of a plot made of them.

The bins are fixed by the float format: a value's bin is the top bits of its 64-bit pattern (sign, exponent, the first
bits of the fraction), so that merging is addition. Only bins that hold something are stored. A histogram starts with 4,096 bins per power of
two and halves its resolution whenever more than `MAX_BINS` are in use; where it ends depends on the set of values alone, not on batches, order or workers.
Every edge of a bar lies on a boundary of these bins, so a bar's count is exact. Skewed signals (word counts, symbol shares) get logarithmic bars.

Cost: at most 48 KB per histogram (12 bytes per used bin); about 50 million values per CPU-second; a millisecond for the bars of a signal.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.figures.model import Scale, SignalHistogram

MAX_BINS = 4096
"""Used bins of one histogram; sign and exponent alone can make 4,095, so the limit can always be met."""

FINEST_SHIFT = 40
"""Low bits of the pattern that are dropped at the start: 64 - 1 (sign) - 11 (exponent) - 12 of the fraction."""

LARGEST = float(np.finfo(np.float64).max)
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.int32]
Key = TypeVar("Key", np.int32, np.int64)


def ordered(values: Floats) -> Ints:
    """Bit patterns as integers that ascend with the values; -0.0 and 0.0 both give 0."""
    bits = values.view(np.int64)
    return np.where(bits < 0, -(bits & _MAGNITUDE), bits)


def boundary(keys: Keys, shift: int) -> Floats:
    """Lower ends of the bins `keys`: the smallest finite value that falls in each."""
    ordered = keys.astype(np.int64) << shift
    magnitude = np.abs(ordered).view(np.float64)
    signed: Floats = np.where(ordered < 0, -magnitude, magnitude)
    return np.clip(signed, -LARGEST, LARGEST)


def sum_by_key(keys: npt.NDArray[Key], counts: Ints | None = None) -> tuple[npt.NDArray[Key], Ints]:
    """Return the keys (n,) that there are, ascending, and the sums of their counts; each counts once without."""
    if counts is None:
        keys = np.sort(keys)
    else:
        order = np.argsort(keys, kind="stable")  # quick for what is sorted, or two of that one after another
        keys, counts = keys[order], counts[order]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    first = np.flatnonzero(is_first)
    if counts is None:
        return keys[first], np.diff(first, append=len(keys))
    return keys[first], np.add.reduceat(counts, first) if len(first) else counts


class Histogram(Struct, frozen=True, eq=False):
    """Counts of float64 values in bins that are the same for every shard."""

    # (n_used_bins,) Ascending bin numbers: the ordered bit pattern shifted right by `shift`
    keys: Keys = msgspec.field(default_factory=lambda: np.empty(0, np.int32))
    # (n_used_bins,) Finite values per bin
    counts: Ints = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    shift: int = FINEST_SHIFT  # 40 (finest) to 52 (one bin per power of two)
    # missing (NaN) and infinite values; they are in no bin
    nulls: int = 0
    infinite: int = 0
    # smallest and largest finite value, exact
    min: float | None = None
    max: float | None = None
    # true while every finite value is a whole number; plots then put edges on whole numbers
    integral: bool = True

    @property
    def n(self) -> int:
        """Values that are not missing, infinite ones included."""
        return int(self.counts.sum()) + self.infinite

    @classmethod
    def of(cls, values: npt.ArrayLike) -> "Histogram":
        """Count `values` (any shape, made float64); NaN counts as missing."""
        array = np.ascontiguousarray(values, dtype=np.float64).ravel()
        finite = array[np.isfinite(array)]
        nulls = int(np.isnan(array).sum())
        return replace(cls._of_finite(finite, None), nulls=nulls, infinite=len(array) - len(finite) - nulls)

    @classmethod
    def of_counts(cls, values: Floats, counts: Ints) -> "Histogram":
        """Count finite values (n,) that occur so often."""
        return cls._of_finite(values, counts)

    @classmethod
    def _of_finite(cls, finite: Floats, times: Ints | None) -> "Histogram":
        if not len(finite):
            return cls()
        own = (ordered(finite) >> FINEST_SHIFT).astype(np.int32)
        keys, counts = sum_by_key(own, times)
        whole = bool((finite == np.floor(finite)).all())
        low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0
        return cls(keys, counts, FINEST_SHIFT, 0, 0, low, high, whole)._fitted()

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the histogram of both sets of values; neither operand changes."""
        shift = max(self.shift, other.shift)
        mine, theirs = self.at_shift(shift), other.at_shift(shift)
        keys, counts = sum_by_key(
            np.concatenate((mine.keys, theirs.keys)), np.concatenate((mine.counts, theirs.counts))
        )
        lows = [x for x in (self.min, other.min) if x is not None]
        highs = [x for x in (self.max, other.max) if x is not None]
        return Histogram(
            keys,
            counts,
            shift,
            self.nulls + other.nulls,
            self.infinite + other.infinite,
            min(lows, default=None),
            max(highs, default=None),
            self.integral and other.integral,
        )._fitted()

    def at_shift(self, shift: int) -> "Histogram":
        """Return the same histogram with coarser bins."""
        if shift == self.shift:
            return self
        keys, counts = sum_by_key(self.keys >> (shift - self.shift), self.counts)
        return replace(self, keys=keys, counts=counts, shift=shift)

    def _fitted(self) -> "Histogram":
        """Coarsen until no more than `MAX_BINS` bins are used."""
        fitted = self
        while len(fitted.keys) > MAX_BINS:
            fitted = fitted.at_shift(fitted.shift + 1)
        return fitted


DISPLAY_BINS = 60
"""Bars that still can be told apart in a plot 500 pixels wide."""

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

_DECADE_STEPS = (
    *(1 / 24, 1 / 20, 1 / 16, 1 / 12, 1 / 10, 1 / 8, 1 / 6, 1 / 5, 1 / 4, 1 / 3, 1 / 2),
    *(1, 2, 5, 10, 20, 50, 100, 200, 700),
)


def signal_histogram(
    key: str,
    every: Histogram,
    kept: Histogram | None = None,
    threshold: Sequence[tuple[str, float]] = (),
    bins: tuple[Floats, Scale] | None = None,
) -> SignalHistogram:
    """Bin a signal for a plot, with exact counts; `kept` is a part of `every`, and `bins` are those of a histogram that `every` is a part of."""
    edges, scale = display_edges(every) if bins is None else bins
    return SignalHistogram(
        key,
        edges,
        counts_between(every, edges),
        None if kept is None else counts_between(kept, edges),
        every.n,
        every.nulls,
        every.min,
        every.max,
        quantiles(every),
        threshold,
        scale,
        every.infinite,
    )


def quantiles(histogram: Histogram, probabilities: Sequence[float] = QUANTILES) -> dict[float, float]:
    """Return the smallest finite value that at least this share of finite values does not exceed.

    True to one bin of the histogram: a 4,096th of the value while no more than 4,096 bins are used, exact for whole numbers below 8,192.
    """
    if not len(histogram.keys):
        return {}
    lower = np.clip(boundary(histogram.keys, histogram.shift), histogram.min, histogram.max)
    return dict(zip(probabilities, _at_ranks(lower, histogram.counts, probabilities), strict=True))


def _at_ranks(values: Floats, counts: Ints, probabilities: Sequence[float]) -> list[float]:
    """Return the first of ascending values that this share of all does not exceed."""
    total = np.cumsum(counts)
    return [
        float(values[np.searchsorted(total, max(1, math.ceil(p * int(total[-1]))))]) for p in probabilities
    ]


def counts_between(histogram: Histogram, edges: Floats) -> Ints:
    """Values per bin of `edges`, which must lie on boundaries of the histogram's bins, or of one that it is a part of; shape (len(edges) - 1,)."""
    if not len(edges):
        return np.empty(0, np.int64)
    lower = boundary(histogram.keys, histogram.shift)
    counts: Ints = np.histogram(lower, edges, weights=histogram.counts)[0]
    return counts


def display_edges(histogram: Histogram, log: bool | None = None) -> tuple[Floats, Scale]:
    """Choose at most `DISPLAY_BINS` bins for a plot, and whether they are evenly or logarithmically spaced, unless `log` says it.

    Every edge is a boundary of the fine bins. Values that are whole numbers get edges that are whole numbers.
    """
    if histogram.min is None or histogram.max is None:
        return np.empty(0, np.float64), "linear"
    if (
        _is_skewed(histogram, histogram.min, histogram.max)
        if log is None
        else log and histogram.min < histogram.max and _magnitude_quantiles(histogram, (0.5,))
    ):
        return _log_edges(histogram, histogram.min, histogram.max), "log"
    return _linear_edges(histogram, histogram.min, histogram.max), "linear"


def _magnitude_quantiles(histogram: Histogram, probabilities: Sequence[float]) -> list[float]:
    """Quantiles of the sizes of all values but zero, to one fine bin; empty if all are zero."""
    size = np.abs(boundary(histogram.keys + (histogram.keys < 0), histogram.shift))
    order = np.argsort(size, kind="stable")
    order = order[size[order] > 0]
    return _at_ranks(size[order], histogram.counts[order], probabilities) if len(order) else []


def _is_skewed(histogram: Histogram, low: float, high: float) -> bool:
    """Tell whether evenly spaced bins would put nearly everything in a few bars.

    An exponential distribution (99 % quantile 6.6 times the median) is still fine on a linear axis, a lognormal one
    of sigma 1 (10.2 times) is not; neither is one whose largest value leaves half of all values 5 % of the axis.
    """
    if not math.isfinite(high - low):
        return True
    quantiles = _magnitude_quantiles(histogram, (0.5, 0.99))
    if not quantiles or (histogram.integral and high - low < DISPLAY_BINS):
        return False
    median, tail = quantiles
    return tail >= 8 * median or max(-low, high) >= 20 * median


def _linear_edges(histogram: Histogram, low: float, high: float) -> Floats:
    """Multiples of a step that is a multiple of the widest fine bin, so that each is a boundary."""
    unit = math.ulp(max(abs(low), abs(high))) * 2.0**histogram.shift
    if histogram.integral:
        unit = max(unit, 1.0)
    ends = boundary(histogram.keys[[0, -1]], histogram.shift) / unit  # exact: a division by a power of two
    multiple = max(1, math.floor((ends[1] - ends[0]) / DISPLAY_BINS))
    while True:
        steps = _round_up(multiple) if histogram.integral else multiple
        first, last = math.floor(ends[0] / steps), math.floor(ends[1] / steps) + 1
        if low < 0:
            first = min(first, -1)  # a tiny negative number divided by a large unit is zero
        if last - first <= DISPLAY_BINS:
            break
        multiple += 1
    with np.errstate(over="ignore"):
        return np.clip(np.arange(first, last + 1, dtype=np.float64) * steps * unit, -LARGEST, LARGEST)


def _round_up(multiple: int) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    ten = 1
    while True:
        for digit in (1, 2, 5):
            if digit * ten >= multiple:
                return digit * ten
        ten *= 10


def _log_edges(histogram: Histogram, low: float, high: float) -> Floats:
    """Edges at evenly spaced powers of ten on both sides of zero; the smallest 0.1 % share the bins beside it."""
    smallest = _magnitude_quantiles(histogram, (0.001,))[0]
    for step in _DECADE_STEPS:
        below = _side(smallest, -low, step) if low < 0 else np.empty(0)
        above = _side(smallest, high or smallest, step) if high >= 0 else np.empty(0)
        zero = (
            [0.0]
            if low < (above[0] if len(above) else 0.0) and high >= (-below[0] if len(below) else 0.0)
            else []
        )
        edges = _snapped(histogram, np.concatenate((-below[::-1], zero, above)))
        if edges[-1] <= high:  # the bins are coarse, and the last edge was moved down to the largest value
            edges = np.append(edges, boundary(histogram.keys[-1:] + 1, histogram.shift))
        edges = _trimmed(edges, low, high)
        if len(edges) - 1 <= DISPLAY_BINS:
            break
    return edges


def _side(smallest: float, largest: float, step: float) -> Floats:
    """Powers ``10 ** (k * step)`` from just below `smallest` to above `largest`."""
    first = math.floor(math.log10(smallest) / step)
    last = max(first, math.ceil(math.log10(largest) / step)) + 1
    with np.errstate(over="ignore", under="ignore"):
        powers: Floats = 10.0 ** (step * np.arange(first, last + 1, dtype=np.float64))
        return np.minimum(powers, LARGEST)


def _snapped(histogram: Histogram, edges: Floats) -> Floats:
    """Move edges down to boundaries of the fine bins, for whole numbers up to a whole number first."""
    whole = np.ceil(edges) if histogram.integral else edges
    keys = (ordered(whole + 0.0) >> histogram.shift).astype(np.int32)
    return boundary(np.unique(keys), histogram.shift)


def _trimmed(edges: Floats, low: float, high: float) -> Floats:
    """Drop bins that lie wholly outside the values."""
    first = max(int(np.searchsorted(edges, low, side="right")) - 1, 0)
    last = max(int(np.searchsorted(edges, high, side="right")), first + 1)
    return edges[first : last + 1]
