"""Rows of a fixed number of tokens, made of the documents of token shards in their order: where the tokens of each row lie.

========= ====================================================================================================================================
windows   cut out of the ids of each shard as they are, from its beginning; what is behind the last whole window of a shard is in no row
stream    cut out of all documents of all shards, back to back, with an end token behind each if the shards have none; the last row is padded
best_fit  whole documents packed into rows, longer ones cut into pieces of a row; see `dolma_dask.loaders.packed`
========= ====================================================================================================================================
"""

from typing import Literal, Protocol, get_args

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.loaders.index import Int64s, find_document, starts_of
from dolma_dask.loaders.packed import PackedRows
from dolma_dask.loaders.pieces import Pieces
from dolma_dask.loaders.ragged import RaggedDataset
from dolma_dask.loaders.windows import Windows
from dolma_dask.text.kernels import kernel

RowKind = Literal["windows", "stream", "best_fit"]

KINDS = get_args(RowKind)


class RowSource(Protocol):
    """Rows of one dataset."""

    def __len__(self) -> int: ...
    def pieces(self, rows: Int64s) -> Pieces:
        """Return what some rows are made of."""
        ...


class RowShape(Struct, frozen=True):
    """Length of rows, and how documents become rows."""

    kind: RowKind
    length: int  # tokens
    overlap: int  # 1: labels are the tokens that follow, so that each row reads one token more, with which the next begins
    has_added_end: bool  # an end token is put behind each document

    def open(self, dataset: RaggedDataset) -> RowSource:
        """Return the rows of a dataset."""
        if self.kind == "windows":
            return WindowRows(dataset, self)
        if self.kind == "stream":
            return StreamRows(dataset, self)
        return PackedRows.find(dataset, self.length, self.overlap, int(self.has_added_end))


class WindowRows:
    """Rows cut out of each shard as it is."""

    def __init__(self, dataset: RaggedDataset, shape: RowShape) -> None:
        self._windows = Windows(dataset, shape.length, shape.overlap)
        self._size = shape.length + shape.overlap

    def __len__(self) -> int:
        return len(self._windows)

    def pieces(self, rows: Int64s) -> Pieces:
        """See `RowSource`."""
        sizes = np.full(len(rows), self._size)
        starts = self._windows.first_tokens(rows)
        return Pieces(np.arange(len(rows)), np.zeros(len(rows), np.int64), starts, sizes, sizes)


class StreamRows:
    """Rows cut out of all documents, back to back."""

    def __init__(self, dataset: RaggedDataset, shape: RowShape) -> None:
        self._dataset, self._shape = dataset, shape
        extra = int(shape.has_added_end)
        # with end tokens
        self._starts = starts_of([shard.tokens + extra * shard.documents for shard in dataset.shards])
        self._tokens = int(self._starts[-1])

    def __len__(self) -> int:
        return -(-max(self._tokens - self._shape.overlap, 0) // self._shape.length)

    def pieces(self, rows: Int64s) -> Pieces:
        """See `RowSource`."""
        starts = rows * self._shape.length
        sizes = np.minimum(self._shape.length + self._shape.overlap, self._tokens - starts)
        if self._shape.has_added_end:
            spans = zip(starts.tolist(), sizes.tolist(), strict=True)
            return Pieces.joined([self._documents(*span, row) for row, span in enumerate(spans)])
        return Pieces(np.arange(len(rows)), np.zeros(len(rows), np.int64), starts, sizes, sizes)

    def _documents(self, start: int, size: int, row: int) -> Pieces:
        """Return the documents, or their parts, in a run of the stream."""
        found, place = [], 0
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        while place < size:
            part = np.empty((3, size - place), np.int64)
            count = self._cut(number, start + place, size - place, part)
            starts, stored, sizes = part[:, :count]
            places = place + np.cumsum(sizes) - sizes
            first = self._dataset.token_starts[number]
            found.append(Pieces(np.full(count, row), places, starts + first, stored, sizes))
            place += int(sizes.sum())
            number += 1
        return Pieces.joined(found)

    def _cut(self, number: int, start: int, size: int, part: NDArray[np.int64]) -> int:
        """Write what a run of the stream has of one shard; return the number of pieces."""
        lengths = self._dataset.lengths(number)
        if not len(lengths):
            return 0
        at, first = np.empty(2, np.int64), start - int(self._starts[number])
        find_document(lengths, self._dataset.marks.of(number), first, 1, at)
        return int(_cut_documents(lengths, at[0], at[1], first, size, part))


@kernel
def _cut_documents(lengths, document, begin, token, size, part):  # type: ignore[no-untyped-def]
    """Write stored first token, stored tokens and all tokens of the pieces of a run; each document has an end token behind its own."""
    count = 0
    while size > 0 and document < len(lengths):
        skipped = token - begin
        left = np.int64(lengths[document]) + 1 - skipped
        taken = min(left, size)
        part[0, count], part[2, count] = token - document, taken
        part[1, count] = taken - 1 if taken == left else taken
        count, size, token = count + 1, size - taken, token + taken
        begin += np.int64(lengths[document]) + 1
        document += 1
    return count
