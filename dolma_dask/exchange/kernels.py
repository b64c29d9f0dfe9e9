"""Kernels over records as words: spread them over buckets, put equal first words in order, count what lies below a bound.

Rows are moved whole; a row is 16 to 40 bytes. All loops are linear in the rows, except for sorts of short runs of equal words.
"""

from typing import Any

import numpy as np

from dolma_dask.text.kernels import kernel

LONG_RUN = 64
"""Rows from which on NumPy's sort of the next word is worth a call; insertion sort orders fewer."""


@kernel
def extent(rows: Any, word: int) -> tuple[int, int]:
    """Return the least and the greatest value of a word; there must be rows."""
    low = high = rows[0, word]
    for row in range(1, rows.shape[0]):
        value = rows[row, word]
        low = min(low, value)
        high = max(high, value)
    return low, high


@kernel
def count_buckets(rows: Any, low: Any, shift: int, counts: Any) -> int:
    """Count rows by ``(first word - low) >> shift``; return the first row whose bucket does not exist, or -1."""
    least, amount = np.uint64(low), np.uint64(shift)
    most = np.uint64(counts.shape[0])
    for row in range(rows.shape[0]):
        bucket = (rows[row, 0] - least) >> amount
        if bucket >= most:
            return row
        counts[bucket] += 1
    return -1


@kernel
def spread(rows: Any, low: Any, shift: int, next_rows: Any, out: Any) -> None:
    """Copy rows to `out`, bucket by bucket, in their order; `next_rows` (n_buckets,) says where each bucket goes on."""
    least, amount = np.uint64(low), np.uint64(shift)
    words = rows.shape[1]
    for row in range(rows.shape[0]):
        bucket = (rows[row, 0] - least) >> amount
        at = next_rows[bucket]
        next_rows[bucket] = at + 1
        for word in range(words):
            out[at, word] = rows[row, word]


@kernel
def is_sorted(rows: Any) -> bool:
    """Tell whether rows are in order of all their words."""
    return _is_in_order(rows, 0, rows.shape[0], 0)


@kernel
def _is_in_order(rows: Any, start: int, end: int, word: int) -> bool:
    for row in range(start + 1, end):  # noqa: SIM110  numba compiles no generators
        if _is_below(rows, row, row - 1, word):
            return False
    return True


@kernel
def pack(rows: Any, word: int, low: Any, shift: int, bits: int, packed: Any) -> None:
    """Write for each row ``(word - low) >> shift`` above its own number in the lowest `bits`."""
    least, amount, width = np.uint64(low), np.uint64(shift), np.uint64(bits)
    for row in range(rows.shape[0]):
        packed[row] = (((rows[row, word] - least) >> amount) << width) | np.uint64(row)


@kernel
def unpack(rows: Any, packed: Any, bits: int, out: Any) -> None:
    """Copy rows to `out` in the order of `packed`."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    words = rows.shape[1]
    for row in range(packed.shape[0]):
        source = packed[row] & mask
        for word in range(words):
            out[row, word] = rows[source, word]


@kernel
def settle(rows: Any, packed: Any, bits: int, word: int, long_runs: Any) -> int:
    """Order runs of rows that are alike in `packed` by the words from `word` on; those before are equal in a run.

    Returns the number of runs of more than `LONG_RUN` rows that are not in order and are left as they are; their bounds are in
    `long_runs`, shape (m, 2).
    """
    width = np.uint64(bits)
    found = 0
    count = rows.shape[0]
    start = 0
    while start < count:
        end = start + 1
        while end < count and packed[end] >> width == packed[start] >> width:
            end += 1
        if end - start <= LONG_RUN:
            _insertion_sort(rows, start, end, word)
        elif not _is_in_order(rows, start, end, word):
            long_runs[found, 0] = start
            long_runs[found, 1] = end
            found += 1
        start = end
    return found


@kernel
def _is_below(rows: Any, left: int, right: int, word: int) -> bool:
    for at in range(word, rows.shape[1]):
        if rows[left, at] != rows[right, at]:
            return bool(rows[left, at] < rows[right, at])
    return False


@kernel
def _swap(rows: Any, left: int, right: int, word: int) -> None:
    for at in range(word, rows.shape[1]):
        kept = rows[left, at]
        rows[left, at] = rows[right, at]
        rows[right, at] = kept


@kernel
def _insertion_sort(rows: Any, start: int, end: int, word: int) -> None:
    for row in range(start + 1, end):
        at = row
        while at > start and _is_below(rows, at, at - 1, word):
            _swap(rows, at, at - 1, word)
            at -= 1


@kernel
def count_not_above(rows: Any, bound: Any) -> int:
    """Return how many of the sorted `rows` are not above the row `bound`, shape (n_words,)."""
    low, high = 0, rows.shape[0]
    while low < high:
        middle = (low + high) // 2
        above = False
        for word in range(rows.shape[1]):
            if rows[middle, word] != bound[word]:
                above = rows[middle, word] > bound[word]
                break
        if above:
            high = middle
        else:
            low = middle + 1
    return low
