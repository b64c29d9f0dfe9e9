"""Keys: the order of the values, what counts as missing, extents."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.rules.ordered_bits import NULL, Extents, values_of, write_keys

LARGEST = float(np.finfo(np.float64).max)
VALUES = [-LARGEST, -1.5, -1e-300, -5e-324, 0.0, 5e-324, 1e-300, 1.0, np.nextafter(1.0, 2.0), LARGEST]


def keys_of(values):
    """The definition: the bits of a number in the order of numbers; -0.0 is 0.0."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


def written(column, codes, groups):
    keys, extents = np.empty(len(column), np.uint64), Extents.empty(groups)
    write_keys(column, np.array(codes, np.uint16), keys, extents)
    return keys, extents


def test_keys_ascend_with_the_values_and_lead_back():
    keys = keys_of(np.array(VALUES))
    assert (np.diff(keys.astype(object)) > 0).all()
    assert values_of(keys).tolist() == VALUES


def test_both_zeros_are_one_key():
    keys, extents = written(pa.array([0.0, -0.0]), [0, 0], 1)
    assert keys[0] == keys[1] == keys_of(np.array([-0.0]))[0]
    assert math.copysign(1, values_of(keys)[1]) == 1
    assert extents.bounds[0, 0] == extents.bounds[0, 1] == keys[0]


def test_the_kernel_equals_the_oracle_with_nulls_and_offsets():
    column = pa.array([9.0, None, 2.5, math.nan, math.inf, -math.inf, -3.0, None, 0.0] * 3)
    for start in range(9):
        part = column.slice(start, 11)
        keys, _ = written(part, [0] * 11, 1)
        values = [math.nan if value is None else value for value in part.to_pylist()]
        expected = [
            NULL if not math.isfinite(value) else int(keys_of(np.array([value]))[0]) for value in values
        ]
        assert keys.tolist() == expected


def test_extents_count_each_group_for_itself():
    column = pa.array([1.0, None, math.inf, -2.0, 5.0, math.nan])
    _, extents = written(column, [1, 1, 1, 0, 1, 2], 4)
    assert extents.counts.tolist() == [[1, 0, 0], [2, 2, 1], [0, 1, 0], [0, 0, 0]]
    assert values_of(extents.bounds[1]).tolist() == [1.0, 5.0]
    assert values_of(extents.bounds[0]).tolist() == [-2.0, -2.0]
    assert extents.bounds[3].tolist() == [NULL, 0]
    total = extents.total()
    assert total.counts.tolist() == [[3, 3, 1]]
    assert values_of(total.bounds[0]).tolist() == [-2.0, 5.0]


def test_extents_add_up_by_place():
    _, one = written(pa.array([1.0, 2.0]), [0, 1], 2)
    _, other = written(pa.array([-7.0, 9.0]), [0, 1], 2)
    one.add(other, np.array([1, 1]))
    assert one.counts[:, 0].tolist() == [1, 3]
    assert values_of(one.bounds[1]).tolist() == [-7.0, 9.0]


@pytest.mark.parametrize("column", [pa.array([], pa.float64()), pa.nulls(3, pa.float64())])
def test_columns_without_values(column):
    keys, extents = written(column, [0] * len(column), 1)
    assert set(keys.tolist()) <= {NULL}
    assert extents.counts.tolist() == [[0, len(column), 0]]
