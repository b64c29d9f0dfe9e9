"""Runs that are long or not ASCII: their characters are folded one by one, and the tokens in them hashed together."""

import numpy as np

from dolma_dask.minhash.characters import (
    ENDS,
    IS_TOKEN,
    RARE,
    SIZE,
    SPECIAL,
    SPELLED,
    Tables,
    decode_composed,
    folded_codes,
    spell_next,
)
from dolma_dask.minhash.runs import SHORT_RUN, Room, end_of, hash_short
from dolma_dask.text.bits import (
    ALL_BITS,
    ONE,
    WINDOW,
    absorb,
    address_of,
    first_bit,
    half_at,
    low_bits,
    mix,
    put_word,
    range64,
    word_at,
)
from dolma_dask.text.kernels import Bytes, Int, Words, kernel
from dolma_dask.text.tables import ALONE, TOKEN, char_class

_ZERO, _TWO, _SEVEN, _TWELVE, _SIXTEEN = (np.uint64(number) for number in (0, 2, 7, 12, 16))
_BYTE, _SEVEN_BITS, _LOW_SIX, _MIDDLE = (np.uint64(number) for number in (0xFF, 0x7F, 0x3F, 0xFC0))
_FIRST_REST, _LAST_REST = 0x80, 0xBF

_BEHIND, _NIBBLE, _LAST_FOUR = np.uint64(0x0066CCCCCCCCCCCC), np.uint64(0x3C), np.uint64(0xF)
"""Bits that a character of three bytes has more than that with this lead byte, a nibble for each of its upper four bits."""


@kernel
def _first_bytes(data: Bytes, at: Int, end: Int) -> np.uint64:
    """Return bits of the window at byte `at` where a character begins; none from `end` on."""
    start = min(at, data.size - WINDOW)
    rest = np.uint64(range64(address_of(data) + start, _FIRST_REST, _LAST_REST))
    return ~rest >> np.uint64(at - start) & low_bits(end - at)


@kernel
def _decode_short(address: Int) -> np.uint64:
    """Return the code point of up to three bytes at an address from which four may be read, without a branch; of four bytes a number from 65,536 on."""
    word = np.uint64(half_at(address))
    lead = word & _BYTE
    # as if it had three bytes; what lies behind the character is shifted out again
    code = (lead & _SEVEN_BITS >> (lead >> _SEVEN << ONE)) << _TWELVE
    code |= word >> _TWO & _MIDDLE | word >> _SIXTEEN & _LOW_SIX
    return code >> (_BEHIND >> (lead >> _TWO & _NIBBLE) & _LAST_FOUR)


@kernel
def fold_runs(data: Bytes, at: Int, end: Int, runs: Int, slow: Int, tables: Tables, room: Room) -> Int:
    """Put the folded bytes of slow runs behind each other, and find where their tokens begin; return how many there are.

    Where a character begins does not depend on what is read of the one before, so that none waits for another.
    """
    address, folded = address_of(data), address_of(room.folded)
    filled: Int = 0
    begin: Int = 0
    found: Int = 0
    for k in range(np.uint64(runs)):
        room.more[k] = 0
    for number in range(slow):
        run = room.slow[number]
        place, before, shift = at + room.starts[run], found, run - number
        stop = end_of(data, place, room.sizes[run], end)
        while place < stop:
            window, begins = place, _first_bytes(data, place, stop)
            place += WINDOW
            while begins:
                char = window + first_bit(begins)
                begins &= begins - ONE
                spelling, codes = tables.spellings[_decode_short(address + char)], _ZERO
                if spelling & SPECIAL == 0:
                    put_word(folded + filled, np.int64(spelling & SPELLED))
                    filled += np.int64(spelling >> SIZE)
                    continue
                if spelling & RARE:
                    spelling, codes, behind = _spell_rare(data, char, stop, tables)
                    # letters that were composed are one character
                    if behind > char + 4:
                        place, begins = behind, _ZERO
                while True:
                    if spelling & (ENDS | IS_TOKEN) and filled > begin:
                        found = _add_token(room, found, begin, filled, shift)
                        begin = filled
                    put_word(folded + filled, np.int64(spelling & SPELLED))
                    filled += np.int64(spelling >> SIZE & _SEVEN)
                    if spelling & IS_TOKEN and filled > begin:
                        found = _add_token(room, found, begin, filled, shift)
                        begin = filled
                    if codes == 0:
                        break
                    spelling, codes = spell_next(codes, spelling & IS_TOKEN)
        if filled > begin:
            found = _add_token(room, found, begin, filled, shift)
            begin = filled
        room.more[run] = found - before - 1
    return found


@kernel
def _add_token(room: Room, found: Int, begin: Int, end: Int, shift: Int) -> Int:
    token = np.uint64(found)
    room.begins[token], room.shifts[token], room.lengths[token] = begin, shift, np.uint64(end - begin)
    return found + 1


@kernel
def _spell_rare(data: Bytes, at: Int, end: Int, tables: Tables) -> tuple[np.uint64, np.uint64, Int]:
    """Return the spelling of any character by its first code point, the code points behind that, and the byte behind the character."""
    code, width = decode_composed(data, at, end)
    kind = char_class(tables.numbers, tables.blocks, code)
    if kind & TOKEN == 0:
        return ENDS, _ZERO, at + width
    flag = IS_TOKEN if kind & ALONE else _ZERO
    spelling, codes = spell_next(folded_codes(tables, code, kind), flag)
    return spelling, codes, at + width


@kernel
def hash_folded(room: Room, found: Int) -> None:
    """Set ``room.first`` to the hashes of the tokens in ``room.folded``."""
    folded = address_of(room.folded)
    for token in range(np.uint64(found)):
        at = folded + room.begins[token]
        room.first[token], room.second[token] = np.uint64(word_at(at)), np.uint64(word_at(at + 8))
    hash_short(room.lengths, room.first, room.second, _ZERO, found, room.sizes, 0)
    for token in range(np.uint64(found)):
        room.first[token] = room.sizes[token]
        if room.lengths[token] > SHORT_RUN:
            room.first[token] = _hash_long(folded + room.begins[token], np.int64(room.lengths[token]))


@kernel
def _hash_long(at: Int, size: Int) -> np.uint64:
    """Return the hash of one byte or more at an address."""
    state = _ZERO
    # the last word is never empty
    while size > 8:
        state = absorb(state, np.uint64(word_at(at)))
        at += 8
        size -= 8
    return mix(absorb(state, np.uint64(word_at(at)) & ALL_BITS >> np.uint64(64 - 8 * size)))


@kernel
def merge(room: Room, runs: Int, slow: Int, found: Int, tokens: Words, count: Int) -> Int:
    """Put the hashes of all runs and of the tokens of slow runs into ``tokens[count:]``, in the order of the text; return how many there are then."""
    place = np.uint64(count)
    for run in range(np.uint64(runs)):
        # for slow runs something that is overwritten
        tokens[place] = room.hashes[run]
        place += np.uint64(1 + room.more[run])
    for token in range(np.uint64(found)):
        tokens[np.uint64(count) + token + np.uint64(room.shifts[token])] = room.first[token]
    return count + runs - slow + found
