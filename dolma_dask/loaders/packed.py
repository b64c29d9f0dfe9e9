"""Rows packed of whole documents: planned once by their lengths alone, window by window, and kept as a file that is mapped.

The plan of a dataset depends on lengths, the length of rows and end tokens, never on seeds or processes, so that it is made by whoever comes first and lies in the
user's cache: 6 bytes for each segment (8 for rows of 65,535 tokens or more) and 2 for each row, about 0.01 of the size of the shards.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import xxhash
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.io.user_cache import cached
from dolma_dask.loaders.index import Int64s
from dolma_dask.loaders.pieces import Pieces
from dolma_dask.loaders.ragged import RaggedDataset
from dolma_dask.sinks.ragged import StagedItems
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.bins import best_fit
from dolma_dask.tokens.packing import MAX_SEGMENTS

CACHE = "packed_rows"
"""Folder of the user's cache."""

VERSION = 2
"""Raised whenever the same lengths give other rows."""

MAX_LENGTH = 1 << 30
"""Tokens of a row at most: places in a window have 31 bits."""

_DOCUMENTS = 1 << 16
"""Documents that are cut at a time."""

_CLOSED = np.uint32(1 << 31)
"""Bit of a first token: an end token is added behind the segment."""


class Segments(Struct, frozen=True):
    """Segments of documents, in their order."""

    start: Int64s  # (n,) first token, of those of all shards
    size: Int64s  # with the end token, if one is added
    closed: Int64s  # 1: the last token is an added end token

    def __len__(self) -> int:
        return len(self.start)

    def slice(self, first: int, stop: int | None) -> "Segments":
        """Return some of the segments."""
        return Segments(self.start[first:stop], self.size[first:stop], self.closed[first:stop])

    def __add__(self, other: "Segments") -> "Segments":
        pairs = ((self.start, other.start), (self.size, other.size), (self.closed, other.closed))
        return Segments(*map(np.concatenate, pairs))


class PackedRows(Struct, frozen=True):
    """The plan of a dataset."""

    windows: Int64s  # (n_windows + 1, 3) first row, first segment, first token
    start: NDArray[
        np.uint32
    ]  # (n_segments,) first token, from that of the window; `_CLOSED` with an added end token
    size: NDArray[np.unsignedinteger[Any]]  # (n_segments,)
    bounds: NDArray[np.uint16]  # (n_rows,) end of each row among the segments of its window
    overlap: int

    @classmethod
    def find(cls, dataset: RaggedDataset, length: int, overlap: int, extra: int) -> "PackedRows":
        """Return the rows of a dataset, planned now if no earlier process has done so."""
        how = f"{VERSION}/{dataset.key}/{length}/{overlap}/{extra}"
        name = f"{xxhash.xxh3_128_hexdigest(how.encode())}.rows"
        content = cached(
            CACHE, name, lambda out: _plan(out, dataset, length, overlap, extra), is_kept=dataset.is_settled
        )
        return cls.read(content, length, overlap)

    @classmethod
    def read(cls, content: NDArray[np.uint8], length: int, overlap: int) -> "PackedRows":
        """Return the rows of a file: number of windows and one more, of segments and of rows, then the arrays."""
        windows, segments, rows = content[:24].view(np.int64).tolist()
        kinds: list[np.dtype[Any]] = [np.dtype("<i8"), np.dtype("<u4"), _size_dtype(length), np.dtype("<u2")]
        counts = 3 * windows, segments, segments, rows
        sizes = [kind.itemsize * count for kind, count in zip(kinds, counts, strict=True)]
        parts = np.split(content[24:], np.cumsum(sizes)[:-1])
        first, start, size, bounds = (part.view(kind) for part, kind in zip(parts, kinds, strict=True))
        return cls(first.reshape(-1, 3), start, size, bounds, overlap)

    def __len__(self) -> int:
        return len(self.bounds)

    def pieces(self, rows: Int64s) -> Pieces:
        """See `dolma_dask.loaders.rows.RowSource`."""
        window = np.searchsorted(self.windows[:, 0], rows, side="right") - 1
        first_row, first_segment, first_token = self.windows[window].T
        begins = np.where(rows > first_row, self.bounds[rows - 1], 0).astype(np.int64)
        counts = self.bounds[rows] - begins
        row = np.repeat(np.arange(len(rows)), counts)
        ends = np.cumsum(counts)
        within = np.arange(len(row)) - (ends - counts)[row]
        segment = (first_segment + begins)[row] + within
        start, size = self.start[segment], self.size[segment].astype(np.int64)
        taken = size - self.overlap
        done = np.cumsum(taken) - taken
        place = done - done[(ends - counts)[row]]
        first = (start & ~_CLOSED).astype(np.int64) + first_token[row]
        return Pieces(row, place, first, size - (start >= _CLOSED), size)


def _size_dtype(length: int) -> np.dtype[Any]:
    return np.dtype("<u2") if length < 2**16 - 1 else np.dtype("<u4")


def _plan(out: Any, dataset: RaggedDataset, length: int, overlap: int, extra: int) -> None:
    """Write the rows of a dataset."""
    windows, rows, segments = [], 0, 0
    with ExitStack() as stack:
        kinds = (np.dtype("<u4"), _size_dtype(length), np.dtype("<u2"))
        starts, sizes, bounds = (StagedItems(kind, stack) for kind in kinds)
        for window in _windows(dataset, length, overlap, extra):
            packed = best_fit(window.size - overlap, length)
            first = int(window.start[0])
            windows.append((rows, segments, first))
            starts.append((window.start - first + window.closed * int(_CLOSED))[packed.order])
            sizes.append(window.size[packed.order])
            bounds.append(packed.bounds[1:])
            rows, segments = rows + len(packed), segments + len(window)
        windows.append((rows, segments, dataset.tokens))
        out.write(np.array([len(windows), segments, rows], np.int64))
        out.write(np.array(windows, np.int64))
        for items in (starts, sizes, bounds):
            items.copy_to(out)


def _windows(dataset: RaggedDataset, length: int, overlap: int, extra: int) -> Iterator[Segments]:
    """Yield so many neighbouring segments as are packed together."""
    most, waiting = max(min(MAX_SEGMENTS, MAX_LENGTH // length), 1), Segments(*np.empty((3, 0), np.int64))
    for number, shard in enumerate(dataset.shards):
        lengths, token = shard.read_lengths(), int(dataset.token_starts[number])
        for first in range(0, len(lengths), _DOCUMENTS):
            some = lengths[first : first + _DOCUMENTS].astype(np.int64)
            waiting += _cut(some, token, length, overlap, extra)
            token += int(some.sum())
            while len(waiting) >= most:
                yield waiting.slice(0, most)
                waiting = waiting.slice(most, None)
    if len(waiting):
        yield waiting


def _cut(lengths: Int64s, token: int, length: int, overlap: int, extra: int) -> Segments:
    counts = -(-np.maximum(lengths + extra - overlap, 0) // length)
    found = np.empty((3, int(counts.sum())), np.int64)
    _cut_documents(lengths, token, length, overlap, extra, found)
    return Segments(*found)


@kernel
def _cut_documents(lengths, token, length, overlap, extra, found):  # type: ignore[no-untyped-def]
    at = 0
    for document in range(len(lengths)):
        total, done = lengths[document] + extra, 0
        while done + overlap < total:
            size = min(length + overlap, total - done)
            found[0, at], found[1, at] = token + done, size
            found[2, at] = 1 if extra and done + size == total else 0
            at += 1
            done += length
        token += lengths[document]
