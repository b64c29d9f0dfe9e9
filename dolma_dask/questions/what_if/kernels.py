"""The kernels behind what-if: which rules drop a document, counted by group, and the values of each signal in bins that are the same everywhere.

A document is dropped by a set of rules, which is a word of 64 bits; all counts follow from it. Bins are those of the float format, 128 per
power of two: an edge of a slider is the edge of a bin, so its counts are exact. Cost: 9 ns per document and rule.
"""

import numpy as np
import numpy.typing as npt

from dolma_dask.rules.ordered_bits import Codes
from dolma_dask.text.bits import first_bit
from dolma_dask.text.kernels import Counts, Floats, Int, Words, kernel

SHIFT = 45
"""Low bits of a float64 that a bin leaves out: 7 of the fraction decide."""

MIN_BITS, MAX_BITS = (1023 - 32) << 7, (1023 + 64) << 7
"""Bits of 2**-32 and 2**64 without the low ones: what is nearer to zero is one bin on each side, what is larger another."""

MIDDLE = MAX_BITS - MIN_BITS + 1
"""Bin of zero and of what lies just above."""

BINS = 2 * MIDDLE + 1

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)
_ONE = np.uint64(1)
_ZERO = np.uint64(0)

Levels = npt.NDArray[np.uint8]


def lower_ends(bins: Counts) -> Floats:
    """Return the smallest value of each bin (n,)."""
    at = bins - MIDDLE
    keys = np.where(at > 0, at + MIN_BITS - 1, np.where(at == 0, 0, at - MIN_BITS + 1))
    size = (np.abs(keys).astype(np.int64) << SHIFT).view(np.float64)
    ends: Floats = np.where(keys < 0, -size, size)
    return ends


def bins_of(values: Floats) -> Counts:
    """Return the bin of each value (n,)."""
    found = np.empty(len(values), np.int64)
    _bins_of(np.ascontiguousarray(values + 0.0).view(np.int64), found)
    return found


@kernel
def _bins_of(bits: Counts, bins: Counts) -> None:
    for i in range(bits.size):
        bins[i] = bin_of(bits[i])


@kernel
def bin_of(bits: Int) -> Int:
    """Return the bin of the float64 with these bits."""
    key = (bits if bits >= 0 else -(bits & _MAGNITUDE)) >> SHIFT
    if key > MAX_BITS:
        key = MAX_BITS
    elif key < -MAX_BITS:
        key = -MAX_BITS
    if key >= MIN_BITS:
        return key - MIN_BITS + 1 + MIDDLE
    if key >= 0:
        return MIDDLE
    if key >= -MIN_BITS:
        return MIDDLE - 1
    return key + MIN_BITS - 1 + MIDDLE


@kernel
def apply_rule(
    rule: Int,
    values: Floats,
    bits: Counts,
    sizes: Counts,
    codes: Codes,
    places: Counts,
    lower: Floats,
    upper: Floats,
    following: Counts,
    given: int,
    keeps_missing: bool,
    outside: Counts,
    missing: Counts,
    fractions: Counts,
    bins: Counts,
    dropped: Words,
    stricter: Words,
    passed: Levels,
) -> None:
    """Apply one rule to documents (n,): count them, and note in their words and levels whether they fail.

    A value is compared with the bounds of all steps without a branch: the steps at which it is outside are the bits of a number, one for each end.

    Parameters
    ----------
    values, bits : (n,)
        Of the signal, NaN where there is none, and the same as bit patterns.
    sizes, codes : (n,)
        Of the documents: units of text, and groups.
    places : (groups,)
        Of the groups among those that have bins; the last has none.
    lower, upper : (groups, steps)
        Bounds as given and at each level; NaN where nothing is inside.
    following : (groups,)
        Step that is stricter than the given bounds; 0 if there is none.
    given :
        Step whose bounds are the given ones, which then are not looked at; 0: none.
    outside : (groups, 2, 2**steps, 2)
        Documents and units, below and above, by the steps at which they are outside.
    missing : (groups, 2)
        Documents and units without a value.
    fractions : (1,)
        Values that are no whole numbers.
    bins : (places, BINS, 2)
        Documents and units by value.
    dropped, stricter : (n,)
        Rules that drop a document as given, and one step further.
    passed : (n,)
        Levels that it has passed so far.
    """
    steps = lower.shape[1]
    shift = np.uint64(rule)
    flag = _ONE << shift
    rest = bins.shape[0]
    parts = 0
    may_be_whole = fractions[0] == 0
    first = 1 if given > 0 else 0
    for i in range(values.size):
        value, group, size = values[i], codes[i], sizes[i]
        if value != value:
            missing[group, 0] += 1
            missing[group, 1] += size
            if not keeps_missing or lower[group, 0] != lower[group, 0]:
                dropped[i] |= flag
                stricter[i] |= flag
                passed[i] = 0
            continue
        place = places[group]
        if place < rest:
            at = bin_of(bits[i])
            bins[place, at, 0] += 1
            bins[place, at, 1] += size
        if may_be_whole and value != np.floor(value):
            parts += 1
        below, above = 0, 0
        for step in range(first, steps):
            below |= (not value >= lower[group, step]) << step  # also where the bound is NaN
            above |= (value > upper[group, step]) << step
        below |= (below >> given) & first
        above = (above | (above >> given) & first) & ~below  # of bounds that nothing is inside of
        outside[group, 0, below, 0] += 1
        outside[group, 0, below, 1] += size
        outside[group, 1, above, 0] += 1
        outside[group, 1, above, 1] += size
        fails = below | above
        dropped[i] |= np.uint64(fails & 1) << shift
        stricter[i] |= np.uint64((fails | (fails >> following[group])) & 1) << shift
        # the lowest bit above that of the given bounds is the first level that it fails
        passed[i] = min(passed[i], first_bit((fails >> 1) | (1 << (steps - 1))))
    fractions[0] += parts


@kernel
def count_together(
    sizes: Counts,
    codes: Codes,
    places: Counts,
    dropped: Words,
    stricter: Words,
    passed: Levels,
    scratch: Counts,
    total: Counts,
    kept: Counts,
    only: Counts,
    cost: Counts,
    reached: Counts,
    overlap: Counts,
) -> None:
    """Count documents (n,) by the sets of rules that drop them.

    Parameters
    ----------
    scratch : (64,)
        Room for the rules of one document.
    total, kept : (groups, 2)
        All documents and units, and those that no rule drops.
    only : (groups, rules, 2)
        Those that one rule alone drops.
    cost : (groups, rules + 1, 2)
        Kept ones that a rule would drop one step further; the last: any rule would.
    reached : (groups, levels + 1, 2)
        By the levels that they pass.
    overlap : (places, rules, rules)
        Documents that two rules drop both.
    """
    rules = only.shape[1]
    for i in range(sizes.size):
        group, size = codes[i], sizes[i]
        total[group, 0] += 1
        total[group, 1] += size
        reached[group, passed[i], 0] += 1
        reached[group, passed[i], 1] += size
        word = dropped[i]
        if word == _ZERO:
            kept[group, 0] += 1
            kept[group, 1] += size
            more = stricter[i]
            if more != _ZERO:
                cost[group, rules, 0] += 1
                cost[group, rules, 1] += size
            while more != _ZERO:
                rule = first_bit(np.int64(more))
                more &= more - _ONE
                cost[group, rule, 0] += 1
                cost[group, rule, 1] += size
            continue
        count = 0
        while word != _ZERO:
            scratch[count] = first_bit(np.int64(word))
            word &= word - _ONE
            count += 1
        if count == 1:
            only[group, scratch[0], 0] += 1
            only[group, scratch[0], 1] += size
        place = places[group]
        for first in range(count):
            for second in range(count):
                overlap[place, scratch[first], scratch[second]] += 1


@kernel
def find_nearest(
    rule: Int,
    first: Int,
    rows: Counts,
    near: Counts,
    values: Floats,
    codes: Codes,
    places: Counts,
    dropped: Words,
    lower: Floats,
    upper: Floats,
    distances: Floats,
    found: Floats,
    locations: Counts,
) -> None:
    """Keep the documents that are nearest to the given bounds of a rule: kept ones inside, those that it alone drops outside.

    `near` (m,) are the documents that at most one rule drops. `first` is added to `rows` (n,) for their locations; `lower` and `upper` are (groups,); `distances`, values `found` and `locations`
    (places, 4, k) hold what is known so far, nearest first: inside and outside of the lower bound, then of the upper one. Of equally near ones the earlier stay.
    """
    rest, most = distances.shape[0], distances.shape[2]
    flag = _ONE << np.uint64(rule)
    for i in near:
        value, word, group = values[i], dropped[i], codes[i]
        place = places[group]
        if value != value or place >= rest or (word != _ZERO and word != flag):
            continue
        for end in range(2):
            away = value - lower[group] if end == 0 else upper[group] - value
            side = 2 * end
            if word != _ZERO:
                if not away < 0:
                    continue
                away = -away
                side += 1
            if not away < distances[place, side, most - 1]:
                continue
            at = most - 1
            while at > 0 and away < distances[place, side, at - 1]:
                distances[place, side, at] = distances[place, side, at - 1]
                found[place, side, at] = found[place, side, at - 1]
                locations[place, side, at] = locations[place, side, at - 1]
                at -= 1
            distances[place, side, at] = away
            found[place, side, at] = value
            locations[place, side, at] = first + rows[i]
