"""Kernels of the signals of RedPajama-V2 over the text as it is: tokens, sentences, symbols and the ends of lines.

Tokens are the matches of ``\\w+|[^\\w\\s]+`` as `re` finds them: runs of one kind of character. A window of up to 63 bytes is a mask for each kind; it is cut
before a run that may go on behind it. Adding the marked bits of runs to the runs carries out of those that have one, into the free bit behind each.
"""

import numpy as np

from dolma_dask.taggers.word_lists import holds
from dolma_dask.text.bits import (
    ONE,
    address_of,
    count_bits,
    first_bit,
    hash_bytes,
    leading_zeros,
    low_bits,
    range64,
)
from dolma_dask.text.kernels import Bytes, Counts, Floats, Int, Words, kernel
from dolma_dask.text.tables import (
    SPACE,
    STR_LOWER,
    STR_UPPER,
    STR_WORD,
    char_class,
    code_points,
    decode,
)
from dolma_dask.text.words import ends_with_ellipsis

TOKENS, STOP_WORDS, LATIN, CAPITAL, SENTENCES, SYMBOLS, BRACES, LINES, ELLIPSES = range(9)
"""Counts of a text: tokens, those that are stop words, have a letter from a to z, are upper case; sentences; ``#``, ``...`` and U+2026; braces; lines,
those that end with ``...`` or U+2026."""
COUNTED = 9

TERMINAL, BULLET, UPPERCASE = range(3)
"""Scores of a line: ends with one of ``.!?`` or U+201D, begins with one of `_BULLETS`, share of upper case."""
SCORED = 3

_BULLETS = (0x2013, 0x2022, 0x2023, 0x25A0, 0x25A1, 0x25AA, 0x25AB, 0x25B6, 0x25C0, 0x25E6)
_ELLIPSIS = 0x2026
_USED = 63
"""Bytes of a window that are used: the last bit is left for what carries out."""
_TWO = np.uint64(2)


@kernel
def _masks(
    data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes
) -> tuple[Int, np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return the bytes of the window at byte `at` that hold whole characters, and their bits: in words, in white space, upper case, lower case.

    Of a character that is not ASCII the first two have all bits, the others one.
    """
    here = address_of(data) + at
    count: Int = min(_USED, end - at)
    uppers = np.uint64(range64(here, 0x41, 0x5A))
    lowers = np.uint64(range64(here, 0x61, 0x7A))
    words = uppers | lowers | np.uint64(range64(here, 0x30, 0x39) | range64(here, 0x5F, 0x5F))
    spaces = np.uint64(range64(here, 0x09, 0x0D) | range64(here, 0x1C, 0x20))
    # ASCII is classed 64 bytes at a time; other characters are looked up, each at its first byte
    leads = np.uint64(range64(here, 0xC0, 0xFF)) & low_bits(count)
    while leads:
        position = first_bit(np.int64(leads))
        code, width = decode(data, at + position)
        # a character that reaches over the window begins the next one
        if position + width > count:
            count = position
            break
        kind = char_class(numbers, blocks, code)
        bits, lead = low_bits(width) << np.uint64(position), ONE << np.uint64(position)
        if kind & STR_WORD:
            words |= bits
        if kind & SPACE:
            spaces |= bits
        if kind & STR_UPPER:
            uppers |= lead
        if kind & STR_LOWER:
            lowers |= lead
        leads &= leads - ONE
    # a window that was cut short has bits behind its end
    inside = low_bits(count)
    return count, words & inside, spaces & inside, uppers & inside, lowers & inside


@kernel
def _bits_of(data: Bytes, at: Int, byte: Int, inside: np.uint64) -> np.uint64:
    """Bits of a byte in a window."""
    return np.uint64(range64(address_of(data) + at, byte, byte)) & inside


@kernel
def _count(mask: np.uint64) -> Int:
    return count_bits(np.int64(mask))


@kernel
def _behind(runs: np.uint64, marks: np.uint64) -> np.uint64:
    """Return the bits behind those runs that have a mark."""
    # a bit that is added to a run carries out of its end, once however many marks the run has
    return (runs + (marks & runs)) & ~runs


@kernel
def _count_first_bits(runs: np.uint64) -> Int:
    return _count(runs & ~(runs << ONE))


@kernel
def _triples(dots: np.uint64) -> Int:
    """Count ``...`` in runs of dots, without overlaps."""
    triples: Int = 0
    # three dots in a row are rare: nearly all windows end here
    if dots & (dots >> ONE) & (dots >> _TWO):
        while dots:
            first = first_bit(np.int64(dots))
            length = first_bit(np.int64(~(dots >> np.uint64(first))))
            triples += length // 3
            dots &= ~low_bits(first + length)
    return triples


@kernel
def _count_sentences(words: np.uint64, marks: np.uint64, is_open: bool, counts: Counts) -> bool:
    """Count the sentences that begin in a window, and tell whether one is open behind it; `marks` are the bits of ``.!?``.

    ``\\b[^.!?]+[.!?]*`` matches once for each stretch between marks that has a word character.
    """
    while marks:
        before = low_bits(first_bit(np.int64(marks)))
        # a stretch that goes on from the window before was counted there
        counts[SENTENCES] += (words & before) != 0 and not is_open
        is_open = False
        words &= ~before
        marks &= marks - ONE
    counts[SENTENCES] += words != 0 and not is_open
    return bool(is_open or words != 0)


@kernel
def _count_stop_words(words: np.uint64, data: Bytes, at: Int, salt: np.uint64, listed: Words) -> Int:
    """Count the words of a window that are in the list of this salt."""
    found: Int = 0
    while words:
        first = first_bit(np.int64(words))
        # no run goes on behind the window: `_measure_line` cuts it before such a one
        length = first_bit(np.int64(~(words >> np.uint64(first))))
        found += holds(listed, hash_bytes(data, at + first, at + first + length) ^ salt)
        words &= ~low_bits(first + length)
    return found


@kernel
def _long_run(
    data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes,
    salt: np.uint64, listed: Words, is_open: bool, counts: Counts,
) -> tuple[Int, Int, bool]:  # fmt: skip
    """Count a run that fills a window, one character after the other: (its end, characters in upper case, whether a sentence is open)."""
    begin: Int = at
    is_word = char_class(numbers, blocks, decode(data, at)[0]) & STR_WORD
    uppers, dots, lowers = 0, 0, 0
    latin: Int = 0
    while at < end:
        code, width = decode(data, at)
        kind = char_class(numbers, blocks, code)
        if kind & STR_WORD != is_word or kind & SPACE:
            break
        uppers += kind & STR_UPPER != 0
        lowers += kind & STR_LOWER != 0
        # both cases at once
        latin += 0x61 <= code | 0x20 <= 0x7A
        dots = dots + 1 if code == 0x2E else 0
        # each third dot in a row completes one ``...``
        counts[SYMBOLS] += code == 0x23 or code == _ELLIPSIS or (dots > 0 and dots % 3 == 0)
        counts[BRACES] += code == 0x7B or code == 0x7D
        # only in runs of other characters: these marks are none of words
        if code == 0x21 or code == 0x2E or code == 0x3F:
            is_open = False
        at += width
    if is_word:
        counts[SENTENCES] += not is_open
        is_open = True
        counts[STOP_WORDS] += salt != 0 and holds(listed, hash_bytes(data, begin, at) ^ salt)
    counts[TOKENS] += 1
    counts[LATIN] += latin > 0
    counts[CAPITAL] += uppers > 0 and lowers == 0
    return at, uppers, is_open


@kernel
def _measure_line(
    data: Bytes, begin: Int, end: Int, numbers: Bytes, blocks: Bytes,
    salt: np.uint64, listed: Words, is_open: bool, counts: Counts,
) -> tuple[Int, Int, Int, bool]:  # fmt: skip
    """Count what stands from byte `begin` to `end`: (first byte that is not white space, the one behind the last, characters in upper case, whether a sentence
    is open).
    """
    at, first, last = begin, end, begin
    capitals: Int = 0
    while at < end:
        count, words, spaces, uppers, lowers = _masks(data, at, end, numbers, blocks)
        inside = low_bits(count)
        tokens = inside & ~spaces
        # a run that reaches the end of the window may go on, and is left to the next one: no run is counted
        # twice
        last_bit = ONE << np.uint64(count - 1)
        if at + count < end and tokens & last_bit:
            run = words if words & last_bit else tokens & ~words
            # up to the last byte that is not in that run
            count = 64 - leading_zeros(np.int64(inside & ~run))
            # the run fills the window, so that there would be no next one
            if count == 0:
                first = min(first, at)
                at, more, is_open = _long_run(data, at, end, numbers, blocks, salt, listed, is_open, counts)
                last, capitals = at, capitals + more
                continue
            inside = low_bits(count)
            words, tokens, uppers, lowers = words & inside, tokens & inside, uppers & inside, lowers & inside
        if tokens:
            first = min(first, at + first_bit(np.int64(tokens)))
            last = at + 64 - leading_zeros(np.int64(tokens))
            others = tokens & ~words
            # characters, not bytes: letters have one bit each
            capitals += _count(uppers)
            counts[TOKENS] += _count_first_bits(words) + _count_first_bits(others)
            here = address_of(data) + at
            latin = np.uint64(range64(here, 0x41, 0x5A) | range64(here, 0x61, 0x7A))
            counts[LATIN] += _count(_behind(words, latin))
            # upper case as `str.isupper` says it: a capital letter, and no small one
            if uppers:
                counts[CAPITAL] += _count(_behind(words, uppers) & ~_behind(words, lowers))
                counts[CAPITAL] += _count(_behind(others, uppers) & ~_behind(others, lowers))
            marks = np.uint64(0)
            if others:
                dots = _bits_of(data, at, 0x2E, inside)
                marks = dots | _bits_of(data, at, 0x21, inside) | _bits_of(data, at, 0x3F, inside)
                counts[SYMBOLS] += _triples(dots) + _count(_bits_of(data, at, 0x23, inside))
                counts[BRACES] += _count(_bits_of(data, at, 0x7B, inside) | _bits_of(data, at, 0x7D, inside))
                # the first byte of U+2026
                starts = others & _bits_of(data, at, 0xE2, inside)
                while starts:
                    place = at + first_bit(np.int64(starts))
                    counts[SYMBOLS] += ends_with_ellipsis(data, place, place + 3)
                    starts &= starts - ONE
            is_open = _count_sentences(words, marks, is_open, counts)
            if salt:
                counts[STOP_WORDS] += _count_stop_words(words, data, at, salt, listed)
        at += count
    return first, last, capitals, is_open


@kernel
def _is_bullet(code: Int) -> bool:
    found = False
    for bullet in _BULLETS:
        found |= code == bullet
    return found


@kernel
def _is_terminal(data: Bytes, begin: Int, end: Int) -> bool:
    """Tell whether what stands from byte `begin` to `end` ends with one of ``.!?`` or U+201D; of a blank line `end` is before `begin`."""
    if end <= begin:
        return False
    last = data[end - 1]
    if last == 0x2E or last == 0x21 or last == 0x3F:
        return True
    return bool(end - begin >= 3 and data[end - 3] == 0xE2 and data[end - 2] == 0x80 and last == 0x9D)


@kernel
def _has_ellipsis(data: Bytes, begin: Int, end: Int) -> bool:
    """Tell whether what stands from byte `begin` to `end` ends with ``...`` or U+2026."""
    if ends_with_ellipsis(data, begin, end):
        return True
    return bool(
        end - begin >= 3 and data[end - 1] == 0x2E and data[end - 2] == 0x2E and data[end - 3] == 0x2E
    )


@kernel
def measure_raw(
    data: Bytes, cuts: Counts, bounds: Counts, numbers: Bytes, blocks: Bytes,
    salts: Words, listed: Words, own: Counts, counts: Counts, line_bounds: Counts, ends: Counts, scores: Floats,
) -> None:  # fmt: skip
    """Measure all texts and their lines.

    `cuts` and `bounds` are those of `TextView`; the last line of a text is none where it is empty. `salts` (n,) choose the lists of stop words, 0 for none. `own`
    (`COUNTED`,) is overwritten. Sets ``counts`` (`COUNTED`, n), ``line_bounds`` (n + 1,), and for each line where it ends in its text, in code points, and
    its scores (`SCORED`, lines), unless there is no room for them.
    """
    done: Int = 0
    for row in range(bounds.size - 1):
        for which in range(COUNTED):
            own[which] = 0
        # a sentence goes on from line to line, but not into the next text
        is_open = False
        chars_before: Int = 0
        for line in range(bounds[row], bounds[row + 1]):
            begin, end = cuts[line], cuts[line + 1]
            if begin == end:
                continue
            first, last, capitals, is_open = _measure_line(
                data, begin, end, numbers, blocks, salts[row], listed, is_open, own
            )
            if ends.size:
                chars = code_points(data, begin, end)
                chars_before += chars
                ends[done] = chars_before
                scores[TERMINAL, done] = _is_terminal(data, first, last)
                scores[BULLET, done] = last > first and _is_bullet(decode(data, first)[0])
                # the newline counts as one of the characters
                scores[UPPERCASE, done] = capitals / chars
            own[ELLIPSES] += _has_ellipsis(data, first, last)
            own[LINES] += 1
            done += 1
        line_bounds[row + 1] = done
        for which in range(COUNTED):
            counts[which, row] = own[which]
