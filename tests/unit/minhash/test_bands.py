"""Shapes of bands and their curves against datasketch, quadrature by scipy and simulation; band keys against plain Python."""

import tracemalloc

import numpy as np
import pytest
from datasketch.lsh import _false_negative_probability, _false_positive_probability, _optimal_param
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from msgspec.structs import asdict
from scipy.integrate import quad
from thorough import THOROUGH

from dolma_dask.errors import DataError, UsageError
from dolma_dask.minhash.bands import (
    Bands,
    band_keys,
    band_records,
    collision_probability,
    expected_recall,
    optimal_bands,
    similarity,
    summarize_curve,
)

MASK = (1 << 64) - 1


@pytest.mark.parametrize(
    "wanted, num_perm, weights",
    [(0.8, 128, (0.5, 0.5)), (0.05, 16, (0.5, 0.5)), (0.99, 64, (0.5, 0.5)), (0.5, 48, (0.9, 0.1)), (0.7, 64, (0.2, 0.8))],
)  # fmt: skip
def test_the_optimal_shape_is_that_of_datasketch(wanted, num_perm, weights):
    expected = _optimal_param(wanted, num_perm, *weights)
    assert optimal_bands(wanted, num_perm, fp_weight=weights[0], fn_weight=weights[1]) == Bands(*expected)


@pytest.mark.slow
def test_the_optimal_shape_is_that_of_datasketch_at_any_similarity():
    shapes = [(bands, rows) for bands in range(1, 257) for rows in range(1, 256 // bands + 1)]
    sizes = np.prod(shapes, axis=1)
    for wanted in np.round(np.arange(0.05, 0.995, 0.03 if THOROUGH else 0.13), 2).tolist():
        below = np.array([_false_positive_probability(wanted, *shape) for shape in shapes])
        above = np.array([_false_negative_probability(wanted, *shape) for shape in shapes])
        errors = 0.5 * below + 0.5 * above
        for num_perm in (16, 17, 31, 64, 100, 127, 128, 200, 255, 256):
            # datasketch tries them in this order and takes the first of the best
            fitting = np.flatnonzero(sizes <= num_perm)
            best = Bands(*shapes[fitting[errors[fitting].argmin()]])
            assert optimal_bands(wanted, num_perm) == best, (wanted, num_perm)


def test_shapes_that_cannot_be_are_refused():
    with pytest.raises(UsageError, match="0 bands of 8 rows"):
        Bands(0, 8)
    with pytest.raises(UsageError, match="use 126 signature values, but signatures have 125"):
        Bands(14, 9).check(125)
    with pytest.raises(UsageError, match=r"similarity=1\.2"):
        optimal_bands(1.2, 128)


def test_the_curve_has_its_known_values():
    # 14 bands of 8 rows, by hand: 1 - (1 - 0.7^8)^14 and 1 - (1 - 0.8^8)^14
    curve = collision_probability([0.0, 0.7, 0.8, 1.0], Bands(14, 8))
    assert curve == pytest.approx([0, 0.56451, 0.92363, 1], abs=1e-4)
    assert collision_probability(0.5, Bands(1, 1)) == 0.5


@pytest.mark.parametrize("least", [0, 1, 5, 6, 9, 12])
def test_recall_is_the_sum_over_all_outcomes(least):
    bands, num_perm, jaccard = Bands(3, 3), 12, 0.6
    outcomes = (np.arange(1 << num_perm)[:, np.newaxis] >> np.arange(num_perm)) & 1
    matches = outcomes.sum(axis=1)
    found = outcomes[:, : bands.values].reshape(-1, 3, 3).all(axis=2).any(axis=1) & (matches >= least)
    expected = (jaccard**matches * (1 - jaccard) ** (num_perm - matches))[found].sum()
    assert expected_recall(jaccard, bands, num_perm, least) == pytest.approx(expected, abs=1e-13)


def test_recall_is_what_a_simulation_finds():
    bands, num_perm, pairs = Bands(14, 8), 128, 20_000
    rng = np.random.default_rng(1)
    for jaccard in (0.6, 0.7, 0.8):
        equal = rng.random((pairs, num_perm)) < jaccard
        shared = equal[:, : bands.values].reshape(pairs, 14, 8).all(axis=2).any(axis=1)
        for least in (0, 85, 100):
            expected = float(expected_recall(jaccard, bands, num_perm, least))
            found = (shared & (equal.sum(axis=1) >= least)).mean()
            assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / pairs) + 1e-3


def test_recall_keeps_shapes_and_limits():
    bands = Bands(9, 13)
    grid = np.linspace(0, 1, 101)
    recall = expected_recall(grid.reshape(1, 101), bands, 128, 100)
    assert recall.shape == (1, 101)
    assert (np.diff(recall[0]) > -1e-12).all()
    assert (recall[0] <= collision_probability(grid, bands) + 1e-12).all()
    assert recall[0, 0] == pytest.approx(0, abs=1e-12)
    assert recall[0, -1] == pytest.approx(1)
    assert expected_recall(grid, bands, 128, 13) == pytest.approx(collision_probability(grid, bands))


@pytest.mark.parametrize("least", [0, 90])
def test_the_summary_of_a_curve(least):
    bands, num_perm, wanted = Bands(14, 8), 128, 0.75
    curve = summarize_curve(bands, num_perm, wanted, least)
    reached = expected_recall([curve.half, curve.nine_tenths], bands, num_perm, least)
    assert reached == pytest.approx([0.5, 0.9], abs=1e-9)

    def recall(jaccard):
        return float(expected_recall(jaccard, bands, num_perm, least))

    below = quad(recall, 0, wanted)[0]
    above = quad(lambda jaccard: 1 - recall(jaccard), wanted, 1)[0]
    assert curve.false_positives == pytest.approx(below, abs=1e-8)
    assert curve.false_negatives == pytest.approx(above, abs=1e-8)


def oracle_mix(word):
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):
        word = (word ^ (word >> shift)) * factor & MASK
    return word


def oracle_absorb(state, word):
    state = (state ^ (word * 0xC2B2AE3D27D4EB4F & MASK)) * 0x9E3779B185EBCA87 & MASK
    return (state << 31 | state >> 33) & MASK


def oracle_key(values, band, rows, salt):
    """Return the key of a band of one signature, a list of integers."""
    own = values[band * rows : (band + 1) * rows]
    state = oracle_mix((salt + (band + 1) * 0x9E3779B97F4A7C15) & MASK)
    while len(own) >= 4:
        first, second = own[0] | own[1] << 32, own[2] | own[3] << 32
        product = (first ^ state) * (second ^ 0xD6E8FEB86659FD93)
        state, own = product >> 64 ^ product & MASK, own[4:]
    for value in own:
        state = oracle_absorb(state, value)
    return oracle_mix(state)


@pytest.mark.slow
def test_curves_of_long_signatures_take_little_memory_and_stay_the_same(monkeypatch):
    tracemalloc.start()
    shape = optimal_bands(0.8, 2000)
    curve = summarize_curve(shape, 2000, 0.8, 1600)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150e6
    monkeypatch.setattr("dolma_dask.minhash.bands.MAX_NODES", 2000)
    assert optimal_bands(0.8, 2000) == shape
    again = asdict(summarize_curve(shape, 2000, 0.8, 1600))
    assert again == pytest.approx(asdict(curve), abs=1e-9)


@pytest.mark.slow
@given(
    values=arrays(np.uint32, st.tuples(st.integers(0, 5), st.just(24))),
    shape=st.sampled_from([(24, 1), (12, 2), (3, 8), (4, 5), (1, 24), (2, 11), (8, 3)]),
    salt=st.none() | st.integers(0, MASK),
    data=st.data(),
)
def test_keys_are_those_of_plain_python(values, shape, salt, data):
    bands = Bands(*shape)
    first = data.draw(st.integers(0, bands.num_bands))
    last = data.draw(st.integers(first, bands.num_bands))
    salts = None if salt is None else np.full(len(values), salt, np.uint64)
    expected = [
        [oracle_key(row, band, bands.rows_per_band, salt or 0) for band in range(first, last)]
        for row in values.tolist()
    ]
    keys = band_keys(values, bands, first, last, salts)
    assert keys.shape == (len(values), last - first)
    assert keys.tolist() == expected

    kept = data.draw(arrays(np.bool_, len(values)))
    docnos = np.arange(len(values), dtype=np.uint64) + np.uint64(1 << 33)
    records = band_records(values, kept, docnos, bands, first, last, salts)
    of_kept = [(row, docno) for row, keep, docno in zip(expected, kept, docnos, strict=True) if keep]
    assert records.tolist() == [[key, docno] for row, docno in of_kept for key in row]


def test_keys_differ_by_band_value_and_salt():
    bands = Bands(16, 8)
    same = np.full((1, 128), 7, np.uint32)
    assert len(set(band_keys(same, bands, 0, 16).ravel().tolist())) == 16

    flips = 128 * 32  # each bit of each value once
    changed = np.repeat(same, flips, axis=0)
    places = np.repeat(np.arange(128), 32)
    changed[np.arange(flips), places] ^= np.tile(np.uint32(1) << np.arange(32, dtype=np.uint32), 128)
    differing = band_keys(changed, bands, 0, 16) != band_keys(same, bands, 0, 16)
    assert (differing.sum(axis=1) == 1).all()
    assert (differing.argmax(axis=1) == places // 8).all()

    salted = band_keys(np.repeat(same, 1000, axis=0), bands, 0, 16, np.arange(1000, dtype=np.uint64))
    assert len(np.unique(salted)) == 16_000


def test_keys_spread_over_all_bits():
    values = np.arange(4096, dtype=np.uint32)[:, np.newaxis].repeat(8, axis=1)
    for shape in (Bands(1, 8), Bands(1, 3), Bands(1, 1)):
        keys = band_keys(values, shape, 0, 1).ravel()
        for shift in (0, 20, 52):
            assert np.bincount((keys >> np.uint64(shift)).astype(np.int64) & 0xFFF).max() < 12


def test_keys_of_signatures_of_another_layout():
    values = np.arange(48, dtype=np.uint32).reshape(2, 24)
    bands = Bands(3, 8)
    assert (band_keys(np.asfortranarray(values), bands, 0, 3) == band_keys(values, bands, 0, 3)).all()
    with pytest.raises(DataError, match="signatures of type int64"):
        band_keys(values.astype(np.int64), bands, 0, 3)
    with pytest.raises(UsageError, match="use 32 signature values, but signatures have 24"):
        band_keys(values, Bands(4, 8), 0, 3)
    with pytest.raises(UsageError, match="bands 0 to 3; expected some of bands 0 to 2"):
        band_keys(values, bands, 0, 4)
    with pytest.raises(DataError, match="for other than 2 documents"):
        band_keys(values, bands, 0, 3, np.zeros(1, np.uint64))
    with pytest.raises(DataError, match=r"shapes \(2, 24\) and \(1, 24\)"):
        similarity(values, values[:1])


@pytest.mark.slow
@given(data=st.data(), num_perm=st.integers(1, 130))
def test_similarity_counts_equal_values(data, num_perm):
    left = data.draw(arrays(np.uint32, (3, num_perm), elements=st.integers(0, 2)))
    right = data.draw(arrays(np.uint32, (3, num_perm), elements=st.integers(0, 2)))
    assert similarity(left, right).tolist() == (left == right).sum(axis=1).tolist()
