"""Texts without control characters and without what is no character, which some packages refuse."""

import numpy as np

from dolma_dask.text.bits import ONE, first_bit, low_bits, range_bits
from dolma_dask.text.columns import large_strings
from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.tables import decode
from dolma_dask.text.view import TextView

_SPACE, _FIRST, _BACKSPACE, _VERTICAL_TAB, _SHIFT_OUT, _LAST_CONTROL, _DELETE, _C2, _EF, _LAST_BYTE = (
    np.uint8(byte) for byte in (0x20, 0x00, 0x08, 0x0B, 0x0E, 0x1F, 0x7F, 0xC2, 0xEF, 0xFF)
)


@kernel
def _is_refused(code: Int) -> bool:
    is_control = (code < 32 and code != 9 and code != 10 and code != 12 and code != 13) or (127 <= code < 160)
    return bool(is_control or (code & 0xFFFE) == 0xFFFE or (0xFDD0 <= code < 0xFDF0))


@kernel
def _holds_refused(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether UTF-8 has control characters or what is no character: only few bytes begin these, and sixty-four are looked at together."""
    while at < end:
        doubtful = range_bits(data, at, _FIRST, _BACKSPACE) | range_bits(
            data, at, _VERTICAL_TAB, _VERTICAL_TAB
        )
        doubtful |= range_bits(data, at, _SHIFT_OUT, _LAST_CONTROL) | range_bits(data, at, _DELETE, _DELETE)
        doubtful |= range_bits(data, at, _C2, _C2) | range_bits(data, at, _EF, _LAST_BYTE)
        doubtful &= low_bits(end - at)
        while doubtful:
            if _is_refused(decode(data, at + first_bit(np.int64(doubtful)))[0]):
                return True
            doubtful &= doubtful - ONE
        at += 64
    return False


@kernel
def _blank_refused(data: Bytes, begin: Int, end: Int, out: Bytes) -> None:
    """Copy UTF-8 with spaces in place of control characters and of what is no character."""
    at = begin
    while at < end:
        code, width = decode(data, at)
        refused = _is_refused(code)
        for place in range(at, at + width):
            out[place - begin] = _SPACE if refused else data[place]
        at += width


def interchangeable(view: TextView) -> TextView:
    """Return the texts of a view with as many spaces as bytes in place of control characters (but tab and the ends of lines) and of code points that are no characters."""
    begin, end = int(view.offsets[0]), int(view.offsets[-1])
    if not _holds_refused(view.data, begin, end):
        return view
    out = np.empty(end - begin, np.uint8)
    _blank_refused(view.data, begin, end, out)
    return view.inner(large_strings(view.offsets - begin, out), "interchangeable")
