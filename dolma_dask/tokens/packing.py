"""Assignment of tokens to rows: arithmetic over counts, so that rows depend on the order of documents alone.

A window is up to ``length + 1`` neighbouring tokens: all but its last are the input, all but its first the labels. Windows of a stream
overlap by one token, so that each token but the very first is predicted once. Packed, all documents are one stream, and row ``r`` begins at
token ``r * length`` wherever shards begin or end; unpacked, every document is a stream of its own.
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


class Windows(Struct, frozen=True):
    """Starts of rows in a run of tokens, and how many tokens each has."""

    starts: Int64s  # (n_rows,)
    sizes: Int64s  # (n_rows,) From 2 to length + 1

    def __len__(self) -> int:
        return len(self.starts)

    def slice(self, first: int, stop: int) -> "Windows":
        """Return some of the windows."""
        return Windows(self.starts[first:stop], self.sizes[first:stop])


def stream_rows(tokens: int, length: int, tail: Tail) -> int:
    """Return the number of rows of a stream of `tokens`; a stream of one token has nothing to predict, and so no row."""
    predicted = max(tokens - 1, 0)
    full, rest = divmod(predicted, length)
    return full + (tail == "pad" and rest > 0)


def stream_windows(first: int, stop: int, tokens: int, length: int) -> Windows:
    """Return the windows of rows `first` to `stop` - 1 of a stream of `tokens` tokens."""
    starts = np.arange(first, stop, dtype=np.int64) * length
    return Windows(starts, np.minimum(length + 1, tokens - starts))


def count_document_rows(lengths: NDArray[np.integer[Any]], length: int, min_tokens: int) -> NDArray[np.int64]:
    """Return how many rows each document (n_docs,) makes when every document is a stream of its own.

    Windows of fewer tokens than `min_tokens` are left out; those of one token always are, for it was predicted already.
    """
    lengths = lengths.astype(np.int64)
    full, rest = np.divmod(np.maximum(lengths - 1, 0), length)
    has_tail = (rest > 0) & (rest + 1 >= min_tokens)
    rows: NDArray[np.int64] = np.where(length + 1 >= min_tokens, full, 0) + has_tail
    return rows


@kernel
def _fill_windows(lengths, counts, length, min_tokens, starts, sizes):  # type: ignore[no-untyped-def]
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


def document_windows(lengths: Int32s, length: int, min_tokens: int) -> Windows:
    """Return the windows of documents that stand back to back; parameters as for `count_document_rows`."""
    counts = count_document_rows(lengths, length, min_tokens)
    total = int(counts.sum())
    starts, sizes = np.empty(total, np.int64), np.empty(total, np.int64)
    _fill_windows(np.ascontiguousarray(lengths, np.int32), counts, length, min_tokens, starts, sizes)
    return Windows(starts, sizes)


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
