"""SHA-1 of many short strings at once, sixteen in the lanes of vector registers; of each digest the first eight bytes.

A shingle of 80 bytes is two blocks of 64, too little for a library that is called once per string. A lane that has come to the end of its
string takes the next one, whatever the others do, so all lanes are always busy and lengths may vary.
"""

from typing import Any

import numpy as np

from dolma_dask.text.bits import address_of, half_at, put_word, swap_bytes, word_at
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Counts, Int, Words, kernel, operation

BLOCK = 64
"""Bytes of a block."""
LANES = 32
WORDS = 16

_START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)
_FACTORS = (0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6)
_LAST = 55
"""Most bytes that are left in the last block: a 1 bit and the length in eight bytes follow."""
_FREE = _LAST - BLOCK
"""Remainder of a string after its last block, at most."""
_NONE, _S32 = np.uint64(0), np.uint64(32)


@operation(type(None), int, int, int)
def _compress(ir: Any, builder: Any, states: Any, blocks: Any, fresh: Any) -> None:
    """Take a block into the state of each lane: five vectors, and a block for each lane, are at these addresses.

    Lanes with a bit in `fresh` begin a string.
    """
    vector = ir.VectorType(ir.IntType(32), LANES)
    is_fresh = builder.bitcast(builder.trunc(fresh, ir.IntType(LANES)), ir.VectorType(ir.IntType(1), LANES))
    places = [_place(ir, builder, states, 4 * LANES * number, vector) for number in range(len(_START))]
    # what a lane has of its last string is replaced by the start of a new one
    before = [
        builder.select(is_fresh, ir.Constant(vector, [start] * LANES), builder.load(place, align=4))
        for start, place in zip(_START, places, strict=True)
    ]
    after = _rounds(ir, builder, before, _message(ir, builder, blocks))
    for place, old, new in zip(places, before, after, strict=True):
        builder.store(builder.add(old, new), place, align=4)


def _rounds(ir: Any, builder: Any, state: list[Any], words: list[Any]) -> tuple[Any, ...]:
    """Emit the eighty rounds of FIPS 180-4, section 6.1.2."""

    def same(number: int) -> Any:
        return ir.Constant(state[0].type, [number] * LANES)

    def rotate(value: Any, by: int) -> Any:
        return builder.or_(builder.shl(value, same(by)), builder.lshr(value, same(32 - by)))

    a, b, c, d, e = state
    for step in range(80):
        # words 16 to 79 come from those before, as they are needed
        if step >= WORDS:
            mixed = builder.xor(builder.xor(words[-3], words[-8]), builder.xor(words[-14], words[-16]))
            words.append(rotate(mixed, 1))
        if step < 20:
            chosen = builder.xor(d, builder.and_(b, builder.xor(c, d)))
        elif 40 <= step < 60:
            chosen = builder.or_(builder.and_(b, c), builder.and_(d, builder.or_(b, c)))
        else:
            chosen = builder.xor(b, builder.xor(c, d))
        keyed = builder.add(builder.add(e, same(_FACTORS[step // 20])), words[step])
        a, b, c, d, e = builder.add(rotate(a, 5), builder.add(chosen, keyed)), a, rotate(b, 30), c, d
    return a, b, c, d, e


def _message(ir: Any, builder: Any, blocks: Any) -> list[Any]:
    """Load the blocks, and return the sixteen words of all lanes; half of the lanes at a time, as many as a block has words."""
    row = ir.VectorType(ir.IntType(32), WORDS)
    halves = []
    for half in range(LANES // WORDS):
        places = [_place(ir, builder, blocks, BLOCK * (half * WORDS + lane), row) for lane in range(WORDS)]
        rows = [_swapped(ir, builder, builder.load(place, align=1)) for place in places]
        halves.append(_transposed(ir, builder, rows))
    order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(LANES)))
    return [builder.shuffle_vector(*both, order) for both in zip(*halves, strict=True)]


def _place(ir: Any, builder: Any, address: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, ir.IntType(64)(offset)), kind.as_pointer())


def _transposed(ir: Any, builder: Any, rows: list[Any]) -> list[Any]:
    """Turn sixteen vectors of sixteen words into their columns: rows that are 8 apart interleaved, four times."""
    half = WORDS // 2
    mask = ir.VectorType(ir.IntType(32), WORDS)
    halves = [
        ir.Constant(mask, [n // 2 + first + WORDS * (n % 2) for n in range(WORDS)]) for first in (0, half)
    ]
    for _ in range(4):
        rows = [builder.shuffle_vector(rows[i], rows[i + half], part) for i in range(half) for part in halves]
    return rows


def _swapped(ir: Any, builder: Any, words: Any) -> Any:
    """Reverse the bytes of each word."""
    single = builder.bitcast(words, ir.VectorType(ir.IntType(8), BLOCK))
    order = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [n ^ 3 for n in range(BLOCK)])
    return builder.bitcast(builder.shuffle_vector(single, single, order), words.type)


@operation(type(None), int, int, int, int)
def _put_block(ir: Any, builder: Any, target: Any, source: Any, left: Any, length: Any) -> None:
    """Write a block: the next `left` bytes of a string (up to 64; a negative number: all of it and the 1 bit were written before), the 1 bit
    that ends it, zeros, and `length`.
    """
    window = ir.VectorType(ir.IntType(8), BLOCK)
    numbers = ir.VectorType(ir.IntType(64), BLOCK // 8)
    data = builder.load(builder.inttoptr(source, window.as_pointer()), align=1)
    one = builder.insert_element(
        ir.Constant(window, ir.Undefined), builder.trunc(left, ir.IntType(8)), ir.IntType(32)(0)
    )
    size = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK))
    place = ir.Constant(window, list(range(BLOCK)))
    zero, end = ir.Constant(window, [0] * BLOCK), ir.Constant(window, [0x80] * BLOCK)
    behind = builder.select(builder.icmp_signed("==", place, size), end, zero)
    block = builder.bitcast(builder.select(builder.icmp_signed("<", place, size), data, behind), numbers)
    last = ir.IntType(32)(BLOCK // 8 - 1)
    ending = builder.or_(builder.extract_element(block, last), length)
    block = builder.insert_element(block, ending, last)
    builder.store(block, builder.inttoptr(target, numbers.as_pointer()), align=1)


@kernel
def _first_word(state: Int) -> np.uint64:
    """First eight bytes of the digest of a lane, as a little-endian number."""
    first, second = np.uint64(half_at(state)), np.uint64(half_at(state + 4 * LANES))
    return swap_bytes(first << _S32 | second)


@kernel
def _hash_all(
    data: Bytes, begins: Counts, ends: Counts, blocks: Bytes, states: Bytes, lanes: Counts, hashes: Words
) -> None:
    """Hash every string; see `sha1_words`. `lanes` holds, for each lane, its string, the address of what is left of it, and the bytes left.

    There is no branch in the inner loop, since when strings end cannot be predicted. A lane that finds no string hashes the last one again, into
    a place behind the hashes; what it writes of an unfinished string is written over.
    """
    base, state, block, out = address_of(data), address_of(states), address_of(blocks), address_of(hashes)
    first_begin, first_end, places = address_of(begins), address_of(ends), address_of(lanes)
    count, taken, missing = begins.size, 0, begins.size
    # no lane has a string yet: what it writes goes behind the hashes
    for lane in range(LANES):
        lanes[lane], lanes[2 * LANES + lane] = count, _FREE
    while missing > 0:
        fresh = 0
        for lane in range(LANES):
            place = places + 8 * lane
            string, at, left = word_at(place), word_at(place + 8 * LANES), word_at(place + 16 * LANES)
            # in each round, finished or not: the last one stays
            put_word(out + 8 * string, _first_word(state + 4 * lane))
            # the block with the length has been taken in
            is_free = left <= _FREE
            missing -= is_free & (string < count)
            string = min(taken, count) if is_free else string
            taken += is_free
            fresh |= is_free << lane
            # lanes without a string take the last one, so that all addresses are readable
            begin = word_at(first_begin + 8 * min(string, count - 1))
            end = word_at(first_end + 8 * min(string, count - 1))
            at, left = (base + begin, end - begin) if is_free else (at, left)
            length = swap_bytes(np.uint64(8 * (end - begin)))
            # the length stands in the last block alone; more than 55 bytes leave no room for it
            _put_block(block + BLOCK * lane, at, min(left, BLOCK), length if left <= _LAST else _NONE)
            put_word(place, string)
            put_word(place + 8 * LANES, at + BLOCK)
            put_word(place + 16 * LANES, left - BLOCK)
        _compress(state, block, fresh)


def sha1_words(data: Bytes, begins: Counts, ends: Counts) -> Words:
    """Return the first eight bytes of the SHA-1 of each string ``data[begins[i]:ends[i]]``, as little-endian numbers (n,).

    The low 32 bits of such a number are the first four bytes. At least `dolma_dask.text.joined.MARGIN` bytes of `data` follow the last end.
    """
    words = np.empty(len(begins) + 1, np.uint64)
    blocks, states = np.zeros(LANES * BLOCK, np.uint8), np.zeros(5 * LANES * 4, np.uint8)
    lanes = np.zeros(3 * LANES, np.int64)
    _hash_all(for_kernel(data), for_kernel(begins), for_kernel(ends), blocks, states, lanes, words)
    return words[:-1]
