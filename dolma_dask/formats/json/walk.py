"""The kernel that walks whole lines and records the values of requested keys, for documents and for attribute rows alike.

One pass checks every byte of every line and records where requested values lie; nothing is copied here. A line is either accepted with
certainty or declined (status 1) and left to the exact parser; the kernel never guesses.

Which keys are requested, in which object, and what becomes of their values stands in a table, so one compiled kernel serves every list of
fields. Requested keys can stand in the line's object, in objects inside of that and so on; all other values are checked and passed over.

Keys: most files repeat the same keys in the same order, so each key remembers which one came next the last time. If the
bytes at hand equal that one (one 64-byte compare), the key is known without being scanned or hashed. Other keys are
learned too, since passing them over is the larger part of the work when 1 of 24 is requested.
"""

from typing import Any

import numpy as np

from dolma_dask.formats.exact_numbers import LIMIT
from dolma_dask.formats.json.numbers import read_integer, read_number
from dolma_dask.formats.json.scan import (
    MAX_LEVELS,
    same_bytes,
    skip_integer,
    skip_literal,
    skip_space,
    skip_string,
    skip_value,
)
from dolma_dask.text.bits import address_of, byte_at, word_at
from dolma_dask.text.kernels import kernel

BEGIN, SIZE, SCOPE, NEXT, ACTION, TARGET, SEEN, REQUIRED = range(8)
"""Columns of the key table: where the key's bytes (closing quote included) lie and how many they are; the object it belongs
to; the key that followed it last; what to do with its value and which output column or scope that is for; the last row it was
seen in; whether a row without a value for it is declined."""

ROOT = 0
"""Row of the key table that stands for "before the first key"."""

(
    SKIP, STRING, RAW, NUMBER, BOOLEAN, DOCUMENT, SPANS, ENTER, DECLINE, IDENTITY, EXACT, EXACT_DOCUMENT,
) = range(12)  # fmt: skip
"""Actions. ENTER looks for requested keys inside the object that is the value; DECLINE leaves the line to the exact parser, EXACT does so
with numbers from `LIMIT` on; IDENTITY takes a string, or the digits of a whole number."""

MAX_KEY = 512
"""Bytes of the longest key that is learned; requested keys may be longer."""

_QUOTE, _COMMA, _COLON = 0x22, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
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
        The table of keys, see `find_key`; keys met are added to it. Last, for each object with requested keys the number of the one around it.
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
    keys, store, buckets, used, _ = table
    extents, _, present, lists, _, _ = values
    rows = len(starts) - 1
    n_spans = int(np.int64(0))  # a literal 0 has a type of its own and would be compiled for separately
    # once per block: from here on requested and learned keys are found in the same buckets
    file_requested_keys(keys, store, buckets, used)
    for row in range(rows):
        if status[row] == 0:
            origin = base if row < tail_row else tail_base
            end, spans = walk_line(origin, starts[row], row, table, n_required, values, n_spans)
            # only blanks may stand between the object and the newline: two objects on a line are no document
            if end != 0 and skip_space(end) == origin + starts[row + 1] - 1:
                # taken over only here, so that the next line overwrites spans of a declined one
                n_spans = spans
                continue
            status[row] = 1
        # a line may be declined half way: what it has left in the columns is taken back
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
    keys, store, buckets, used, around = table
    extents, numbers, present, lists, bounds, scores = values
    names = address_of(store)
    scope = int(np.int64(0))
    level, last, n_met = 0, ROOT, 0
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
        # a guess: a wrong one costs one compare of 64 bytes, a right one saves the scan and the hash
        key = keys[last, NEXT]
        if keys[key, SCOPE] == scope and same_bytes(at, names + keys[key, BEGIN], keys[key, SIZE]):
            at += keys[key, SIZE]
        else:
            after, escaped = skip_string(at)
            # an escape may spell a requested key in other letters, which the exact parser finds out
            if after == 0 or escaped:
                return 0, 0
            key = find_key(at, after - at, scope, keys, store, buckets, used)
            # a key for which the table had no room (-1) cannot be guessed, nor guess the next one
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
            # a requested key that comes twice: which value counts is left to the exact parser
            if keys[key, SEEN] == row:
                return 0, 0
            keys[key, SEEN] = row
            target = keys[key, TARGET]
            # as if the key were missing, whatever type is expected; `nullx` is caught where a comma must
            # follow
            if word_at(at) & _FOUR_BYTES == _NULL:
                at += 4
            else:
                n_met += keys[key, REQUIRED]
                if action in (STRING, IDENTITY) and byte_at(at) == _QUOTE:
                    first = at + 1
                    # a bad string gives 0 and a wrong extent: the check of 0 below declines the line, which
                    # takes the extent back
                    at, _ = skip_string(first)
                    extents[target, 0, row] = first - origin
                    extents[target, 1, row] = at - 1 - origin
                elif action == RAW:
                    first = at
                    at = skip_value(first, MAX_LEVELS - 1 - level)
                    extents[target, 0, row] = first - origin
                    extents[target, 1, row] = at - origin
                elif action == IDENTITY:
                    first = at
                    # behind it a fraction or an exponent is no comma, which declines the line
                    at = skip_integer(first)
                    extents[target, 0, row] = first - origin
                    extents[target, 1, row] = at - origin
                elif action == ENTER:
                    if byte_at(at) != _OPEN_OBJECT:
                        return 0, 0
                    at = skip_space(at + 1)
                    if byte_at(at) != _CLOSE_OBJECT:
                        # no recursion: the same loop reads on, with keys of another scope
                        level += 1
                        scope = target
                        continue
                    at += 1
                elif action in (DOCUMENT, EXACT_DOCUMENT):
                    at, there, numbers[target, row] = read_document_score(at)
                    present[target, row] = there
                elif action in (NUMBER, EXACT):
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
                # the double may have been rounded from there on
                if action >= EXACT and abs(numbers[target, row]) >= LIMIT:
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
                # keys come at most once, so that the count tells whether all required ones had a value
                return (at, n_spans) if n_met == n_required else (0, 0)
            scope = around[scope]
            level -= 1


@kernel
def hash_key(at: int, size: int, scope: int) -> int:
    """Return a hash of a key by its length, its first and its last bytes; `size` includes the closing quote."""
    # keys that a dataset has differ at their ends or in length; what they share in between costs a compare at
    # most
    head = word_at(at)
    if size < 8:
        head &= (1 << (8 * size)) - 1
    tail = word_at(at + size - 8) if size > 8 else 0
    middle = word_at(at + (size >> 1)) if size > 24 else 0
    # an odd factor keeps all bits of the sum, and the shift brings its upper half into the slot
    mixed: int = (head ^ (tail << 1) ^ (middle << 2) ^ scope) * -7046029254386353131 + size
    return (mixed ^ (mixed >> 32)) & 0x7FFF_FFFF


@kernel
def file_requested_keys(keys: np.ndarray, store: np.ndarray, buckets: np.ndarray, used: np.ndarray) -> None:
    """Enter the rows of `keys` that are in use into the empty table `buckets`, see `find_key`."""
    address = address_of(store)
    # row 0 is ROOT, which no bytes spell: so 0 can mark a free bucket
    for row in range(1, used[0]):
        slot = hash_key(address + keys[row, BEGIN], keys[row, SIZE], keys[row, SCOPE]) & (len(buckets) - 1)
        while buckets[slot] != 0:
            slot = (slot + 1) & (len(buckets) - 1)
        buckets[slot] = row


@kernel
def find_key(
    at: int, size: int, scope: int, keys: np.ndarray, store: np.ndarray, buckets: np.ndarray, used: np.ndarray
) -> int:
    """Return the row of a key in the table; it is added when there is room, else the answer is -1.

    `keys` is int64[n, 8], `store` the bytes of all keys, `buckets` an open-addressing table of rows (0: free; a power of
    two long), `used` int64[2]: rows of `keys` and bytes of `store` in use.
    """
    address = address_of(store)
    mask = len(buckets) - 1
    slot = hash_key(at, size, scope) & mask
    # ends, since there are at least twice as many buckets as rows of `keys`
    while buckets[slot] != 0:
        row: int = buckets[slot]
        if (
            keys[row, SIZE] == size
            and keys[row, SCOPE] == scope
            and same_bytes(at, address + keys[row, BEGIN], size)
        ):
            return row
        slot = (slot + 1) & mask
    row = used[0]
    # 64 more bytes, because `same_bytes` reads whole windows
    if row == len(keys) or size > MAX_KEY or used[1] + size + 64 > len(store):
        return -1
    for i in range(size):
        store[used[1] + i] = byte_at(at + i)
    keys[row, BEGIN] = used[1]
    keys[row, SIZE] = size
    keys[row, SCOPE] = scope
    keys[row, ACTION] = SKIP
    used[0] += 1
    used[1] += size
    buckets[slot] = row
    return row


@kernel
def read_span(at: int) -> tuple[int, int, int, float]:
    """Return (address after, start, end, score) of the ``[start,end,score]`` at `at`; the address is 0 when it is none."""
    start, end, score = 0, 0, 0.0
    for part in range(3):
        if byte_at(at) != (_COMMA if part else _OPEN_ARRAY):
            return 0, 0, 0, 0.0
        at = skip_space(at + 1)
        if part == 2:
            at, score = read_number(at)
        else:
            # after two rounds start and end have their values, the third reads the score
            start = end
            at, end = read_integer(at)
        if at == 0:
            return 0, 0, 0, 0.0
        at = skip_space(at)
    return (at + 1, start, end, score) if byte_at(at) == _CLOSE_ARRAY else (0, 0, 0, 0.0)


@kernel
def read_document_score(at: int) -> tuple[int, bool, float]:
    """Return (address after, whether there is a span, its score) of the ``[[0,n,score]]`` or ``[]`` at `at`."""
    if byte_at(at) != _OPEN_ARRAY:
        return 0, False, 0.0
    at = skip_space(at + 1)
    if byte_at(at) == _CLOSE_ARRAY:
        return at + 1, False, 0.0
    # the end is not compared with the length of the text, which this kernel does not know
    at, start, _, score = read_span(at)
    if at == 0 or start != 0:
        return 0, False, 0.0
    at = skip_space(at)
    if byte_at(at) != _CLOSE_ARRAY:
        return 0, False, 0.0
    return at + 1, True, score


@kernel
def read_spans(at: int, count: int, bounds: np.ndarray, scores: np.ndarray) -> tuple[int, int]:
    """Append the spans of the list at `at` to `bounds` int64[m, 2] and `scores`; return (address after, new count)."""
    if byte_at(at) != _OPEN_ARRAY:
        return 0, 0
    at = skip_space(at + 1)
    if byte_at(at) == _CLOSE_ARRAY:
        return at + 1, count
    while True:
        at, start, end, score = read_span(at)
        if at == 0:
            return 0, 0
        # no check for room: see `bounds` of `walk_lines`
        bounds[count, 0] = start
        bounds[count, 1] = end
        scores[count] = score
        count += 1
        at = skip_space(at)
        byte = byte_at(at)
        if byte == _CLOSE_ARRAY:
            return at + 1, count
        if byte != _COMMA:
            return 0, 0
        at = skip_space(at + 1)
