"""JSON lines to Arrow columns: strict, and fast where nothing is wrong.

`scan_documents` is what readers call. A kernel checks every byte of a block and finds the fields; the few lines it declines go
one by one through the exact parser (`dolma_dask.formats.json.exact`), which either reads them or says what is wrong with them.
The kernel accepts no line that the exact parser refuses, and gives the same values.

This is the Python side of the kernels: it prepares the table of requested keys, gives the kernels the readable room they need
behind the block, and turns positions in the block into arrays.

Declined though valid: keys written with an escape, a requested key written twice, more than 64 levels of nesting.

Cost: about 1.6 GB/s of JSON per core with four fields, of which UTF-8 validation takes a third; 0.7 GB/s when lines have only
100 bytes. Lines that are declined cost about 6 us each.
"""

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.formats.exact_numbers import as_exact
from dolma_dask.formats.json.exact import Field, LineError, Value, parse_line
from dolma_dask.formats.json.strings import copy_strings, is_utf8, mark_invalid_utf8
from dolma_dask.formats.json.walk import (
    BOOLEAN,
    DECLINE,
    DOCUMENT,
    ENTER,
    EXACT,
    EXACT_DOCUMENT,
    IDENTITY,
    MAX_KEY,
    NUMBER,
    RAW,
    ROOT,
    SCOPE,
    SEEN,
    SPANS,
    STRING,
    walk_lines,
)
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import bitmap, large_strings, string_parts
from dolma_dask.text.kernels import kernel

PADDING = 64
"""Readable bytes behind every buffer: the widest load of a kernel."""

LEARNED_KEYS = 1024
"""Keys besides the requested ones that are remembered within a block."""

SPAN = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())])
"""One span: code points `start` to `end`, end exclusive, and its score."""

_SPANS = pa.list_(SPAN)

_TEXTS, _NUMBERS, _LISTS, _NOTHING = range(4)
_KINDS = {
    "string": (STRING, _TEXTS),
    "identity": (IDENTITY, _TEXTS),
    "raw": (RAW, _TEXTS),
    "number": (NUMBER, _NUMBERS),
    "bool": (BOOLEAN, _NUMBERS),
    "document": (DOCUMENT, _NUMBERS),
    "exact": (EXACT, _NUMBERS),
    "exact_document": (EXACT_DOCUMENT, _NUMBERS),
    "spans": (SPANS, _LISTS),
    "object": (ENTER, _NOTHING),
    "none": (DECLINE, _NOTHING),
}
"""Action of the kernel for each kind of field, and the arrays that hold its values."""


class Lines:
    """A block of lines (uint8) that kernels may read 64 bytes beyond; all end in a newline, and `starts` are those of `line_starts`."""

    def __init__(self, block: np.ndarray, starts: np.ndarray) -> None:
        self.block = np.ascontiguousarray(block)
        self.starts = np.require(starts, np.int64, ["C", "W"])
        self._check()
        size = self.block.size
        readable = size + _room_behind(self.block)
        self.tail_row = int(np.searchsorted(self.starts[1:], readable - PADDING, side="right"))
        first = int(self.starts[self.tail_row])
        self._tail = np.zeros(size - first + PADDING, np.uint8)
        self._tail[: size - first] = self.block[first:]
        self.base = self.block.ctypes.data
        self.tail_base = self._tail.ctypes.data - first

    @classmethod
    def of(cls, lines: pa.Array) -> "Lines":
        """Return the values of a column of strings as lines, which they are."""
        offsets, data = string_parts(lines)
        return cls(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    @property
    def parts(self) -> tuple[int, int, int, np.ndarray, np.ndarray]:
        """First arguments of kernels: base, tail_base, tail_row, starts, data."""
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

    def columns(self, fields: Sequence[Field], status: np.ndarray) -> list[pa.Array]:
        """Read fields of all lines whose `status` is 0: a column for each that gives one; null where the key is absent or null.

        `status` is set to 1 where a line is declined, and all columns are null there.
        """
        rows, groups = len(self), [_KINDS[field.kind][1] for field in fields]
        texts, numeric, listed = (groups.count(group) for group in (_TEXTS, _NUMBERS, _LISTS))
        numbered = [count() for _ in range(_NOTHING + 1)]
        targets = [next(numbered[group]) for group in groups]  # the place of each among those of its group
        n_spans = (int(self.starts[-1] - self.starts[0]) // 8 if listed else 0) + 1
        extents = np.full((texts, 2, rows), -1, np.int64)
        numbers, present = np.zeros((numeric, rows), np.float64), np.zeros((numeric, rows), np.uint8)
        lists = np.full((listed, 2, rows), -1, np.int64)
        bounds, scores = np.empty((n_spans, 2), np.int64), np.empty(n_spans, np.float64)
        values = extents, numbers, present, lists, bounds, scores
        table, n_required = _key_table(fields, targets), sum(field.required for field in fields)
        walk_lines(self.base, self.tail_base, self.tail_row, self.starts, table, n_required, values, status)
        columns = []
        for field, group, at in zip(fields, groups, targets, strict=True):
            if group == _TEXTS:
                columns.append(self._strings(extents[at], unescape=field.kind in ("string", "identity")))
            elif group == _NUMBERS:
                column = _numbers(numbers[at], present[at] != 0, is_bool=field.kind == "bool")
                columns.append(as_exact(column) if field.kind.startswith("exact") else column)
            elif group == _LISTS:
                columns.append(_span_lists(lists[at], bounds, scores))
        return columns

    def _strings(self, extents: np.ndarray, *, unescape: bool) -> pa.LargeStringArray:
        """Return the string contents or raw values at `extents`."""
        size = int((extents[1] - extents[0]).sum())
        offsets = np.zeros(extents.shape[1] + 1, np.int64)
        buffer = _room(size)
        copy_strings(self.base, self.tail_base, self.tail_row, extents, unescape, buffer.address, offsets)
        return large_strings(offsets, buffer, extents[0] >= 0)


def unquoted(strings: Sequence[memoryview | bytes | None]) -> pa.LargeStringArray:
    """Return the texts of legal JSON strings, each with its quotes; None becomes null."""
    sizes = np.array([0 if value is None else len(value) for value in strings], np.int64)
    block = np.frombuffer(b"".join([*(value or b"" for value in strings), bytes(PADDING)]), np.uint8)
    ends = np.cumsum(sizes)
    extents = np.where(sizes, np.stack([ends - sizes + 1, ends - 1]), -1)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    buffer = _room(int((extents[1] - extents[0]).sum()))
    base = block.ctypes.data
    copy_strings(base, base, len(sizes), extents, True, buffer.address, offsets)
    return large_strings(offsets, buffer, extents[0] >= 0)


def _room(size: int) -> pa.Buffer:
    """Return a buffer with `PADDING` behind it, since kernels write whole vectors; of the allocator that blocks of lines are of, so that each reuses what the other frees."""
    return pa.allocate_buffer(size + PADDING, memory_pool=pa.system_memory_pool())


def _room_behind(block: np.ndarray) -> int:
    """Return how many bytes of the array that a block is cut from lie behind it."""
    owner = block.base
    if not isinstance(owner, np.ndarray):
        return 0
    return int(owner.ctypes.data + owner.nbytes - block.ctypes.data - block.nbytes)


def _numbers(numbers: np.ndarray, is_valid: np.ndarray, *, is_bool: bool) -> pa.Array:
    values = np.packbits(is_valid & (numbers != 0), bitorder="little") if is_bool else numbers
    buffers = [bitmap(is_valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.bool_() if is_bool else pa.float64(), len(is_valid), buffers)


def _span_lists(lists: np.ndarray, bounds: np.ndarray, scores: np.ndarray) -> pa.ListArray:
    counts = lists[1]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(np.maximum(counts, 0), out=offsets[1:])
    starts, ends = np.empty((2, offsets[-1]), np.int64)
    own_scores = np.empty(offsets[-1], np.float64)
    _gather_spans(lists, bounds, scores, starts, ends, own_scores)
    children = [_column(pa.int64(), starts), _column(pa.int64(), ends), _column(pa.float64(), own_scores)]
    values = pa.Array.from_buffers(SPAN, int(offsets[-1]), [None], children=children)
    buffers = [bitmap(counts >= 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(_SPANS, len(counts), buffers, children=[values])


def _column(kind: pa.DataType, values: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


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
        # none in declined lines, whose number of spans is -1
        for i in range(lists[0, row], lists[0, row] + lists[1, row]):
            column_starts[n] = bounds[i, 0]
            column_ends[n] = bounds[i, 1]
            column_scores[n] = scores[i]
            n += 1


def _key_table(fields: Sequence[Field], targets: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Return the table of keys for `walk_lines`; names that JSON can only write with an escape are left to the exact parser."""
    names = [field.name.encode("utf-8", "surrogatepass") + b'"' for field in fields]
    rows = len(names) + 1 + LEARNED_KEYS
    keys = np.zeros((rows, 8), np.int64)
    store = np.zeros(sum(map(len, names)) + 64 * LEARNED_KEYS + MAX_KEY + PADDING, np.uint8)
    keys[:, SEEN] = -1
    keys[ROOT, SCOPE] = -1
    row, begin = 1, 0
    for field, name, target in zip(fields, names, targets, strict=True):
        if not _is_plain(name):
            continue
        store[begin : begin + len(name)] = np.frombuffer(name, np.uint8)
        action, group = _KINDS[field.kind]
        to = field.inside if group == _NOTHING else target
        keys[row] = begin, len(name), field.scope, ROOT, action, to, -1, field.required
        row, begin = row + 1, begin + len(name)
    buckets = np.zeros(1 << (2 * rows).bit_length(), np.int64)
    around = np.zeros(1 + max((field.inside for field in fields), default=0), np.int64)
    for field in fields:
        if field.inside:
            around[field.inside] = field.scope
    return keys, store, buckets, np.array([row, begin], np.int64), around


def _is_plain(name: bytes) -> bool:
    return min(name) >= 0x20 and b"\\" not in name and b'"' not in name[:-1]


def scan(
    lines: Lines, fields: Sequence[Field], parse: Callable[[bytes, Sequence[Field]], list[Value]] = parse_line
) -> tuple[list[pa.Array], list[tuple[int, LineError]]]:
    """Read fields of all lines, and with the exact parser those that the kernel declines.

    Bad lines are null in every column; the errors say in which row each is, in order, and what is wrong with it.
    """
    status = lines.utf8_status()
    columns = lines.columns(fields, status)
    errors: list[tuple[int, LineError]] = []
    slow: dict[int, list[Value]] = {}
    for row in np.flatnonzero(status).tolist():
        try:
            slow[row] = parse(lines.line(row), fields)
        except LineError as error:
            errors.append((row, error))
    if slow:
        values = zip(*slow.values(), strict=True)
        columns = [_fill(column, list(slow), of) for column, of in zip(columns, values, strict=True)]
    return columns, errors


def _fill(column: pa.Array, rows: Sequence[int], values: Sequence[Value]) -> pa.Array:
    """Return `column` with these values in `rows`, where it is null."""
    at, elsewhere = np.zeros(len(column), np.int64), np.ones(len(column), np.bool_)
    at[rows], elsewhere[rows] = np.arange(len(rows)), False
    return pc.coalesce(column, pa.array(values, column.type).take(pa.array(at, mask=elsewhere)))


def scan_fields(
    block: np.ndarray, starts: np.ndarray, fields: Sequence[Field]
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Read top-level fields of all lines of a block with the kernel alone; `starts` as `line_starts` gives them.

    Returns a batch with a column per field, null where the key is absent or null or the line declined, and the status of each line: 0 if it
    is one JSON object in UTF-8, with a value of its kind or null for each field and other than null where required; 1 if it is something
    else, or unusual, and has to go through `parse_line`.
    """
    lines = Lines(block, starts)
    status = lines.utf8_status()
    return _record_batch(lines.columns(fields, status), fields, len(lines)), status


def scan_documents(
    block: np.ndarray, starts: np.ndarray, fields: Sequence[Field]
) -> tuple[pa.RecordBatch, list[tuple[int, LineError]]]:
    """Read fields of all lines as `scan_fields` does, and what the kernel declines with the exact parser.

    Bad lines are null in every column; the errors say in which row of the batch each is, in order, and what is wrong with it.
    """
    lines = Lines(block, starts)
    columns, errors = scan(lines, fields)
    return _record_batch(columns, fields, len(lines)), errors


def _record_batch(columns: list[pa.Array], fields: Sequence[Field], n_rows: int) -> pa.RecordBatch:
    """Return a batch that has rows even when it has no columns."""
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"fields can be read once only, found twice: {', '.join(map(repr, twice))}")
    if columns:
        return pa.RecordBatch.from_arrays(columns, names=names)
    return pa.RecordBatch.from_arrays([pa.nulls(n_rows)], names=[""]).select([])
