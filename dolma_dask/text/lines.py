"""Lines: where they end, and which occur more than once.

Finding ends costs 0.1 ns per byte: sixty-four bytes are looked at in one step.
"""

import numpy as np

from dolma_dask.text.bits import first_bit, hash_bytes, range_bits
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
def find_lines(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Counts, sizes: Counts, hashes: Words
) -> None:
    """Find the lines of all texts; see `dolma_dask.text.view.LineTable`."""
    n = 0
    for row in range(offsets.size - 1):
        at, end = offsets[row], offsets[row + 1]
        while True:
            stop = line_end(data, at, end)
            starts[n], sizes[n] = at - offsets[row], stop - at
            hashes[n] = hash_bytes(data, at, stop)
            n += 1
            if stop >= end:
                break
            at = stop + 1
        bounds[row + 1] = n


@kernel
def count_duplicates(
    data: Bytes, text_at: Int, starts: Counts, sizes: Counts, hashes: Words, kept: Counts, lines: Int,
    table: Words, generation: Int, repeated: Bools,
) -> tuple[Int, Int]:  # fmt: skip
    """Count (lines that occur more than once, code points in them), all copies included.

    The lines are ``kept[:lines]`` of `find_lines`, of a text that begins at byte `text_at`. `table` is that of `find_or_add`;
    ``repeated[:lines]`` is overwritten.
    """
    slots = slots_for(lines)
    duplicates, chars = np.int64(0), np.int64(0)
    for k in range(lines):
        repeated[k] = False
        line = kept[k]
        first = find_or_add(table, slots, generation, hashes[line], k)
        if first != k:
            copies = 1 if repeated[first] else 2
            repeated[first] = True
            duplicates += copies
            at = text_at + starts[line]
            chars += copies * code_points(data, at, at + sizes[line])
    return duplicates, chars
