"""Exact order statistics of more values than fit into memory, for many groups at once: a few passes over keys.

A *row* of the tables is a group of documents: row 0 all of them, the others those with one label. Rows with few keys are collected and sorted.
For the others, a first pass counts in bins that all rows share (`bins`); those in which requested order statistics lie become *cells*, ranges of
keys of one row, and further passes count inside of them, each in bins of its own, until each holds one distinct key, or so few keys are left
that they can be collected. Cells lie in the order of row and key. Counts and keys are integers, so the result depends on the values alone, not
on how they were cut into blocks nor on the sample that makes the bins.

Two passes, rarely three: 6 ns per value without groups and with a few, 10 with 1,000 whose rows alternate. Memory: `MAX_COUNTERS` counters, as
much again in tables, and `MAX_COLLECTED` keys, or `MAX_SORTED` keys, and a block.
"""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.rules.ordered_bits import NULL, Extents
from dolma_dask.text.kernels import Bools, Counts, Int, Positions, Words, kernel
from dolma_dask.verbs.quantiles.bins import Bins, bin_of, make_bins, shift_of

MAX_COUNTERS = 1 << 22
"""Counters of one pass, 8 bytes each, shared by all cells."""

MAX_BINS = 1 << 16
"""Bins of one cell."""

MIN_BINS = 1 << 7
"""Bins that a cell has at least."""

MAX_COLLECTED = 1 << 21
"""Keys that are collected instead of being counted further."""

MAX_SORTED = 1 << 22
"""Keys of small rows that are collected whole and sorted, instead of being counted at all."""

_NULL = np.uint64(NULL)

Ints = npt.NDArray[np.int64]


class KeyBlock(Struct, frozen=True, eq=False):
    """Keys of some segments: those of a row of the tables stand together in each."""

    keys: Words
    starts: Ints  # (segments, rows) where the keys of each row start; those that belong to row 0 alone in its column
    stops: Ints  # (segments, rows) and where they stop


Read = Callable[[], Iterable[KeyBlock]]
"""Reads all keys anew for each pass."""


def order_statistics(read: Read, sample: Callable[[], Words], extents: Extents, ranks: Ints) -> Words:
    """Find the keys at some ranks of each row, (rows, ranks); 0 where a row has no keys.

    `extents` and `ranks` (from 0, in any order) are those of each row: row 0 is about all keys, the others about those of one group. `sample`
    returns some of all keys, where many are. Raises `DataError`: the blocks are not those that `extents` is about, or differ from pass to pass.
    """
    sizes = extents.counts[:, 0]
    answers = np.zeros(ranks.shape, np.uint64)
    by_size = np.append(np.argsort(sizes[1:], kind="stable") + 1, 0)  # row 0, which is the largest, last
    is_small = np.zeros(len(sizes), np.bool_)
    is_small[by_size] = np.cumsum(sizes[by_size]) <= MAX_SORTED
    if sizes[is_small].any():
        _sort(read, sizes, is_small, ranks, answers)
    if not is_small.all():
        rows = np.flatnonzero(~is_small)
        answers[rows] = _search(_Search(read, sample(), extents, rows, ranks[rows]))
    return answers


def _sort(read: Read, sizes: Ints, is_small: Bools, ranks: Ints, answers: Words) -> None:
    """Answer for the small rows, by sorting their keys."""
    sizes = np.where(is_small, sizes, 0)
    stops = np.cumsum(sizes)
    starts = stops - sizes
    ends, collected = starts.copy(), np.empty(int(stops[-1]), np.uint64)
    for block in read():
        _collect_rows(block.keys, block.starts, block.stops, is_small, ends, stops, collected)
    _check(ends - starts, sizes)
    for row in np.flatnonzero(sizes).tolist():
        keys = collected[starts[row] : stops[row]]
        keys.sort()
        answers[row] = keys[ranks[row]]


def _search(search: "_Search") -> Words:
    """Return the keys at the ranks."""
    search.count_first()
    while search.cells.sizes.sum() > MAX_COLLECTED:
        search.count_cells()
    if len(search.cells.sizes):
        search.collect()
    return search.answers.reshape(search.ranks.shape)


class _Cells(Struct, frozen=True, eq=False):
    """Ranges of keys that are counted apart, (n,) each, in the order of row and key."""

    rows: Positions  # to which the keys belong
    low: Words  # least key; the range lies inside of one bin of the first pass
    high: Words  # greatest key
    below: Ints  # how many keys of the row lie below
    sizes: Ints  # how many keys it has


class _Search:
    """Ranges in which the requested order statistics lie, ever closer from pass to pass."""

    def __init__(self, read: Read, sample: Words, extents: Extents, rows: Ints, ranks: Ints) -> None:
        """Begin with one cell for each of some rows, of which row 0 is the first, over all keys."""
        count, (low, high) = len(rows), extents.bounds[0]
        self._read = read
        self._bins, self._least = make_bins(low, high, sample, min(MAX_COUNTERS // count, MAX_BINS))
        self._own = np.zeros(len(extents.counts), np.int64)  # number of each row here; 0: not searched
        self._own[rows] = np.arange(count)
        self.cells = _Cells(
            np.arange(count, dtype=np.int32),
            np.full(count, low),
            np.full(count, high),
            np.zeros(count, np.int64),
            extents.counts[rows, 0],
        )
        self.ranks, self._ranks = ranks, ranks.ravel()
        self._cell_of = np.repeat(np.arange(count), ranks.shape[1])  # -1: it is answered
        self.answers = np.zeros(len(self._ranks), np.uint64)

    def count_first(self) -> None:
        """Count in the bins that all rows share."""
        counts = np.zeros((len(self.cells.sizes), len(self._least)), np.int64)
        for block in self._read():
            _count_first(block.keys, block.starts, block.stops, self._own, self._bins, counts)
        counts[0] = counts.sum(axis=0)
        greatest = np.append(self._least[1:] - np.uint64(1), self.cells.high[0])
        self._narrow(
            counts, lambda _, bins: (self._least[bins], np.minimum(greatest[bins], self.cells.high[0]))
        )

    def count_cells(self) -> None:
        """Count inside of the cells, in as many bins as leave few enough keys to collect, since few counters stay in the cache."""
        cells = self.cells
        count = len(cells.sizes)
        most = min(MAX_COUNTERS // count, 8 * int(cells.sizes.sum()) // MAX_COLLECTED)
        bins = _power_of_two(most, MIN_BINS)
        shifts = np.array([shift_of(span, bins) for span in (cells.high - cells.low).tolist()], np.uint64)
        counts = np.zeros((count, bins), np.int64)
        least, greatest = np.full(count, ~np.uint64(0)), np.zeros(count, np.uint64)
        tables = self._tables()
        for block in self._read():
            places = block.starts, block.stops, self._own, self._bins
            _count_cells(block.keys, *places, *tables, shifts, counts, least, greatest)

        def bounds(parents: Ints, bins: Ints) -> tuple[Words, Words]:
            shift = shifts[parents]
            low = cells.low[parents] + (bins.astype(np.uint64) << shift)
            last = (np.uint64(1) << shift) - np.uint64(1)
            high = low + np.minimum(
                last, greatest[parents] - low
            )  # the last bin may end behind the last integer
            return np.maximum(low, least[parents]), high

        self._narrow(counts, bounds)

    def collect(self) -> None:
        """Collect the keys of all cells, and answer what is left."""
        cells = self.cells
        stops = np.cumsum(cells.sizes)
        starts = stops - cells.sizes
        ends = starts.copy()
        collected = np.empty(int(stops[-1]), np.uint64)
        tables = self._tables()
        for block in self._read():
            places = block.starts, block.stops, self._own, self._bins
            _collect_cells(block.keys, *places, *tables, ends, stops, collected)
        _check(ends - starts, cells.sizes)
        for of_row in np.split(collected, starts[1:][np.diff(cells.rows) > 0]):
            of_row.sort()  # the cells of a row lie in the order of their keys, so each is sorted where it lies
        is_open = self._cell_of >= 0
        own = self._cell_of[is_open]
        self.answers[is_open] = collected[starts[own] + self._ranks[is_open] - cells.below[own]]

    def _narrow(self, counts: Counts, bounds: Callable[[Ints, Ints], tuple[Words, Words]]) -> None:
        """Make cells of the bins that hold the requested ranks, given what a pass has counted in each cell, (n, bins); `bounds` are those of bins."""
        cells, width = self.cells, counts.shape[1]
        _check(counts.sum(axis=1), cells.sizes)
        before = np.cumsum(cells.sizes) - cells.sizes  # keys of the cells before each
        sums = counts.ravel().cumsum()
        is_open = self._cell_of >= 0
        own = self._cell_of[is_open]
        ranks = self._ranks[is_open] - cells.below[own] + before[own]
        bins, which = np.unique(np.searchsorted(sums, ranks, "right"), return_inverse=True)
        parents = bins // width
        low, high = bounds(parents, bins % width)
        sizes = counts.ravel()[bins]
        below = cells.below[parents] + sums[bins] - sizes - before[parents]
        is_left = low < high
        self.answers[is_open] = low[which]
        self._cell_of[is_open] = np.where(is_left, np.cumsum(is_left) - 1, -1)[which]
        self.cells = _Cells(
            cells.rows[parents][is_left], low[is_left], high[is_left], below[is_left], sizes[is_left]
        )

    def _tables(self) -> tuple[Positions, Words, Words, Bools]:
        """Return the first cell of each row and first bin, (rows, bins), -1 where there is none; bounds of cells; which have a next one there, (n,)."""
        cells = self.cells
        bins = np.searchsorted(self._least, cells.low, "right") - 1
        table = np.full((int(self._own.max()) + 1, len(self._least)), -1, np.int32)
        # backwards: the first of several cells in one bin is written last
        table[cells.rows[::-1], bins[::-1]] = np.arange(len(bins) - 1, -1, -1, dtype=np.int32)
        has_next = np.append((np.diff(cells.rows) == 0) & (np.diff(bins) == 0), False)
        return table, cells.low, cells.high, has_next


def _power_of_two(number: int, least: int) -> int:
    """Return the power of two at or below `number`, from `least` to `MAX_BINS`, which are powers of two."""
    return min(max(1 << (max(number, 1).bit_length() - 1), least), MAX_BINS)


def _check(found: Ints, expected: Ints) -> None:
    if not np.array_equal(found, expected):
        raise DataError(
            f"a pass over the values found {int(found.sum()):,} of them, the one before {int(expected.sum()):,}; expected the same values "
            "each time. Run the same command again with --overwrite."
        )


# ------------------------------------------------------------------------------------------------ one pass over some keys


@kernel
def _collect_rows(
    keys: Words, starts: Ints, stops: Ints, is_small: Bools, ends: Counts, limits: Counts, out: Words
) -> None:
    """Append the keys of each small row to its part of `out`, up to ``limits[row]``; ``ends[row]`` is where the next one goes."""
    for row in range(ends.size):
        for segment in range(len(starts)):
            start, stop = starts[segment, row], stops[segment, row]
            if is_small[row]:
                _append_keys(keys, start, stop, row, ends, limits, out)
            if is_small[0] and row > 0:
                _append_keys(keys, start, stop, 0, ends, limits, out)


@kernel
def _append_keys(
    keys: Words, start: Int, stop: Int, row: Int, ends: Counts, limits: Counts, out: Words
) -> None:
    end = ends[row]
    for i in range(start, stop):
        if keys[i] != _NULL:
            if end < limits[row]:
                out[end] = keys[i]
            end += 1
    ends[row] = end


@kernel
def _count_first(keys: Words, starts: Ints, stops: Ints, own: Ints, bins: Bins, counts: Counts) -> None:
    """Count the keys of each row in its own bins alone, (rows, bins)."""
    for row in range(own.size):
        for segment in range(len(starts)):
            for i in range(starts[segment, row], stops[segment, row]):
                at = bin_of(keys[i], bins)
                if at >= 0:
                    counts[own[row], at] += 1


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
    starts: Ints,
    stops: Ints,
    own: Ints,
    bins: Bins,
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
    for row in range(own.size):
        for segment in range(len(starts)):
            for i in range(starts[segment, row], stops[segment, row]):
                key = keys[i]
                at = bin_of(key, bins)
                if at < 0:
                    continue
                cell = _cell_of(key, np.int64(table[0, at]), low, high, has_next)
                if cell >= 0:
                    _count(key, cell, low, shifts, counts, least, greatest)
                if own[row] > 0:
                    cell = _cell_of(key, np.int64(table[own[row], at]), low, high, has_next)
                    if cell >= 0:
                        _count(key, cell, low, shifts, counts, least, greatest)


@kernel
def _append(key: np.uint64, cell: Int, ends: Counts, limits: Counts, out: Words) -> None:
    if ends[cell] < limits[cell]:
        out[ends[cell]] = key
    ends[cell] += 1


@kernel
def _collect_cells(
    keys: Words,
    starts: Ints,
    stops: Ints,
    own: Ints,
    bins: Bins,
    table: Positions,
    low: Words,
    high: Words,
    has_next: Bools,
    ends: Counts,
    limits: Counts,
    out: Words,
) -> None:
    """Append the keys of each cell to its part of `out`, up to ``limits[cell]``; ``ends[cell]`` is where the next one goes."""
    for row in range(own.size):
        for segment in range(len(starts)):
            for i in range(starts[segment, row], stops[segment, row]):
                key = keys[i]
                at = bin_of(key, bins)
                if at < 0:
                    continue
                cell = _cell_of(key, np.int64(table[0, at]), low, high, has_next)
                if cell >= 0:
                    _append(key, cell, ends, limits, out)
                if own[row] > 0:
                    cell = _cell_of(key, np.int64(table[own[row], at]), low, high, has_next)
                    if cell >= 0:
                        _append(key, cell, ends, limits, out)
