"""Words as `str.split` makes them, and lines: where they begin and end in UTF-8.

White space is Python's: ten ASCII characters (U+0009 to U+000D, U+001C to U+0020) and the nineteen others whose
UTF-8 begins with one of the four bytes C2, E1, E2 and E3. So sixty-four bytes are tested at once, and a character is
looked at by itself only where one of these four bytes stands.
"""

import numpy as np

from dolma_dask.text.bits import (
    ALL_BITS,
    ONE,
    address_of,
    count_bits,
    find_byte,
    first_bit,
    hash_bytes,
    low_bits,
    range_bits,
    word_at,
)
from dolma_dask.text.kernels import Bytes, Counts, Int, Positions, Words, kernel
from dolma_dask.text.tables import code_points, holds_letter

_TAB, _CARRIAGE_RETURN, _FILE_SEPARATOR, _BLANK = (np.uint8(byte) for byte in (0x09, 0x0D, 0x1C, 0x20))
_NUMBER_SIGN, _NEWLINE = np.uint8(ord("#")), np.uint8(0x0A)
_UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "AZaz")
_E2, _NOT_ASCII, _LAST_CONTINUATION, _LAST_BYTE = (np.uint8(byte) for byte in (0xE2, 0x80, 0xBF, 0xFF))
_C2, _E1, _E3 = np.uint8(0xC2), np.uint8(0xE1), np.uint8(0xE3)

_TOP_BITS = np.uint64(0x8080808080808080)

LETTER, NUMBER_SIGN, ELLIPSIS = 1, 2, 4
"""Content of a word: a letter, ``#``, U+2026."""


@kernel
def space_bytes(data: Bytes, at: Int) -> Int:
    """Bytes of the white-space character that begins at byte `at`; 0 if another character begins there."""
    first = data[at]
    if first < 0x80:
        return 1 if first == 0x20 or 0x09 <= first <= 0x0D or 0x1C <= first <= 0x1F else 0
    if first == 0xC2:
        # U+0085 and U+00A0
        return 2 if data[at + 1] == 0x85 or data[at + 1] == 0xA0 else 0
    if first < 0xE1 or first > 0xE3:
        return 0
    second, third = data[at + 1], data[at + 2]
    if first == 0xE2 and second == 0x80:
        # U+2000 to U+200A, U+2028, U+2029 and U+202F; below: U+205F, U+1680 and U+3000
        return 3 if third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF else 0
    if first == 0xE2:
        return 3 if second == 0x81 and third == 0x9F else 0
    if first == 0xE1:
        return 3 if second == 0x9A and third == 0x80 else 0
    return 3 if second == 0x80 and third == 0x80 else 0


@kernel
def word_start(data: Bytes, at: Int, end: Int) -> Int:
    """Byte of the first character from byte `at` on that is not white space; `end` if there is none."""
    while at < end:
        width = space_bytes(data, at)
        if width == 0:
            return at
        at += width
    return end


@kernel
def space_bits(data: Bytes, at: Int, end: Int) -> np.uint64:
    """Bits of the window at byte `at` that belong to white space, and all from `end` on.

    White space that reaches over the end of the window has only its first bytes in it; a window may begin inside of any
    other character.
    """
    spaces = range_bits(data, at, _TAB, _CARRIAGE_RETURN) | range_bits(data, at, _FILE_SEPARATOR, _BLANK)
    spaces |= ~low_bits(end - at)
    # these bytes are always the first of a character, so that a window may begin anywhere
    undecided = (range_bits(data, at, _C2, _C2) | range_bits(data, at, _E1, _E3)) & ~spaces
    while undecided:
        position = first_bit(undecided)
        # no bits where it is another character
        spaces |= low_bits(space_bytes(data, at + position)) << np.uint64(position)
        undecided &= undecided - ONE
    return spaces


@kernel
def count_words(data: Bytes, offsets: Counts, counts: Counts) -> None:
    """Count the words of all texts: the characters behind white space that are none."""
    for row in range(counts.size):
        begin, end = offsets[row], offsets[row + 1]
        at: Int = begin
        count: Int = 0
        before = ONE  # bit of the byte before the window
        while at < end:
            spaces = space_bits(data, at, end)
            # white space may reach into a window
            for back in range(1, min(at - begin, 2) + 1):
                spaces |= low_bits(space_bytes(data, at - back) - back)
            count += count_bits(np.int64(~spaces & (spaces << ONE | before)))
            before = spaces >> np.uint64(63)
            at += 64
        counts[row] = count


@kernel
def word_end(data: Bytes, at: Int, end: Int) -> Int:
    """Byte after the word that holds the character at byte `at`: that of the next white space, or `end`."""
    while at < end:
        spaces = space_bits(data, at, end)
        if spaces:
            return at + first_bit(spaces)
        at += 64
    return end


@kernel
def length_at(rank: Int, ends: Counts, words: Int, common: Counts) -> Int:
    """Code points of the word that has this rank (from 0) among all words sorted by length.

    ``ends`` is 0 and then the code points up to the end of each word; ``common`` how many words have 0, 1, 2, ...
    code points, and in its last position how many have more: only if the rank falls among these are all words read, once
    for each bit of the longest length.
    """
    below = np.int64(0)
    for length in range(common.size - 1):
        below += common[length]
        if below > rank:
            return length
    # words are not sorted: each step counts those up to a length
    low, high = np.int64(common.size - 1), np.int64(ends[words])
    while low < high:
        middle = (low + high) // 2
        below = np.int64(0)
        for word in range(words):
            below += ends[word + 1] - ends[word] <= middle
        if below > rank:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def ends_with_ellipsis(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether the bytes from `at` to `end` end with U+2026."""
    return bool(end - at >= 3 and data[end - 3] == 0xE2 and data[end - 2] == 0x80 and data[end - 1] == 0xA6)


@kernel
def _holds_ellipsis(data: Bytes, at: Int, end: Int) -> bool:
    """Tell whether U+2026 is among the characters from byte `at` to `end`."""
    while not ends_with_ellipsis(data, at, min(at + 3, end)):
        if at >= end:
            return False
        at += 1
    return True


@kernel
def _long_word(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> Int:
    """Return what the word from byte `at` to `end` holds, however long it is."""
    letters = signs = np.uint64(0)
    first = at
    while at < end:
        inside = low_bits(end - at)
        letters |= inside & (
            range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
        )
        signs |= inside & range_bits(data, at, _NUMBER_SIGN, _NUMBER_SIGN)
        at += 64
    kind = NUMBER_SIGN * (signs != 0) | ELLIPSIS * _holds_ellipsis(data, first, end)
    # the letters of ASCII are known by now; only without any are characters looked up
    if letters or holds_letter(data, first, end, numbers, blocks):
        kind |= LETTER
    return int(kind)


@kernel
def find_words(
    data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, bounds: Counts,
    starts: Positions, sizes: Positions, chars: Positions, hashes: Words, kinds: Bytes,
) -> None:  # fmt: skip
    """Find the words of all texts; see `dolma_dask.text.view.WordTable`.

    Each window begins with a word; one that reaches over its end begins the next.
    """
    n = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at = word_start(data, begin, end)
        while at < end:
            spaces = space_bits(data, at, end)
            letters = range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
            signs = range_bits(data, at, _NUMBER_SIGN, _NUMBER_SIGN)
            e2 = range_bits(data, at, _E2, _E2)
            others = range_bits(data, at, _NOT_ASCII, _LAST_BYTE)
            continued = range_bits(data, at, _NOT_ASCII, _LAST_CONTINUATION)
            # `stop` stays where it is as long as no word has ended in the window
            start = stop = at
            size = first_bit(spaces)
            while start - at + size < 64:
                stop = start + size
                inside = low_bits(size) << np.uint64(start - at)
                kind: Int = LETTER * (letters & inside != 0) | NUMBER_SIGN * (signs & inside != 0)
                # ASCII words need no look-up
                if others & inside:
                    if kind & LETTER == 0:
                        kind |= LETTER * holds_letter(data, start, stop, numbers, blocks)
                    if e2 & inside:
                        kind |= ELLIPSIS * _holds_ellipsis(data, start, stop)
                starts[n], sizes[n], kinds[n] = start - begin, size, kind
                # every byte that continues no character begins one
                chars[n] = size - count_bits(continued & inside)
                hashes[n] = hash_bytes(data, start, stop)
                n += 1
                # 64 on where only white space is left
                start = stop + first_bit(~spaces >> np.uint64(stop - at))
                size = 64
                if start - at < 64:
                    size = first_bit(spaces >> np.uint64(start - at))
            # the first word of the window is longer than that
            if stop == at:
                stop = word_end(data, at, end)
                starts[n], sizes[n], kinds[n] = (
                    at - begin,
                    stop - at,
                    _long_word(data, at, stop, numbers, blocks),
                )
                chars[n] = code_points(data, at, stop)
                hashes[n] = hash_bytes(data, at, stop)
                n += 1
            at = word_start(data, stop, end)
        bounds[row + 1] = n


@kernel
def measure_words(data: Bytes, starts: Positions, chars: Positions, hashes: Words) -> None:
    """Measure words that are joined by blanks: ``data[starts[j]:starts[j + 1] - 1]``. At least 64 bytes of `data` follow the last one."""
    here = address_of(data)
    for word in range(chars.size):
        at, end = np.int64(starts[word]), np.int64(starts[word + 1]) - 1
        hashes[word] = hash_bytes(data, at, end)
        if end - at <= 8:
            # most words fit in one load
            eight = np.uint64(word_at(here + at)) & (ALL_BITS >> np.uint64(64 - 8 * (end - at)))
            # bytes that continue a character have bit 7 and not bit 6, which the shift brings beside it
            chars[word] = end - at - count_bits(np.int64(eight & ~(eight << ONE) & _TOP_BITS))
        else:
            chars[word] = code_points(data, at, end)


@kernel
def line_end(data: Bytes, at: Int, end: Int) -> Int:
    """Byte of the first newline from byte `at` on, or `end`."""
    return find_byte(data, at, end, _NEWLINE)


@kernel
def find_lines(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Positions, sizes: Positions, hashes: Words
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
            # behind a newline at the end of a text there is one more line, which is empty
            if stop >= end:
                break
            at = stop + 1
        bounds[row + 1] = n
