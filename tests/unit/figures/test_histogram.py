import math
import sys
from bisect import bisect_right
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict
from thorough import examples

from dolma_dask.figures.histogram import (
    DISPLAY_BINS,
    MAX_BINS,
    Histogram,
    display_edges,
    signal_histogram,
    sum_by_key,
)

any_value = st.one_of(
    st.floats(width=64),
    st.integers(-20, 200).map(float),
    st.floats(0, 1),
    st.sampled_from(
        [0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, sys.float_info.max, math.inf, -math.inf, math.nan]
    ),
)
any_values = st.lists(any_value, max_size=200)


def state(histogram: Histogram) -> dict[str, object]:
    return {name: np.asarray(value).tolist() for name, value in asdict(histogram).items()}


def total(parts: list[list[float]]) -> Histogram:
    merged = Histogram()
    for part in parts:
        merged = merged + Histogram.of(part)
    return merged


def oracle(values: list[float], edges: list[float]) -> list[int]:
    """Count one value at a time: half-open bins, the last one closed."""
    counts = [0] * (len(edges) - 1)
    for value in values:
        if math.isfinite(value):
            assert edges[0] <= value <= edges[-1]
            counts[min(bisect_right(edges, value) - 1, len(counts) - 1)] += 1
    return counts


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 1 << 40))), st.booleans())
def test_sums_by_key(pairs, are_counted):
    keys, counts = np.array(pairs, np.int64).reshape(-1, 2).T
    wanted = Counter()
    for key, count in pairs:
        wanted[key] += count if are_counted else 1
    found = sum_by_key(keys, counts if are_counted else None)
    assert [part.tolist() for part in found] == [sorted(wanted), [wanted[key] for key in sorted(wanted)]]


@given(st.lists(any_values, max_size=6), st.randoms())
def test_merged_parts_equal_the_whole_in_any_order(parts, random):
    whole = Histogram.of([value for part in parts for value in part])
    assert state(total(parts)) == state(whole)
    random.shuffle(parts)
    assert state(total(parts)) == state(whole)


@pytest.mark.parametrize("pieces", [1, 3, 17])
def test_merged_parts_equal_the_whole_when_bins_get_coarser(pieces):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**64, 60_000, dtype=np.uint64).view(np.float64)  # all exponents, both signs
    values = np.concatenate((values, rng.lognormal(0, 3, 20_000)))
    whole = Histogram.of(values)
    rng.shuffle(values)
    merged = total(np.array_split(values, pieces))
    assert state(merged) == state(whole)
    assert whole.shift == 52
    assert len(whole.keys) <= MAX_BINS
    assert whole.keys.nbytes + whole.counts.nbytes <= 64 * 1024


@given(any_values)
def test_bookkeeping(values):
    histogram = Histogram.of(values)
    finite = [value for value in values if math.isfinite(value)]
    assert histogram.nulls == sum(map(math.isnan, values))
    assert histogram.infinite == sum(map(math.isinf, values))
    assert histogram.n == len(values) - histogram.nulls
    assert histogram.min == min(finite, default=None)
    assert histogram.max == max(finite, default=None)
    assert histogram.integral == all(value.is_integer() for value in finite)


@pytest.mark.slow
@settings(max_examples=examples(80))
@example([128728759795712.0, -5e-324], 1)
@given(any_values, st.integers(0, 2**16 - 1))
def test_display_counts_are_exact(values, mask):
    kept = [value for i, value in enumerate(values) if mask >> (i % 16) & 1]
    shown = signal_histogram("k", Histogram.of(values), Histogram.of(kept))
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        assert len(shown.edges) == len(shown.counts) == 0
        return
    edges = shown.edges.tolist()
    assert all(a < b for a, b in pairwise(edges))
    assert np.isfinite(shown.edges).all()
    assert 1 <= len(shown.counts) <= DISPLAY_BINS
    assert shown.counts.tolist() == oracle(values, edges)
    assert shown.kept_counts is not None
    assert shown.kept_counts.tolist() == oracle(kept, edges)


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).lognormal(6, 1.2, 50_000),
        -np.random.default_rng(0).lognormal(6, 1.2, 50_000),
        np.random.default_rng(0).normal(0, 1, 50_000) ** 5,
        np.random.default_rng(0).random(50_000),
        np.round(np.random.default_rng(0).lognormal(6, 1.2, 50_000)),
        np.random.default_rng(0).integers(0, 2**62, 50_000).astype(float),
    ],
    ids=["lognormal", "negative", "both signs", "uniform", "counts", "huge counts"],
)
def test_display_counts_of_many_values_are_exact(values):
    shown = signal_histogram("k", Histogram.of(values))
    assert shown.counts.tolist() == np.histogram(values, shown.edges)[0].tolist()
    assert shown.counts.sum() == len(values)
    assert 20 <= len(shown.counts) <= DISPLAY_BINS


@given(st.lists(st.integers(-(10**6), 10**9).map(float), min_size=1))
def test_whole_numbers_get_whole_edges(values):
    edges, _ = display_edges(Histogram.of(values))
    assert (edges == np.floor(edges)).all()


def test_scale_follows_the_skew():
    rng = np.random.default_rng(2)
    chosen = {
        "word count": display_edges(Histogram.of(np.round(rng.lognormal(6, 1.5, 20_000))))[1],
        "share": display_edges(Histogram.of(rng.beta(5, 2, 20_000)))[1],
        "mean word length": display_edges(Histogram.of(rng.normal(5, 0.5, 20_000)))[1],
        "few whole numbers": display_edges(Histogram.of(rng.integers(0, 30, 20_000)))[1],
        "one value": display_edges(Histogram.of([0.3, 0.3]))[1],
        "zeros": display_edges(Histogram.of(np.zeros(9)))[1],
        "outlier": display_edges(Histogram.of([*rng.normal(5, 0.5, 1000), 1e6]))[1],
    }
    assert chosen == {
        "word count": "log",
        "share": "linear",
        "mean word length": "linear",
        "few whole numbers": "linear",
        "one value": "linear",
        "zeros": "linear",
        "outlier": "log",
    }


def test_small_whole_numbers_have_a_bar_each():
    shown = signal_histogram("k", Histogram.of([1, 2, 2, 5]))
    assert shown.edges.tolist() == [1, 2, 3, 4, 5, 6]
    assert shown.counts.tolist() == [1, 2, 0, 0, 1]


@pytest.mark.parametrize("values", [[-1.0, 0.0], [-5.0, -0.5, 0.0], [0.0, -2e5, -3.0]])
def test_the_last_bin_lies_above_a_largest_value_of_zero(values):
    edges, scale = display_edges(Histogram.of(values), log=True)
    assert scale == "log"
    assert edges[-2] <= 0 < edges[-1]
