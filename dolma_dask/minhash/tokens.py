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

The classes of characters, and what they become, are those of `dolma_dask.minhash.characters`. A token is known by a 64-bit hash of its UTF-8. ASCII is the fast path:
sixty-four bytes are classed at once, and runs of up to `SHORT_RUN` bytes are folded and hashed as words of eight, several runs at once. A run that is longer or not
ASCII goes through `scan_tokens` character by character. Both give the same hash.
"""

from typing import Any, NamedTuple

import numpy as np

from dolma_dask.minhash.characters import (
    CODE_BITS,
    ENDS,
    IS_TOKEN,
    RARE,
    SIZE,
    SPECIAL,
    SPELLED,
    Tables,
    decode_composed,
    first_code,
    folded_codes,
    spell_next,
    utf8_word,
)
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
from dolma_dask.text.kernels import Bytes, Int, Positions, Words, kernel, operation
from dolma_dask.text.tables import ALONE, SPACE, TOKEN, char_class

SHORT_RUN = 16
"""Bytes of the longest run of ASCII letters and digits that is hashed as two words of eight."""

_ZERO, _TWO, _THREE, _SEVEN, _EIGHT = (np.uint64(number) for number in (0, 2, 3, 7, 8))
_TWELVE, _SIXTEEN, _LAST_BIT = np.uint64(12), np.uint64(16), np.uint64(63)
_LOWER, _BLANK = np.uint64(0x2020202020202020), np.uint64(0x20)
_BYTE, _SEVEN_BITS, _LOW_SIX, _MIDDLE = (np.uint64(number) for number in (0xFF, 0x7F, 0x3F, 0xFC0))
_BEHIND, _NIBBLE, _LAST_FOUR = np.uint64(0x0066CCCCCCCCCCCC), np.uint64(0x3C), np.uint64(0xF)
"""Bits that a character of three bytes has more than that with this lead byte, a nibble for each of its upper four bits."""
_FIRST_REST, _LAST_REST = 0x80, 0xBF

SLACK = 31
"""Numbers behind those asked for that loops over vectors may read and write."""

_SLACK = np.uint64(SLACK)


class Room(NamedTuple):
    """Scratch of `find_tokens`. A run is slow if it has more than `SHORT_RUN` bytes, or other than ASCII, or lies at the end of the buffer."""

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


# ------------------------------------------------------------------------------------------------ runs


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
def _end_of(data: Bytes, start: Int, size: np.uint64, end: Int) -> Int:
    """Return where a run ends of which `_find_runs` gave the size."""
    at = start + np.int64(size)
    # a longer one goes on
    while size >= WINDOW and at < end:
        runs, _ = _run_bits(data, at, end)
        if ~runs:
            return at + first_bit(~runs)
        at += WINDOW
    return at if size < WINDOW else end


@kernel
def _find_runs(data: Bytes, at: Int, end: Int, limit: Int, room: Room) -> tuple[Int, Int]:
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
def _hash_short(
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


@kernel
def find_tokens(
    data: Bytes, at: Int, end: Int, limit: Int, tables: Tables, room: Room, tokens: Words, count: Int
) -> tuple[Int, Int]:  # fmt: skip
    """Do what `scan_tokens` does for words, many runs at once; `room` is for pieces of ``limit - at`` bytes."""
    limit = min(limit, end)
    runs, slow = _find_runs(data, at, end, limit, room)
    stop: Int = limit
    last: Int = -1
    if runs > 0:
        start = at + room.starts[runs - 1]
        stop = max(limit, _end_of(data, start, room.sizes[runs - 1], end))
        # one that goes on behind the limit may be very long
        if slow > 0 and room.slow[slow - 1] == runs - 1 and stop > limit:
            last, runs, slow = start, runs - 1, slow - 1
    # words of four bytes could not be read
    if slow > 0 and stop > data.size - 4:
        return scan_tokens(data, at, end, limit, tables, tokens, count)
    # 0x20 makes capitals small and leaves digits as they are
    if slow == 0:
        _hash_short(room.sizes, room.first, room.second, _LOWER, runs, tokens, count)
        count += runs
    else:
        _hash_short(room.sizes, room.first, room.second, _LOWER, runs, room.hashes, 0)
        found = _fold_runs(data, at, end, runs, slow, tables, room)
        _hash_folded(room, found)
        count = _merge(room, runs, slow, found, tokens, count)
    if last >= 0:
        return scan_tokens(data, last, stop, limit, tables, tokens, count)
    return stop, count


@kernel
def _merge(room: Room, runs: Int, slow: Int, found: Int, tokens: Words, count: Int) -> Int:
    """Put the hashes of all runs and of the tokens of slow runs into ``tokens[count:]``, in the order of the text; return how many there are then."""
    place = np.uint64(count)
    for run in range(np.uint64(runs)):
        # for slow runs something that is overwritten
        tokens[place] = room.hashes[run]
        place += np.uint64(1 + room.more[run])
    for token in range(np.uint64(found)):
        tokens[np.uint64(count) + token + np.uint64(room.shifts[token])] = room.first[token]
    return count + runs - slow + found


# ------------------------------------------------------------------------------------------------ slow runs


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
def _fold_runs(data: Bytes, at: Int, end: Int, runs: Int, slow: Int, tables: Tables, room: Room) -> Int:
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
        stop = _end_of(data, place, room.sizes[run], end)
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
def _hash_folded(room: Room, found: Int) -> None:
    """Set ``room.first`` to the hashes of the tokens in ``room.folded``."""
    folded = address_of(room.folded)
    for token in range(np.uint64(found)):
        at = folded + room.begins[token]
        room.first[token], room.second[token] = np.uint64(word_at(at)), np.uint64(word_at(at + 8))
    _hash_short(room.lengths, room.first, room.second, _ZERO, found, room.sizes, 0)
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


# ------------------------------------------------------------------------------------------------ characters


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
    # LLVM makes vectors of this loop, as in `_hash_short`
    for token in range(np.uint64(before), np.uint64(count)):
        tokens[token] = mix(absorb(_ZERO, tokens[token]))
    return at, count
