"""Machine operations that numba lacks, and what all kernels build on them: sixty-four bytes as sixty-four bits, eight bytes as a word.

A *window* is 64 bytes from any address or byte of a buffer. `range64` compares all of them at once and gives one bit per byte, lowest bit
first; finding a word, counting characters or looking for a quote is then arithmetic on 64-bit integers. LLVM turns a comparison into one
AVX-512, two AVX2 or four NEON instructions; it costs about as much as three byte-wise steps.

Operations take addresses and give int64, because numba makes floats of int64 and uint64 mixed. Nothing is checked: the caller guarantees
that an address is readable (up to 64 bytes from it) or writable, and keeps its array alive. `range_bits` and `load8` take arrays and give
uint64: windows and words that reach past the end of the array are moved back and shifted, so nothing outside it is ever read and bytes after
the end count as 0; the array must hold at least `WINDOW` bytes (`string_parts` sees to it). Little-endian machines only, as numba itself.
"""

from typing import Any

import numpy as np

from dolma_dask.text.kernels import Bytes, Int, Words, kernel, operation

WINDOW = 64
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)

_MIX1, _MIX2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ROUND1, _ROUND2 = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9E3779B185EBCA87)
_S31, _S33 = np.uint64(31), np.uint64(33)


def _load(ir: Any, builder: Any, address: Any, kind: Any) -> Any:
    """Emit a load at any alignment."""
    loaded = builder.load(builder.inttoptr(address, kind.as_pointer()))
    loaded.align = 1
    return loaded


def _window(ir: Any, builder: Any, address: Any) -> Any:
    return _load(ir, builder, address, ir.VectorType(ir.IntType(8), WINDOW))


def _everywhere(ir: Any, builder: Any, byte: Any) -> Any:
    """Emit a window of one byte, given as a number of any size."""
    kind = ir.VectorType(ir.IntType(8), WINDOW)
    one = builder.insert_element(
        ir.Constant(kind, ir.Undefined), builder.trunc(byte, ir.IntType(8)), ir.IntType(32)(0)
    )
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), WINDOW), [0] * WINDOW))


def _mask(ir: Any, builder: Any, bits: Any) -> Any:
    # 64 comparisons are 64 bits: the type alone changes
    return builder.bitcast(bits, ir.IntType(64))


@operation(int, np.ndarray)
def address_of(ir: Any, builder: Any, array: Any) -> Any:
    """Address of the first element of an array."""
    # field 4 of numba's array structure is the pointer to its data
    return builder.ptrtoint(builder.extract_value(array, 4), ir.IntType(64))


@operation(int, int)
def byte_at(ir: Any, builder: Any, address: Any) -> Any:
    """Byte at `address`, 0..255."""
    return builder.zext(_load(ir, builder, address, ir.IntType(8)), ir.IntType(64))


@operation(int, int)
def word_at(ir: Any, builder: Any, address: Any) -> Any:
    """Eight bytes at `address` as a little-endian word."""
    return _load(ir, builder, address, ir.IntType(64))


@operation(int, int)
def half_at(ir: Any, builder: Any, address: Any) -> Any:
    """Four bytes at `address` as a little-endian number."""
    return builder.zext(_load(ir, builder, address, ir.IntType(32)), ir.IntType(64))


@operation(int, int)
def short_at(ir: Any, builder: Any, address: Any) -> Any:
    """Two bytes at `address` as a little-endian number."""
    return builder.zext(_load(ir, builder, address, ir.IntType(16)), ir.IntType(64))


@operation(type(None), int, int)
def put_byte(ir: Any, builder: Any, address: Any, byte: Any) -> None:
    """Store the low eight bits of `byte`."""
    builder.store(builder.trunc(byte, ir.IntType(8)), builder.inttoptr(address, ir.IntType(8).as_pointer()))


@operation(type(None), int, int)
def put_half(ir: Any, builder: Any, address: Any, number: Any) -> None:
    """Store the low 32 bits of `number`, lowest byte first."""
    pointer = builder.inttoptr(address, ir.IntType(32).as_pointer())
    builder.store(builder.trunc(number, ir.IntType(32)), pointer).align = 1


@operation(type(None), int, int)
def put_word(ir: Any, builder: Any, address: Any, number: Any) -> None:
    """Store 64 bits, lowest byte first."""
    builder.store(number, builder.inttoptr(address, ir.IntType(64).as_pointer())).align = 1


@operation(type(None), int, int)
def copy64(ir: Any, builder: Any, target: Any, source: Any) -> None:
    """Copy 64 bytes from `source` to `target`; the two must not overlap."""
    window = _window(ir, builder, source)
    builder.store(window, builder.inttoptr(target, window.type.as_pointer())).align = 1


@operation(type(None), int, int)
def lower64(ir: Any, builder: Any, target: Any, source: Any) -> None:
    """Copy 64 bytes from `source` to `target`, capital ASCII letters as small ones; the two must not overlap."""
    window = _window(ir, builder, source)
    first, letters, case = (ir.Constant(window.type, [byte] * WINDOW) for byte in (ord("A"), 26, 0x20))
    # one compare for both bounds: bytes below A wrap to large numbers
    is_capital = builder.icmp_unsigned("<", builder.sub(window, first), letters)
    lowered = builder.select(is_capital, builder.or_(window, case), window)
    builder.store(lowered, builder.inttoptr(target, window.type.as_pointer())).align = 1


@operation(type(None), int, int, int)
def memcpy(ir: Any, builder: Any, target: Any, source: Any, size: Any) -> None:
    """Copy `size` bytes by the C library: 18 GB/s for pieces of 40 bytes, 58 for texts of 2.7 kB, where numba's slices reach 2 to 4."""
    pointer = ir.IntType(8).as_pointer()
    copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, ir.IntType(64)])
    pointers = [builder.inttoptr(address, pointer) for address in (target, source)]
    builder.call(copy, [*pointers, size, ir.IntType(1)(0)])


@operation(type(None), int)
def prefetch(ir: Any, builder: Any, address: Any) -> None:
    """Ask the processor to fetch the cache line at `address`, which need not be readable: 64 random reads of memory then wait together."""
    pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    fetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
    is_write, locality, is_data = number(1), number(3), number(1)
    builder.call(fetch, [builder.inttoptr(address, pointer), is_write, locality, is_data])


@operation(int, int, int, int)
def range64(ir: Any, builder: Any, address: Any, first: Any, last: Any) -> Any:
    """Mask of the window at `address`: bit i is set where byte i lies from `first` to `last`, both included."""
    # one compare for both bounds: bytes below `first` wrap to numbers above the width
    low, width = _everywhere(ir, builder, first), _everywhere(ir, builder, builder.sub(last, first))
    return _mask(
        ir, builder, builder.icmp_unsigned("<=", builder.sub(_window(ir, builder, address), low), width)
    )


@operation(int, int, int)
def equal64(ir: Any, builder: Any, address: Any, byte: Any) -> Any:
    """Mask of the window at `address`: bit i is set where byte i equals `byte`."""
    return _mask(
        ir,
        builder,
        builder.icmp_unsigned("==", _window(ir, builder, address), _everywhere(ir, builder, byte)),
    )


@operation(int, int, int)
def differing64(ir: Any, builder: Any, first: Any, second: Any) -> Any:
    """Mask of two windows: bit i is set where byte i differs."""
    return _mask(
        ir, builder, builder.icmp_unsigned("!=", _window(ir, builder, first), _window(ir, builder, second))
    )


@operation(int, int)
def short_escape64(ir: Any, builder: Any, address: Any) -> Any:
    """Mask of the window at `address`: bit i is set where a backslash before byte i makes a short escape of JSON."""
    window = _window(ir, builder, address)
    escapes = [
        builder.icmp_unsigned("==", window, ir.Constant(window.type, [byte] * WINDOW))
        for byte in b'n"\\/bfrt'
    ]
    # \u is left out: its digits have to be looked at
    while len(escapes) > 1:
        escapes.append(builder.or_(escapes.pop(), escapes.pop()))
    return _mask(ir, builder, escapes[0])


@operation(int, int)
def first_bit(ir: Any, builder: Any, mask: Any) -> Any:
    """Place of the lowest set bit; 64 if none is set."""
    # with 0 the result for an empty mask is defined: 64
    return builder.cttz(mask, ir.IntType(1)(0))


@operation(int, int)
def leading_zeros(ir: Any, builder: Any, word: Any) -> Any:
    """Number of zero bits above the highest set bit; 64 for zero."""
    return builder.ctlz(word, ir.IntType(1)(0))


@operation(int, int)
def count_bits(ir: Any, builder: Any, mask: Any) -> Any:
    """Number of set bits."""
    return builder.ctpop(mask)


@operation(np.uint64, np.uint64, np.uint64)
def high_product(ir: Any, builder: Any, first: Any, second: Any) -> Any:
    """Upper 64 of the 128 bits of a product."""
    double = ir.IntType(128)
    product = builder.mul(builder.zext(first, double), builder.zext(second, double))
    return builder.trunc(builder.lshr(product, double(64)), ir.IntType(64))


@operation(np.uint64, np.uint64)
def swap_bytes(ir: Any, builder: Any, word: Any) -> Any:
    """Eight bytes in the other order."""
    return builder.bswap(word)


@operation(float, np.uint64)
def as_double(ir: Any, builder: Any, bits: Any) -> Any:
    """Double with this IEEE 754 representation."""
    return builder.bitcast(bits, ir.DoubleType())


@kernel
def copy_bytes(target: Bytes, target_at: Int, source: Bytes, source_at: Int, count: Int) -> None:
    """Copy ``source[source_at:source_at + count]`` to ``target[target_at:]``; the arrays must not overlap."""
    memcpy(address_of(target) + target_at, address_of(source) + source_at, count)


@kernel
def range_bits(data: Bytes, at: Int, first: np.uint8, last: np.uint8) -> np.uint64:
    """Bits of the window at byte `at` (less than ``data.size``) whose bytes lie from `first` to `last`, both included."""
    # near the end of the array the window is moved back, and what it has too early is shifted out
    start = min(at, data.size - 64)
    return np.uint64(range64(address_of(data) + start, first, last)) >> np.uint64(at - start)


@kernel
def low_bits(count: Int) -> np.uint64:
    """A word with the lowest `count` bits set; all 64 where `count` is larger, none where it is not positive."""
    # a shift by 64 is undefined
    if count >= 64:
        return ALL_BITS
    return (ONE << np.uint64(max(count, 0))) - ONE


@kernel
def find_byte(data: Bytes, at: Int, end: Int, byte: np.uint8) -> Int:
    """Return where a byte is first found from byte `at` on, or `end`."""
    while at < end:
        found = range_bits(data, at, byte, byte)
        if found:
            # one behind the end belongs to the next text
            return min(at + first_bit(found), end)
        at += 64
    return end


@kernel
def first_from(ordered: Words, value: Int | np.uint64) -> Int:
    """Return the index of the first of `ordered` that is not below `value`."""
    low, high = 0, ordered.size
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def load8(data: Bytes, at: Int, count: Int) -> np.uint64:
    """Return the first `count` (1 to 8) of the eight bytes from byte `at` (less than ``data.size``), the others as 0."""
    start = min(at, data.size - 8)
    word = np.uint64(word_at(address_of(data) + start)) >> np.uint64(8 * (at - start))
    return word & (ALL_BITS >> np.uint64(64 - 8 * count))


@kernel
def mix(word: np.uint64) -> np.uint64:
    """A bijection of 64-bit words after which every bit depends on every bit (the finalizer of MurmurHash3)."""
    word = (word ^ (word >> _S33)) * _MIX1
    word = (word ^ (word >> _S33)) * _MIX2
    return word ^ (word >> _S33)


@kernel
def absorb(state: np.uint64, word: np.uint64) -> np.uint64:
    """Take eight more bytes into the state of a hash."""
    state = (state ^ (word * _ROUND1)) * _ROUND2
    return (state << _S31) | (state >> _S33)


@kernel
def hash_bytes(data: Bytes, at: Int, end: Int) -> np.uint64:
    """A 64-bit hash of the bytes from `at` to `end`, without collisions among strings of up to 8 bytes of one length."""
    # the last word is filled with zeros: by its length a string that ends in zeros differs from a shorter one
    state = np.uint64(end - at) * _LENGTH_FACTOR
    while at < end:
        state = absorb(state, load8(data, at, min(8, end - at)))
        at += 8
    return mix(state)
