"""Numbers, strings and spans as JSON text, whole columns at a time.

Every function takes an Arrow array and returns one of JSON texts (large_string) of the same length; null stays null.
The bytes are those of Python's `json.dumps` with compact separators and ``ensure_ascii=False``.

Numbers are exact: a score is ``repr(round(x, 5))``, with 8 decimals for taggers that are published so, another number ``repr(x)``. Below 1e9 a score is
the integer nearest to ``x * 1e5`` (ties decided on the exact product, to even), written with a decimal point; with at most 14 digits no shorter text names the
same float, so that is what `repr` prints. Everything else is *hard* and goes through Python's own `repr`, about 0.3 us each. Cost: 10 ns per score, 1 ns
per byte of string.
"""

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.text.bits import copy_bytes
from dolma_dask.text.columns import for_kernel, large_strings, string_parts, validity
from dolma_dask.text.kernels import Bytes, Counts, kernel

DECIMALS = 5
"""Decimals of a score, as the Dolma toolkit writes it."""
EASY_DIGITS = 14
"""Decimal digits of the longest easy number after rounding; a float64 holds 15."""
MAX_NUMBER = 24
"""Length of the longest `repr` of a float64, ``-1.7976931348623157e+308``."""
MAX_INTEGER = 20
"""Length of the longest int64, with its sign."""
LEFT_OUT, EASY, HARD, WHOLE = range(4)
QUOTE, COMMA, MINUS, POINT, ZERO, OPEN, BACKSLASH, CLOSE, UNICODE = 34, 44, 45, 46, 48, 91, 92, 93, 117


def _escapes() -> Bytes:
    """Return uint8[256]: what stands behind the backslash of each byte that is escaped, 0 for the others."""
    escapes = np.zeros(256, np.uint8)
    escapes[:32] = UNICODE
    escapes[list(b'\b\t\n\f\r"\\')] = list(b'btnfr"\\')
    return escapes


_ESCAPES = _escapes()


class Numbers(Struct, frozen=True):
    """Floats ready to be written: ``state`` says for each whether it is left out, easy, or the next of the ``hard`` texts.

    ``values`` and ``state`` have one shape, (n,) or (columns, n); hard texts lie in the order in which a kernel meets
    them, rows first, cut by ``offsets`` (hard + 1,).
    """

    values: NDArray[np.float64]
    state: NDArray[np.uint8]
    offsets: Counts
    hard: Bytes


def prepare_numbers(
    values: NDArray[np.float64], valid: NDArray[np.bool_], decimals: NDArray[np.int64] | int | None
) -> Numbers:
    """Sort finite floats into easy and hard; where `valid` is False, they may be anything. None for `decimals`: not rounded."""
    places = np.asarray(DECIMALS if decimals is None else decimals)
    with np.errstate(all="ignore"):
        size, limit = np.abs(values), 10.0 ** (EASY_DIGITS - places)
        easy = (limit > size.T).T
        if decimals is None:
            easy &= np.rint(values * 1e5) / 1e5 == values
        if np.any(places != DECIMALS):  # below 1e-4, repr writes an exponent, and here more than one digit
            easy &= ((places == DECIMALS) | (size.T >= 1e-4) | (size.T == 0)).T
    state = np.where(easy, np.uint8(EASY), np.uint8(HARD))
    state *= valid
    is_hard = state.T == HARD
    hard, digits = values.T[is_hard].tolist(), np.broadcast_to(places, is_hard.shape)[is_hard].tolist()
    texts = [repr(x if decimals is None else round(x, most)) for x, most in zip(hard, digits, strict=True)]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return Numbers(values, state, offsets, np.frombuffer("".join(texts).encode(), np.uint8))


def _whole(values: NDArray[np.float64], valid: NDArray[np.bool_]) -> Numbers:
    """Return floats that are written as integers: none is hard."""
    state = np.where(valid, np.uint8(WHOLE), np.uint8(LEFT_OUT))
    return Numbers(values, state, np.zeros(1, np.int64), np.empty(0, np.uint8))


def number_texts(values: NDArray[np.float64], valid: NDArray[np.bool_]) -> pa.LargeStringArray:
    """Finite floats as JSON texts, not rounded; null where `valid` is False."""
    numbers = prepare_numbers(values, valid, None)
    out = np.empty(MAX_NUMBER * values.size, np.uint8)
    offsets = np.empty(values.size + 1, np.int64)
    _write_numbers(for_kernel(values), numbers.state, numbers.offsets, numbers.hard, out, offsets)
    return large_strings(offsets, out, valid)


def string_texts(strings: pa.Array) -> pa.LargeStringArray:
    """Strings as quoted JSON texts; escaped are the quote, the backslash and control characters, nothing else."""
    offsets, data = string_parts(strings)
    # Six bytes for every one is address space, not memory: what the kernel does not reach is never touched.
    out = np.empty(6 * int(offsets[-1] - offsets[0]) + 2 * len(strings), np.uint8)
    ends = np.empty(len(strings) + 1, np.int64)
    _write_strings(offsets, data, out, ends)
    return large_strings(ends, out, validity(strings))


def span_texts(
    bounds: Counts,
    valid: NDArray[np.bool_],
    starts: Counts,
    ends: Counts,
    scores: NDArray[np.float64],
    decimals: int = DECIMALS,
) -> pa.LargeStringArray:
    """Lists of spans as ``[[start,end,score],...]``; list i is ``bounds[i]:bounds[i + 1]`` of the flat columns. No `decimals`: whole scores, as integers."""
    inside = np.repeat(valid, np.diff(bounds))
    numbers = prepare_numbers(scores, inside, decimals) if decimals else _whole(scores, inside)
    out = np.empty(len(scores) * (2 * MAX_INTEGER + MAX_NUMBER + 5) + 2 * len(valid), np.uint8)
    offsets = np.empty(len(valid) + 1, np.int64)
    bounds, starts, ends = for_kernel(bounds), for_kernel(starts), for_kernel(ends)
    hard = (numbers.offsets, numbers.hard)
    _write_spans(bounds, starts, ends, for_kernel(scores), numbers.state, *hard, decimals, out, offsets)
    return large_strings(offsets, out, valid)


@kernel
def put_digits(out: Bytes, p: int, number: int | np.uint64) -> int:
    """Write a non-negative integer; return the position behind it."""
    rest = np.uint64(number)
    ten = np.uint64(10)  # with a plain 10, numba would calculate in floats
    size = 1
    limit = ten
    while size < 19 and rest >= limit:
        size += 1
        limit *= ten
    # from the last digit to the first: their number is known, so that nothing is moved afterwards
    for k in range(p + size - 1, p - 1, -1):
        out[k] = np.uint8(rest % ten) + ZERO
        rest //= ten
    return p + size


@kernel
def put_integer(out: Bytes, p: int, number: int) -> int:
    """Write an int64 with its sign."""
    if number < 0:
        out[p] = MINUS
        p += 1
        # the smallest int64 stays what it is, and `put_digits` takes its bits as 2**63
        number = -number
    return put_digits(out, p, number)


@kernel
def nearest_units(x: float, units: float) -> int:
    """Return the integer nearest to ``x * units``, ties to even, judged on the exact product: for 0 <= x, a product below 2**50, and `units` of at most 26
    significant bits, as 1e5 (12) and 1e8 (19) have.
    """
    product = x * units
    floor = np.floor(product)
    above_tie = product - floor - 0.5
    # The product is off by at most 2**-53 of itself: only this near to a tie can that change the answer.
    if abs(above_tie) <= product * 2.0**-52:
        # Veltkamp's split: both halves times the units are exact, and so is the first difference (Sterbenz).
        spread = x * 134217729.0
        high = spread - (spread - x)
        above_tie = (high * units - (floor + 0.5)) + (x - high) * units
        if above_tie == 0.0:
            return int(floor) + (int(floor) & 1)
    return int(floor) + int(above_tie > 0.0)


@kernel
def _round_all(values, units, out):  # type: ignore[no-untyped-def]
    for at in range(values.size):
        x = abs(values[at])
        whole = np.floor(x)
        rounded = x
        if x * units < 2.0**53:  # above, neighbouring floats are further apart
            # split at the point, so that `nearest_units` gets a product below 2**50
            rounded = (whole * units + nearest_units(x - whole, units)) / units
        out[at] = np.copysign(rounded, values[at])


def round_scores(values: NDArray[np.float64], decimals: int) -> NDArray[np.float64]:
    """Return ``round(x, decimals)`` of finite floats of any shape, for 5 or 8 decimals."""
    out = np.empty(values.shape)
    _round_all(np.ascontiguousarray(values).reshape(-1), 10.0**decimals, out.reshape(-1))
    return out


@kernel
def put_score(out: Bytes, p: int, x: float, decimals: int) -> int:
    """Write ``repr(round(x, decimals))`` for an easy number, of 5 or 8 decimals."""
    if np.copysign(1.0, x) < 0.0:  # -0.0 keeps its sign
        out[p] = MINUS
        p += 1
        x = -x
    # the other branch says the same for 8
    if decimals == DECIMALS:  # division by a constant
        units = np.uint64(nearest_units(x, 1e5))
        whole, rest = units // np.uint64(100000), np.uint32(units % np.uint64(100000))
    else:
        units = np.uint64(nearest_units(x, 1e8))
        whole, rest = units // np.uint64(100000000), np.uint32(units % np.uint64(100000000))
    if whole == np.uint64(0) and np.uint32(0) < rest < np.uint32(10):  # 3e-05: repr uses exponents below 1e-4
        out[p] = np.uint8(rest) + ZERO
        out[p + 1] = 101
        out[p + 2] = MINUS
        out[p + 3] = ZERO
        out[p + 4] = ZERO + 5
        return p + 5
    p = put_digits(out, p, whole)
    out[p] = POINT
    return _put_decimals(out, p + 1, rest, decimals)


@kernel
def _put_decimals(out: Bytes, p: int, rest: np.uint32, decimals: int) -> int:
    """Write the decimals without the zeros at their end, of which one stays."""
    if rest == np.uint32(0):
        out[p] = ZERO
        return p + 1
    ten = np.uint32(10)
    # shrinks as long as all digits from the end are zeros
    size = decimals
    for k in range(decimals - 1, -1, -1):
        digit = rest % ten
        out[p + k] = np.uint8(digit) + ZERO
        if digit == np.uint32(0) and size == k + 1:
            size = k
        rest = np.uint32(rest // ten)
    return p + size


@kernel
def put_piece(out: Bytes, p: int, data: Bytes, offsets: Counts, k: int) -> int:
    """Copy piece `k` of `data`; return the position behind it."""
    size = int(offsets[k + 1] - offsets[k])
    copy_bytes(out, p, data, offsets[k], size)
    return p + size


@kernel
def _write_numbers(values, state, hard_offsets, hard, out, offsets):  # type: ignore[no-untyped-def]
    p, next_hard = 0, 0
    for i in range(values.size):
        # a number that is left out is empty: its offsets are equal, and the column has a null there
        offsets[i] = p
        if state[i] == EASY:
            p = put_score(out, p, values[i], DECIMALS)
        elif state[i] == HARD:
            p = put_piece(out, p, hard, hard_offsets, next_hard)
            next_hard += 1
    offsets[values.size] = p


@kernel
def _write_spans(bounds, starts, ends, scores, state, hard_offsets, hard, decimals, out, offsets):  # type: ignore[no-untyped-def]
    p, next_hard = 0, 0
    for i in range(bounds.size - 1):
        offsets[i] = p
        out[p] = OPEN
        p += 1
        for k in range(bounds[i], bounds[i + 1]):
            if state[k] == LEFT_OUT:
                continue
            # `valid` covers whole lists, so that a list is left out with all of its spans or not at all
            if k > bounds[i]:
                out[p] = COMMA
                p += 1
            out[p] = OPEN
            p = put_integer(out, p + 1, starts[k])
            out[p] = COMMA
            p = put_integer(out, p + 1, ends[k])
            out[p] = COMMA
            p += 1
            if decimals == 0:
                p = put_integer(out, p, int(scores[k]))
            elif state[k] == HARD:
                p = put_piece(out, p, hard, hard_offsets, next_hard)
                next_hard += 1
            else:
                p = put_score(out, p, scores[k], decimals)
            out[p] = CLOSE
            p += 1
        out[p] = CLOSE
        p += 1
    offsets[bounds.size - 1] = p


@kernel
def _write_strings(offsets, data, out, ends):  # type: ignore[no-untyped-def]
    p = 0
    for i in range(offsets.size - 1):
        ends[i] = p
        first, last = offsets[i], offsets[i + 1]
        special = 0
        for k in range(first, last):  # no early exit: this form is vectorised
            special += (data[k] < 32) | (data[k] == QUOTE) | (data[k] == BACKSLASH)
        out[p] = QUOTE
        p += 1
        if special == 0:
            p = put_piece(out, p, data, offsets, i)
        else:
            for k in range(first, last):
                p = _put_escaped(out, p, data[k])
        out[p] = QUOTE
        p += 1
    ends[offsets.size - 1] = p


@kernel
def _put_escaped(out, p, byte):  # type: ignore[no-untyped-def]
    short = _ESCAPES[byte]
    if short == 0:
        out[p] = byte
        return p + 1
    out[p] = BACKSLASH
    out[p + 1] = short
    if short != UNICODE:
        return p + 2
    # control characters are below 32: two of the four digits are always zero
    out[p + 2] = ZERO
    out[p + 3] = ZERO
    out[p + 4] = ZERO + (byte >> 4)
    low = byte & 15
    out[p + 5] = ZERO + low if low < 10 else 87 + low
    return p + 6
