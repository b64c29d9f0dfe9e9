"""Exact order statistics of more values than fit into memory, for many groups at once: a few passes over keys, none of them sorted.

The first pass counts in bins that cover the range of all keys; the bins in which wanted order statistics lie become cells, and further
passes count inside of the cells until each holds one distinct key, or so few keys are left that they can be collected. Counts and
keys are integers, so the result depends on the values alone, not on how they were cut into blocks.

Two passes for whole numbers with many ties, three for real numbers: 6 ns per value without groups, 11 with a few, 70 with 1,000 whose rows
alternate. Memory: `MOST_COUNTERS` counters, as much again in tables, and `MOST_COLLECTED` keys.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import DataError
from dolma_dask.rules.ordered_bits import Codes, Extents
from dolma_dask.text.kernels import Bools, Counts, Positions, Words
from dolma_dask.verbs.quantiles.refinement import (
    Cells,
    FirstBins,
    collect_cells,
    count_cells,
    count_first,
    find_bins,
    select_in_small,
)

MOST_COUNTERS = 1 << 22
"""Counters of one pass, 8 bytes each, shared by all cells."""

MOST_BINS = 1 << 16
"""Bins of one cell."""

LEAST_BINS = 1 << 7
"""Bins that a cell has at least."""

MOST_COLLECTED = 1 << 20
"""Keys that are collected instead of being counted further."""

SMALL_CELL = 128
"""Keys of a cell that are put in order by comparing neighbours, which beats a call per cell as long as they are few."""

Block = tuple[Words, Codes]
"""Keys of consecutive documents, and the row of the tables that each belongs to besides row 0 (or none at all)."""

Ints = npt.NDArray[np.int64]


@dataclass(eq=False)
class _Search:
    """Where the wanted order statistics are known to lie.

    ``wanted_*`` describe the wanted ranks, (n_wanted,): the cell they lie in, or -1 when ``answers`` has the key; the others the cells.
    """

    wanted_ranks: Ints
    wanted_cells: Ints
    answers: Words
    cells: Cells
    below: Ints
    sizes: Ints


def order_statistics(read: Callable[[], Iterable[Block]], extents: Extents, ranks: list[Ints]) -> list[Words]:
    """Find the keys at some ranks of each row.

    Raises `DataError`: the blocks are not those that `extents` is about, or differ from pass to pass.

    Parameters
    ----------
    read : callable
        Gives all blocks anew for each pass; their codes, if any, are those of rows, 0 for keys that belong to no group.
    extents : Extents
        Of each row: row 0 is about all keys, the others about those of one group.
    ranks : list of ndarray of int64
        For each row the wanted ranks, from 0, ascending.

    Returns
    -------
    list of ndarray of uint64
        For each row the keys at these ranks.
    """
    if not extents.counts[0, 0]:
        return [np.zeros(0, np.uint64) for _ in ranks]
    most = _first_bins(len(ranks), int(extents.counts[0, 0]))
    bins = FirstBins.over(int(extents.bounds[0, 0]), int(extents.bounds[0, 1]), most)
    passes = _Passes(read, bins, len(ranks))
    search = passes.begun(_begin(extents, ranks))
    while len(search.cells) and search.sizes.sum() > MOST_COLLECTED:
        search = passes.narrowed(search)
    if len(search.cells):
        passes.collected(search)
    cuts = np.cumsum([len(wanted) for wanted in ranks])[:-1]
    return np.split(search.answers, cuts)


def _power_of_two(number: int, least: int, most: int) -> int:
    """Return the power of two at or below `number`, within limits that are powers of two."""
    return min(max(1 << (max(number, 1).bit_length() - 1), least), most)


def _first_bins(rows: int, keys: int) -> int:
    """Return how many bins each row may have in the first pass: few keys need few."""
    return _power_of_two(min(MOST_COUNTERS // rows, 4 * keys), 2, MOST_BINS)


def _inner_bins(cells: int, keys: int) -> int:
    """Return how many bins a cell gets: as many as leave few enough keys to collect, since few counters stay in the cache."""
    return _power_of_two(min(MOST_COUNTERS // cells, 8 * keys // MOST_COLLECTED), LEAST_BINS, MOST_BINS)


def _begin(extents: Extents, ranks: list[Ints]) -> _Search:
    """Return a search with one cell per row, over all keys."""
    count = len(ranks)
    low, high = extents.bounds[0]
    cells = Cells(
        np.arange(count, dtype=np.int32), np.full(count, low, np.uint64), np.full(count, high, np.uint64)
    )
    rows = np.repeat(np.arange(count), [len(wanted) for wanted in ranks])
    wanted = np.concatenate(ranks).astype(np.int64)
    sizes = extents.counts[:, 0].astype(np.int64)
    return _Search(wanted, rows, np.zeros(len(wanted), np.uint64), cells, np.zeros(count, np.int64), sizes)


def _check(found: Ints, expected: Ints) -> None:
    if not np.array_equal(found, expected):
        raise DataError(
            f"a pass over the values found {int(found.sum()):,} of them, the one before {int(expected.sum()):,}; expected the same values "
            "each time. Run the same command again with --overwrite."
        )


def _narrow(search: _Search, counts: Counts, shifts: Words, least: Words, greatest: Words) -> _Search:
    """Return the search in the bins that hold the wanted ranks, given what a pass has counted in each cell."""
    is_open = search.wanted_cells >= 0
    parents = search.wanted_cells[is_open]
    sums = counts.cumsum(axis=1)
    inside = search.wanted_ranks[is_open] - search.below[parents]
    bins = np.empty(len(parents), np.int64)
    find_bins(sums, parents, inside, bins)
    width = counts.shape[1]
    narrower, which = np.unique(parents * width + bins, return_inverse=True)
    parents, bins = narrower // width, narrower % width
    shift = shifts[parents]
    low = search.cells.low[parents] + (bins.astype(np.uint64) << shift)
    last = (np.uint64(1) << shift) - np.uint64(1)
    high = low + np.minimum(last, greatest[parents] - low)  # the last bin may end behind the last integer
    low = np.maximum(low, least[parents])
    sizes = counts[parents, bins]
    below = search.below[parents] + sums[parents, bins] - sizes
    answers, wanted_cells = search.answers.copy(), search.wanted_cells.copy()
    is_known = low == high
    answers[np.flatnonzero(is_open)] = low[which]
    numbers = np.where(is_known, -1, np.cumsum(~is_known) - 1)
    wanted_cells[is_open] = numbers[which]
    left = ~is_known
    cells = Cells(search.cells.rows[parents][left], low[left], high[left])
    return _Search(search.wanted_ranks, wanted_cells, answers, cells, below[left], sizes[left])


class _Passes:
    """Passes over the keys that `read` gives anew for each, in first bins that all `count` rows share."""

    def __init__(self, read: Callable[[], Iterable[Block]], bins: FirstBins, count: int) -> None:
        self._read = read
        self._bins = bins
        self._count = count
        self._first = (np.uint64(bins.low), np.uint64(bins.high - bins.low), np.uint64(bins.shift))

    def begun(self, search: _Search) -> _Search:
        """Count in the bins that all rows share, and return the narrower search."""
        counts = np.zeros((self._count, self._bins.count), np.int64)
        for keys, codes in self._read():
            count_first(keys, codes, *self._first, counts)
        counts[0] = counts.sum(axis=0)
        _check(counts.sum(axis=1), search.sizes)
        shifts = np.full(self._count, self._bins.shift, np.uint64)
        return _narrow(search, counts, shifts, search.cells.low, search.cells.high)

    def narrowed(self, search: _Search) -> _Search:
        """Count inside of the cells of a search, and return the narrower one."""
        cells = search.cells
        bins = _inner_bins(len(cells), int(search.sizes.sum()))
        shifts = _shifts(cells, bins)
        counts = np.zeros((len(cells), bins), np.int64)
        least, greatest = np.full(len(cells), ~np.uint64(0)), np.zeros(len(cells), np.uint64)
        where = self._where(cells)
        for keys, codes in self._read():
            count_cells(keys, codes, self._first, *where, shifts, counts, least, greatest)
        _check(counts.sum(axis=1), search.sizes)
        return _narrow(search, counts, shifts, least, greatest)

    def collected(self, search: _Search) -> None:
        """Collect the keys of all cells of a search, and answer what is left."""
        stops = np.cumsum(search.sizes)
        starts = stops - search.sizes
        ends = starts.copy()
        out = np.empty(int(stops[-1]), np.uint64)
        where = self._where(search.cells)
        for keys, codes in self._read():
            collect_cells(keys, codes, self._first, *where, ends, stops, out)
        _check(ends - starts, search.sizes)
        wanted = np.argsort(search.wanted_cells, kind="stable")
        firsts = np.searchsorted(search.wanted_cells[wanted], np.arange(len(stops) + 1))
        ranks = search.wanted_ranks[wanted] - search.below[search.wanted_cells[wanted]]
        found = np.empty(len(wanted), np.uint64)
        select_in_small(out, starts, stops, firsts, ranks, SMALL_CELL, found)
        for cell in np.flatnonzero(search.sizes > SMALL_CELL):
            mine = slice(firsts[cell], firsts[cell + 1])
            part = out[starts[cell] : stops[cell]]
            part.partition(ranks[mine])
            found[mine] = part[ranks[mine]]
        is_open = search.wanted_cells[wanted] >= 0
        search.answers[wanted[is_open]] = found[is_open]

    def _where(self, cells: Cells) -> tuple[Positions, Words, Words, Bools]:
        return cells.table(self._bins, self._count), cells.low, cells.high, cells.has_next(self._bins)


def _shifts(cells: Cells, bins: int) -> Words:
    """Return for each cell the bits of a key that its bins forget, (n,)."""
    spans = (cells.high - cells.low).tolist()
    width = bins.bit_length() - 1
    return np.array([max(0, span.bit_length() - width) for span in spans], np.uint64)
