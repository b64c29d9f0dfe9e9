"""Packings: segments of a window into rows of limited length, so that little of a row is padding.

A packing looks at sizes alone (tokens to predict) and returns `Bins`. It draws nothing at random, so that a window has the same rows whoever packs it.

=========== ============================================================================================================================
best_fit    longest segments first, each into the fullest row with room (best-fit decreasing); within a thousandth of the bound in windows of 10,000
modelzoo    from the last segment on, each row is appended to the nearest row before it that has room: ModelZoo's ``LMData_VSL``
next_fit    in order: a row is closed by the first segment that it has no room for
spfhp       shortest-pack-first histogram packing (Krell et al. 2021): longest first, each into the emptiest row; a length that no row has room for gets
            rows of its own, one for each segment
lpfhp       longest-pack-first histogram packing of the same paper, which is best-fit decreasing
=========== ============================================================================================================================

Rows by length are made in *groups*: rows of the same sizes, made in one step, so that thousands of segments of one length cost as much as one.
Cost: 0.02 to 0.1 us per segment in windows of 10,000 and rows of up to 8,192 tokens; of `modelzoo` too, whose own loop is quadratic.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import DataError, UsageError
from dolma_dask.text.bits import first_bit, leading_zeros
from dolma_dask.text.kernels import kernel

Int64s = NDArray[np.int64]


class Bins(Struct, frozen=True):
    """Rows of a window as lists of segments."""

    order: Int64s  # (n,) numbers of the segments, row after row, each once
    bounds: Int64s  # (n_bins + 1,) row b holds order[bounds[b] : bounds[b + 1]]

    def __len__(self) -> int:
        return len(self.bounds) - 1


def best_fit(sizes: Int64s, capacity: int, most: int | None = None) -> Bins:
    """Put segments of the given sizes (n,), the longest first, into the fullest row with room; `most` limits the segments of a row.

    Of equal sizes the earlier segments come first; of equally full rows the one that was filled last is taken. Rows stand in the order of
    their first segments, and segments of a row in their own, so that rows stay near the order of documents.
    """
    return _by_length(sizes, capacity, most, is_widest=False)


def spfhp(sizes: Int64s, capacity: int, most: int | None = None) -> Bins:
    """Do as `best_fit`, into the emptiest row; segments that no row has room for make a row each, which no other of that size joins."""
    return _by_length(sizes, capacity, most, is_widest=True)


def next_fit(sizes: Int64s, capacity: int, most: int | None = None) -> Bins:
    """Put segments into rows in their order; one that does not fit closes the row."""
    sizes = _checked(sizes, capacity, most)
    bin_of = np.empty(len(sizes), np.int64)
    return _grouped(bin_of, _fill_in_order(sizes, capacity, _limit(sizes, most), bin_of))


def modelzoo(sizes: Int64s, capacity: int, most: int | None = None) -> Bins:
    """Append each row, from the last on, to the nearest row before it that has room; at first every segment is a row.

    Rows stand in the order of their first segments, segments as they were appended. Raises `UsageError`: `most` is given.
    """
    if most is not None:
        raise UsageError(
            f"packing modelzoo with at most {most} segments in a row; expected no limit, or another of {', '.join(PACKINGS)}."
        )
    sizes = _checked(sizes, capacity, most)
    count = len(sizes)
    tree = np.zeros(2 << max(count - 1, 0).bit_length(), np.int64)
    following, lasts = np.full(count, -1, np.int64), np.arange(count)
    _merge_backwards(sizes, capacity, tree, following, lasts)
    order, bounds = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    bins = _follow(following, lasts, order, bounds)
    return Bins(order, bounds[: bins + 1])


def count_bins(counts: Int64s, most: int | None = None, *, is_widest: bool = False) -> int:
    """Return how many rows `best_fit` (or `spfhp`, if `is_widest`) makes of ``counts[size]`` segments of each size up to the capacity.

    The segments themselves are not needed, so millions cost as much as their different sizes.
    """
    groups = _plan_groups(counts, _limit(counts, most), is_widest)
    return int(groups[:, _COPIES].sum())


PACKINGS: Mapping[str, Callable[[Int64s, int, int | None], Bins]] = {
    "best_fit": best_fit,
    "modelzoo": modelzoo,
    "next_fit": next_fit,
    "spfhp": spfhp,
    "lpfhp": best_fit,
}
"""The packings by name; each takes sizes, capacity and the limit of segments in a row."""


def _checked(sizes: NDArray[np.integer[Any]], capacity: int, most: int | None) -> Int64s:
    if most is not None and most < 1:
        raise UsageError(f"at most {most} segments in a row; expected 1 or more, or none for no limit.")
    wrong = np.flatnonzero((sizes < 1) | (sizes > capacity))
    if wrong.size:
        raise DataError(
            f"segment {wrong[0]} has {sizes[wrong[0]]} tokens to predict; expected 1 to {capacity}, as rows hold; cut longer ones, drop empty ones.",
            segment=int(wrong[0]),
        )
    return np.ascontiguousarray(sizes, np.int64)


def _limit(sizes: Int64s, most: int | None) -> int:
    """Return the limit of segments in a row; as many as there may be if there is none."""
    return max(int(sizes.sum()), 1) if most is None else most


def _by_length(sizes: Int64s, capacity: int, most: int | None, is_widest: bool) -> Bins:
    sizes = _checked(sizes, capacity, most)
    order, bin_of = np.empty(len(sizes), np.int64), np.empty(len(sizes), np.int64)
    _sort(capacity - sizes, np.zeros(capacity + 2, np.int64), order)
    counts = np.bincount(sizes, minlength=capacity + 1)
    groups = _plan_groups(counts, _limit(sizes, most), is_widest)
    return _grouped(bin_of, _hand_out(groups, order, bin_of))


def _grouped(bin_of: Int64s, bins: int) -> Bins:
    """Return segments by row; rows are numbered anew by their first segments."""
    starts, order = np.zeros(bins + 2, np.int64), np.empty(len(bin_of), np.int64)
    _rename(bin_of, np.full(bins, -1, np.int64))
    _sort(bin_of, starts, order)
    return Bins(order, starts[:-1])


_PARENT = 0  # group whose rows got one more size, -1 for new rows
_LAST = 1  # the row of the parent that the first row is; the next is the one before it
_FIRST = 2  # place of the first segment that was put in, among all by size
_REPEAT = 3  # segments that each row got
_COPIES = 4  # rows that got nothing since
_HELD = 5  # segments of a row
_BELOW = 6  # next group with the same room, -1 for none
_FIELDS = 7


def _plan_groups(counts: Int64s, most: int, is_widest: bool) -> Int64s:
    """Return the groups of rows, (n_groups, 7), for ``counts[size]`` segments of each size up to the capacity."""
    steps, segments = 4 * len(counts), int(counts.sum())
    while True:
        groups = np.empty((min(steps, segments), _FIELDS), np.int64)
        heads, rooms = np.full(len(counts), -1, np.int64), np.zeros(len(counts) // 64 + 1, np.int64)
        used = _plan(counts, most, is_widest, heads, rooms, groups)
        if used >= 0:
            return groups[:used]
        steps *= 4


@kernel
def _plan(counts, most, is_widest, heads, rooms, groups):  # type: ignore[no-untyped-def]
    """Fill `groups` from the longest segments on; return how many there are, -1 if there is no space for more.

    ``heads[room]`` is the latest group with that room, and bit ``room`` of `rooms` is set if there is one.
    """
    used, placed = 0, 0
    for size in range(len(counts) - 1, 0, -1):
        left = counts[size]
        while left:
            if used == len(groups):
                return -1
            room = _widest(rooms) if is_widest else _tightest(rooms, size)
            if room >= size:
                parent = heads[room]
                copies, held = groups[parent, _COPIES], groups[parent, _HELD]
            else:
                room, parent, copies, held = len(counts) - 1, -1, left, 0
            # what the fullest row still has room for after one more goes there too; the emptiest row is another one then
            repeat = 1 if is_widest else min(room // size, most - held, left)
            taken = min(copies, left // repeat)
            if parent >= 0:
                groups[parent, _COPIES] = copies - taken
                if copies == taken:
                    heads[room] = groups[parent, _BELOW]
                    if heads[room] < 0:
                        rooms[room >> 6] &= ~(1 << (room & 63))
            groups[used, _PARENT], groups[used, _LAST] = parent, copies - 1
            groups[used, _FIRST], groups[used, _REPEAT] = placed, repeat
            groups[used, _COPIES], groups[used, _HELD] = taken, held + repeat
            rest = room - repeat * size
            if rest and held + repeat < most:
                groups[used, _BELOW] = heads[rest]
                heads[rest] = used
                rooms[rest >> 6] |= 1 << (rest & 63)
            used += 1
            placed += taken * repeat
            left -= taken * repeat
    return used


@kernel
def _tightest(rooms, size):  # type: ignore[no-untyped-def]
    """Return the smallest room of at least `size`, -1 if there is none."""
    at = size >> 6
    word = rooms[at] & (-1 << (size & 63))
    while word == 0:
        at += 1
        if at == len(rooms):
            return -1
        word = rooms[at]
    return 64 * at + first_bit(word)


@kernel
def _widest(rooms):  # type: ignore[no-untyped-def]
    """Return the largest room, -1 if there is none."""
    at = len(rooms) - 1
    while at > 0 and rooms[at] == 0:
        at -= 1
    return 64 * at + 63 - leading_zeros(rooms[at])


@kernel
def _hand_out(groups, order, bin_of):  # type: ignore[no-untyped-def]
    """Number the rows of all groups, and write the row of each segment; `order` has them by size. Return how many rows there are."""
    bins = 0
    for group in range(len(groups)):
        for copy in range(groups[group, _COPIES]):
            at, row = group, copy
            while at >= 0:
                first, repeat = groups[at, _FIRST] + row * groups[at, _REPEAT], groups[at, _REPEAT]
                for place in range(first, first + repeat):
                    bin_of[order[place]] = bins
                # the row that was last among those of the parent was taken first
                at, row = groups[at, _PARENT], groups[at, _LAST] - row
            bins += 1
    return bins


@kernel
def _sort(keys, starts, order):  # type: ignore[no-untyped-def]
    """Sort numbers by small keys, equal ones in their order; ``starts[key]`` (n_keys + 2, zero before) is where each key then begins."""
    for key in keys:
        starts[key + 2] += 1
    for key in range(1, len(starts)):
        starts[key] += starts[key - 1]
    for number in range(len(keys)):
        key = keys[number]
        order[starts[key + 1]] = number
        starts[key + 1] += 1


@kernel
def _rename(bin_of, names):  # type: ignore[no-untyped-def]
    """Number rows by their first segments; `names` is -1 for each."""
    known = 0
    for number in range(len(bin_of)):
        old = bin_of[number]
        if names[old] < 0:
            names[old] = known
            known += 1
        bin_of[number] = names[old]


@kernel
def _fill_in_order(sizes, capacity, most, bin_of):  # type: ignore[no-untyped-def]
    """Write the row of each segment; return how many rows there are."""
    bins, room, held = 0, 0, 0
    for number in range(len(sizes)):
        if sizes[number] > room or held == most:
            bins, room, held = bins + 1, capacity, 0
        room -= sizes[number]
        held += 1
        bin_of[number] = bins - 1
    return bins


@kernel
def _merge_backwards(sizes, capacity, tree, following, lasts):  # type: ignore[no-untyped-def]
    """Append rows to rows: `following` of a segment is the next one of its row (-1: none), ``lasts[n]`` -1 where segment n begins no row.

    `tree` holds the sizes of rows as leaves, and above them the smaller of each two, so that the nearest row with room is found by going up
    while it is not to the left, and then down.
    """
    leaves = len(tree) // 2
    for number in range(len(sizes)):
        tree[leaves + number] = sizes[number]
    for at in range(leaves - 1, 0, -1):
        tree[at] = min(tree[2 * at], tree[2 * at + 1])
    for number in range(len(sizes) - 1, 0, -1):
        at = leaves + number
        size = tree[at]
        while at > 1 and (at % 2 == 0 or tree[at - 1] + size > capacity):
            at //= 2
        if at <= 1:
            continue
        at -= 1
        while at < leaves:
            at = 2 * at + (tree[2 * at + 1] + size <= capacity)
        head = at - leaves
        following[lasts[head]] = number
        lasts[head], lasts[number] = lasts[number], -1
        tree[at] += size
        while at > 1:
            at //= 2
            tree[at] = min(tree[2 * at], tree[2 * at + 1])


@kernel
def _follow(following, lasts, order, bounds):  # type: ignore[no-untyped-def]
    """Write the segments of each row and where it ends; return how many rows there are."""
    bins, place = 0, 0
    for head in range(len(lasts)):
        if lasts[head] < 0:
            continue
        number = head
        while number >= 0:
            order[place] = number
            place += 1
            number = following[number]
        bins += 1
        bounds[bins] = place
    return bins
