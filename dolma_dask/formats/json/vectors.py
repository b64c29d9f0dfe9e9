"""Machine operations for the JSON kernels: loads, 64-byte compares and bit scans on raw addresses.

Numba has no vector types, but its intrinsics may emit any LLVM instruction. A compare of 64 bytes at once becomes two or
three AVX-512 instructions, and LLVM splits it by itself for AVX2, SSE2 or NEON. One such step costs about as much as
three byte-wise steps; that is where the speed of the readers comes from.

All addresses, masks and bytes are int64, because numba turns an int64 mixed with a uint64 into a float64. Nothing is checked:
the caller guarantees that an address is readable (loads: up to 64 bytes from it) or writable, and keeps its array alive.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_BYTE, 64)

Typed = tuple[Any, Callable[..., Any]]


def _operation(generator: Callable[..., Typed]) -> Any:
    """Make an intrinsic; the type numba gives it has the typing context as a parameter, which callers never pass."""
    return intrinsic(generator)


def _pointer(builder: Any, address: Any, pointee: Any) -> Any:
    return builder.inttoptr(address, pointee.as_pointer())


def _load_vector(builder: Any, address: Any) -> Any:
    vector = builder.load(_pointer(builder, address, _VECTOR))
    vector.align = 1
    return vector


def _splat(builder: Any, byte: Any) -> Any:
    lane = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    every = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(lane, ir.Constant(_VECTOR, ir.Undefined), every)


def _constant(byte: int) -> Any:
    return ir.Constant(_VECTOR, [byte] * 64)


@_operation
def borrowed(typing_context: Any, array: Any) -> Typed:
    """Return `array` without its reference count, valid while the caller keeps the original.

    Numba counts references to arrays that are passed between kernels, with atomic additions: 100 ns for ten arrays.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        view = make_array(signature.args[0])(context, builder, args[0])  # type: ignore[no-untyped-call]
        view.meminfo = ir.Constant(view.meminfo.type, None)
        view.parent = ir.Constant(view.parent.type, None)
        return view._getvalue()

    return array(array), generate


@_operation
def byte_at(typing_context: Any, address: Any) -> Typed:
    """Return the byte at `address`, 0..255."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, args[0], _BYTE)), _WORD)

    return types.int64(types.int64), generate


@_operation
def word_at(typing_context: Any, address: Any) -> Typed:
    """Return the eight bytes at `address` as a little-endian word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = builder.load(_pointer(builder, args[0], _WORD))
        word.align = 1
        return word

    return types.int64(types.int64), generate


@_operation
def put_byte(typing_context: Any, address: Any, byte: Any) -> Typed:
    """Store the low eight bits of `byte` at `address`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(builder.trunc(args[1], _BYTE), _pointer(builder, args[0], _BYTE))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_operation
def copy64(typing_context: Any, target: Any, source: Any) -> Typed:
    """Copy 64 bytes from `source` to `target`; the two must not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        store = builder.store(_load_vector(builder, args[1]), _pointer(builder, args[0], _VECTOR))
        store.align = 1
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@_operation
def equal64(typing_context: Any, address: Any, byte: Any) -> Typed:
    """Return a mask of the 64 bytes at `address`: bit i is set where byte i equals `byte`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wanted = _splat(builder, builder.trunc(args[1], _BYTE))
        return builder.bitcast(builder.icmp_unsigned("==", _load_vector(builder, args[0]), wanted), _WORD)

    return types.int64(types.int64, types.int64), generate


@_operation
def differing64(typing_context: Any, first: Any, second: Any) -> Typed:
    """Return a mask of two runs of 64 bytes: bit i is set where byte i differs."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (_load_vector(builder, address) for address in args)
        return builder.bitcast(builder.icmp_unsigned("!=", left, right), _WORD)

    return types.int64(types.int64, types.int64), generate


@_operation
def control64(typing_context: Any, address: Any) -> Typed:
    """Return a mask of the 64 bytes at `address`: bit i is set where byte i is below 0x20."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        below = builder.icmp_unsigned("<", _load_vector(builder, args[0]), _constant(0x20))
        return builder.bitcast(below, _WORD)

    return types.int64(types.int64), generate


@_operation
def short_escape64(typing_context: Any, address: Any) -> Typed:
    """Return a mask of the 64 bytes at `address`: bit i is set where a backslash before byte i makes a short escape."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load_vector(builder, args[0])
        found = builder.icmp_unsigned("==", vector, _constant(0x6E))
        for byte in b'"\\/bfrt':
            found = builder.or_(found, builder.icmp_unsigned("==", vector, _constant(byte)))
        return builder.bitcast(found, _WORD)

    return types.int64(types.int64), generate


@_operation
def non_ascii64(typing_context: Any, address: Any) -> Typed:
    """Return a mask of the 64 bytes at `address`: bit i is set where byte i is above 0x7F."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load_vector(builder, args[0])
        return builder.bitcast(builder.icmp_signed("<", vector, _constant(0)), _WORD)

    return types.int64(types.int64), generate


@_operation
def first_bit(typing_context: Any, mask: Any) -> Typed:
    """Return the number of the lowest set bit of `mask`, 64 for none."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@_operation
def leading_zeros(typing_context: Any, word: Any) -> Typed:
    """Return the number of zero bits above the highest set bit of `word`, 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_operation
def bit_count(typing_context: Any, mask: Any) -> Typed:
    """Return how many bits of `mask` are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


@_operation
def high_product(typing_context: Any, first: Any, second: Any) -> Typed:
    """Return the upper 64 of the 128 bits of the product of two uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], double), builder.zext(args[1], double))
        return builder.trunc(builder.lshr(product, ir.Constant(double, 64)), _WORD)

    return types.uint64(types.uint64, types.uint64), generate


@_operation
def as_double(typing_context: Any, bits: Any) -> Typed:
    """Return the double with the IEEE 754 representation `bits` (uint64)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), generate
