"""Records in the order of all their words: in memory, and through sorted runs on disk for what does not fit.

In memory: records are spread over parts that fit the cache; in a part the first word is packed with the number of the record into one word, which
NumPy sorts (vectorised: 180 M/s on AVX-512, four times its argsort), and a kernel settles what the packed bits leave open. NumPy's own sort of structured
arrays compares field by field and is twenty times slower. Through disk: sorted runs in one nameless file, merged block
by block. Of the blocks at hand everything up to the smallest of their last records is safe to give out, since what follows in any run is
not below it.
"""

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

import numpy as np
import numpy.typing as npt

from dolma_dask.exchange import kernels
from dolma_dask.exchange.contract import Words, bytes_of
from dolma_dask.io import files

LEAST_BLOCK = 1024
"""Records of a block of a run at least, or reading them would be all seeks."""

PART = 8192
"""Records that are put in order at once: with their copy they stay in the cache, where a gather is six times as fast as in memory."""

WRITTEN = 8 * PART
"""Records that are written at once."""

MOST_PARTS = 4096
"""More parts than this would be written all over memory."""


def sort_words(rows: Words, word: int = 0, out: Words | None = None) -> Words:
    """Return rows in order of all words from `word` on; those before must be equal in all rows. They are copied, to `out` if it is given."""
    out = np.empty_like(rows) if out is None else out
    if kernels.is_sorted(rows):
        out[:] = rows
        return out
    low, high = kernels.extent(rows, word)
    if low == high:
        return sort_words(rows, word + 1, out)
    bits = (len(rows) - 1).bit_length()
    shift = max((int(high) - int(low)).bit_length() + bits - 64, 0)
    packed = np.empty(len(rows), np.uint64)
    kernels.pack(rows, word, np.uint64(low), shift, bits, packed)
    packed.sort()
    kernels.unpack(rows, packed, bits, out)
    _settle(out, packed, bits, word if shift else word + 1)
    return out


def _settle(rows: Words, packed: npt.NDArray[np.uint64], bits: int, word: int) -> None:
    if word == rows.shape[1]:
        return
    long_runs = np.empty((len(rows) // kernels.LONG_RUN + 1, 2), np.int64)
    count = kernels.settle(rows, packed, bits, word, long_runs)
    for start, end in long_runs[:count].tolist():
        rows[start:end] = sort_words(rows[start:end], word)


def sort_parts(parts: list[Words], chunk: int) -> Iterator[Words]:
    """Yield the records of some arrays in order, at most `chunk` at a time; `parts` is emptied on the way.

    They are first spread over parts of equal extent that fit the cache, which then are put in order one by one.
    """
    if not parts:
        return
    low, high = _extent(parts)
    records = sum(map(len, parts))
    shift = max((high - low).bit_length() - min(records // PART, MOST_PARTS).bit_length(), 0)
    if records <= 2 * PART or low == high:
        rows = joined(parts)
        parts.clear()
        yield from chunks_of(sort_words(rows), chunk)
        return
    counts = np.zeros(((high - low) >> shift) + 1, np.int64)
    for rows in parts:
        kernels.count_buckets(rows, np.uint64(low), shift, counts)
    ends = np.cumsum(counts)
    spread = np.empty((records, parts[0].shape[1]), np.uint64)
    next_rows = ends - counts
    while parts:
        kernels.spread(parts.pop(0), np.uint64(low), shift, next_rows, spread)
    yield from _sort_spread(
        spread, [end for end, count in zip(ends.tolist(), counts, strict=True) if count], chunk
    )


def _sort_spread(spread: Words, ends: list[int], chunk: int) -> Iterator[Words]:
    """Sort the parts of `spread` that end at `ends`, and yield as many at once as `chunk` allows."""
    start = 0
    while start < len(spread):
        here = bisect_right(ends, start)
        beyond = max(bisect_right(ends, start + chunk), here + 1)
        out = np.empty((ends[beyond - 1] - start, spread.shape[1]), np.uint64)
        first = start
        for end in ends[here:beyond]:
            sort_words(spread[first:end], 0, out[first - start : end - start])
            first = end
        yield from chunks_of(out, chunk)
        start = first


def _extent(parts: list[Words]) -> tuple[int, int]:
    extents = [kernels.extent(rows, 0) for rows in parts]
    return min(int(low) for low, _ in extents), max(int(high) for _, high in extents)


def chunks_of(rows: Words, limit: int) -> Iterator[Words]:
    """Yield neighbouring rows, at most `limit` at a time."""
    for start in range(0, len(rows), limit):
        yield rows[start : start + limit]


def sorted_chunks(
    slices: Iterable[Words], records: int, limit: int, chunk: int, folder: str
) -> Iterator[Words]:
    """Yield all `records` of some slices (unsorted, none empty) in order, at most `chunk` at a time.

    More than `limit` go through a file: in `folder` if that is local, else where temporary files lie. It has no name and vanishes with its
    process.
    """
    if records <= limit:
        yield from sort_parts(list(slices), chunk)
        return
    with _open_spill(folder) as spill:
        runs = _write_runs(spill, slices, limit // 2)
        yield from _merged(spill, runs, limit // 2, chunk)


def joined(parts: list[Words]) -> Words:
    """Return the rows of some arrays as one; without a copy if there is one alone."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _open_spill(folder: str) -> IO[bytes]:
    local = files.local_path(folder) if files.is_local(folder) else None
    return tempfile.TemporaryFile(dir=local, prefix=".spill-", buffering=0)


@dataclass
class _Run:
    """A sorted run in the spill file: what of it is read, and the bytes that follow."""

    block: Words
    at: int
    end: int


def _write_runs(spill: IO[bytes], slices: Iterable[Words], limit: int) -> list[_Run]:
    """Write sorted runs of about `limit` records."""
    runs: list[_Run] = []
    held: list[Words] = []
    size = 0
    for part in slices:
        if size and size + len(part) > limit:
            runs.append(_write_run(spill, held))
            held, size = [], 0
        held.append(part)
        size += len(part)
    if held:
        runs.append(_write_run(spill, held))
    return runs


def _write_run(spill: IO[bytes], parts: list[Words]) -> _Run:
    at = spill.seek(0, 2)
    nothing = np.empty((0, parts[0].shape[1]), np.uint64)  # a view of a part would keep it
    for rows in sort_parts(parts, WRITTEN):
        view = bytes_of(rows)
        while len(view):
            view = view[spill.write(view) :]
    return _Run(nothing, at, spill.tell())


def _merged(spill: IO[bytes], runs: list[_Run], limit: int, chunk: int) -> Iterator[Words]:
    """Yield all records of `runs` in order, at most `chunk` at a time; about `limit` are in memory."""
    block = max(limit // max(len(runs), 1), LEAST_BLOCK)
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
        yield from chunks_of(parts[0], chunk) if len(parts) == 1 else sort_parts(parts, chunk)
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
