"""Runs of ASCII letters, digits and bytes that are not ASCII: found by sixty-four bytes, and hashed eight at once where they are short and ASCII."""

from typing import Any, NamedTuple

import numpy as np

from dolma_dask.text.bits import (
    ALL_BITS,
    ONE,
    WINDOW,
    absorb,
    address_of,
    first_bit,
    low_bits,
    mix,
    word_at,
)
from dolma_dask.text.kernels import Bytes, Int, Positions, Words, kernel, operation

SHORT_RUN = 16
"""Bytes of the longest run of ASCII letters and digits that is hashed as two words of eight."""

SLACK = 31
"""Numbers behind those asked for that loops over vectors may read and write."""

_SLACK = np.uint64(SLACK)
_ZERO, _THREE, _EIGHT, _LAST_BIT = (np.uint64(number) for number in (0, 3, 8, 63))


class Room(NamedTuple):
    """Scratch for the runs of a piece of text. A run is slow if it has more than `SHORT_RUN` bytes, or other than ASCII, or lies at the end of the buffer."""

    starts: Positions  # of each run, from the beginning of the piece
    more: Positions  # tokens that it has besides one
    slow: Positions  # numbers of the slow runs
    sizes: Words  # bytes of each run, and its first eight, and the next eight; then the same of the tokens of slow runs
    first: Words
    second: Words
    hashes: Words  # of runs
    folded: Bytes  # the folded bytes of all slow runs
    begins: Positions  # of their tokens in `folded`
    shifts: Positions  # by how many runs that are not slow a token is behind its number
    lengths: Words  # of tokens


def room_for(piece: int) -> Room:
    """Return scratch for pieces of so many bytes; only what is reached becomes memory."""
    size = piece + 4 + SLACK  # a character of three bytes may become three tokens
    starts, more, slow, begins, shifts = (np.empty(size, np.int32) for _ in range(5))
    sizes, first, second, hashes, lengths = (np.empty(size, np.uint64) for _ in range(5))
    # the first code points become three times as many bytes, and whole words are written and read
    folded = np.empty(3 * size + SHORT_RUN, np.uint8)
    return Room(starts, more, slow, sizes, first, second, hashes, folded, begins, shifts, lengths)


@kernel
def whole_vectors(count: Int) -> np.uint64:
    """Return the next multiple of `SLACK` + 1, so that no loop over vectors ends number by number: a tenth of the time of texts of 3 kB."""
    return np.uint64(count) + _SLACK & ~_SLACK


@operation(int, int)
def alphanumeric64(ir: Any, builder: Any, address: Any) -> Any:
    """Mask of the window at `address`: bit i is set where byte i is an ASCII letter or digit."""
    window = builder.load(
        builder.inttoptr(address, ir.VectorType(ir.IntType(8), WINDOW).as_pointer()), align=1
    )

    def in_range(bytes_: Any, first: str, count: int) -> Any:
        low, size = (ir.Constant(window.type, [number] * WINDOW) for number in (ord(first), count))
        return builder.icmp_unsigned("<", builder.sub(bytes_, low), size)

    lowered = builder.or_(window, ir.Constant(window.type, [0x20] * WINDOW))
    found = builder.or_(in_range(lowered, "a", 26), in_range(window, "0", 10))
    return builder.bitcast(found, ir.IntType(WINDOW))


@operation(int, int)
def other64(ir: Any, builder: Any, address: Any) -> Any:
    """Mask of the window at `address`: bit i is set where byte i is not ASCII."""
    window = builder.load(
        builder.inttoptr(address, ir.VectorType(ir.IntType(8), WINDOW).as_pointer()), align=1
    )
    found = builder.icmp_signed("<", window, ir.Constant(window.type, [0] * WINDOW))
    return builder.bitcast(found, ir.IntType(WINDOW))


@kernel
def _run_bits(data: Bytes, at: Int, end: Int) -> tuple[np.uint64, np.uint64]:
    """Return bits of the window at byte `at` that belong to runs, and those of bytes that are not ASCII; none from `end` on."""
    if at >= end:
        return _ZERO, _ZERO
    start = min(at, data.size - WINDOW)
    address, early, own = address_of(data) + start, np.uint64(at - start), low_bits(end - at)
    other = np.uint64(other64(address))
    return (np.uint64(alphanumeric64(address)) | other) >> early & own, other >> early & own


@kernel
def end_of(data: Bytes, start: Int, size: np.uint64, end: Int) -> Int:
    """Return where a run ends of which `find_runs` gave the size."""
    at = start + np.int64(size)
    # a longer one goes on
    while size >= WINDOW and at < end:
        runs, _ = _run_bits(data, at, end)
        if ~runs:
            return at + first_bit(~runs)
        at += WINDOW
    return at if size < WINDOW else end


@kernel
def find_runs(data: Bytes, at: Int, end: Int, limit: Int, room: Room) -> tuple[Int, Int]:
    """Find the runs of ASCII letters, digits and bytes that are not ASCII that begin before `limit`; how many there are, and how many slow ones.

    A run of 64 bytes or more has that size.
    """
    address, last_short = address_of(data), data.size - SHORT_RUN
    count: Int = 0
    slow: Int = 0
    before, window = _ZERO, at
    runs, other = _run_bits(data, window, end)
    while window < limit:
        next_runs, next_other = _run_bits(data, window + WINDOW, end)
        begins = runs & ~(runs << ONE | before) & low_bits(limit - window)
        before = runs >> _LAST_BIT
        is_plain = (other | next_other == 0) & (window + WINDOW <= last_short)
        while begins:
            place = np.uint64(first_bit(begins))
            begins &= begins - ONE
            # what lies behind the window is shifted in; in two steps, since a shift by 64 is undefined
            back = _LAST_BIT - place
            size = first_bit(~(runs >> place | next_runs << ONE << back))
            start = window + np.int64(place)
            # sixteen bytes are read from there
            near = start if is_plain or start < last_short else last_short
            # unsigned, so that numba does not look whether it counts from the end
            run = np.uint64(count)
            room.starts[run], room.sizes[run] = start - at, np.uint64(size)
            room.first[run] = np.uint64(word_at(address + near))
            room.second[run] = np.uint64(word_at(address + near + 8))
            if is_plain:
                if size > SHORT_RUN:
                    room.slow[np.uint64(slow)] = count
                    slow += 1
            else:
                has_other = (other >> place | next_other << ONE << back) << np.uint64(WINDOW - size)
                # written for every run, and kept where it is slow: other than the size that is not worth a branch
                room.slow[np.uint64(slow)] = count
                slow += (size > SHORT_RUN) | (has_other != 0) | (start > last_short)
            count += 1
        window += WINDOW
        runs, other = next_runs, next_other
    return count, slow


@kernel
def hash_short(
    sizes: Words, firsts: Words, seconds: Words, case: np.uint64, count: Int, hashes: Words, at: Int
) -> None:
    """Set ``hashes[at:]`` to those of the first `count` strings of up to `SHORT_RUN` bytes; the bits of `case` are set in all of their bytes.

    LLVM makes vectors of this loop because its numbers are unsigned: signed ones might count from the end of an array. Up to `SLACK` numbers behind them
    are written too.
    """
    for k in range(whole_vectors(count)):
        size = sizes[k]
        is_long = _ZERO - np.uint64(size > _EIGHT)
        # shifts count modulo 64
        first_mask = ALL_BITS >> (_ZERO - (min(size, _EIGHT) << _THREE) & _LAST_BIT)
        second_mask = ALL_BITS >> (_ZERO - (size << _THREE) & _LAST_BIT)
        first, second = (firsts[k] | case) & first_mask, (seconds[k] | case) & second_mask
        state, last = absorb(_ZERO, first) & is_long, second & is_long | first & ~is_long
        hashes[np.uint64(at) + k] = mix(absorb(state, last))
