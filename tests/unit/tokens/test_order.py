"""Orders without memory: each number once, alike for all who ask, near to uniform; sources in their shares at any time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.tokens.order import SHARES, Schedule, permuted, permuted_in_blocks

KEYS = st.integers(0, 2**64 - 1)


def test_each_number_is_there_once_for_all_small_counts() -> None:
    for count in range(1, 3000):
        found = permuted(np.arange(count), count, count * 7919)
        assert np.array_equal(np.sort(found), np.arange(count))


@given(count=st.integers(1, 5000), size=st.integers(1, 600), key=KEYS)
def test_each_number_is_there_once_in_blocks(count: int, size: int, key: int) -> None:
    found = permuted_in_blocks(np.arange(count), count, size, key)
    assert np.array_equal(np.sort(found), np.arange(count))
    for first in range(0, count, size):
        block = found[first : first + size]
        # neighbours, perhaps around the end
        assert np.array_equal(np.unique((block - _begin(block, count)) % count), np.arange(len(block)))


def _begin(block: np.ndarray, count: int) -> int:
    """The number in a run around the end whose predecessor is not in it; any, if all are in it."""
    here = set(block.tolist())
    return next((number for number in here if (number - 1) % count not in here), 0)


@given(count=st.integers(1, 2**62), key=KEYS, numbers=st.lists(st.integers(0, 2**62 - 1), max_size=20))
def test_huge_counts_keep_numbers_apart_and_below(count: int, key: int, numbers: list[int]) -> None:
    asked = np.array(sorted({number % count for number in numbers}), np.int64)
    found = permuted(asked, count, key)
    assert len(np.unique(found)) == len(asked)
    assert all(0 <= number < count for number in found.tolist())
    each = [int(permuted(np.array([number], np.int64), count, key)[0]) for number in asked.tolist()]
    assert found.tolist() == each


@pytest.mark.parametrize("count", [3, 10, 1000, 4097])
def test_places_are_near_to_uniform_and_free_of_each_other(count: int) -> None:
    """Chi squares of the place of the first number, and of neighbours' distance, over many keys."""
    draws = 20_000
    cells = min(count, 20)
    pairs = np.array([permuted(np.array([0, 1]), count, key) for key in range(draws)])
    first = np.bincount(pairs[:, 0] * cells // count, minlength=cells)
    apart = np.bincount((pairs[:, 1] - pairs[:, 0]) % count * cells // count, minlength=cells)
    sizes = np.bincount(np.arange(count) * cells // count)
    expected, without_zero = sizes / count, (sizes - (np.arange(cells) == 0)) / (count - 1)
    for seen, share in ((first, expected), (apart, without_zero)):
        fits = share > 0
        square = (((seen - draws * share) ** 2)[fits] / (draws * share[fits])).sum()
        assert square < 2.5 * cells + 20
    assert seen[~fits].sum() == 0


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_shares_are_kept_at_any_time(weights: list[float]) -> None:
    schedule = Schedule.of(weights)
    assert schedule.shares.sum() == SHARES
    assert (schedule.shares >= 1).all()
    assert np.allclose(schedule.shares / SHARES, np.array(weights) / sum(weights), atol=1e-8)
    sources, places = schedule.places(np.arange(3000))
    seen = np.zeros(len(weights), np.int64)
    for number, (source, place) in enumerate(zip(sources.tolist(), places.tolist(), strict=True)):
        assert schedule.counts(number) == seen.tolist()
        assert place == seen[source]
        seen[source] += 1
    wanted = schedule.shares / SHARES * 3000
    assert (np.abs(seen - wanted) <= len(weights)).all()


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=4), st.integers(-50, 50))
def test_a_period_later_the_sources_are_the_same(weights: list[float], shift: int) -> None:
    schedule = Schedule.of(weights)
    numbers = np.arange(60) + max(shift, 0)
    first, before = schedule.places(numbers)
    later, after = schedule.places(numbers + 3 * SHARES)
    assert np.array_equal(first, later)
    assert np.array_equal(after - before, 3 * schedule.shares[first])


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(0, 200)), min_size=1, max_size=4))
def test_the_sequence_ends_before_a_source_has_more_than_its_limit(given: list[tuple[float, int]]) -> None:
    weights, limits = [one[0] for one in given], [one[1] for one in given]
    schedule = Schedule.of(weights)
    end = schedule.longest(limits)
    assert all(count <= limit for count, limit in zip(schedule.counts(end), limits, strict=True))
    over = zip(schedule.counts(end + 1), limits, strict=True)
    assert any(count > limit for count, limit in over)
