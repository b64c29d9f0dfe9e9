"""Texts without control characters and without what is no character, which some packages refuse."""

import numpy as np

from dolma_dask.text.columns import large_strings
from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.tables import decode
from dolma_dask.text.view import TextView

_SPACE = np.uint8(ord(" "))


@kernel
def _blank_refused(data: Bytes, begin: Int, end: Int, out: Bytes) -> Int:
    """Copy UTF-8 with spaces in place of control characters and of what is no character; return how many bytes changed."""
    changed = 0
    at = begin
    while at < end:
        code, width = decode(data, at)
        is_control = (code < 32 and code != 9 and code != 10 and code != 12 and code != 13) or (
            127 <= code < 160
        )
        is_none = (code & 0xFFFE) == 0xFFFE or (0xFDD0 <= code < 0xFDF0)
        for place in range(at, at + width):
            if is_control or is_none:
                out[place - begin] = _SPACE
                changed += 1
            else:
                out[place - begin] = data[place]
        at += width
    return changed


def interchangeable(view: TextView) -> TextView:
    """Return the texts of a view with as many spaces as bytes in place of control characters (but tab and the ends of lines) and of code points that are no characters."""
    begin, end = int(view.offsets[0]), int(view.offsets[-1])
    out = np.empty(end - begin, np.uint8)
    if not _blank_refused(view.data, begin, end, out):
        return view
    return view.inner(large_strings(view.offsets - begin, out), "interchangeable")
