"""Tokens of the scheme ``dolma_dask``: one stream for every text, whatever its scripts.

The rule:

1. Letters, marks and numbers (general categories L, M, N) make up tokens. Everything else separates them: white space, punctuation, symbols,
   underscores. What is invisible by default (soft hyphens, joiners, variation selectors) is taken out and separates nothing.
2. Characters are folded: full- and half-width forms become those of normal width, letters are case-folded (`str.casefold`: final sigma is sigma,
   sharp s is ss) and lose their diacritics (what the canonical decomposition gives, without marks of a combining class other than 0; so kana lose
   their sound marks and Thai its tone marks). Composed and decomposed forms of a text (NFC and NFD) have the same tokens; conjoining jamo
   count as the Hangul syllables that they form.
3. A token is a longest run of such characters. But every code point of a script that is written without spaces is a token of its own: Han,
   Hiragana, Katakana, Bopomofo, Yi, Tangut, Nushu, Khitan, Balinese, Javanese, and those that need a dictionary to break lines (Line_Break=SA:
   Thai, Lao, Khmer, Myanmar, Tai, Ahom). Hangul is written with spaces. So a near copy is cut as its original is, however many words of other
   scripts, spaces or marks it has.
4. With ``unit="char"`` every code point of the folded characters is a token. White space between two of them counts as one blank, which is a
   token too; what else separates words is left out.

The classes of characters are those of `dolma_dask.text.tables`. A token is known by a 64-bit hash of its UTF-8. ASCII is the fast path: sixty-four
bytes are classed at once, and runs of up to `SHORT_RUN` bytes are folded and hashed as words of eight; where a byte is not ASCII, or the run is
longer, `scan_tokens` goes by characters. Both give the same hash.
"""

from typing import NamedTuple

import numpy as np

from dolma_dask.text.bits import (
    ALL_BITS,
    ONE,
    absorb,
    address_of,
    first_bit,
    low_bits,
    mix,
    range_bits,
    word_at,
)
from dolma_dask.text.kernels import Bytes, Int, Positions, Words, kernel
from dolma_dask.text.tables import ALONE, FOLDED, FOLDS, SPACE, TOKEN, char_class, decode, entry_of

SHORT_RUN = 16
"""Bytes of the longest run of ASCII letters and digits that is hashed as two words of eight."""

_ZERO, _SIX, _EIGHT = np.uint64(0), np.uint64(6), np.uint64(8)
_DIGIT_0, _DIGIT_9, _UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "09AZaz")
_NOT_ASCII, _LAST_BYTE = np.uint8(0x80), np.uint8(0xFF)
_LOWER = np.uint64(0x2020202020202020)
_HIGH_BITS = np.uint64(0x8080808080808080)
_FOLDED, _CODE = np.uint64(FOLDED), np.uint64((1 << FOLDED) - 1)
_LOW_SIX, _CONTINUATION = np.uint64(0x3F), np.uint64(0x80)
_BLANK = np.uint64(0x20)
_FIRST_LEAD, _LAST_LEAD, _FIRST_VOWEL, _LAST_VOWEL, _NO_TAIL, _LAST_TAIL = (
    0x1100, 0x1112, 0x1161, 0x1175, 0x11A7, 0x11C2,
)  # fmt: skip
_SYLLABLES, _VOWELS, _TAILS = 0xAC00, 21, 28


class Tables(NamedTuple):
    """Classes of code points, and what they become: `load_tables` and `load_folds` of `dolma_dask.text.tables`."""

    numbers: Bytes
    blocks: Bytes
    fold_numbers: Bytes
    folds: Words


@kernel
def find_runs(data: Bytes, at: Int, end: Int, edges: Positions) -> Int:
    """Find the runs of ASCII letters, digits and bytes that are not ASCII, from byte `at` to `end`; how many edges they have.

    Sets ``edges`` to the first byte of a run, the byte after it, and so on, counted from `at`. A run at `end` lacks its last edge.
    """
    count, base, inside = 0, 0, _ZERO
    while at + base < end:
        first = at + base
        runs = range_bits(data, first, _DIGIT_0, _DIGIT_9) | range_bits(data, first, _NOT_ASCII, _LAST_BYTE)
        runs |= range_bits(data, first, _UPPER_A, _UPPER_Z) | range_bits(data, first, _LOWER_A, _LOWER_Z)
        # bits where a run begins or ends; `inside` is the last bit of the window before
        changes = (runs ^ (runs << ONE | inside)) & low_bits(end - first)
        inside = runs >> np.uint64(63)
        while changes:
            # unsigned, so that numba does not look whether it counts from the end
            edges[np.uint64(count)] = base + first_bit(changes)
            count += 1
            changes &= changes - ONE
        base += 64
    return count


@kernel
def low_bytes(count: Int) -> np.uint64:
    """Return a word with the lowest `count` (1 to 8) bytes set."""
    return ALL_BITS >> np.uint64(64 - 8 * count)


@kernel
def utf8_word(code: np.uint64) -> tuple[np.uint64, Int]:
    """Return the UTF-8 of a code point as a little-endian word, and its bytes."""
    if code < 0x80:
        return code, 1
    last = _CONTINUATION | code & _LOW_SIX
    before = code >> _SIX
    if code < 0x800:
        return np.uint64(0xC0) | before | last << _EIGHT, 2
    last = _CONTINUATION | before & _LOW_SIX | last << _EIGHT
    before >>= _SIX
    if code < 0x10000:
        return np.uint64(0xE0) | before | last << _EIGHT, 3
    last = _CONTINUATION | before & _LOW_SIX | last << _EIGHT
    return np.uint64(0xF0) | before >> _SIX | last << _EIGHT, 4


@kernel
def compose_hangul(data: Bytes, at: Int, end: Int, lead: Int, width: Int) -> tuple[Int, Int]:
    """Return the syllable that the leading consonant at byte `at` begins, and its bytes; the consonant itself if no vowel follows it."""
    # all of these letters have three bytes
    if at + 6 > end:
        return lead, width
    vowel, _ = decode(data, at + 3)
    if vowel < _FIRST_VOWEL or vowel > _LAST_VOWEL:
        return lead, width
    syllable = _SYLLABLES + ((lead - _FIRST_LEAD) * _VOWELS + vowel - _FIRST_VOWEL) * _TAILS
    if at + 9 <= end:
        tail, _ = decode(data, at + 6)
        if _NO_TAIL < tail <= _LAST_TAIL:
            return syllable + tail - _NO_TAIL, 9
    return syllable, 6


@kernel
def finish_tokens(states: Words, words: Words, first: Int, last: Int) -> None:
    """Turn ``states[first:last]`` into the hashes of tokens, by their last words.

    LLVM makes vectors of this loop because its numbers are unsigned: signed ones might count from the end of an array.
    """
    for k in range(np.uint64(first), np.uint64(last)):
        states[k] = mix(absorb(states[k], words[k]))


@kernel
def scan_tokens(
    data: Bytes, at: Int, end: Int, limit: Int, by_char: bool, started: bool,
    tables: Tables, states: Words, words: Words, count: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """Find the tokens from byte `at` on, character by character; (byte where it stopped, `count` and tokens found).

    Puts what `finish_tokens` needs into ``states[count:]`` and ``words[count:]``. Stops at the first place between two tokens that is not before
    `limit`, or at `end`. `started` tells whether the text had tokens before.
    """
    state = word = _ZERO
    fill: Int = 0  # bits of `word` that are filled
    inside, space = False, False
    # beyond the limit until a token has ended, or white space that may become one
    while at < end and (at < limit or inside or space):
        code, width = decode(data, at)
        if _FIRST_LEAD <= code <= _LAST_LEAD:
            code, width = compose_hangul(data, at, end, code, width)
        at += width
        kind = char_class(tables.numbers, tables.blocks, code)
        separates, alone = kind & TOKEN == 0, by_char or kind & ALONE != 0
        # the last word stays apart: `finish_tokens` takes those of all tokens in at once
        if inside and (separates or alone):
            states[count], words[count] = state, word
            count += 1
            state, word, fill, inside = _ZERO, _ZERO, 0, False
        if separates:
            # white space before the first character is no token
            space |= by_char and started and kind & SPACE != 0
            continue
        folded = np.uint64(code)
        if kind & FOLDS:
            folded = tables.folds[entry_of(code, tables.fold_numbers)]
        # up to three code points, the first lowest; marks that vanish have none
        while folded:
            added, size = utf8_word(folded & _CODE)
            folded >>= _FOLDED
            if alone:
                if space:
                    states[count], words[count] = _ZERO, _BLANK
                    count += 1
                place = np.uint64(count)
                states[place], words[place] = _ZERO, added
                count += 1
                started, space = True, False
                continue
            inside = True
            # a full word is taken in only when more follows: the last one is never empty, as in `find_tokens`
            if fill == 64:
                state, word, fill = absorb(state, word), _ZERO, 0
            word |= added << np.uint64(fill)
            fill += 8 * size
            if fill > 64:
                state = absorb(state, word)
                fill -= 64
                # the bytes that did not fit
                word = added >> np.uint64(8 * size - fill)
    if inside:
        states[count], words[count] = state, word
        count += 1
    return at, count


@kernel
def find_tokens(
    data: Bytes, at: Int, end: Int, limit: Int,
    tables: Tables, edges: Positions, states: Words, words: Words, count: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """Do what `scan_tokens` does for words, fast where the text is ASCII. May stop before `limit`, where a run of characters begins that
    goes on after it. `edges` is scratch for two numbers more than there are bytes up to `limit`.
    """
    limit = min(limit, end)
    found = find_runs(data, at, limit, edges)
    # one run fills the piece, and goes on: character by character to its end
    if found & 1 and limit < end and edges[found - 1] == 0:
        return scan_tokens(data, at, end, limit, False, False, tables, states, words, count)
    if found & 1 and limit < end:
        # the last run goes on behind the limit, and is left to the next piece
        found -= 1
        limit = at + edges[found]
    edges[found] = limit - at  # ends the last run of a text
    address, last_short = address_of(data), data.size - SHORT_RUN
    for run in range((found + 1) >> 1):
        start, stop = at + edges[2 * run], at + edges[2 * run + 1]
        size = stop - start
        # sixteen bytes may be read from there
        if size <= SHORT_RUN and start <= last_short:
            state, mask = _ZERO, low_bytes(min(size, 8))
            high_bits = word = np.uint64(word_at(address + start)) & mask
            if size > 8:
                # 0x20 makes capitals small and leaves digits as they are
                state, mask = absorb(state, word | _LOWER), low_bytes(size - 8)
                word = np.uint64(word_at(address + start + 8)) & mask
                high_bits |= word
            # all ASCII, tested at once; bytes behind the run were masked
            if high_bits & _HIGH_BITS == 0:
                place = np.uint64(count)
                states[place], words[place] = state, word | (_LOWER & mask)
                count += 1
                continue
        _, count = scan_tokens(data, start, stop, stop, False, False, tables, states, words, count)
    return limit, count
