"""Exact order statistics: by groups, in several passes, under small limits; and blocks that change between passes."""

import numpy as np
import pytest

from dolma_dask.errors import DataError
from dolma_dask.rules.ordered_bits import NULL, Extents, values_of
from dolma_dask.rules.quantile_table import PROBABILITIES, ranks_of
from dolma_dask.verbs.quantiles import order_statistics as selection
from dolma_dask.verbs.quantiles.order_statistics import order_statistics


def keys_of(values):
    """The definition: the bits of a number in the order of numbers; -0.0 is 0.0."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


@pytest.fixture
def small_limits(monkeypatch):
    """So few counters and collected keys that a thousand values need many passes."""
    monkeypatch.setattr(selection, "MOST_COUNTERS", 1 << 9)
    monkeypatch.setattr(selection, "MOST_BINS", 1 << 5)
    monkeypatch.setattr(selection, "LEAST_BINS", 1 << 1)
    monkeypatch.setattr(selection, "MOST_COLLECTED", 20)


def extents_of(values, codes, groups):
    extents = Extents.empty(groups + 1)
    for row in range(groups + 1):
        mine = values if row == 0 else values[codes == row]
        keys = keys_of(mine[~np.isnan(mine)])
        extents.counts[row, 0] = len(keys)
        if len(keys):
            extents.bounds[row] = keys.min(), keys.max()
    return extents


def check(values, codes, groups, block=1000):
    """Compare with sorting."""
    values, codes = np.asarray(values, np.float64), np.asarray(codes, np.uint16)
    keys = np.where(np.isnan(values), np.uint64(NULL), keys_of(np.nan_to_num(values, posinf=0, neginf=0)))
    extents = extents_of(values, codes, groups)
    ranks = [ranks_of(int(count), (0.0, *PROBABILITIES, 1.0)) for count in extents.counts[:, 0]]
    passes = 0

    def read():
        nonlocal passes
        passes += 1
        for start in range(0, len(keys), block):
            part = codes[start : start + block] if groups else np.zeros(0, np.uint16)
            yield keys[start : start + block], part

    found = order_statistics(read, extents, ranks)
    for row, (wanted, answer) in enumerate(zip(ranks, found, strict=True)):
        mine = values if row == 0 else values[codes == row]
        expected = np.sort(mine[~np.isnan(mine)])[wanted]
        assert np.array_equal(values_of(answer), expected)
    return passes


CASES = {
    "normal": lambda rng: rng.normal(size=3000),
    "whole numbers": lambda rng: np.floor(rng.lognormal(5, 2, 3000)),
    "one value": lambda rng: np.full(3000, -7.25),
    "two values": lambda rng: rng.choice([0.0, 1.0], 3000, p=[0.999, 0.001]),
    "neighbours": lambda rng: rng.choice([1.0, np.nextafter(1, 2), np.nextafter(1, 0)], 3000),
    "subnormal": lambda rng: rng.integers(-9, 9, 3000) * 5e-324,
    "huge": lambda rng: rng.choice([-1, 1], 3000) * np.finfo(np.float64).max * rng.random(3000),
    "missing": lambda rng: np.where(rng.random(3000) < 0.3, np.nan, rng.normal(size=3000)),
    "all missing": lambda rng: np.full(3000, np.nan),
}


@pytest.mark.slow
@pytest.mark.parametrize("groups", [0, 1, 5])
@pytest.mark.parametrize("name", CASES)
def test_as_sorting_under_small_limits(name, groups, small_limits):
    rng = np.random.default_rng(3)
    check(CASES[name](rng), rng.integers(0, groups + 1, 3000), groups)


@pytest.mark.parametrize("name", CASES)
def test_as_sorting_under_usual_limits(name):
    rng = np.random.default_rng(4)
    assert check(CASES[name](rng), rng.integers(0, 4, 3000), 3) <= 2


def test_as_sorting_with_many_groups():
    rng = np.random.default_rng(5)
    check(rng.normal(size=30_000), rng.integers(0, 1001, 30_000), 1000)


def test_real_numbers_take_three_passes_and_ties_two(monkeypatch):
    monkeypatch.setattr(selection, "MOST_COLLECTED", 1 << 10)
    rng = np.random.default_rng(6)
    none = np.zeros(200_000)
    assert check(rng.normal(size=200_000), none, 0, 1 << 16) == 3
    assert check(np.floor(rng.normal(100, 10, 200_000)), none, 0, 1 << 16) <= 2


def changing(monkeypatch, later):
    """Search keys that are others from the second pass on."""
    monkeypatch.setattr(selection, "MOST_COLLECTED", 1)
    values = np.arange(1000.0)
    passes = iter([values, *[later] * 50])

    def read():
        keys = keys_of(next(passes))
        yield keys, np.zeros(0, np.uint16)

    order_statistics(read, extents_of(values, np.zeros(1000), 0), [ranks_of(1000, PROBABILITIES)])


@pytest.mark.parametrize("later", [np.arange(500.0), np.full(5000, 99.0), np.arange(-1000.0, 0.0)])
def test_keys_that_change_between_passes_are_an_error(monkeypatch, later):
    with pytest.raises(DataError, match="same values"):
        changing(monkeypatch, later)


def test_extents_of_other_keys_are_an_error():
    extents = extents_of(np.arange(10.0), np.zeros(10), 0)
    read = [(keys_of(np.arange(2.0, 20.0)), np.zeros(0, np.uint16))]
    with pytest.raises(DataError, match="same values"):
        order_statistics(lambda: read, extents, [ranks_of(10, PROBABILITIES)])
