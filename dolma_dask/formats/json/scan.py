"""Kernels that pass over JSON: the grammar of RFC 8259. What they accept is valid with certainty.

Every loop stops at a newline, because no token of JSON may hold one. So a block that ends in a newline and is followed by 64
readable bytes needs no other bounds check: the callers in `dolma_dask.formats.json.lines` see to both.

Cost: 7 GB/s per core on long strings with one escape in fifty bytes, 2 GB/s on rows of many short numbers, 15 ns per short
string; compiling takes about 3 s once.
"""

import numpy as np

from dolma_dask.text.bits import (
    byte_at,
    differing64,
    equal64,
    first_bit,
    range64,
    short_escape64,
    word_at,
)
from dolma_dask.text.kernels import kernel

MAX_LEVELS = 64
"""Arrays and objects inside each other that the kernel follows, the outermost object included."""

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 0x7B, 0x7D, 0x5B, 0x5D
_NULL = int.from_bytes(b"null", "little")
_TRUE = int.from_bytes(b"true", "little")
_ALSE = int.from_bytes(b"alse", "little")
_FOUR_BYTES = 0xFFFF_FFFF
_ODD_BITS = -0x5555_5555_5555_5556


def _hex_values() -> np.ndarray:
    """Return int64[256]: the value of each hexadecimal digit, -1 for all other bytes."""
    values = np.full(256, -1, np.int64)
    for digit in "0123456789abcdefABCDEF":
        values[ord(digit)] = int(digit, 16)
    return values


_HEX = _hex_values()


@kernel
def read_hex4(at: int) -> int:
    """Return the value of the four hexadecimal digits at `at`, negative if one is none."""
    word = word_at(at)
    # a negative value of any digit keeps the sign bit through shifts and ors
    upper: int = (_HEX[word & 0xFF] << 12) | (_HEX[(word >> 8) & 0xFF] << 8)
    lower: int = (_HEX[(word >> 16) & 0xFF] << 4) | _HEX[(word >> 24) & 0xFF]
    return upper | lower


@kernel
def escape_size(at: int) -> int:
    r"""Return the bytes of the escape whose backslash is at `at`: 2, 6, or 12 for a surrogate pair; 0 if it is illegal."""
    byte = byte_at(at + 1)
    if byte in (0x6E, _QUOTE, _BACKSLASH, 0x74, 0x72, 0x2F, 0x62, 0x66):
        return 2
    if byte != 0x75:
        return 0
    unit = read_hex4(at + 2)
    if unit < 0:
        return 0
    # a surrogate counts only as the first of a pair: alone it has no UTF-8
    if unit < 0xD800 or unit > 0xDFFF:
        return 6
    if unit > 0xDBFF or byte_at(at + 6) != _BACKSLASH or byte_at(at + 7) != 0x75:
        return 0
    unit = read_hex4(at + 8)
    return 12 if 0xDC00 <= unit <= 0xDFFF else 0


@kernel
def escape_targets(backslashes: int, pending: int) -> tuple[int, int]:
    """Return masks of the bytes that a backslash before them escapes: of these 64, and (bit 0) of the next 64.

    In a run of backslashes every second one is escaped. Subtracting the starts of the runs from the bits behind them carries
    through each run, and leaves a pattern that differs by whether the run began at an even or an odd position.
    """
    # a backslash that is escaped by the last byte of the window before begins no run
    starts = backslashes & ~pending
    codes = (((starts << 1) | _ODD_BITS) - starts) ^ _ODD_BITS
    return codes ^ (backslashes | pending), ((codes & backslashes) >> 63) & 1


@kernel
def skip_string(at: int) -> tuple[int, bool]:
    """Return (address after the closing quote, whether there were escapes) of the string whose first byte is at `at`.

    (0, False) when it is not valid.
    """
    escaped, pending, checked = False, 0, at
    while True:
        backslashes = equal64(at, _BACKSLASH)
        stops = equal64(at, _QUOTE)
        # control characters end a string illegally; newlines among them keep the loop inside the line
        controls = range64(at, 0x00, 0x1F)
        # most windows of a text have no backslash: for these three compares are all
        if backslashes | pending != 0:
            targets, pending = escape_targets(backslashes, pending)
            stops = (stops & ~targets) | controls
            before = (stops - 1) & ~stops  # all bytes up to the first stop
            escaped |= backslashes & before != 0
            # what is left is \u and illegal letters, rare enough to look at one by one
            unusual = targets & before & ~short_escape64(at)
            while unusual != 0:
                backslash = at + first_bit(unusual) - 1
                if backslash >= checked:  # else the second half of a surrogate pair
                    size = escape_size(backslash)
                    if size == 0:
                        return 0, False
                    checked = backslash + size
                # clears the lowest bit
                unusual &= unusual - 1
        else:
            stops |= controls
        if stops != 0:
            at += first_bit(stops)
            # the first stop is the closing quote, or a control character
            return (at + 1, escaped) if byte_at(at) == _QUOTE else (0, False)
        at += 64


@kernel
def skip_space(at: int) -> int:
    """Return the address of the first byte that is not a space, tab or carriage return."""
    byte = byte_at(at)
    while byte == 0x20 or byte == 0x09 or byte == 0x0D:
        at += 1
        byte = byte_at(at)
    return at


@kernel
def skip_digits(at: int) -> int:
    """Return the address of the first byte that is no digit."""
    while 0x30 <= byte_at(at) <= 0x39:
        at += 1
    return at


@kernel
def skip_integer(at: int) -> int:
    """Return the address after the digits of the whole number at `at`, 0 if there are none or they break the grammar; it is also 0 for -0."""
    is_negative = byte_at(at) == 0x2D
    first = at + is_negative
    at = skip_digits(first)
    if at == first or (byte_at(first) == 0x30 and (is_negative or at - first > 1)):
        return 0
    return at


@kernel
def skip_number(at: int) -> int:
    """Return the address after the number at `at`, 0 if it breaks the grammar."""
    if byte_at(at) == 0x2D:
        at += 1
    first, at = at, skip_digits(at)
    # no digit, or a leading zero
    if at == first or (at - first > 1 and byte_at(first) == 0x30):
        return 0
    if byte_at(at) == 0x2E:
        first, at = at + 1, skip_digits(at + 1)
        if at == first:
            return 0
    # both cases of e at once
    if (byte_at(at) | 0x20) == 0x65:
        at += 1
        if byte_at(at) == 0x2B or byte_at(at) == 0x2D:
            at += 1
        first, at = at, skip_digits(at)
        if at == first:
            return 0
    return at


@kernel
def skip_key(at: int) -> int:
    """Return the address of the value whose key starts at `at`, 0 if it is no key with a colon."""
    if byte_at(at) != _QUOTE:
        return 0
    at, _ = skip_string(at + 1)
    if at == 0:
        return 0
    at = skip_space(at)
    if byte_at(at) != _COLON:
        return 0
    return skip_space(at + 1)


@kernel
def skip_literal(at: int) -> int:
    """Return the address after the true, false or null at `at`, 0 if there is none."""
    word = word_at(at)
    if word & _FOUR_BYTES == _NULL or word & _FOUR_BYTES == _TRUE:
        return at + 4
    # false has five letters: its f is compared alone, the rest as one word
    if word & 0xFF == 0x66 and (word >> 8) & _FOUR_BYTES == _ALSE:
        return at + 5
    return 0


@kernel
def skip_value(at: int, levels: int) -> int:
    """Return the address after the value at `at`, 0 if it is not valid or opens more than `levels` levels."""
    stack, depth = 0, 0  # bit 0 of the stack: the innermost level is an object
    while True:
        byte = byte_at(at)
        if byte == _QUOTE:
            at, _ = skip_string(at + 1)
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            at = skip_number(at)
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            is_object = byte == _OPEN_OBJECT
            at = skip_space(at + 1)
            # empty ones open no level, but at the limit they count as too deep
            if byte_at(at) == (_CLOSE_OBJECT if is_object else _CLOSE_ARRAY) and depth < levels:
                at += 1
            else:
                if depth == levels:
                    return 0
                depth += 1
                # kinds of up to 64 open levels fit in one number, which takes the place of recursion
                stack = (stack << 1) | is_object
                if is_object:
                    at = skip_key(at)
                    if at == 0:
                        return 0
                continue
        else:
            at = skip_literal(at)
        if at == 0:
            return 0
        # a value has ended: close all levels that end with it, or go on behind a comma
        while depth > 0:
            at = skip_space(at)
            byte = byte_at(at)
            if byte == _COMMA:
                at = skip_space(at + 1)
                if stack & 1:
                    at = skip_key(at)
                    if at == 0:
                        return 0
                break
            if byte != (_CLOSE_OBJECT if stack & 1 else _CLOSE_ARRAY):
                return 0
            at += 1
            stack >>= 1
            depth -= 1
        if depth == 0:
            return at


@kernel
def same_bytes(first: int, second: int, size: int) -> bool:
    """Return whether `size` > 0 bytes at both addresses are equal; both are readable 64 bytes beyond."""
    while size > 64:
        if differing64(first, second) != 0:
            return False
        first += 64
        second += 64
        size -= 64
    # differences behind `size` are of other bytes and do not count
    return bool(first_bit(differing64(first, second)) >= size)
