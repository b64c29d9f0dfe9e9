"""Lines: where they end, and which occur more than once.

Finding ends costs 0.1 ns per byte: sixty-four bytes are looked at in one step.
"""

import numpy as np

from dolma_dask.text.bits import first_bit, range_bits
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Words, kernel
from dolma_dask.text.ngrams import find_or_add, slots_for
from dolma_dask.text.tables import code_points

_NEWLINE = np.uint8(0x0A)


@kernel
def line_end(data: Bytes, at: Int, end: Int) -> Int:
    """Byte of the first newline from byte `at` on, or `end`."""
    while at < end:
        newlines = range_bits(data, at, _NEWLINE, _NEWLINE)
        if newlines:
            return min(at + first_bit(newlines), end)
        at += 64
    return end


@kernel
def newlines_end(data: Bytes, at: Int, end: Int) -> Int:
    """Byte after the run of newlines that begins at byte `at`."""
    while at < end and data[at] == _NEWLINE:
        at += 1
    return at


@kernel
def count_duplicates(
    data: Bytes,
    end: Int,
    lines: Int,
    hashes: Words,
    starts: Counts,
    table: Words,
    generation: Int,
    repeated: Bools,
) -> tuple[Int, Int]:
    """Count (lines that occur more than once, code points in them), all copies included.

    Line k begins at byte ``starts[k]`` of a text that ends at byte `end`, and has the hash ``hashes[k]``. `table` is
    that of `find_or_add`; ``repeated[:lines]`` is overwritten.
    """
    slots = slots_for(lines)
    duplicates, chars = np.int64(0), np.int64(0)
    for line in range(lines):
        repeated[line] = False
        first = find_or_add(table, slots, generation, hashes[line], line)
        if first != line:
            copies = 1 if repeated[first] else 2
            repeated[first] = True
            duplicates += copies
            chars += copies * code_points(data, starts[line], line_end(data, starts[line], end))
    return duplicates, chars
