"""Repeated lines of a document, and repeated word n-grams, for one n after the other, at almost no cost for normal text.

An n-gram can occur twice only if both (n-1)-grams in it do, so after the pairs only the few positions that still repeat
are looked at. From n = 3 on an n-gram is named by the first positions of its two (n-1)-grams: two small integers, exact,
so that only words are compared by their 64-bit hashes (a false match: one pair of different words or pairs in 2**64).

All sets of a batch live in one open-addressing table. Its slots hold (key, generation and position); raising the
generation empties it, and a document uses only as many slots as it has words, so that small documents stay in cache.
"""

import numpy as np

from dolma_dask.text.kernels import Bools, Bytes, Int, Positions, Words, kernel
from dolma_dask.text.tables import code_points

SMALLEST_TABLE = 64
"""Slots of the smallest table."""
LARGE = 1 << 20
"""Entries from which on memory counts for more than a few further steps to a free slot: a text of some MB."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_POSITION = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)


@kernel
def table_slots(entries: Int) -> Int:
    """Slots for so many entries, never fewer than for less: twice as many to four times, of a large number a quarter more."""
    if entries >= LARGE:
        return max(2 * LARGE, entries + entries // 4)
    slots = SMALLEST_TABLE
    while slots < 2 * entries:
        slots *= 2
    return slots


@kernel
def find_or_add(table: Words, slots: Int, generation: Int, key: np.uint64, position: Int) -> Int:
    """Return the position under which `key` was added in this generation, after adding it at `position` if it is new.

    `table` has a size of ``2 * slots`` or more and is all 0 before the first generation, which is 1; a generation
    always has the same `slots`, and fewer entries than that. Slots, generations and positions are below 2**32.
    """
    stamp = np.uint64(generation) << _S32
    # from the upper half of the product, on which more bits of the key have an effect
    upper = (key * _FACTOR) >> _S32
    slot = np.int64(upper) & (slots - 1)
    # no power of two, as of large tables: a share of the slots
    if slots & (slots - 1):
        slot = np.int64(upper * np.uint64(slots) >> _S32)
    while True:
        entry = table[2 * slot + 1]
        # another generation in the upper half: the slot is free, whatever it holds
        if entry ^ stamp > _POSITION:
            table[2 * slot] = key
            table[2 * slot + 1] = stamp | np.uint64(position)
            return position
        if table[2 * slot] == key:
            return np.int64(entry & _POSITION)
        slot += 1
        if slot == slots:
            slot = np.int64(0)


@kernel
def count_pairs(
    hashes: Words, at: Int, words: Int, table: Words, slots: Int, generation: Int,
    first: Positions, count: Positions, repeated: Bools,
) -> tuple[Int, Int]:  # fmt: skip
    """Count the pairs of neighbouring words from word `at` on: (occurrences of the most common one, its first position).

    Of several most common pairs, the one seen first. For every position below ``words - 1`` sets ``first`` (where this
    pair was seen first), ``repeated`` (it occurs more than once) and, at first positions, ``count``.
    """
    most, most_position = np.int64(1), np.int64(0)
    for position in range(words - 1):
        # with a factor on one side alone: (a, b) is another pair than (b, a)
        key = hashes[at + position] * _FACTOR + hashes[at + position + 1]
        seen = find_or_add(table, slots, generation, key, position)
        first[position] = seen
        repeated[position] = seen != position
        if seen == position:
            count[position] = 1
            continue
        repeated[seen] = True
        count[seen] += 1
        # counts grow at copies, so that one that was seen first may come up last
        if count[seen] > most or (count[seen] == most and seen < most_position):
            most, most_position = np.int64(count[seen]), np.int64(seen)
    return most, most_position


@kernel
def count_longer(
    positions: Positions, candidates: Int, table: Words, slots: Int, generation: Int,
    first: Positions, count: Positions, repeated: Bools,
) -> tuple[Int, Int]:  # fmt: skip
    """Count the n-grams that begin at ``positions[:candidates]``, as `count_pairs` does, from their (n-1)-grams.

    ``positions`` rises; ``first[p]`` and ``first[p + 1]`` name the two (n-1)-grams at a position. Works in place:
    ``first[p]`` becomes the first position of the n-gram. All other n-grams occur once, so that without a repeated one
    the most common, and first seen, is that at position 0.
    """
    most, most_position = np.int64(1), np.int64(0)
    for k in range(candidates):
        position = np.int64(positions[k])
        # exact: two positions of 32 bits name the two (n-1)-grams
        key = np.uint64(first[position]) << _S32 | np.uint64(first[position + 1])
        seen = find_or_add(table, slots, generation, key, position)
        # ``first[position + 1]`` is read before it is overwritten, since positions rise
        first[position] = seen
        repeated[position] = seen != position
        if seen == position:
            count[position] = 1
            continue
        repeated[seen] = True
        count[seen] += 1
        if count[seen] > most or (count[seen] == most and seen < most_position):
            most, most_position = np.int64(count[seen]), np.int64(seen)
    return most, most_position


@kernel
def keep_repeated(positions: Positions, kept: Int, repeated: Bools) -> Int:
    """Keep of ``positions[:kept]`` those whose n-gram is repeated; how many there are."""
    still = 0
    for k in range(kept):
        position = positions[k]
        # without a branch: what is not kept is overwritten by the next one
        positions[still] = position
        still += repeated[position]
    return still


@kernel
def keep_neighbours(positions: Positions, kept: Int) -> Int:
    """Keep of ``positions[:kept]`` those whose successor is in it too: where a longer n-gram can be repeated."""
    still = 0
    for k in range(kept - 1):
        position = positions[k]
        positions[still] = position
        # positions rise, so that a successor can only be the next entry
        still += positions[k + 1] == position + 1
    return still


@kernel
def count_duplicates(
    data: Bytes, text_at: Int, starts: Positions, sizes: Positions, hashes: Words, kept: Positions, lines: Int,
    table: Words, generation: Int, repeated: Bools,
) -> tuple[Int, Int]:  # fmt: skip
    """Count (lines that occur more than once, code points in them), all copies included.

    The lines are ``kept[:lines]`` of `find_lines`, of a text that begins at byte `text_at`. `table` is that of `find_or_add`;
    ``repeated[:lines]`` is overwritten.
    """
    slots = table_slots(lines)
    duplicates, chars = np.int64(0), np.int64(0)
    for k in range(lines):
        repeated[k] = False
        line = kept[k]
        first = find_or_add(table, slots, generation, hashes[line], k)
        if first != k:
            # the first copy is counted together with the second
            copies = 1 if repeated[first] else 2
            repeated[first] = True
            duplicates += copies
            at = text_at + np.int64(starts[line])
            chars += copies * code_points(data, at, at + sizes[line])
    return duplicates, chars
