"""Laws of quantiles: any finite values, ties, groups and cuts give what NumPy gives; thresholds are what plain Python says; samples."""

import math
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.rules.groups import label_of, spelled, unspelled
from dolma_dask.rules.ordered_bits import Extents, values_of, write_keys
from dolma_dask.rules.quantile_table import entries_of, interpolated, probability_name, ranks_of
from dolma_dask.rules.sampling import sampled
from dolma_dask.rules.thresholds import Thresholds, thresholds_of
from dolma_dask.rules.where import parse
from dolma_dask.verbs.quantiles import order_statistics as selection
from dolma_dask.verbs.quantiles.order_statistics import KeyBlock, order_statistics

FINITE = st.floats(allow_nan=False, allow_infinity=False)
EDGES = st.sampled_from(
    [0.0, -0.0, 5e-324, -5e-324, 1.0, np.nextafter(1.0, 2.0), -1.0, 1.7976931348623157e308]
)
VALUES = st.lists(
    st.tuples(st.one_of(FINITE, EDGES, st.integers(-20, 20).map(float), st.none()), st.integers(0, 4)),
    max_size=300,
)
PROBABILITIES = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), min_size=1, max_size=8
)
NAMES = st.text(max_size=6)


def keys_of(values):
    """The definition: the bits of a number in the order of numbers; -0.0 is 0.0."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.uint64)
    return np.where(bits >> np.uint64(63), ~bits, bits | np.uint64(1 << 63))


@contextmanager
def limits(counters, least, collected, most_sorted):
    """Small limits, so that a few values need many passes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "MAX_COUNTERS", counters)
        patch.setattr(selection, "MAX_BINS", max(least, 1 << 6))
        patch.setattr(selection, "MIN_BINS", least)
        patch.setattr(selection, "MAX_COLLECTED", collected)
        patch.setattr(selection, "MAX_SORTED", most_sorted)
        yield


def found_quantiles(rows, probabilities, block):
    """Go the way of the stage: keys and extents block by block, order statistics, interpolation."""
    codes = np.array([code for _, code in rows], np.uint16)
    column = pa.array([value for value, _ in rows], pa.float64())
    keys, extents = np.empty(len(rows), np.uint64), Extents.empty(5)
    cuts = [slice(start, start + block) for start in range(0, len(rows), block)]
    for cut in cuts:
        part = column.slice(cut.start, block)
        write_keys(part, codes[cut], keys[cut], extents)
    total = extents.total()
    extents.counts[0], extents.bounds[0] = total.counts[0], total.bounds[0]
    ranks, shares = ranks_of(extents.counts[:, 0], probabilities)
    blocks = [ordered(keys[cut], codes[cut]) for cut in cuts]
    answers = order_statistics(lambda: blocks, lambda: keys[::3], extents, ranks)
    quantiles = interpolated(values_of(answers), shares)
    return [entry["q"] for entry in entries_of(extents.counts, extents.bounds, probabilities, quantiles)]


def ordered(keys, codes):
    """Return keys as one segment, which is ordered by group."""
    sizes = np.bincount(codes, minlength=5)
    stops = np.cumsum(sizes)[None]
    return KeyBlock(keys[np.argsort(codes, kind="stable")], stops - sizes, stops)


def same(found, values, probabilities):
    found = [found[probability_name(item)] for item in probabilities]
    if not values:
        return found == [None] * len(probabilities)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.quantile(np.array(values) + 0.0, probabilities).tolist()
    return all(
        one == other or (not math.isfinite(other) and min(values) <= one <= max(values))
        for one, other in zip(found, expected, strict=True)
    )


@given(
    VALUES,
    PROBABILITIES,
    st.integers(1, 400),
    st.sampled_from([2, 8, 1 << 7]),
    st.sampled_from([1, 3, 1 << 20]),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_quantiles_are_those_of_numpy(rows, probabilities, block, least, collected, most_sorted):
    probabilities = sorted(set(probabilities))
    with limits(1 << 10, least, collected, most_sorted):
        found = found_quantiles(rows, probabilities, block)
    for row in range(5):
        mine = [value for value, code in rows if value is not None and row in (0, code)]
        assert same(found[row], mine, probabilities)


@given(st.lists(st.one_of(FINITE, EDGES), min_size=2, max_size=50))
def test_keys_keep_the_order(values):
    values = np.array(values)
    keys = keys_of(values)
    assert np.array_equal(np.argsort(keys, kind="stable"), np.argsort(values, kind="stable"))
    assert np.array_equal(values_of(keys), values)


@given(
    st.lists(st.tuples(NAMES, st.one_of(st.none(), NAMES)), max_size=30),
    st.floats(0.01, 0.99),
    st.integers(0, 2**64 - 1),
)
def test_samples_are_a_function_of_source_and_id(rows, fraction, seed):
    sources, ids = ([row[column] for row in rows] for column in (0, 1))
    chosen = sampled(pa.array(sources, pa.large_string()), pa.array(ids, pa.large_string()), fraction, seed)
    limit = int(fraction * 2.0**64)
    expected = [
        identity is not None
        and xxhash.xxh64(identity.encode(), xxhash.xxh64(source.encode(), seed).intdigest()).intdigest()
        < limit
        for source, identity in rows
    ]
    assert chosen.to_pylist() == expected


BOUND = st.one_of(st.none(), st.floats(-5, 5))
GROUP = st.one_of(NAMES, st.sampled_from(["all", "=all", "==all"]))


@given(
    st.dictionaries(GROUP, st.tuples(BOUND, BOUND), max_size=5),
    st.lists(
        st.tuples(st.one_of(st.none(), st.floats(-6, 6)), st.one_of(st.none(), GROUP)),
        min_size=1,
        max_size=40,
    ),
)
def test_thresholds_mean_what_plain_python_says(bounds, rows):
    content = {spelled(label): {"lower": lower, "upper": upper} for label, (lower, upper) in bounds.items()}
    cuts = Thresholds.from_json({"by": "g", "bounds": {"x": {**content, "all": {"lower": 0.0}}}})
    columns = {
        "x": pa.array([value for value, _ in rows], pa.float64()),
        "g": pa.array([label for _, label in rows], pa.large_string()),
    }
    expected = [is_inside(value, label, bounds) for value, label in rows]
    assert cuts.mask(columns).to_pylist() == expected
    assert parse(str(cuts)).mask(columns).to_pylist() == expected
    assert Thresholds.from_json(cuts.to_json()) == cuts


def is_inside(value, label, bounds):
    if value is None or label not in bounds:
        return False
    lower, upper = bounds[label]
    return (lower is None or lower <= value) and (upper is None or value <= upper)


@given(st.lists(GROUP, unique=True))
def test_no_group_is_taken_for_another_or_for_all(labels):
    names = [spelled(label) for label in labels]
    assert len({*names, "all"}) == len(labels) + 1
    assert [unspelled(name) for name in names] == labels


@given(st.dictionaries(FINITE.map(label_of), FINITE, min_size=1, max_size=5))
def test_a_level_leaves_its_share_inside(scales):
    entries = {
        name: {
            "n": 2,
            "nulls": 0,
            "min": 0.0,
            "max": scale,
            "q": {probability_name(p): scale * p for p in (0.1, 0.9)},
        }
        for name, scale in scales.items()
    }
    cuts = thresholds_of(
        {"x": {"all": entries[next(iter(entries))], **entries}}, "regular", by="g", kind="number"
    )
    for name, scale in scales.items():
        assert (cuts.lower("x", name), cuts.upper("x", name)) == (scale * 0.1, scale * 0.9)
