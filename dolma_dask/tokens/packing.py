"""Assignment of tokens to rows, so that rows depend on the order of documents alone.

A segment is up to ``length + 1`` neighbouring tokens: all but its last are the input, all but its first the labels. Segments of a stream
overlap by one token, so that each token but the very first is predicted once. Either all documents are one stream, and row ``r`` begins at
token ``r * length`` wherever shards begin or end: arithmetic over counts. Or every document is a stream of its own, and rows are lists of segments.
These are packed window by window: a window is a fixed number of neighbouring segments, whatever shards they lie in, so that memory is bounded and rows
depend on nothing but their order and the options.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.text.kernels import kernel

Tail = Literal["pad", "drop"]
"""Treatment of the tokens behind the last full row of a stream."""

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


class Segments(Struct, frozen=True):
    """Starts of segments in a run of tokens, and how many tokens each has."""

    starts: Int64s  # (n_segments,)
    sizes: Int64s  # (n_segments,) From 2 to length + 1

    def __len__(self) -> int:
        return len(self.starts)

    def slice(self, first: int, stop: int) -> "Segments":
        """Return some of the segments."""
        return Segments(self.starts[first:stop], self.sizes[first:stop])


class Rows(Struct, frozen=True):
    """Rows as lists of segments."""

    segments: Segments  # in the order of rows
    bounds: Int64s  # (n_rows + 1,) row r holds segments bounds[r] to bounds[r + 1] - 1

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @classmethod
    def of(cls, segments: Segments, each: int = 1) -> "Rows":
        """Return rows of the same number of segments."""
        return cls(segments, np.arange(0, len(segments) + 1, each, dtype=np.int64))

    def slice(self, first: int, stop: int) -> "Rows":
        """Return some of the rows."""
        bounds = self.bounds[first : stop + 1]
        return Rows(self.segments.slice(int(bounds[0]), int(bounds[-1])), bounds - bounds[0])


def stream_rows(tokens: int, length: int, tail: Tail) -> int:
    """Return the number of rows of a stream of `tokens`; a stream of one token has nothing to predict, and so no row."""
    predicted = max(tokens - 1, 0)
    full, rest = divmod(predicted, length)
    return full + (tail == "pad" and rest > 0)


def stream_segments(first: int, stop: int, tokens: int, length: int) -> Segments:
    """Return the segments of rows `first` to `stop` - 1 of a stream of `tokens` tokens, one each."""
    starts = np.arange(first, stop, dtype=np.int64) * length
    return Segments(starts, np.minimum(length + 1, tokens - starts))


def count_segments(lengths: NDArray[np.integer[Any]], length: int, min_tokens: int) -> NDArray[np.int64]:
    """Return how many segments each document (n_docs,) makes when every document is a stream of its own.

    Segments of fewer tokens than `min_tokens` are left out; those of one token always are, for it was predicted already.
    """
    lengths = lengths.astype(np.int64)
    full, rest = np.divmod(np.maximum(lengths - 1, 0), length)
    has_tail = (rest > 0) & (rest + 1 >= min_tokens)
    rows: NDArray[np.int64] = np.where(length + 1 >= min_tokens, full, 0) + has_tail
    return rows


@kernel
def _fill_segments(lengths, counts, length, min_tokens, starts, sizes):  # type: ignore[no-untyped-def]
    at, begin = 0, 0
    for document in range(len(lengths)):
        tokens = int(lengths[document])
        position = 0
        for _ in range(counts[document]):
            starts[at] = begin + position
            sizes[at] = min(length + 1, tokens - position)
            at += 1
            position += length
        begin += tokens


def document_segments(lengths: Int32s, length: int, min_tokens: int) -> Segments:
    """Return the segments of documents that stand back to back; parameters as for `count_segments`."""
    counts = count_segments(lengths, length, min_tokens)
    total = int(counts.sum())
    starts, sizes = np.empty(total, np.int64), np.empty(total, np.int64)
    _fill_segments(np.ascontiguousarray(lengths, np.int32), counts, length, min_tokens, starts, sizes)
    return Segments(starts, sizes)


MAX_SEGMENTS = 10_000
"""Segments of a window at most: enough to fill rows to 99.9 %."""

MAX_WINDOW_TOKENS = 1 << 25
"""Tokens of a window at most: it is in memory while its rows are made, 4 bytes each."""


def window_segments(length: int) -> int:
    """Return how many segments are packed together; an even number, for rows of pairs."""
    return max(min(MAX_SEGMENTS, MAX_WINDOW_TOKENS // length) // 2 * 2, 2)


def cut_files(rows: int, max_rows: int) -> list[tuple[int, int]]:
    """Cut rows into files of nearly one size, of at most `max_rows`, as loaders deal them to processes by number.

    Returns the first row and the end of each file; sizes differ by one at most.
    """
    count = -(-rows // max_rows)
    size, larger = divmod(rows, count) if count else (0, 0)
    stops = accumulate(size + (number < larger) for number in range(count))
    return list(pairwise([0, *stops]))


def pieces_of(sizes: Sequence[int], first: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield what items `first` to `stop` - 1 are made of, counted over all partitions of the given sizes, back to back.

    A piece is the number of a partition, and its items from one to before another.
    """
    bounds = [0, *accumulate(sizes)]
    partition = max(bisect_right(bounds, first) - 1, 0)
    while first < stop and partition < len(sizes):
        end = min(stop, bounds[partition + 1])
        if end > first:
            yield partition, first - bounds[partition], end - bounds[partition]
        first, partition = max(first, end), partition + 1
