"""A block of JSON lines: its key table, the walk over its lines, and the values found as Arrow arrays.

This is the Python side of the kernels: it prepares the table of requested keys, gives the kernels the readable room they need
behind the block, and turns positions in the block into arrays. Data buffers of string columns have 64 readable bytes behind
their data, so that later kernels may load whole vectors too.

Cost: a few calls per block; the columns of spans and numbers are written once by the kernel and not copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.scan import (
    BOOLEAN,
    DOCUMENT,
    MAX_KEY,
    NUMBER,
    RAW,
    ROOT,
    SCOPE,
    SEEN,
    SPANS,
    STRING,
)
from dolma_dask.formats.json.strings import copy_strings, is_utf8, mark_invalid_utf8
from dolma_dask.formats.json.walk import walk_lines
from dolma_dask.text.columns import bitmap, large_strings, string_parts, validity
from dolma_dask.text.kernels import kernel

PADDING = 64
"""Readable bytes behind every buffer: the widest load of a kernel."""

LEARNED_KEYS = 1024
"""Keys besides the requested ones that are remembered within a block."""


@dataclass(frozen=True)
class RequestedKey:
    """Key whose values are requested."""

    name: str  # the key as it reads after decoding
    scope: int  # number of the object it stands in; 0 is the line's own object
    action: int  # what to do with the value, see `dolma_dask.formats.json.scan`
    target: int  # output column of the action; for ENTER the scope of the keys inside
    required: bool = False  # whether a line without a value for it is declined


@dataclass(frozen=True)
class Walk:
    """Findings of the kernel in a block; see `walk_lines` for the arrays."""

    lines: "Lines"
    extents: np.ndarray
    numbers: np.ndarray
    present: np.ndarray
    lists: np.ndarray
    bounds: np.ndarray
    scores: np.ndarray

    def strings(self, column: int, *, unescape: bool) -> pa.LargeStringArray:
        """Return the string contents or raw values of one column."""
        extents = self.extents[column]
        size = int((extents[1] - extents[0]).sum())
        offsets = np.zeros(extents.shape[1] + 1, np.int64)
        buffer = pa.allocate_buffer(size + PADDING)
        self.lines.copy_strings(extents, unescape, buffer.address, offsets)
        return large_strings(offsets, buffer, extents[0] >= 0)

    def doubles(self, column: int) -> pa.DoubleArray:
        """Return the numbers of one column as float64."""
        is_valid = self.present[column] != 0
        buffers = [bitmap(is_valid), pa.py_buffer(self.numbers[column])]
        return pa.Array.from_buffers(pa.float64(), len(is_valid), buffers)

    def booleans(self, column: int) -> pa.BooleanArray:
        """Return the booleans of one column."""
        is_valid = self.present[column] != 0
        values = np.packbits(is_valid & (self.numbers[column] != 0), bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(is_valid), [bitmap(is_valid), pa.py_buffer(values)])

    def spans(self, column: int) -> pa.ListArray:
        """Return the span lists of one column."""
        counts = self.lists[column, 1]
        offsets = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(np.maximum(counts, 0), out=offsets[1:])
        starts, ends = np.empty((2, offsets[-1]), np.int64)
        scores = np.empty(offsets[-1], np.float64)
        _gather_spans(self.lists[column], self.bounds, self.scores, starts, ends, scores)
        values = pa.StructArray.from_arrays(
            [pa.array(starts), pa.array(ends), pa.array(scores)], fields=list(SPAN)
        )
        buffers = [bitmap(counts >= 0), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(pa.list_(SPAN), len(counts), buffers, children=[values])


SPAN = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())])
"""One span: code points `start` to `end`, end exclusive, and its score."""


def fill_strings(column: pa.LargeStringArray, values: Mapping[int, str | None]) -> pa.LargeStringArray:
    """Return `column` (not sliced) with other values in some rows that were null; the rows come in order."""
    texts = {row: text.encode("utf-8") for row, text in values.items() if text is not None}
    if not texts:
        return column
    rows = np.fromiter(texts, np.int64, len(texts))
    _, offset_buffer, data_buffer = column.buffers()
    old = np.frombuffer(offset_buffer, np.int64)[: len(column) + 1]
    lengths = np.diff(old)
    lengths[rows] = [len(text) for text in texts.values()]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    buffer = pa.allocate_buffer(int(offsets[-1]) + PADDING)
    data, source = np.frombuffer(buffer, np.uint8), np.frombuffer(data_buffer, np.uint8)
    cuts = [*rows.tolist(), len(column)]
    data[: old[cuts[0]]] = source[: old[cuts[0]]]
    for row, following, text in zip(cuts[:-1], cuts[1:], texts.values(), strict=True):
        end = int(offsets[row + 1])
        data[end - len(text) : end] = np.frombuffer(text, np.uint8)
        data[end : offsets[following]] = source[old[row] : old[following]]
    is_valid = validity(column).copy()
    is_valid[rows] = True
    return large_strings(offsets, buffer, is_valid)


@kernel
def _gather_spans(
    lists: np.ndarray,
    bounds: np.ndarray,
    scores: np.ndarray,
    column_starts: np.ndarray,
    column_ends: np.ndarray,
    column_scores: np.ndarray,
) -> None:
    """Collect the spans of one column from those of all columns."""
    n = 0
    for row in range(lists.shape[1]):
        for i in range(lists[0, row], lists[0, row] + lists[1, row]):
            column_starts[n] = bounds[i, 0]
            column_ends[n] = bounds[i, 1]
            column_scores[n] = scores[i]
            n += 1


class Lines:
    """A block of lines (uint8) that kernels may read 64 bytes beyond; all end in a newline, and `starts` are those of `line_starts`."""

    def __init__(self, block: np.ndarray, starts: np.ndarray) -> None:
        self.block = np.ascontiguousarray(block)
        self.starts = np.require(starts, np.int64, ["C", "W"])
        self._check()
        size = self.block.size
        self.tail_row = int(np.searchsorted(self.starts[1:], size - PADDING, side="right"))
        first = int(self.starts[self.tail_row])
        self._tail = np.zeros(size - first + PADDING, np.uint8)
        self._tail[: size - first] = self.block[first:]
        self.base = self.block.ctypes.data
        self.tail_base = self._tail.ctypes.data - first

    @classmethod
    def of(cls, texts: pa.Array) -> "Lines":
        """Return the rows of a column of texts or bytes, which end in a newline each."""
        cut, data = string_parts(texts)
        return cls(data[cut[0] : cut[-1]], cut - cut[0])

    @property
    def parts(self) -> tuple[int, int, int, np.ndarray, np.ndarray]:
        """What kernels take first: base, tail_base, tail_row, starts, data."""
        return self.base, self.tail_base, self.tail_row, self.starts, self.block

    def _check(self) -> None:
        """Refuse what would let the kernels run over the end of the block."""
        first, last = int(self.starts[0]), int(self.starts[-1])
        in_order = 0 <= first <= last <= self.block.size and bool((self.starts[1:] > self.starts[:-1]).all())
        if not in_order or (last > first and self.block[last - 1] != 0x0A):
            raise UsageError(
                "the starts of JSON lines must lie in their block, in order, each line ending in a newline"
            )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def line(self, row: int) -> bytes:
        """Return the bytes of one line without its newline."""
        return self.block[self.starts[row] : self.starts[row + 1] - 1].tobytes()

    def utf8_status(self) -> np.ndarray:
        """Return uint8[lines]: 1 for lines that are not UTF-8."""
        status = np.zeros(len(self), np.uint8)
        if not is_utf8(self.block):
            mark_invalid_utf8(self.base, self.starts, status)
        return status

    def copy_strings(self, extents: np.ndarray, unescape: bool, address: int, offsets: np.ndarray) -> None:
        """Copy values of this block to `address`, see `dolma_dask.formats.json.strings.copy_strings`."""
        copy_strings(self.base, self.tail_base, self.tail_row, extents, unescape, address, offsets)

    def walk(self, requested: Sequence[RequestedKey], status: np.ndarray) -> Walk:
        """Find the values of the requested keys in all lines whose `status` is 0; `status` is updated."""
        rows, table = len(self), _key_table(requested)
        n_strings, n_numbers, n_lists = (
            _columns(requested, actions) for actions in (_TEXTUAL, _NUMERIC, (SPANS,))
        )
        n_spans = (int(self.starts[-1] - self.starts[0]) // 8 if n_lists else 0) + 1
        walk = Walk(
            lines=self,
            extents=np.full((n_strings, 2, rows), -1, np.int64),
            numbers=np.zeros((n_numbers, rows), np.float64),
            present=np.zeros((n_numbers, rows), np.uint8),
            lists=np.full((n_lists, 2, rows), -1, np.int64),
            bounds=np.empty((n_spans, 2), np.int64),
            scores=np.empty(n_spans, np.float64),
        )
        used = walk_lines(
            self.base, self.tail_base, self.tail_row, self.starts,
            table.keys, table.store, table.buckets, table.used, sum(key.required for key in requested),
            walk.extents, walk.numbers, walk.present, walk.lists, walk.bounds, walk.scores, status,
        )  # fmt: skip
        return replace(walk, bounds=walk.bounds[:used], scores=walk.scores[:used])


_TEXTUAL = (STRING, RAW)
_NUMERIC = (NUMBER, BOOLEAN, DOCUMENT)


def _columns(requested: Sequence[RequestedKey], actions: tuple[int, ...]) -> int:
    return sum(key.action in actions for key in requested)


@dataclass(frozen=True)
class _KeyTable:
    keys: np.ndarray
    store: np.ndarray
    buckets: np.ndarray
    used: np.ndarray


def _key_table(requested: Sequence[RequestedKey]) -> _KeyTable:
    """Build the table of keys; names that JSON can only write with an escape are left to the exact parser."""
    names = [key.name.encode("utf-8", "surrogatepass") + b'"' for key in requested]
    plain = [(key, name) for key, name in zip(requested, names, strict=True) if _is_plain(name)]
    rows = len(plain) + 1 + LEARNED_KEYS
    table = _KeyTable(
        keys=np.zeros((rows, 8), np.int64),
        store=np.zeros(sum(map(len, names)) + 64 * LEARNED_KEYS + MAX_KEY + PADDING, np.uint8),
        buckets=np.zeros(1 << (2 * rows).bit_length(), np.int64),
        used=np.array([len(plain) + 1, 0], np.int64),
    )
    table.keys[:, SEEN] = -1
    table.keys[ROOT, SCOPE] = -1
    for row, (key, name) in enumerate(plain, start=1):
        begin = int(table.used[1])
        table.store[begin : begin + len(name)] = np.frombuffer(name, np.uint8)
        table.keys[row] = begin, len(name), key.scope, ROOT, key.action, key.target, -1, key.required
        table.used[1] += len(name)
    return table


def _is_plain(name: bytes) -> bool:
    return min(name) >= 0x20 and b"\\" not in name and b'"' not in name[:-1]
