"""Sixty-four bytes of text as sixty-four bits, and eight bytes as one word: what all text kernels are built from.

A *window* is 64 bytes from any place of a buffer. `range_bits` compares all of them at once and gives one bit per
byte, lowest bit first; finding a word, counting characters or looking for letters is then arithmetic on 64-bit
integers. LLVM turns a comparison into one AVX-512, two AVX2 or four NEON instructions.

Windows and words that reach past the end of the buffer are moved back and shifted, so nothing outside it is ever
read and bytes after the end count as 0; the buffer must hold at least `WINDOW` bytes (`text_buffers` sees to it).
Places are signed and bits unsigned integers, which must not be mixed: numba makes floats of that. Little-endian
machines only, as numba itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending, types

from dolma_dask.text.kernels import Bytes, Int, kernel

WINDOW = 64
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
ONE = np.uint64(1)

_BYTE, _WORD = ir.IntType(8), ir.IntType(64)
_BYTES64, _BITS64 = ir.VectorType(_BYTE, WINDOW), ir.VectorType(ir.IntType(1), WINDOW)
_MIX1, _MIX2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_LENGTH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_ROUND1, _ROUND2 = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9E3779B185EBCA87)
_S31, _S33 = np.uint64(31), np.uint64(33)

Codegen = Callable[[Any, Any, Any, Any], Any]


def _load(context: Any, builder: Any, array_type: Any, array: Any, at: Any, loaded_type: Any) -> Any:
    """Emit a load of `loaded_type` from byte `at` of a uint8 array, at any alignment and without a check."""
    start = context.make_array(array_type)(context, builder, array).data
    loaded = builder.load(builder.bitcast(builder.gep(start, [at]), loaded_type.as_pointer()))
    loaded.align = 1
    return loaded


def _word_at(typing_context: Any, data: Any, at: Any) -> tuple[Any, Codegen]:
    """Eight bytes from byte `at` as a uint64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _load(context, builder, signature.args[0], args[0], args[1], _WORD)

    return types.uint64(data, types.int64), codegen


def _window_range(typing_context: Any, data: Any, at: Any, first: Any, last: Any) -> tuple[Any, Codegen]:
    """Bit k is set where ``first <= data[at + k] <= last``, for 64 bytes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def everywhere(value: Any) -> Any:
            one = builder.insert_element(ir.Constant(_BYTES64, ir.Undefined), value, ir.IntType(32)(0))
            return builder.shuffle_vector(
                one, one, ir.Constant(ir.VectorType(ir.IntType(32), WINDOW), [0] * WINDOW)
            )

        window = _load(context, builder, signature.args[0], args[0], args[1], _BYTES64)
        width = builder.sub(args[3], args[2])
        inside = builder.icmp_unsigned("<=", builder.sub(window, everywhere(args[2])), everywhere(width))
        return builder.bitcast(inside, _WORD)

    return types.uint64(data, types.int64, types.uint8, types.uint8), codegen


def _count_bits(typing_context: Any, bits: Any) -> tuple[Any, Codegen]:
    """Count the set bits of a uint64, as int64."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


def _first_bit(typing_context: Any, bits: Any) -> tuple[Any, Codegen]:
    """Give the place of the lowest set bit of a uint64 as int64; 64 if none is set."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


_INTRINSIC: Any = extending.intrinsic
_word_from: Callable[[Bytes, Int], np.uint64] = _INTRINSIC(_word_at)
_window_from: Callable[[Bytes, Int, np.uint8, np.uint8], np.uint64] = _INTRINSIC(_window_range)
count_bits: Callable[[np.uint64], int] = _INTRINSIC(_count_bits)
"""Number of set bits."""
first_bit: Callable[[np.uint64], int] = _INTRINSIC(_first_bit)
"""Place of the lowest set bit; 64 if none is set."""


@kernel
def range_bits(data: Bytes, at: Int, first: np.uint8, last: np.uint8) -> np.uint64:
    """Bits of the window at byte `at` (less than ``data.size``) whose bytes lie from `first` to `last`, both included."""
    start = min(at, data.size - 64)
    return _window_from(data, start, first, last) >> np.uint64(at - start)


@kernel
def low_bits(count: Int) -> np.uint64:
    """A word with the lowest `count` bits set; all 64 where `count` is larger, none where it is not positive."""
    if count >= 64:
        return ALL_BITS
    return (ONE << np.uint64(max(count, 0))) - ONE


@kernel
def load8(data: Bytes, at: Int, count: Int) -> np.uint64:
    """Return the first `count` (1 to 8) of the eight bytes from byte `at` (less than ``data.size``), the others as 0."""
    start = min(at, data.size - 8)
    word = _word_from(data, start) >> np.uint64(8 * (at - start))
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
    state = np.uint64(end - at) * _LENGTH_FACTOR
    while at < end:
        state = absorb(state, load8(data, at, min(8, end - at)))
        at += 8
    return mix(state)
