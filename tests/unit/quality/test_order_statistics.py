"""Exact order statistics: by groups, in several passes, under small limits; and blocks that change between passes."""

from itertools import pairwise

import numpy as np
import pytest

from dolma_dask.errors import DataError
from dolma_dask.rules.ordered_bits import NULL, Extents, values_of
from dolma_dask.rules.quantile_table import PROBABILITIES, ranks_of
from dolma_dask.verbs.quantiles import order_statistics as selection
from dolma_dask.verbs.quantiles.bins import bin_of, make_bins, shift_of
from dolma_dask.verbs.quantiles.order_statistics import KeyBlock, order_statistics


def keys_of(values):
    """The definition: the bits of a number in the order of numbers; -0.0 is 0.0."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


@pytest.fixture
def small_limits(monkeypatch):
    """So few counters and collected keys that a thousand values need many passes."""
    monkeypatch.setattr(selection, "MAX_COUNTERS", 1 << 9)
    monkeypatch.setattr(selection, "MAX_BINS", 1 << 5)
    monkeypatch.setattr(selection, "MIN_BINS", 1 << 1)
    monkeypatch.setattr(selection, "MAX_COLLECTED", 20)
    monkeypatch.setattr(selection, "MAX_SORTED", 100)


def extents_of(values, codes, groups):
    extents = Extents.empty(groups + 1)
    for row in range(groups + 1):
        mine = values if row == 0 else values[codes == row]
        keys = keys_of(mine[~np.isnan(mine)])
        extents.counts[row, 0] = len(keys)
        if len(keys):
            extents.bounds[row] = keys.min(), keys.max()
    return extents


def block_of(keys, codes, rows, segments=3):
    """Return keys in some segments, each of which is ordered by row."""
    cuts = np.linspace(0, len(keys), segments + 1).astype(int)
    orders = [start + np.argsort(codes[start:stop], kind="stable") for start, stop in pairwise(cuts)]
    sizes = np.array([np.bincount(codes[order], minlength=rows) for order in orders])
    stops = cuts[:-1, None] + np.cumsum(sizes, axis=1)
    return KeyBlock(keys[np.concatenate(orders)], stops - sizes, stops)


def check(values, codes, groups, block=1000, sampled=slice(None, None, 7)):
    """Compare with sorting."""
    values, codes = np.asarray(values, np.float64), np.asarray(codes, np.uint16)
    keys = np.where(np.isnan(values), np.uint64(NULL), keys_of(np.nan_to_num(values, posinf=0, neginf=0)))
    extents = extents_of(values, codes, groups)
    ranks, _ = ranks_of(extents.counts[:, 0], (0.0, *PROBABILITIES, 1.0))
    passes = 0

    def read():
        nonlocal passes
        passes += 1
        for start in range(0, len(keys), block):
            yield block_of(
                keys[start : start + block], codes[start : start + block] * (groups > 0), groups + 1
            )

    found = order_statistics(read, lambda: keys[sampled], extents, ranks)
    for row, (wanted, answer) in enumerate(zip(ranks, found, strict=True)):
        mine = values if row == 0 else values[codes == row]
        there = np.sort(mine[~np.isnan(mine)])
        assert np.array_equal(values_of(answer), there[wanted]) if len(there) else not answer.any()
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


@pytest.mark.parametrize("most_sorted", [0, 2000, 1 << 22])
@pytest.mark.parametrize("name", CASES)
def test_as_sorting_under_usual_limits(name, most_sorted, monkeypatch):
    monkeypatch.setattr(selection, "MAX_SORTED", most_sorted)
    rng = np.random.default_rng(4)
    codes = rng.choice(4, 3000, p=[0.1, 0.2, 0.3, 0.4])
    assert check(CASES[name](rng), codes, 3) <= {0: 2, 2000: 3, 1 << 22: 1}[most_sorted]


@pytest.mark.parametrize("most_sorted", [0, 30_000, 1 << 22])
def test_as_sorting_with_many_groups(most_sorted, monkeypatch):
    monkeypatch.setattr(selection, "MAX_SORTED", most_sorted)
    rng = np.random.default_rng(5)
    check(rng.normal(size=30_000), rng.integers(0, 1001, 30_000), 1000)


def test_a_sample_saves_a_pass_and_one_of_other_keys_costs_one(monkeypatch):
    monkeypatch.setattr(selection, "MAX_COLLECTED", 1 << 10)
    monkeypatch.setattr(selection, "MAX_SORTED", 0)
    rng = np.random.default_rng(6)
    none = np.zeros(200_000, np.uint16)
    assert check(rng.normal(size=200_000), none, 0, 1 << 16) == 2
    assert check(rng.normal(size=200_000), none, 0, 1 << 16, slice(0)) == 3
    assert check(np.floor(rng.normal(100, 10, 200_000)), none, 0, 1 << 16) <= 2


def changing(monkeypatch, later):
    """Search keys that are others from the second pass on."""
    monkeypatch.setattr(selection, "MAX_COLLECTED", 1)
    monkeypatch.setattr(selection, "MAX_SORTED", 0)
    values = np.arange(1000.0)
    passes = iter([values, *[later] * 50])

    def read():
        keys = keys_of(next(passes))
        yield block_of(keys, np.zeros(len(keys), np.uint16), 1)

    ranks, _ = ranks_of(np.array([1000]), PROBABILITIES)
    extents = extents_of(values, np.zeros(1000), 0)
    order_statistics(read, lambda: keys_of(values[::10]), extents, ranks)


@pytest.mark.parametrize("later", [np.arange(500.0), np.full(5000, 99.0), np.arange(-1000.0, 0.0)])
def test_keys_that_change_between_passes_are_an_error(monkeypatch, later):
    with pytest.raises(DataError, match="same values"):
        changing(monkeypatch, later)


@pytest.mark.parametrize("most_sorted", [0, 1 << 22])
@pytest.mark.parametrize("there", [np.arange(2.0, 20.0), np.arange(-3.0, 5.0)])
def test_extents_of_other_keys_are_an_error(most_sorted, there, monkeypatch):
    monkeypatch.setattr(selection, "MAX_SORTED", most_sorted)
    extents = extents_of(np.arange(10.0), np.zeros(10), 0)
    read = [block_of(keys_of(there), np.zeros(len(there), np.uint16), 1)]
    with pytest.raises(DataError, match="same values"):
        order_statistics(
            lambda: read, lambda: keys_of(there), extents, ranks_of(np.array([10]), PROBABILITIES)[0]
        )


SAMPLES = {
    "none": lambda rng, values: values[:0],
    "all": lambda rng, values: values,
    "few": lambda rng, values: values[::100],
    "others": lambda rng, values: rng.lognormal(3, 4, 500),
    "one": lambda rng, values: np.full(9, values[0]),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("most", [4, 64, 1 << 12, 1 << 16])
@pytest.mark.parametrize("name", [name for name in CASES if "missing" not in name])
def test_bins_follow_each_other_and_are_no_more_than_allowed(name, most, sample):
    rng = np.random.default_rng(7)
    values = CASES[name](rng)
    keys = np.sort(keys_of(values))
    bins, least = make_bins(keys[0], keys[-1], keys_of(SAMPLES[sample](rng, values)), most)
    assert 0 < len(least) <= most
    assert least[0] == keys[0]
    assert np.all(least[1:] > least[:-1])
    found = [bin_of(key, bins) for key in keys]
    assert found == (np.searchsorted(least, keys, "right") - 1).tolist()
    assert bin_of(keys[0] - np.uint64(1), bins) == bin_of(keys[-1] + np.uint64(1), bins) == -1


def test_bins_are_narrow_where_a_sample_is():
    values = np.append(np.random.default_rng(8).normal(1, 1e-3, 10_000), [-1e300, 1e300])
    keys = keys_of(values)
    _, least = make_bins(keys.min(), keys.max(), keys[::5], 1 << 12)
    even = (keys - keys.min()) >> np.uint64(shift_of(int(keys.max() - keys.min()), 1 << 12))
    most, most_of_even = (
        np.unique(which, return_counts=True)[1].max()
        for which in (np.searchsorted(least, keys, "right"), even)
    )
    assert most < most_of_even / 8
