"""The three passes over keys that find order statistics: count in equal bins, count again inside of the bins that matter, collect.

A *row* of the tables is a group of documents: row 0 all of them, the others those with one label. All rows share the bins of the first
pass; a *cell* is a range of keys inside of one such bin for one row, with bins of its own. Cells lie in the order of row and key.

Cost per key: 1.5 ns for the first pass, 2 to 4 ns for the others, twice the table look-ups if there are groups.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dolma_dask.rules.ordered_bits import Codes
from dolma_dask.text.kernels import Bools, Counts, Int, Positions, Words, kernel

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class FirstBins:
    """The bins of the first pass: ``(key - low) >> shift`` for keys from `low` to `high`."""

    # least and greatest key
    low: int
    high: int
    shift: int  # bits of a key that a bin forgets

    @classmethod
    def over(cls, low: int, high: int, most: int) -> "FirstBins":
        """Return the finest bins of which there are at most `most`, a power of two."""
        return cls(low, high, max(0, (high - low).bit_length() - (most.bit_length() - 1)))

    @property
    def count(self) -> int:
        """Number of bins."""
        return ((self.high - self.low) >> self.shift) + 1


@dataclass(frozen=True, eq=False)
class Cells:
    """Ranges of keys that are counted apart, in the order of row and key."""

    rows: Rows  # (n,) Whose keys
    # (n,) Least and greatest key of the range; inside of one bin of the first pass
    low: Words
    high: Words

    def __len__(self) -> int:
        return len(self.rows)

    def table(self, bins: FirstBins, rows: int) -> Positions:
        """Return the first cell of each row and first bin, (rows, bins); -1 where there is none."""
        table = np.full((rows, bins.count), -1, np.int32)
        places = self._bins(bins)
        # backwards: the first of several cells in one place is written last
        table[self.rows[::-1], places[::-1]] = np.arange(len(self) - 1, -1, -1, dtype=np.int32)
        return table

    def has_next(self, bins: FirstBins) -> Bools:
        """Tell for each cell whether the next one lies in the same row and first bin, (n,)."""
        places = self._bins(bins)
        same = np.zeros(len(self), np.bool_)
        same[:-1] = (self.rows[1:] == self.rows[:-1]) & (places[1:] == places[:-1])
        return same

    def _bins(self, bins: FirstBins) -> npt.NDArray[np.int64]:
        return ((self.low - np.uint64(bins.low)) >> np.uint64(bins.shift)).astype(np.int64)


@kernel
def count_first(
    keys: Words, codes: Codes, low: np.uint64, span: np.uint64, shift: np.uint64, counts: Counts
) -> None:
    """Count keys per row and bin, (rows, bins); without `codes` all in row 0, else each in the row of its code alone."""
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
    while low[cell] <= key:
        if key <= high[cell]:
            return cell
        if not has_next[cell]:
            return -1
        cell += 1
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
def count_cells(
    keys: Words,
    codes: Codes,
    first: tuple[np.uint64, np.uint64, np.uint64],
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
        place = np.int64((key - first[0]) >> first[2])
        cell: Int = np.int64(table[0, place])
        if cell >= 0:
            cell = _cell_of(key, cell, low, high, has_next)
            if cell >= 0:
                _count(key, cell, low, shifts, counts, least, greatest)
        if codes.size == 0:
            continue
        row = np.int64(codes[i])
        if row > 0:
            cell = np.int64(table[row, place])
            if cell >= 0:
                cell = _cell_of(key, cell, low, high, has_next)
                if cell >= 0:
                    _count(key, cell, low, shifts, counts, least, greatest)


@kernel
def _append(key: np.uint64, cell: Int, ends: Counts, stops: Counts, out: Words) -> None:
    if ends[cell] < stops[cell]:
        out[ends[cell]] = key
    ends[cell] += 1


@kernel
def collect_cells(
    keys: Words,
    codes: Codes,
    first: tuple[np.uint64, np.uint64, np.uint64],
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
        place = np.int64((key - first[0]) >> first[2])
        cell: Int = np.int64(table[0, place])
        if cell >= 0:
            cell = _cell_of(key, cell, low, high, has_next)
            if cell >= 0:
                _append(key, cell, ends, stops, out)
        if codes.size == 0:
            continue
        row = np.int64(codes[i])
        if row > 0:
            cell = np.int64(table[row, place])
            if cell >= 0:
                cell = _cell_of(key, cell, low, high, has_next)
                if cell >= 0:
                    _append(key, cell, ends, stops, out)


@kernel
def find_bins(sums: Counts, rows: Counts, ranks: Counts, out: Counts) -> None:
    """Find the bin that holds a rank: the first of row ``rows[i]`` whose running sum, (n_rows, bins), is above ``ranks[i]``."""
    for i in range(rows.size):
        row, rank = rows[i], ranks[i]
        start, stop = 0, sums.shape[1]
        while start < stop:
            middle = (start + stop) // 2
            if sums[row, middle] > rank:
                stop = middle
            else:
                start = middle + 1
        out[i] = start


@kernel
def select_in_small(
    keys: Words, starts: Counts, stops: Counts, firsts: Counts, ranks: Counts, most: Int, out: Words
) -> None:
    """Put the keys of cells of at most `most` in order, and give those at the ranks ``firsts[cell]`` to ``firsts[cell + 1]`` to `out`."""
    for cell in range(starts.size):
        start, stop = starts[cell], stops[cell]
        if stop - start > most:
            continue
        for at in range(start + 1, stop):
            key, place = keys[at], at
            while place > start and keys[place - 1] > key:
                keys[place] = keys[place - 1]
                place -= 1
            keys[place] = key
        for i in range(firsts[cell], firsts[cell + 1]):
            out[i] = keys[start + ranks[i]]
