"""Records in the order of all their words: in memory, and through sorted runs on disk for what does not fit.

In memory: records come grouped by bucket. Small buckets are taken together and large ones spread over parts, so that each fits the cache; there
the first word that differs is packed with the number of the record into one word, which NumPy sorts (vectorised: 300 M/s on AVX-512, many
times its argsort), and a kernel settles what the packed bits leave open. NumPy's own sort of structured arrays compares field by field and is twenty
times slower. Records of equal keys that come in order stay so, which costs only a look. Through disk: sorted runs in one nameless file, merged
block by block. Of the blocks at hand everything up to the smallest of their last records is safe to give out, since what follows in any run is
not below it.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.exchange import kernels
from dolma_dask.exchange.contract import Words, bytes_of
from dolma_dask.io import files

MIN_BLOCK = 1024
"""Records of a block of a run at least, or reading them would be all seeks."""

PART_BYTES = 1 << 19
"""Bytes of records that are put in order at once: they stay in the cache, where a gather is several times as fast as in memory."""

MAX_PARTS = 4096
"""More parts than this would be written all over memory."""

SEEN_BYTES = 1 << 22
"""Bytes in which words are counted at most: beyond the cache each costs three times as much."""

FEW = 1024
"""Records up to which NumPy's sort by all words costs less than loading the kernels."""


def sort_words(rows: Words, word: int = 0, out: Words | None = None) -> Words:
    """Return rows in order of all words from `word` on; those before must be equal in all rows. They are copied, to `out` if it is given."""
    out = np.empty_like(rows) if out is None else out
    if kernels.is_sorted(rows):
        out[:] = rows
        return out
    word, low, high = _first_that_differs(rows, word)
    bits = (len(rows) - 1).bit_length()
    shift = max((high - low).bit_length() + bits - 64, 0)
    packed = np.empty(len(rows), np.uint64)
    kernels.pack(rows, word, np.uint64(low), shift, bits, packed)
    packed.sort()
    kernels.unpack(rows, packed, bits, out)
    _settle(out, packed, bits, word if shift else word + 1)
    return out


def _first_that_differs(rows: Words, word: int) -> tuple[int, int, int]:
    """Return the first word from `word` on in which rows that are not all equal differ, and its least and greatest value."""
    least, greatest = kernels.extent(rows, word)
    low, high = int(least), int(greatest)
    return (word, low, high) if low < high else _first_that_differs(rows, word + 1)


def _settle(rows: Words, packed: npt.NDArray[np.uint64], bits: int, word: int) -> None:
    if word == rows.shape[1] or kernels.is_settled(rows, packed, bits, word):
        return
    long_runs = np.empty((len(rows) // kernels.LONG_RUN + 1, 2), np.int64)
    count = kernels.settle(rows, packed, bits, word, long_runs)
    for start, end in long_runs[:count].tolist():
        rows[start:end] = sort_words(rows[start:end], word)


def sort_grouped(rows: Words, ends: Sequence[int]) -> None:
    """Put rows in order in their place; each run of them that ends at one of `ends` is not above the next."""
    if len(rows) <= FEW:
        rows[:] = rows[np.lexsort(rows.T[::-1])]
        return
    most = part_of(rows)
    bounds = list(_joined_bounds(ends, most))
    largest = max((end - start for start, end in bounds), default=0)
    beside = np.empty((largest, rows.shape[1]), np.uint64)
    for start, end in bounds:
        _sort_run(rows[start:end], beside[: end - start], most)


def without_lone(rows: Words, ends: npt.NDArray[np.int64]) -> Words:
    """Return the rows, grouped by buckets that end at `ends`, without most of those whose first word no other has.

    They are moved to the front; `ends` are then theirs. 3 ns per row of two words, where putting it in order takes 9.
    """
    if len(rows) <= FEW:
        return rows
    largest = int(np.diff(ends, prepend=0).max())
    seen = np.empty(min(max(8 * largest, 64), SEEN_BYTES), np.uint8)
    return rows[: kernels.drop_lone(rows, ends, seen)]


def part_of(rows: Words) -> int:
    """Return how many rows of this width fit the cache."""
    return max(PART_BYTES // (8 * int(rows.shape[1])), 2)


def _joined_bounds(ends: Sequence[int], max_rows: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of runs, neighbours joined up to `max_rows`; runs of one row are left out."""
    start = last = 0
    for end in (*ends, None):
        if end is None or end - start > max_rows:
            if last - start > 1:
                yield start, last
            start = last
        last = last if end is None else end


def _sort_run(rows: Words, beside: Words, max_rows: int) -> None:
    """Put rows in order in their place, with as much room beside."""
    if kernels.is_sorted(rows):
        return
    ends = [len(rows)]
    if len(rows) <= 2 * max_rows:
        beside[:] = rows
    else:
        ends = _spread(rows, beside, max_rows)
    for start, end in pairwise([0, *ends]):
        sort_words(beside[start:end], 0, rows[start:end])


def _spread(rows: Words, out: Words, max_rows: int) -> list[int]:
    """Spread rows over parts of equal extent of the first word that differs, of about `max_rows` each; return where they end."""
    word, low, high = _first_that_differs(rows, 0)
    bits = min(len(rows) // max_rows, MAX_PARTS).bit_length()
    shift = max((high - low).bit_length() - bits, 0)
    counts = np.zeros(((high - low) >> shift) + 1, np.int64)
    kernels.count_buckets(rows, word, np.uint64(low), shift, counts)
    ends = np.cumsum(counts)
    kernels.spread(rows, word, np.uint64(low), shift, ends - counts, out)
    found: list[int] = ends[counts > 0].tolist()
    return found


def chunks_of(rows: Words, limit: int) -> Iterator[Words]:
    """Yield neighbouring rows, at most `limit` at a time."""
    for start in range(0, len(rows), limit):
        yield rows[start : start + limit]


def sort_spilled(slices: Iterable[Words], limit: int, chunk: int, words: int, folder: str) -> Iterator[Words]:
    """Yield the records of slices (unsorted) in order, at most `chunk` at a time, of which about `limit` are in memory.

    They go through a file: in `folder` if that is local, else where temporary files lie. It has no name and vanishes with its process.
    """
    with _open_spill(folder) as spill:
        runs = _write_runs(spill, slices, np.empty((max(limit // 2, 1), words), np.uint64))
        yield from _merged(spill, runs, limit // 2, chunk)


def joined(parts: list[Words]) -> Words:
    """Return the rows of some arrays as one; without a copy if there is one alone."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _open_spill(folder: str) -> IO[bytes]:
    local = files.local_path(folder) if files.is_local(folder) else None
    return tempfile.TemporaryFile(dir=local, prefix=".spill-", buffering=0)


class _Run(Struct):
    """A sorted run in the spill file: what of it is read, and the bytes that follow."""

    block: Words
    at: int
    end: int


def _write_runs(spill: IO[bytes], slices: Iterable[Words], held: Words) -> list[_Run]:
    """Write sorted runs of as many records as `held` has room for."""
    runs: list[_Run] = []
    size = 0
    for rows in slices:
        while len(rows):
            taken = min(len(held) - size, len(rows))
            held[size : size + taken] = rows[:taken]
            rows, size = rows[taken:], size + taken
            if size == len(held):
                runs.append(_write_run(spill, held))
                size = 0
    if size:
        runs.append(_write_run(spill, held[:size]))
    return runs


def _write_run(spill: IO[bytes], rows: Words) -> _Run:
    at = spill.seek(0, 2)
    sort_grouped(rows, [len(rows)])
    view = bytes_of(rows)
    while len(view):
        view = view[spill.write(view) :]
    return _Run(np.empty((0, rows.shape[1]), np.uint64), at, spill.tell())


def _merged(spill: IO[bytes], runs: list[_Run], limit: int, chunk: int) -> Iterator[Words]:
    """Yield all records of `runs` in order, at most `chunk` at a time; about `limit` are in memory."""
    block = max(limit // max(len(runs), 1), MIN_BLOCK)
    while runs:
        for run in runs:
            if not len(run.block):
                _read_block(spill, run, block)
        bounds = [run.block[-1] for run in runs if run.at < run.end]
        bound = min(bounds, key=tuple) if bounds else None
        parts = []
        for run in runs:
            count = len(run.block) if bound is None else kernels.count_not_above(run.block, bound)
            parts.append(run.block[:count])
            run.block = run.block[count:]
        parts = [part for part in parts if len(part)]
        rows = joined(parts)
        if len(parts) > 1:
            sort_grouped(rows, [len(rows)])
        yield from chunks_of(rows, chunk)
        runs = [run for run in runs if len(run.block) or run.at < run.end]


def _read_block(spill: IO[bytes], run: _Run, block: int) -> None:
    words = run.block.shape[1]
    rows = np.empty((min(block, (run.end - run.at) // (8 * words)), words), np.uint64)
    view = bytes_of(rows)
    spill.seek(run.at)
    while len(view):
        count = spill.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise OSError(f"the spill file ends at byte {spill.tell()}; expected {len(view)} bytes more")
        view = view[count:]
    run.at += rows.nbytes
    run.block = rows
