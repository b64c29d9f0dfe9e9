"""Exact order statistics of more values than fit into memory, for many groups at once: a few passes over keys.

The first pass counts in bins that cover the range of all keys; the bins in which requested order statistics lie become cells, and further
passes count inside of the cells until each holds one distinct key, or so few keys are left that they can be collected. Counts and
keys are integers, so the result depends on the values alone, not on how they were cut into blocks.

A *row* of the tables is a group of documents: row 0 all of them, the others those with one label. All rows share the bins of the first
pass; a *cell* is a range of keys inside of one such bin for one row, with bins of its own. Cells lie in the order of row and key.

Two passes for whole numbers with many ties, three for real numbers: 6 ns per value without groups, 11 with a few, 70 with 1,000 whose rows
alternate. Memory: `MOST_COUNTERS` counters, as much again in tables, and `MOST_COLLECTED` keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import DataError
from dolma_dask.rules.ordered_bits import Codes, Extents
from dolma_dask.text.kernels import Bools, Counts, Int, Positions, Words, kernel

MOST_COUNTERS = 1 << 22
"""Counters of one pass, 8 bytes each, shared by all cells."""

MOST_BINS = 1 << 16
"""Bins of one cell."""

LEAST_BINS = 1 << 7
"""Bins that a cell has at least."""

MOST_COLLECTED = 1 << 20
"""Keys that are collected instead of being counted further."""

Block = tuple[Words, Codes]
"""Keys of consecutive documents, and the row of the tables that each belongs to besides row 0 (or none at all)."""

Ints = npt.NDArray[np.int64]

_First = tuple[np.uint64, np.uint64, np.uint64]
"""The bins of the first pass, ``(key - low) >> shift``: low, the greatest key minus low, and shift."""


def order_statistics(read: Callable[[], Iterable[Block]], extents: Extents, ranks: list[Ints]) -> list[Words]:
    """Find the keys at some ranks of each row.

    `read` gives all blocks anew for each pass; their codes, if any, are those of rows, 0 for keys that belong to no group. `extents` and
    `ranks` (from 0, ascending) are those of each row: row 0 is about all keys, the others about those of one group. Raises `DataError`: the
    blocks are not those that `extents` is about, or differ from pass to pass.
    """
    if not extents.counts[0, 0]:
        return [np.zeros(0, np.uint64) for _ in ranks]
    search = _Search(read, extents, ranks)
    search.count_first()
    while search.cells.sizes.sum() > MOST_COLLECTED:
        search.count_cells()
    if len(search.cells.sizes):
        search.collect()
    return np.split(search.answers, np.cumsum([len(of_row) for of_row in ranks])[:-1])


@dataclass(frozen=True, eq=False)
class _Cells:
    """Ranges of keys that are counted apart, (n,) each, in the order of row and key."""

    rows: Positions  # to which the keys belong
    low: Words  # least key; the range lies inside of one bin of the first pass
    high: Words  # greatest key
    below: Ints  # how many keys of the row lie below
    sizes: Ints  # how many keys it has


class _Search:
    """Where the requested order statistics are known to lie, ever closer from pass to pass."""

    def __init__(self, read: Callable[[], Iterable[Block]], extents: Extents, ranks: list[Ints]) -> None:
        """Begin with one cell per row, over all keys."""
        rows, keys = len(ranks), int(extents.counts[0, 0])
        low, high = extents.bounds[0]
        shift = _shift(int(high - low), _power_of_two(min(MOST_COUNTERS // rows, 4 * keys), 2))
        self._read = read
        self._first: _First = (low, high - low, np.uint64(shift))
        self._shape = rows, (int(high - low) >> shift) + 1  # of the counters of the first pass
        self.cells = _Cells(
            np.arange(rows, dtype=np.int32),
            np.full(rows, low),
            np.full(rows, high),
            np.zeros(rows, np.int64),
            extents.counts[:, 0].astype(np.int64),
        )
        self._ranks = np.concatenate(ranks).astype(np.int64)
        self._cell_of = np.repeat(np.arange(rows), [len(of_row) for of_row in ranks])  # -1: it is answered
        self.answers = np.zeros(len(self._ranks), np.uint64)

    def count_first(self) -> None:
        """Count in the bins that all rows share."""
        counts = np.zeros(self._shape, np.int64)
        for keys, codes in self._read():
            _count_first(keys, codes, self._first, counts)
        counts[0] = counts.sum(axis=0)
        self._narrow(counts, np.full(len(counts), self._first[2]), self.cells.low, self.cells.high)

    def count_cells(self) -> None:
        """Count inside of the cells, in as many bins as leave few enough keys to collect, since few counters stay in the cache."""
        cells = self.cells
        count = len(cells.sizes)
        most = min(MOST_COUNTERS // count, 8 * int(cells.sizes.sum()) // MOST_COLLECTED)
        bins = _power_of_two(most, LEAST_BINS)
        shifts = np.array([_shift(span, bins) for span in (cells.high - cells.low).tolist()], np.uint64)
        counts = np.zeros((count, bins), np.int64)
        least, greatest = np.full(count, ~np.uint64(0)), np.zeros(count, np.uint64)
        tables = self._tables()
        for keys, codes in self._read():
            _count_cells(keys, codes, self._first, *tables, shifts, counts, least, greatest)
        self._narrow(counts, shifts, least, greatest)

    def collect(self) -> None:
        """Collect the keys of all cells, and answer what is left."""
        cells = self.cells
        stops = np.cumsum(cells.sizes)
        starts = stops - cells.sizes
        ends = starts.copy()
        collected = np.empty(int(stops[-1]), np.uint64)
        tables = self._tables()
        for keys, codes in self._read():
            _collect_cells(keys, codes, self._first, *tables, ends, stops, collected)
        _check(ends - starts, cells.sizes)
        for of_row in np.split(collected, starts[1:][np.diff(cells.rows) > 0]):
            of_row.sort()  # the cells of a row lie in the order of their keys, so each is sorted where it lies
        is_open = self._cell_of >= 0
        own = self._cell_of[is_open]
        self.answers[is_open] = collected[starts[own] + self._ranks[is_open] - cells.below[own]]

    def _narrow(self, counts: Counts, shifts: Words, least: Words, greatest: Words) -> None:
        """Make cells of the bins that hold the requested ranks, given what a pass has counted in each cell, (n, bins)."""
        cells, width = self.cells, counts.shape[1]
        _check(counts.sum(axis=1), cells.sizes)
        before = np.cumsum(cells.sizes) - cells.sizes  # keys of the cells before each
        sums = counts.ravel().cumsum()
        is_open = self._cell_of >= 0
        own = self._cell_of[is_open]
        ranks = self._ranks[is_open] - cells.below[own] + before[own]
        bins, which = np.unique(np.searchsorted(sums, ranks, "right"), return_inverse=True)
        parents = bins // width
        shift = shifts[parents]
        low = cells.low[parents] + ((bins % width).astype(np.uint64) << shift)
        last = (np.uint64(1) << shift) - np.uint64(1)
        high = low + np.minimum(last, greatest[parents] - low)  # the last bin may end behind the last integer
        low = np.maximum(low, least[parents])
        sizes = counts.ravel()[bins]
        below = cells.below[parents] + sums[bins] - sizes - before[parents]
        is_left = low < high
        self.answers[is_open] = low[which]
        self._cell_of[is_open] = np.where(is_left, np.cumsum(is_left) - 1, -1)[which]
        rows = cells.rows[parents]
        self.cells = _Cells(*(column[is_left] for column in (rows, low, high, below, sizes)))

    def _tables(self) -> tuple[Positions, Words, Words, Bools]:
        """Return the first cell of each row and first bin, (rows, bins), -1 where there is none; bounds of cells; which have a next one there, (n,)."""
        cells = self.cells
        low, _, shift = self._first
        bins = ((cells.low - low) >> shift).astype(np.int64)
        table = np.full(self._shape, -1, np.int32)
        # backwards: the first of several cells in one bin is written last
        table[cells.rows[::-1], bins[::-1]] = np.arange(len(bins) - 1, -1, -1, dtype=np.int32)
        has_next = np.append((np.diff(cells.rows) == 0) & (np.diff(bins) == 0), False)
        return table, cells.low, cells.high, has_next


def _power_of_two(number: int, least: int) -> int:
    """Return the power of two at or below `number`, from `least` to `MOST_BINS`, which are powers of two."""
    return min(max(1 << (max(number, 1).bit_length() - 1), least), MOST_BINS)


def _shift(span: int, bins: int) -> int:
    """Return how many bits of a key its bins forget, so that there are at most `bins`, a power of two."""
    return max(0, span.bit_length() - (bins.bit_length() - 1))


def _check(found: Ints, expected: Ints) -> None:
    if not np.array_equal(found, expected):
        raise DataError(
            f"a pass over the values found {int(found.sum()):,} of them, the one before {int(expected.sum()):,}; expected the same values "
            "each time. Run the same command again with --overwrite."
        )


# ------------------------------------------------------------------------------------------------ one pass over some keys


@kernel
def _count_first(keys: Words, codes: Codes, first: _First, counts: Counts) -> None:
    """Count keys per row and bin, (rows, bins); without `codes` all in row 0, else each in the row of its code alone."""
    low, span, shift = first
    if codes.size == 0:
        for i in range(keys.size):
            if keys[i] - low <= span:
                counts[0, np.int64((keys[i] - low) >> shift)] += 1
        return
    for i in range(keys.size):
        if keys[i] - low <= span:
            counts[codes[i], np.int64((keys[i] - low) >> shift)] += 1


@kernel
def _cell_of(key: np.uint64, cell: Int, low: Words, high: Words, has_next: Bools) -> Int:
    """Return the cell from `cell` on in the same row and first bin that holds `key`, or -1."""
    while cell >= 0 and low[cell] <= key:
        if key <= high[cell]:
            return cell
        cell = cell + 1 if has_next[cell] else -1
    return -1


@kernel
def _count(
    key: np.uint64, cell: Int, low: Words, shifts: Words, counts: Counts, least: Words, greatest: Words
) -> None:
    counts[cell, np.int64((key - low[cell]) >> shifts[cell])] += 1
    if key < least[cell]:
        least[cell] = key
    if key > greatest[cell]:
        greatest[cell] = key


@kernel
def _count_cells(
    keys: Words,
    codes: Codes,
    first: _First,
    table: Positions,
    low: Words,
    high: Words,
    has_next: Bools,
    shifts: Words,
    counts: Counts,
    least: Words,
    greatest: Words,
) -> None:
    """Count the keys in each cell by bins of its own, (n, bins), and find its least and greatest key, (n,)."""
    for i in range(keys.size):
        key = keys[i]
        if key - first[0] > first[1]:
            continue
        at = np.int64((key - first[0]) >> first[2])
        cell = _cell_of(key, np.int64(table[0, at]), low, high, has_next)
        if cell >= 0:
            _count(key, cell, low, shifts, counts, least, greatest)
        if codes.size > 0 and codes[i] > 0:
            cell = _cell_of(key, np.int64(table[codes[i], at]), low, high, has_next)
            if cell >= 0:
                _count(key, cell, low, shifts, counts, least, greatest)


@kernel
def _append(key: np.uint64, cell: Int, ends: Counts, stops: Counts, out: Words) -> None:
    if ends[cell] < stops[cell]:
        out[ends[cell]] = key
    ends[cell] += 1


@kernel
def _collect_cells(
    keys: Words,
    codes: Codes,
    first: _First,
    table: Positions,
    low: Words,
    high: Words,
    has_next: Bools,
    ends: Counts,
    stops: Counts,
    out: Words,
) -> None:
    """Append the keys of each cell to its part of `out`, up to ``stops[cell]``; ``ends[cell]`` is where the next one goes."""
    for i in range(keys.size):
        key = keys[i]
        if key - first[0] > first[1]:
            continue
        at = np.int64((key - first[0]) >> first[2])
        cell = _cell_of(key, np.int64(table[0, at]), low, high, has_next)
        if cell >= 0:
            _append(key, cell, ends, stops, out)
        if codes.size > 0 and codes[i] > 0:
            cell = _cell_of(key, np.int64(table[codes[i], at]), low, high, has_next)
            if cell >= 0:
                _append(key, cell, ends, stops, out)
