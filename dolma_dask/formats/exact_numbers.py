"""Columns of numbers that keep every digit of integers: the nearest double, and what the integer is more than that.

Rules and keys compare such columns; statistics and dataframes take the double alone. The rest is 0 for all numbers that a double holds, so
that a column without any other costs one look at its bytes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.text import compute as pc
from dolma_dask.text.columns import validity

REST = pa.decimal128(38, 0)

EXACT = pa.struct([("value", pa.float64()), ("rest", REST)])
"""A number is ``value + rest``; of integers, `value` is the nearest double."""

_FIELDS = list(EXACT)

LIMIT = 2.0**53
"""Integers of this size and above may share their double with a neighbour."""

_REST_LIMIT = 10**38


def split(number: int) -> tuple[float, int]:
    """Return the nearest double and the rest; beyond about 54 digits the double alone."""
    value = float(number)
    rest = number - int(value)
    return value, rest if abs(rest) < _REST_LIMIT else 0


def as_exact(numbers: pa.Array) -> pa.StructArray:
    """Return numbers of any Arrow type (n,) as `EXACT`."""
    if numbers.type == EXACT:
        return numbers
    values = numbers if numbers.type == pa.float64() else numbers.cast(pa.float64(), safe=False)
    rests = pa.Array.from_buffers(REST, len(values), [None, pa.py_buffer(bytes(16 * len(values)))])
    if pa.types.is_integer(numbers.type) or numbers.type == REST:
        large = np.abs(values.fill_null(0.0).to_numpy(zero_copy_only=False)) >= LIMIT
        if large.any():
            digits = [0] * len(values)
            for row in np.flatnonzero(large).tolist():
                digits[row] = split(int(numbers[row].as_py()))[1]
            rests = pa.array(digits, REST)
    mask = pa.array(~validity(values)) if values.null_count else None
    return pa.StructArray.from_arrays([values, rests], fields=_FIELDS, mask=mask)


def nearest(column: pa.Array) -> pa.Array:
    """Return the doubles of an `EXACT` column; other columns as they are."""
    return pc.struct_field(column, "value") if column.type == EXACT else column


def inexact(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return where a column (n,) holds integers that no double holds."""
    if column.type != EXACT:
        return np.zeros(len(column), np.bool_)
    rests = column.field("rest")
    words = np.frombuffer(rests.buffers()[1] or b"", np.uint64, 2 * (rests.offset + len(rests)))
    return np.asarray(words[2 * rests.offset :].reshape(-1, 2).any(axis=1) & validity(column))


def integers(column: pa.StructArray, rows: npt.NDArray[Any]) -> list[int]:
    """Return the integers in some rows of an `EXACT` column."""
    taken = column.take(pa.array(rows))
    parts = zip(taken.field("value").to_pylist(), taken.field("rest").to_pylist(), strict=True)
    return [int(value) + int(rest) for value, rest in parts]


def floats(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return a column of numbers as float64 (n,), NaN where it is null."""
    column = nearest(column)
    if not pa.types.is_float64(column.type):
        column = pc.cast(column, pa.float64(), safe=False)
    if column.null_count:
        column = pc.fill_null(column, np.nan)
    values: npt.NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values)
