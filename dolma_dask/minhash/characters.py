"""What a character becomes in the tokens of `dolma_dask.minhash.tokens`: nothing, an end of a token, or the UTF-8 of what it is folded to.

The answer for nearly all of the first 65,536 code points is one word, the *spelling*: it is looked up once for each character, and its bytes are put behind
those of the characters before. The words are made from the tables of `dolma_dask.text.tables` when they are first asked for, in less than a millisecond.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Int, Words, kernel
from dolma_dask.text.tables import (
    ALONE,
    FOLDED,
    FOLDS,
    TOKEN,
    char_class,
    decode,
    entry_of,
    load_folds,
    load_tables,
)

KNOWN, NUMBERS = 1 << 16, 0x15000
"""Code points that have a spelling, and numbers for which `RARE` is kept besides: what lead bytes of four bytes make."""

SPELLED, SIZE = np.uint64((1 << 48) - 1), np.uint64(48)
"""Bits of a spelling with its UTF-8, the first byte lowest, and by how many bits their number (0 to 6) is shifted."""

ENDS, IS_TOKEN, RARE = np.uint64(1 << 52), np.uint64(1 << 53), np.uint64(1 << 54)
"""Bits of a spelling: the character ends a token, or is one by itself, or something else that `folded_codes` knows."""

SPECIAL = ENDS | IS_TOKEN | RARE
"""None of these bits is set where a character goes on with a token."""

CODE_BITS, _CODE = np.uint64(FOLDED), np.uint64((1 << FOLDED) - 1)
_SIX, _EIGHT, _NOTHING = np.uint64(6), np.uint64(8), np.uint64(0)
_LOW_SIX, _CONTINUATION = np.uint64(0x3F), np.uint64(0x80)
_FIRST_LEAD, _LAST_LEAD, _FIRST_VOWEL, _LAST_VOWEL, _NO_TAIL, _LAST_TAIL = (
    0x1100, 0x1112, 0x1161, 0x1175, 0x11A7, 0x11C2,
)  # fmt: skip
_SYLLABLES, _VOWELS, _TAILS = 0xAC00, 21, 28


class Tables(NamedTuple):
    """Spellings; classes of code points, and what they become: `load_tables` and `load_folds` of `dolma_dask.text.tables`."""

    spellings: Words
    numbers: Bytes
    blocks: Bytes
    fold_numbers: Bytes
    folds: Words


@cache
def load_characters() -> Tables:
    """Return all tables that kernels need."""
    spellings = np.full(NUMBERS, RARE, np.uint64)
    tables = Tables(spellings, *load_tables(), *load_folds())
    _spell(tables)
    return tables._replace(spellings=for_kernel(spellings))


@kernel
def _spell(tables: Tables) -> None:
    """Set the spellings."""
    for code in range(KNOWN):
        tables.spellings[code] = _spelling(tables, code)


@kernel
def _spelling(tables: Tables, code: Int) -> np.uint64:
    kind = char_class(tables.numbers, tables.blocks, code)
    if kind & TOKEN == 0:
        return ENDS
    folded, spelled, bits = folded_codes(tables, code, kind), _NOTHING, _NOTHING
    is_one = folded >> CODE_BITS == 0
    while folded:
        added, size = utf8_word(folded & _CODE)
        folded >>= CODE_BITS
        spelled |= added << bits
        bits += np.uint64(8 * size)
    if bits > SIZE or _FIRST_LEAD <= code <= _LAST_LEAD or (kind & ALONE and not is_one):
        return RARE
    return spelled | bits << np.uint64(45) | (IS_TOKEN if kind & ALONE else _NOTHING)


@kernel
def folded_codes(tables: Tables, code: Int, kind: Int) -> np.uint64:
    """Return up to three code points that a character of this class is folded to, the first in the lowest `CODE_BITS`; 0 where nothing is left."""
    if kind & FOLDS:
        return np.uint64(tables.folds[entry_of(code, tables.fold_numbers)])
    return np.uint64(code)


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
def decode_composed(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return the code point at byte `at`, and its bytes; of conjoining jamo the syllable that they form."""
    code, width = decode(data, at)
    # all of these letters have three bytes
    if code < _FIRST_LEAD or code > _LAST_LEAD or at + 6 > end:
        return code, width
    vowel, _ = decode(data, at + 3)
    if vowel < _FIRST_VOWEL or vowel > _LAST_VOWEL:
        return code, width
    syllable = _SYLLABLES + ((code - _FIRST_LEAD) * _VOWELS + vowel - _FIRST_VOWEL) * _TAILS
    if at + 9 <= end:
        tail, _ = decode(data, at + 6)
        if _NO_TAIL < tail <= _LAST_TAIL:
            return syllable + tail - _NO_TAIL, 9
    return syllable, 6


@kernel
def first_code(codes: np.uint64) -> np.uint64:
    """Return the first of the code points of `folded_codes`."""
    return codes & _CODE


@kernel
def spell_next(codes: np.uint64, flag: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return a spelling with `flag` of the first of the code points of `folded_codes`, which may be none, and those behind it."""
    if codes == 0:
        return flag, codes
    word, size = utf8_word(codes & _CODE)
    return word | np.uint64(size) << SIZE | flag, codes >> CODE_BITS
