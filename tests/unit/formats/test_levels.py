"""Levels of rules as bits of numbers, and the columns that readers are shown in their place."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.formats.levels import BITS, RULES, kinds_to_read, level_keys, stored_keys, unpacked


def some_levels(rules: int, rows: int = 50) -> list[np.ndarray]:
    draw = random.Random(rules)
    return [np.array([draw.randrange(8) for _ in range(rows)], np.uint8) for _ in range(rules)]


@pytest.mark.parametrize("rules", [1, 2, 16, 17, 18, 34, 35])
def test_what_is_packed_is_unpacked(rules):
    levels = some_levels(rules)
    keys = level_keys("q", [f"r{number}" for number in range(rules)])
    groups = [levels[first : first + RULES] for first in range(0, rules, RULES)]
    numbers = [sum(level.astype(np.int64) << BITS * k for k, level in enumerate(group)) for group in groups]
    assert all(number.max() < 2**53 for number in numbers)
    columns = {
        key: pa.array(number, pa.float64()) for key, number in zip(stored_keys(keys), numbers, strict=True)
    }
    found = unpacked(columns, keys, keys)
    assert set(found) == set(keys)
    assert found["q.level"].to_pylist() == np.min(levels, axis=0).tolist()
    for number, level in enumerate(levels):
        assert found[f"q.r{number}"].to_pylist() == level.tolist()


def test_only_the_numbers_that_are_needed_are_read():
    keys = level_keys("q", [f"r{number}" for number in range(20)])
    assert stored_keys(keys) == ["q", "q_2"]
    assert kinds_to_read({"q.r3": "level", "x": "string"}, keys) == {"x": "string", "q": "number"}
    assert kinds_to_read({"q.r17": "level"}, keys) == {"q_2": "number"}
    assert kinds_to_read({"q.level": "level"}, keys) == {"q": "number", "q_2": "number"}
    assert kinds_to_read({"x": "string"}, keys) == {"x": "string"}


def test_a_row_without_number_has_no_level_and_other_columns_stay():
    keys = level_keys("q", ["a", "b"])
    columns = {"q": pa.array([None, 0o12], pa.float64()), "x": pa.array(["u", None])}
    found = unpacked(columns, ["x", "q.a", "q.level"], keys)
    assert {key: column.to_pylist() for key, column in found.items()} == {
        "x": ["u", None],
        "q.a": [None, 2.0],
        "q.level": [None, 1.0],
    }
