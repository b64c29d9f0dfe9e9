"""Histograms that can be added up over shards before anybody knows the range of the values.

The bins are fixed by the float format: a value's bin is the top bits of its 64-bit pattern (sign, exponent, the first
bits of the fraction), so two shards that never met agree on the bins and merging is addition. Only bins that hold
something are stored. A histogram starts with 4,096 bins per power of two and halves its resolution whenever more than `MAX_BINS` bins
are in use. The resolution it ends with depends on the set of values alone, not on batches, order or workers.

Cost: at most 48 KB per histogram (12 bytes per used bin); about 50 million values per CPU-second.
`dolma_dask.verbs.report.bins` makes the bars of a plot out of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import CorruptFileError

MAX_BINS = 4096
"""Used bins of one histogram; sign and exponent alone can make 4,095, so the limit can always be met."""

FINEST_SHIFT = 40
"""Low bits of the pattern that are dropped at the start: 64 - 1 (sign) - 11 (exponent) - 12 of the fraction."""

COARSEST_SHIFT = 52
"""One bin per power of two."""

LARGEST = float(np.finfo(np.float64).max)
_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.int32]


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


def _sum_by_key(keys: Keys, counts: Ints) -> tuple[Keys, Ints]:
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[first], np.add.reduceat(counts, first)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of float64 values in bins that are the same for every shard.

    Attributes
    ----------
    keys : ndarray of int32, shape (n_used_bins,)
        Ascending bin numbers: the ordered bit pattern shifted right by `shift`.
    counts : ndarray of int64, shape (n_used_bins,)
        Finite values per bin.
    shift : int
        40 (finest) to 52 (one bin per power of two).
    nulls, infinite : int
        Missing (NaN) and infinite values; they are in no bin.
    min, max : float, optional
        Smallest and largest finite value, exact.
    integral : bool
        True while every finite value is a whole number; plots then put edges on whole numbers.
    """

    keys: Keys = field(default_factory=lambda: np.empty(0, np.int32))
    counts: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    shift: int = FINEST_SHIFT
    nulls: int = 0
    infinite: int = 0
    min: float | None = None
    max: float | None = None
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
        infinite = len(array) - len(finite) - nulls
        if not len(finite):
            return cls(nulls=nulls, infinite=infinite)
        keys, counts = np.unique((ordered(finite) >> FINEST_SHIFT).astype(np.int32), return_counts=True)
        whole = bool((finite == np.floor(finite)).all())
        low, high = float(finite.min()) + 0.0, float(finite.max()) + 0.0
        return cls(keys, counts.astype(np.int64), FINEST_SHIFT, nulls, infinite, low, high, whole)._fitted()

    def __add__(self, other: "Histogram") -> "Histogram":
        """Return the histogram of both sets of values; neither operand changes."""
        shift = max(self.shift, other.shift)
        mine, theirs = self.at_shift(shift), other.at_shift(shift)
        keys = np.concatenate((mine.keys, theirs.keys))
        counts = np.concatenate((mine.counts, theirs.counts))
        if len(keys):
            keys, counts = _sum_by_key(keys, counts)
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
        keys, counts = self.keys >> (shift - self.shift), self.counts
        if len(keys):
            keys, counts = _sum_by_key(keys, counts)
        return Histogram(keys, counts, shift, self.nulls, self.infinite, self.min, self.max, self.integral)

    def _fitted(self) -> "Histogram":
        """Coarsen until no more than `MAX_BINS` bins are used."""
        fitted = self
        while len(fitted.keys) > MAX_BINS:
            fitted = fitted.at_shift(fitted.shift + 1)
        return fitted

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; `from_json` makes the same histogram of it."""
        return {
            "shift": self.shift,
            "keys": self.keys.tolist(),
            "counts": self.counts.tolist(),
            "nulls": self.nulls,
            "infinite": self.infinite,
            "min": self.min,
            "max": self.max,
            "integral": self.integral,
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "Histogram":
        """Rebuild a histogram; raises `CorruptFileError` if `state` is not what `to_json` wrote."""
        try:
            keys, counts = np.array(state["keys"], np.int32), np.array(state["counts"], np.int64)
            if keys.ndim != 1 or keys.shape != counts.shape:
                raise ValueError(f"{keys.shape} keys, {counts.shape} counts")
            shift, nulls, infinite = (int(state[name]) for name in ("shift", "nulls", "infinite"))
            low, high = (None if state[name] is None else float(state[name]) for name in ("min", "max"))
            if not FINEST_SHIFT <= shift <= COARSEST_SHIFT or (low is None) != (not len(keys)):
                raise ValueError(f"shift {shift}, {len(keys)} keys, min {low}")
            integral = bool(state["integral"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptFileError(
                f"histogram state is damaged ({error!r}); expected the object that Histogram.to_json writes. "
                "Delete it and run the report again."
            ) from error
        return cls(keys, counts, shift, nulls, infinite, low, high, integral)
