"""The kernel that walks whole lines and records the values of requested keys, for documents and for attribute rows alike.

Which keys are requested, in which object, and what becomes of their values stands in a table (`dolma_dask.formats.json.scan`), so
one compiled kernel serves every list of fields. Levels that can hold requested keys are: the line's object, the ``attributes``
object in it, and objects of numbers inside that; all other values are checked and passed over.
"""

from typing import Any

import numpy as np

from dolma_dask.formats.json.numbers import read_number
from dolma_dask.formats.json.scan import (
    ACTION,
    BEGIN,
    BOOLEAN,
    DOCUMENT,
    ENTER,
    MAX_LEVELS,
    NEXT,
    NUMBER,
    RAW,
    REQUIRED,
    ROOT,
    SCOPE,
    SEEN,
    SIZE,
    SKIP,
    SPANS,
    STRING,
    TARGET,
    file_requested_keys,
    find_key,
    read_document_score,
    read_spans,
    same_bytes,
    skip_literal,
    skip_space,
    skip_string,
    skip_value,
)
from dolma_dask.text.bits import address_of, byte_at, word_at
from dolma_dask.text.kernels import kernel

MAX_SCOPES = 1 << 20
"""Objects with requested keys there can be; three may be open at one time, and their numbers share one word."""

_QUOTE, _COMMA, _COLON, _OPEN_OBJECT, _CLOSE_OBJECT = 0x22, 0x2C, 0x3A, 0x7B, 0x7D
_NULL = int.from_bytes(b"null", "little")
_FOUR_BYTES = 0xFFFF_FFFF


@kernel
def walk_lines(
    base: int, tail_base: int, tail_row: int, starts: np.ndarray, table: Any, n_required: int, values: Any,
    status: np.ndarray,
) -> None:  # fmt: skip
    """Walk all lines whose `status` is 0.

    Parameters
    ----------
    base, tail_base : int
        Address of byte 0 of the block for the rows before `tail_row`, and for the others (a copy with room behind it).
    tail_row : int
        First row of the copy.
    starts : int64[rows + 1]
        Where lines start in the block; each ends in a newline.
    table : tuple of arrays
        The table of keys, see `find_key`; keys met are added to it.
    n_required : int
        How many rows of the table have REQUIRED set: a line must have a value other than null for all of them.
    values : tuple of arrays
        Out. ``extents`` int64[strings, 2, rows]: begin and end of string contents and raw values in the block; -1, -1 for none.
        ``numbers`` float64[numbers, rows], ``present`` uint8[numbers, rows]: values (booleans: 0 or 1) and whether there is one.
        ``lists`` int64[lists, 2, rows]: first row in ``bounds`` and number of spans; -1 spans for none. ``bounds`` int64[m, 2], ``scores``
        float64[m]: the spans of all keys in the order of the file. A span takes 8 bytes of JSON or more: m = bytes / 8 is enough.
    status : uint8[rows]
        In: lines to pass over. Out: 1 for lines that are declined; they have no value in any column.
    """
    keys, store, buckets, used = table
    extents, _, present, lists, _, _ = values
    rows = len(starts) - 1
    n_spans = int(np.int64(0))  # a literal 0 has a type of its own and would be compiled for separately
    file_requested_keys(keys, store, buckets, used)
    for row in range(rows):
        if status[row] == 0:
            origin = base if row < tail_row else tail_base
            end, spans = walk_line(origin, starts[row], row, table, n_required, values, n_spans)
            if end != 0 and skip_space(end) == origin + starts[row + 1] - 1:
                n_spans = spans
                continue
            status[row] = 1
        for column in range(extents.shape[0]):
            extents[column, 0, row] = -1
            extents[column, 1, row] = -1
        for column in range(present.shape[0]):
            present[column, row] = 0
        for column in range(lists.shape[0]):
            lists[column, 1, row] = -1


@kernel
def walk_line(
    origin: int, start: int, row: int, table: Any, n_required: int, values: Any, n_spans: int
) -> tuple[int, int]:
    """Walk one line; return (address after its object, spans so far), or (0, 0) when the line is declined."""
    keys, store, buckets, used = table
    extents, numbers, present, lists, bounds, scores = values
    names = address_of(store)
    scope = int(np.int64(0))
    outer, level, last, n_met = 0, 0, ROOT, 0
    at = skip_space(origin + start)
    if byte_at(at) != _OPEN_OBJECT:
        return 0, 0
    at = skip_space(at + 1)
    if byte_at(at) == _CLOSE_OBJECT:
        return (0, 0) if n_required > 0 else (at + 1, n_spans)
    while True:
        if byte_at(at) != _QUOTE:
            return 0, 0
        at += 1
        key = keys[last, NEXT]
        if keys[key, SCOPE] == scope and same_bytes(at, names + keys[key, BEGIN], keys[key, SIZE]):
            at += keys[key, SIZE]
        else:
            after, escaped = skip_string(at)
            if after == 0 or escaped:
                return 0, 0
            key = find_key(at, after - at, scope, keys, store, buckets, used)
            if key >= 0:
                keys[last, NEXT] = key
            at = after
        at = skip_space(at)
        if byte_at(at) != _COLON:
            return 0, 0
        at = skip_space(at + 1)
        action = SKIP
        if key >= 0:
            last = key
            action = keys[key, ACTION]
        if action == SKIP:
            at = skip_value(at, MAX_LEVELS - 1 - level)
        else:
            if keys[key, SEEN] == row:
                return 0, 0
            keys[key, SEEN] = row
            target = keys[key, TARGET]
            if word_at(at) & _FOUR_BYTES == _NULL:
                at += 4
            else:
                n_met += keys[key, REQUIRED]
                if action == STRING:
                    if byte_at(at) != _QUOTE:
                        return 0, 0
                    first = at + 1
                    at, _ = skip_string(first)
                    extents[target, 0, row] = first - origin
                    extents[target, 1, row] = at - 1 - origin
                elif action == RAW:
                    first = at
                    at = skip_value(first, MAX_LEVELS - 1 - level)
                    extents[target, 0, row] = first - origin
                    extents[target, 1, row] = at - origin
                elif action == ENTER:
                    if byte_at(at) != _OPEN_OBJECT:
                        return 0, 0
                    at = skip_space(at + 1)
                    if byte_at(at) != _CLOSE_OBJECT:
                        level += 1
                        outer = outer * MAX_SCOPES + scope
                        scope = target
                        continue
                    at += 1
                elif action == DOCUMENT:
                    at, there, numbers[target, row] = read_document_score(at)
                    present[target, row] = there
                elif action == NUMBER:
                    at, numbers[target, row] = read_number(at)
                    present[target, row] = 1
                elif action == SPANS:
                    lists[target, 0, row] = n_spans
                    first = n_spans
                    at, n_spans = read_spans(at, n_spans, bounds, scores)
                    lists[target, 1, row] = n_spans - first
                elif action == BOOLEAN:
                    numbers[target, row] = byte_at(at) == 0x74
                    present[target, row] = 1
                    if byte_at(at) != 0x74 and byte_at(at) != 0x66:
                        return 0, 0
                    at = skip_literal(at)
                else:
                    return 0, 0
        if at == 0:
            return 0, 0
        while True:
            at = skip_space(at)
            byte = byte_at(at)
            if byte == _COMMA:
                at = skip_space(at + 1)
                break
            if byte != _CLOSE_OBJECT:
                return 0, 0
            at += 1
            if level == 0:
                return (at, n_spans) if n_met == n_required else (0, 0)
            scope = outer % MAX_SCOPES
            outer //= MAX_SCOPES
            level -= 1
