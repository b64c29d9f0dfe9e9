"""Kernels for what code begins with: the first comment between ``/*`` and ``*/`` that has the word copyright, or the lines of comments before anything else."""

import numpy as np

from dolma_dask.text.bits import ONE, first_bit, low_bits, range_bits
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel
from dolma_dask.text.tables import code_points
from dolma_dask.text.words import line_end

_SLASH, _STAR, _UPPER_C, _LOWER_C = (np.uint8(ord(char)) for char in "/*Cc")
_NUMBER_SIGN, _DOUBLED = np.uint8(ord("#")), tuple(b"/-")
_WORD = tuple(b"copyright")
_C4, _DOTTED, _DOTLESS = 0xC4, 0xB0, 0xB1
"""Bytes of the two letters that are an i for `re` where case does not count: U+0130 and U+0131."""


@kernel
def _find_pair(data: Bytes, at: Int, end: Int, first: np.uint8, second: np.uint8) -> Int:
    """Return where two bytes stand one behind the other, from byte `at` on; `end` if they do not."""
    while at < end - 1:
        found = range_bits(data, at, first, first) & range_bits(data, at + 1, second, second)
        found &= low_bits(end - 1 - at)
        if found:
            return at + first_bit(found)
        at += 64
    return end


@kernel
def _is_copyright(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether the word begins at byte `at`, in letters of any case."""
    for letter in _WORD:
        if at >= end:
            return False
        if letter == ord("i") and data[at] == _C4 and (data[at + 1] == _DOTTED or data[at + 1] == _DOTLESS):
            at += 2
        elif data[at] | 0x20 == letter:
            at += 1
        else:
            return False
    return True


@kernel
def _has_copyright(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether the word stands between byte `at` and `end`."""
    while at < end:
        found = range_bits(data, at, _LOWER_C, _LOWER_C) | range_bits(data, at, _UPPER_C, _UPPER_C)
        found &= low_bits(end - at)
        while found:
            if _is_copyright(data, at + first_bit(found), end):
                return True
            found &= found - ONE
        at += 64
    return False


@kernel
def _is_comment(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether ``//``, ``#`` or ``--`` stands at byte `at`."""
    if data[at] == _NUMBER_SIGN:
        return True
    return bool(at + 1 < end and data[at] == data[at + 1] and np.int64(data[at]) in _DOUBLED)


@kernel
def _block_size(data: Bytes, at: Int, end: Int) -> Int:
    """Count the characters of the lines of comments from byte `at` on, without their newlines, an empty line as one."""
    size: Int = 0
    while at <= end:
        stop = line_end(data, at, end)
        if stop > at and not _is_comment(data, at, stop):
            break
        size += max(code_points(data, at, stop), 1)
        at = stop + 1
    return size


@kernel
def find_notices(data: Bytes, offsets: Counts, starts: Counts, ends: Counts, sizes: Counts) -> None:
    """Set where the notice of each text starts and ends, in code points, or the size of its block; 0 where it has none."""
    for row in range(starts.size):
        begin, end = offsets[row], offsets[row + 1]
        starts[row] = ends[row] = sizes[row] = 0
        start = _find_pair(data, begin, end, _SLASH, _STAR)
        closed = _find_pair(data, start + 2, end, _STAR, _SLASH)
        if closed == end:
            sizes[row] = _block_size(data, begin, end)
        elif _has_copyright(data, start, closed + 2):
            starts[row] = code_points(data, begin, start)
            ends[row] = starts[row] + code_points(data, start, closed + 2)
