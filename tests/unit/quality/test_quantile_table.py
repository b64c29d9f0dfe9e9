"""Probabilities, ranks, interpolation: as NumPy has them."""

import math

import numpy as np
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.rules.quantile_table import (
    PROBABILITIES,
    check_probabilities,
    entries_of,
    interpolated,
    probability_name,
    ranks_of,
)
from dolma_dask.rules.strictness import LEVELS


def quantiles(values, probabilities):
    values = np.sort(np.array(values, np.float64))
    ranks, shares = ranks_of(np.array([len(values)]), probabilities)
    return interpolated(values[ranks], shares)[0].tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101, 1000])
def test_interpolation_is_that_of_numpy_to_the_last_bit(count):
    values = np.random.default_rng(count).normal(size=count)
    probabilities = (0.0, *PROBABILITIES, 1 / 3, 1.0)
    assert quantiles(values, probabilities) == np.quantile(values, probabilities).tolist()


def test_values_at_the_ends_of_the_range_do_not_overflow():
    largest = float(np.finfo(np.float64).max)
    found = quantiles([-largest, largest], (0.0, 0.25, 0.5, 1.0))
    assert found == pytest.approx([-largest, -largest / 2, 0.0, largest], rel=1e-15)
    assert math.copysign(1, quantiles([-0.0, -0.0], (0.5,))[0]) == 1


def test_no_values_have_no_quantiles():
    counts, bounds = np.array([[0, 3, 0], [2, 1, 1]]), np.array([[np.nan, -np.inf], [1.0, 2.0]])
    none, two = entries_of(counts, bounds, (0.5,), np.array([[0.0], [1.5]]))
    assert none == {"n": 0, "nulls": 3, "min": None, "max": None, "q": {"0.5": None}}
    assert two == {"n": 2, "nulls": 1, "min": 1.0, "max": 2.0, "q": {"0.5": 1.5}}


def test_names_of_probabilities():
    assert [probability_name(item) for item in (0, 0.1, 1 / 3, 1.0)] == [
        "0",
        "0.1",
        "0.3333333333333333",
        "1",
    ]


def test_probabilities_are_sorted_and_each_once():
    assert check_probabilities(None) == PROBABILITIES
    assert check_probabilities([0.5, 0, 0.5, 1, -0.0]) == (0.0, 0.5, 1.0)
    assert all({*pair} <= {*PROBABILITIES} for pair in LEVELS.values())
    for wrong in ([1.5], [-0.1], [float("nan")], ["0.1"], [True], [], [0.1] * 2000, "ab"):
        with pytest.raises(UsageError, match="probabilities"):
            check_probabilities(wrong)
