"""Where paragraphs lie in their texts: one pass over the bytes, sixty-four at once, without a copy of the text."""

import numpy as np

from dolma_dask.text.bits import ONE, count_bits, first_bit, low_bits, range_bits
from dolma_dask.text.kernels import Bytes, Counts, Int, kernel

_FIRST_REST, _LAST_REST = np.uint8(0x80), np.uint8(0xBF)  # bytes of UTF-8 that begin no code point


@kernel
def _stands_at(data: Bytes, at: Int, separator: Bytes) -> bool:
    for k in range(1, separator.size):  # noqa: SIM110  numba compiles no generators
        if data[at + k] != separator[k]:
            return False
    return True


@kernel
def find_paragraphs(
    data: Bytes, offsets: Counts, separator: Bytes, bounds: Counts, starts: Counts, ends: Counts, lengths: Counts
) -> Int:  # fmt: skip
    """Write where each paragraph of n texts begins and ends, without the separator, and how many code points it has; returns how many paragraphs there are.

    Text i, ``data[offsets[i]:offsets[i + 1]]``, has those from ``bounds[i]`` to ``bounds[i + 1]``: one more than it has separators, which are found from the left and
    do not overlap. There is room for a paragraph per text and one per byte that a separator may begin with.
    """
    written: Int = 0
    size: Int = separator.size
    within: Int = 0
    for k in range(size):
        within += _FIRST_REST <= separator[k] <= _LAST_REST
    for text in range(offsets.size - 1):
        bounds[text] = written
        at, end = offsets[text], offsets[text + 1]
        # of bytes that begin no code point: those before `at` and those before `start`, from the first of the text on
        start, counted, before = at, np.int64(0), np.int64(0)
        while at < end:
            inside = low_bits(end - at)
            rest = range_bits(data, at, _FIRST_REST, _LAST_REST) & inside
            found = range_bits(data, at, separator[0], separator[0]) & inside
            while found:
                place = first_bit(found)
                found &= found - ONE
                hit = at + place
                if hit < start or hit + size > end or not _stands_at(data, hit, separator):
                    continue
                until = counted + count_bits(rest & low_bits(place))
                starts[written], ends[written] = start, hit
                lengths[written] = hit - start - (until - before)
                written += 1
                start, before = hit + size, until + within
            counted += count_bits(rest)
            at += 64
        starts[written], ends[written] = start, end
        lengths[written] = end - start - (counted - before)
        written += 1
    bounds[offsets.size - 1] = written
    return written
