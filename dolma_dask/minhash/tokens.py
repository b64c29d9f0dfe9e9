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

The classes of characters, and what they become, are those of `dolma_dask.minhash.characters`. A token is known by a 64-bit hash of its UTF-8. Runs of ASCII are the
fast path: `dolma_dask.minhash.runs` finds and hashes many at once. Those that are longer or not ASCII are folded by `dolma_dask.minhash.folding`, and `scan_tokens` is
for what neither can take. All give the same hash.
"""

import numpy as np

from dolma_dask.minhash.characters import (
    CODE_BITS,
    SPELLED,
    Tables,
    decode_composed,
    first_code,
    folded_codes,
    utf8_word,
)
from dolma_dask.minhash.folding import fold_runs, hash_folded, merge
from dolma_dask.minhash.runs import Room, end_of, find_runs, hash_short
from dolma_dask.text.bits import absorb, mix
from dolma_dask.text.kernels import Bytes, Int, Words, kernel
from dolma_dask.text.tables import ALONE, SPACE, TOKEN, char_class

_ZERO, _LOWER, _BLANK = np.uint64(0), np.uint64(0x2020202020202020), np.uint64(0x20)


@kernel
def find_tokens(
    data: Bytes, at: Int, end: Int, limit: Int, tables: Tables, room: Room, tokens: Words, count: Int
) -> tuple[Int, Int]:  # fmt: skip
    """Do what `scan_tokens` does for words, many runs at once; `room` is for pieces of ``limit - at`` bytes."""
    limit = min(limit, end)
    runs, slow = find_runs(data, at, end, limit, room)
    stop: Int = limit
    last: Int = -1
    if runs > 0:
        start = at + room.starts[runs - 1]
        stop = max(limit, end_of(data, start, room.sizes[runs - 1], end))
        # one that goes on behind the limit may be very long
        if slow > 0 and room.slow[slow - 1] == runs - 1 and stop > limit:
            last, runs, slow = start, runs - 1, slow - 1
    # words of four bytes could not be read
    if slow > 0 and stop > data.size - 4:
        return scan_tokens(data, at, end, limit, tables, tokens, count)
    # 0x20 makes capitals small and leaves digits as they are
    if slow == 0:
        hash_short(room.sizes, room.first, room.second, _LOWER, runs, tokens, count)
        count += runs
    else:
        hash_short(room.sizes, room.first, room.second, _LOWER, runs, room.hashes, 0)
        found = fold_runs(data, at, end, runs, slow, tables, room)
        hash_folded(room, found)
        count = merge(room, runs, slow, found, tokens, count)
    if last >= 0:
        return scan_tokens(data, last, stop, limit, tables, tokens, count)
    return stop, count


@kernel
def scan_tokens(
    data: Bytes, at: Int, end: Int, limit: Int, tables: Tables, tokens: Words, count: Int
) -> tuple[Int, Int]:  # fmt: skip
    """Find the tokens from byte `at` on, character by character, and put their hashes into ``tokens[count:]``; (byte where it stopped, `count` and
    tokens found).

    Stops at the first place between two tokens that is not before `limit`, or at `end`.
    """
    state = word = _ZERO
    fill: Int = 0  # bits of `word` that are filled
    # beyond the limit until a token has ended
    while at < end and (at < limit or fill > 0):
        code, width = decode_composed(data, at, end)
        at += width
        kind = char_class(tables.numbers, tables.blocks, code)
        separates, alone = kind & TOKEN == 0, kind & ALONE != 0
        if fill > 0 and (separates or alone):
            tokens[np.uint64(count)] = mix(absorb(state, word))
            count += 1
            state, word, fill = _ZERO, _ZERO, 0
        codes = _ZERO if separates else folded_codes(tables, code, kind)
        # marks that vanish have none
        while codes:
            added, size = utf8_word(first_code(codes))
            codes >>= CODE_BITS
            if alone:
                tokens[np.uint64(count)] = mix(absorb(_ZERO, added))
                count += 1
                continue
            # a full word is taken in only when more follows: the last one is never empty, as in `_hash_long`
            if fill == 64:
                state, word, fill = absorb(state, word), _ZERO, 0
            word |= added << np.uint64(fill)
            fill += 8 * size
            if fill > 64:
                state = absorb(state, word)
                fill -= 64
                # the bytes that did not fit
                word = added >> np.uint64(8 * size - fill)
    if fill > 0:
        tokens[np.uint64(count)] = mix(absorb(state, word))
        count += 1
    return at, count


@kernel
def find_characters(
    data: Bytes, at: Int, end: Int, limit: Int, tables: Tables, started: bool, tokens: Words, count: Int
) -> tuple[Int, Int]:  # fmt: skip
    """Do what `scan_tokens` does where every character is a token; `started` tells whether the text had tokens before."""
    before = count
    space: bool | np.bool_ = False
    # beyond the limit where white space may become a token
    while at < end and (at < limit or space):
        code: Int = np.int64(data[np.uint64(at)])
        width: Int = 1
        # a spelling of one byte is its code point
        codes = tables.spellings[np.uint64(code)] & SPELLED
        if code >= 0x80:
            code, width = decode_composed(data, at, end)
            kind = char_class(tables.numbers, tables.blocks, code)
            codes = folded_codes(tables, code, kind) if kind & TOKEN else _ZERO
        at += width
        if codes == 0:
            kind = char_class(tables.numbers, tables.blocks, code)
            # white space before the first character is no token
            space |= kind & SPACE != 0 and (started or count > before)
            continue
        if space:
            tokens[np.uint64(count)], space = _BLANK, False
            count += 1
        while codes:
            tokens[np.uint64(count)], _ = utf8_word(first_code(codes))
            codes >>= CODE_BITS
            count += 1
    # LLVM makes vectors of this loop, as in `hash_short`
    for token in range(np.uint64(before), np.uint64(count)):
        tokens[token] = mix(absorb(_ZERO, tokens[token]))
    return at, count
