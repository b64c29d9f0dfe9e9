"""Arrow compute below the rules: columns to operands, comparable types, membership, two-valued results.

Missing is null or NaN. Integers stay exact, whatever their width; other numbers become float64.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import ExpressionError

WIDE_INTEGER = pa.decimal128(38, 0)
"""Holds every int64, every uint64, and every literal of 38 digits."""


@dataclass(frozen=True)
class Operand:
    """An evaluated value: an array (n,) or a scalar, its kind, and how messages call it."""

    data: Any
    kind: str
    called: str


def load(column: pa.Array) -> tuple[Any, str]:
    """A column in the types that the operators work on, and its kind."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    of = column.type
    if pa.types.is_dictionary(of):
        column, of = column.dictionary_decode(), of.value_type
    if pa.types.is_null(of):
        return column, "missing"
    if pa.types.is_integer(of):
        return column, "number"
    if pa.types.is_floating(of) or pa.types.is_decimal(of):
        return without_nan(column.cast(pa.float64(), safe=False)), "number"
    if pa.types.is_boolean(of):
        return column, "bool"
    if pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return column.cast(pa.large_string()), "string"
    return column, str(of)


def number_scalar(value: Any) -> pa.Scalar:
    """A literal number; integers in a type that holds them exactly."""
    if isinstance(value, float):
        return pa.scalar(value, pa.float64())
    return pa.scalar(value, pa.int64() if -(2**63) <= value < 2**63 else WIDE_INTEGER)


def without_nan(data: Any) -> Any:
    """float64 with null in the place of NaN."""
    return pc.if_else(pc.is_nan(data), pa.scalar(None, pa.float64()), data)


def check_comparable(left: Operand, right: Operand, sign: str) -> None:
    """Refuse two operands of different kinds, and an order of bools."""
    known = {"number", "string", "bool"}
    if left.kind != right.kind or left.kind not in known:
        pair = f"{left.called}, a {left.kind}, with {right.called}, a {right.kind}"
        raise ExpressionError(f"cannot compare {pair}; expected two numbers, two strings or two bools")
    if left.kind == "bool" and sign not in ("==", "!="):
        raise ExpressionError(f"cannot compare {left.called} by {sign}: bools have no order; use == or !=")


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two numbers in one type: integers stay exact, others become float64."""
    types = (left.type, right.type)
    if not all(map(_is_exact, types)):
        return left.cast(pa.float64(), safe=False), right.cast(pa.float64(), safe=False)
    if pa.uint64() in types or WIDE_INTEGER in types:
        return left.cast(WIDE_INTEGER), right.cast(WIDE_INTEGER)
    return left, right


def is_in(data: pa.Array, values: list[Any]) -> pa.BooleanArray:
    """Which values of `data` are among `values`, all of its kind; false where null."""
    if pa.types.is_floating(data.type):
        return _is_in_floats(data, values)
    if not _is_exact(data.type):
        return pc.is_in(data, value_set=pa.array(values, data.type))
    least, most = _bounds(data.type)
    whole = [v for v in values if isinstance(v, int) and least <= v <= most]
    found = pc.is_in(data, value_set=pa.array(whole, data.type))
    floats = [v for v in values if isinstance(v, float)]
    return pc.or_(found, _is_in_floats(data.cast(pa.float64(), safe=False), floats)) if floats else found


def _is_exact(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or of == WIDE_INTEGER)


def _bounds(of: pa.DataType) -> tuple[int, int]:
    if of == WIDE_INTEGER:
        return 1 - 10**38, 10**38 - 1
    bounds = np.iinfo(of.to_pandas_dtype())
    return int(bounds.min), int(bounds.max)


def _is_in_floats(data: pa.Array, values: list[Any]) -> pa.BooleanArray:
    numbers = [float(v) for v in values]
    if 0.0 in numbers:  # Arrow looks numbers up by their bits
        numbers += [0.0, -0.0]
    return pc.is_in(data, value_set=pa.array(numbers, pa.float64()))


def two_valued(result: Any, count: int) -> pa.BooleanArray:
    """Make a three-valued result two-valued, and one row per document."""
    if isinstance(result, pa.Scalar):
        return every_row(result.as_py() or False, count)
    return pc.fill_null(result, False)


def every_row(value: bool, count: int) -> pa.BooleanArray:
    """The same answer for all rows (count,)."""
    return pa.repeat(pa.scalar(value), count)
