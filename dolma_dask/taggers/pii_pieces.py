"""Pieces of texts in which the patterns of personal data are tried: those that have what no match lacks.

Sixty-four bytes are looked at at once for ``@``, for ``ddd[-. ]?dddd`` with which telephone numbers end, for three points between digits as IP addresses have them, and for
digits that are not ASCII. Few lines have any of these.
"""

import numpy as np

from dolma_dask.taggers.pii_patterns import is_digit, other_digit_bits
from dolma_dask.text.bits import ONE, first_bit, leading_zeros, low_bits, range_bits
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel
from dolma_dask.text.tables import decode
from dolma_dask.text.words import line_end

_NEWLINE, _BLANK, _AT = (np.uint8(ord(char)) for char in "\n @")
_MINUS, _DOT, _DIGIT_0, _DIGIT_9 = (np.uint8(ord(char)) for char in "-.09")
_TWO, _THREE, _FOUR = (np.uint64(number) for number in (2, 3, 4))
_STEP = 54
"""Bytes of a window where a sign may begin: the longest, ``d.ddd.ddd.d``, has eleven."""


@kernel
def _number_bits(data: Bytes, at: Int, digits: np.uint64) -> np.uint64:
    """Bits of the window at byte `at` where the end of a telephone number or an IP address may begin."""
    dots = range_bits(data, at, _DOT, _DOT)
    gaps = range_bits(data, at, _MINUS, _DOT) | range_bits(data, at, _BLANK, _BLANK)
    three = digits & digits >> ONE & digits >> _TWO
    four = three & digits >> _THREE
    dotted = digits & dots >> ONE & digits >> _TWO
    twice = dotted & (dotted >> _TWO | dotted >> _THREE | dotted >> _FOUR)
    thrice = twice & (twice >> _TWO | twice >> _THREE | twice >> _FOUR)
    return thrice | three & (four >> _THREE | gaps >> _THREE & four >> _FOUR)


@kernel
def _first_sign(data: Bytes, at: Int, end: Int, zeros: Counts) -> Int:
    """Return where a match may be, from byte `at` on; `end` if there is none."""
    while at < end:
        found = range_bits(data, at, _AT, _AT)
        digits = range_bits(data, at, _DIGIT_0, _DIGIT_9)
        if digits:
            found |= _number_bits(data, at, digits)
        others = other_digit_bits(data, at) & low_bits(end - at)
        while others:
            place = first_bit(others)
            if is_digit(decode(data, at + place)[0], zeros):
                found |= ONE << np.uint64(place)
                break
            others &= others - ONE
        found &= low_bits(min(_STEP, end - at))
        if found:
            return at + first_bit(found)
        at += _STEP
    return end


@kernel
def _line_begin(data: Bytes, begin: Int, at: Int) -> Int:
    """Byte behind the last newline before byte `at`, or `begin`."""
    while at > begin:
        start = max(at - 64, begin)
        found = range_bits(data, start, _NEWLINE, _NEWLINE) & low_bits(at - start)
        if found:
            return start + 64 - leading_zeros(np.int64(found))
        at = start
    return begin


@kernel
def find_pieces(
    data: Bytes, offsets: Counts, in_lines: bool, zeros: Counts, bounds: Counts, begins: Counts, stops: Counts
) -> None:
    """Set where the texts begin and end that may have a match, or the lines of all texts, with their newlines."""
    count = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at = _first_sign(data, begin, end, zeros)
        while at < end:
            begins[count] = _line_begin(data, begin, at) if in_lines else begin
            begin = min(line_end(data, at, end) + 1, end) if in_lines else end
            stops[count] = begin
            count += 1
            at = _first_sign(data, begin, end, zeros)
        bounds[row + 1] = count
