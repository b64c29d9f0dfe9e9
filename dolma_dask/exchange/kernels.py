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
def count_buckets(rows: Any, word: int, low: Any, shift: int, counts: Any) -> int:
    """Count rows by ``(word - low) >> shift``; return the first row whose bucket does not exist, or -1."""
    least, amount = np.uint64(low), np.uint64(shift)
    most = np.uint64(counts.shape[0])
    for row in range(rows.shape[0]):
        bucket = (rows[row, word] - least) >> amount
        if bucket >= most:
            return row
        counts[bucket] += 1
    return -1


@kernel
def spread(rows: Any, word: int, low: Any, shift: int, next_rows: Any, out: Any) -> None:
    """Copy rows to `out`, bucket by bucket, in their order; `next_rows` (n_buckets,) says where each bucket goes on."""
    least, amount = np.uint64(low), np.uint64(shift)
    words = np.uint64(rows.shape[1])
    if words == 2:  # twice as fast without the loop
        for row in range(rows.shape[0]):
            bucket = (rows[row, word] - least) >> amount
            at = np.uint64(next_rows[bucket])
            next_rows[bucket] += 1
            out[at, 0] = rows[row, 0]
            out[at, 1] = rows[row, 1]
        return
    if words == 3:
        for row in range(rows.shape[0]):
            bucket = (rows[row, word] - least) >> amount
            at = np.uint64(next_rows[bucket])
            next_rows[bucket] += 1
            out[at, 0] = rows[row, 0]
            out[at, 1] = rows[row, 1]
            out[at, 2] = rows[row, 2]
        return
    for row in range(rows.shape[0]):
        bucket = (rows[row, word] - least) >> amount
        at = np.uint64(next_rows[bucket])
        next_rows[bucket] += 1
        for column in range(words):
            out[at, column] = rows[row, column]


@kernel
def digest_buckets(words: Any, width: int, column: Any) -> None:
    """Write the digest of each bucket of a slice into its `column`; see `dolma_dask.exchange.buckets`.

    `words` are those of the records, of `width` words each. A digest is the sum of the mixed words: a change of one word always changes it,
    other changes but once in 2**64. Sums need no order, so that a processor makes many at once.
    """
    for bucket in range(column.shape[0] - 1):
        column[bucket, 1] = _digest(words, width, column, bucket)


@kernel
def find_damage(words: Any, width: int, column: Any) -> int:
    """Return the first bucket of a slice whose digest is not that of its `column`, or -1."""
    for bucket in range(column.shape[0] - 1):
        if column[bucket, 1] != _digest(words, width, column, bucket):
            return bucket
    return -1


@kernel
def _digest(words: Any, width: int, column: Any, bucket: int) -> Any:
    first = (column[bucket, 0] - column[0, 0]) * np.uint64(width)
    count = (column[bucket + 1, 0] - column[bucket, 0]) * np.uint64(width)
    total = np.uint64(0)
    for step in range(count):
        word = words[first + np.uint64(step)] + np.uint64(0x9E3779B97F4A7C15)
        word *= np.uint64(0xBF58476D1CE4E5B9)
        total += (word ^ (word >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    return total


@kernel
def place(words: Any, width: int, column: Any, next_rows: Any, ends: Any, out: Any) -> bool:
    """Copy the buckets of a slice to where `next_rows` says that each goes on in the words of `out`.

    Returns False, with nothing more written, where a bucket would go beyond its end.
    """
    for bucket in range(column.shape[0] - 1):
        rows = column[bucket + 1, 0] - column[bucket, 0]
        at = np.uint64(next_rows[bucket])
        if at + rows > np.uint64(ends[bucket]):
            return False
        source = (column[bucket, 0] - column[0, 0]) * np.uint64(width)
        target = at * np.uint64(width)
        for step in range(rows * np.uint64(width)):
            out[target + np.uint64(step)] = words[source + np.uint64(step)]
        next_rows[bucket] = at + rows
    return True


@kernel
def drop_lone(rows: Any, ends: Any, seen: Any) -> int:
    """Move the rows whose first word may stand in another row of their bucket to the front, in order; return how many they are.

    `ends` (n_buckets,), where the buckets end, are then those of the rows that are left. `seen` has a byte for each slot of a hash, 64 at least: with
    four to eight of them per row of a bucket, a quarter or less of the rows that are alone share theirs with another and stay.
    """
    start, kept = np.uint64(0), np.uint64(0)
    for bucket in range(ends.shape[0]):
        end, shift, slots = np.uint64(ends[bucket]), np.uint64(58), np.uint64(64)
        while slots < np.uint64(4) * (end - start) and np.uint64(2) * slots <= np.uint64(seen.size):
            shift, slots = shift - np.uint64(1), np.uint64(2) * slots
        seen[:slots] = 0
        _count_words(rows, start, end, shift, seen)
        kept = _keep_repeated(rows, start, end, shift, seen, kept)
        ends[bucket] = kept
        start = end
    return int(kept)


_FACTOR, _ONE = np.uint64(0x9E3779B97F4A7C15), np.uint8(1)


@kernel
def _count_words(rows: Any, start: Any, end: Any, shift: Any, seen: Any) -> None:
    """Count first words by the highest bits of their hash: 1 for one, more bits for more."""
    for row in range(start, end):
        slot = (rows[row, 0] * _FACTOR) >> shift
        seen[slot] = (seen[slot] << _ONE) | _ONE


@kernel
def _keep_repeated(rows: Any, start: Any, end: Any, shift: Any, seen: Any, kept: Any) -> Any:
    """Copy rows to `kept` and further, the next one over a row that is alone: without a branch, since none could be predicted."""
    last = np.uint64(rows.shape[1] - 1)
    for row in range(start, end):
        first, other = rows[row, 0], rows[row, last]
        for word in range(np.uint64(1), last):
            rows[kept, word] = rows[row, word]
        rows[kept, 0] = first
        rows[kept, last] = other
        kept += np.uint64(seen[(first * _FACTOR) >> shift] != _ONE)
    return kept


@kernel
def is_table(table: Any, records: int) -> bool:
    """Tell whether the segments of a table, shape (n_segments, n_buckets + 1, 2), are in order and within the records of the file."""
    for segment in range(table.shape[0]):
        for bucket in range(1, table.shape[1]):
            if table[segment, bucket, 0] < table[segment, bucket - 1, 0]:
                return False
        if table[segment, table.shape[1] - 1, 0] > np.uint64(records):
            return False
    return True


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
    words = np.uint64(rows.shape[1])
    if words == 2:  # twice as fast without the loop
        for row in range(packed.shape[0]):
            source = packed[row] & mask
            out[row, 0] = rows[source, 0]
            out[row, 1] = rows[source, 1]
        return
    if words == 3:
        for row in range(packed.shape[0]):
            source = packed[row] & mask
            out[row, 0] = rows[source, 0]
            out[row, 1] = rows[source, 1]
            out[row, 2] = rows[source, 2]
        return
    for row in range(packed.shape[0]):
        source = packed[row] & mask
        for word in range(words):
            out[row, word] = rows[source, word]


@kernel
def is_settled(rows: Any, packed: Any, bits: int, word: int) -> bool:
    """Tell whether neighbours that are alike in `packed` are in order of the words from `word` on; only two words are looked at.

    Whether neighbours are alike cannot be predicted, so all are compared, without a branch.
    """
    width, found = np.uint64(bits), False
    last = rows.shape[1] - 1
    after = min(word + 1, last)
    is_open = after < last
    for row in range(1, packed.shape[0]):
        here, before = rows[row, word], rows[row - 1, word]
        alike = (packed[row] >> width) == (packed[row - 1] >> width)
        below = (rows[row, after] < rows[row - 1, after]) | (
            (rows[row, after] == rows[row - 1, after]) & is_open
        )
        found |= alike & ((here < before) | ((here == before) & below))
    return not found


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
