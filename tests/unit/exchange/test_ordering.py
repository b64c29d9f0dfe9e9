"""Sorting of records against Python's sort of tuples, in memory and through disk."""

import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.exchange import kernels, ordering

WILD = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 3),
    st.integers(2**64 - 3, 2**64 - 1),
    st.sampled_from([2**63 - 1, 2**63, 2**32, 7 << 54]),
)


def rows_of(width: int, size: int):
    return st.lists(st.lists(WILD, min_size=width, max_size=width), max_size=size).map(
        lambda rows: np.array(rows, np.uint64).reshape(len(rows), width)
    )


ROWS = st.integers(1, 4).flatmap(lambda width: rows_of(width, 80))


def in_order(rows) -> list[list[int]]:
    """The oracle."""
    return sorted(rows.tolist())


def cut(rows, sizes) -> list[np.ndarray]:
    """Cut rows into parts of some sizes, over and over; none is empty."""
    parts = []
    while len(rows):
        size = sizes[len(parts) % len(sizes)]
        parts.append(rows[:size].copy())
        rows = rows[size:]
    return parts


@pytest.mark.slow
@given(ROWS)
def test_sort_words(rows):
    before = rows.copy()
    found = ordering.sort_words(rows)
    assert found.tolist() == in_order(rows)
    assert (rows == before).all()
    assert kernels.is_sorted(found)
    assert kernels.is_sorted(rows) == (rows.tolist() == in_order(rows))


@pytest.mark.parametrize("distinct", [1, 2, 40, 1000, 10**6])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_many_rows_of_few_values(distinct, width, monkeypatch):
    """Runs of equal words, short and long: insertion sort and the next word by NumPy; all parts of the spread."""
    draw = np.random.default_rng(distinct)
    values = draw.integers(0, 2**64, distinct, np.uint64)
    rows = values[draw.integers(0, distinct, (40_000, width))]
    rows[:, -1] = draw.integers(0, 2**64, len(rows), np.uint64)
    expected = rows[np.lexsort(rows.T[::-1])]
    assert (ordering.sort_words(rows) == expected).all()
    grouped = rows.copy()
    monkeypatch.setattr(ordering, "PART_BYTES", 1 << 16)
    ordering.sort_grouped(grouped, [len(rows)])
    assert (grouped == expected).all()


def test_close_values_that_do_not_fit_beside_their_row_number():
    """The packed word loses low bits of the value; the kernel settles them."""
    draw = np.random.default_rng(0)
    rows = np.zeros((30_000, 2), np.uint64)
    rows[:, 0] = draw.integers(0, 50, len(rows), np.uint64)
    rows[0, 0] = 2**64 - 1
    rows[:, 1] = draw.integers(0, 9, len(rows), np.uint64)
    assert (ordering.sort_words(rows) == rows[np.lexsort(rows.T[::-1])]).all()


@given(ROWS, st.integers(0, 64), st.sampled_from([16, 64, 1 << 19]), st.sampled_from([0, 1024]))
def test_sort_grouped(rows, shift, part_bytes, few):
    """By buckets of any width, taken together or spread over parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "PART_BYTES", part_bytes)
        patch.setattr(ordering, "FEW", few)
        grouped = sorted(rows.tolist(), key=lambda row: row[0] >> shift)
        ends = [at for at in range(1, len(rows)) if grouped[at - 1][0] >> shift != grouped[at][0] >> shift]
        found = np.array(grouped, np.uint64).reshape(rows.shape)
        ordering.sort_grouped(found, [0, *ends, len(rows), len(rows)])
    assert found.tolist() == in_order(rows)


@pytest.mark.slow
@given(ROWS, st.lists(st.integers(0, 80), max_size=5))
def test_rows_that_share_their_first_word_stay(rows, bounds):
    """In their buckets, in order, all of them; what else stays makes no difference."""
    ends = np.array([*sorted(bound % (len(rows) + 1) for bound in bounds), len(rows)])
    buckets = [rows[start:end].tolist() for start, end in pairwise([0, *ends])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordering, "FEW", 0)
        left = ordering.without_lone(rows.copy(), ends)
    assert len(left) == ends[-1]
    for before, (start, end) in zip(buckets, pairwise([0, *ends]), strict=True):
        counts = Counter(row[0] for row in before)
        shared = [row for row in before if counts[row[0]] > 1]
        after = left[start:end].tolist()
        assert [row for row in after if counts[row[0]] > 1] == shared
        following = iter(before)
        assert all(row in following for row in after)


def test_most_rows_that_are_alone_are_left_out():
    rows = np.random.default_rng(0).integers(0, 2**64, (20_000, 3), np.uint64)
    rows[:, 0] >>= np.uint64(10)  # as in a bucket: the highest bits tell nothing
    assert 0 < len(ordering.without_lone(rows, np.array([8_000, 20_000]))) < 5_000
    equal = np.ones((20_000, 3), np.uint64)
    assert len(ordering.without_lone(equal, np.array([8_000, 20_000]))) == 20_000


@pytest.mark.slow
@given(ROWS, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 30), st.integers(1, 9))
def test_sort_spilled(tmp_path_factory, rows, sizes, limit, chunk):
    """With NumPy's sort alone; the next test has more records."""
    folder = tmp_path_factory.getbasetemp()
    before = sorted(folder.iterdir())
    slices = iter(cut(rows, sizes))
    chunks = list(ordering.sort_spilled(slices, limit, chunk, rows.shape[1], str(folder)))
    assert [row for part in chunks for row in part.tolist()] == in_order(rows)
    assert all(0 < len(part) <= chunk for part in chunks)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("kind", ["wild", "one key", "sorted", "equal"])
def test_merge_of_runs_block_by_block(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(ordering, "MIN_BLOCK", 3)
    monkeypatch.setattr(ordering, "FEW", 0)
    draw = np.random.default_rng(1)
    rows = draw.integers(0, 2**64, (20_000, 2), np.uint64)
    if kind == "one key":
        rows[:, 0] = 5
    elif kind == "sorted":
        rows = np.sort(rows.ravel()).reshape(-1, 2)
    elif kind == "equal":
        rows[:] = 9
    expected = rows[np.lexsort(rows.T[::-1])]
    chunks = list(ordering.sort_spilled(iter(cut(rows, [300, 17])), 1500, 700, 2, str(tmp_path)))
    assert (np.concatenate(chunks) == expected).all()
    assert max(map(len, chunks)) <= 700


def test_no_records(tmp_path):
    assert list(ordering.sort_spilled(iter(()), 10, 10, 2, str(tmp_path))) == []


@given(st.integers(1, 3).flatmap(lambda width: st.tuples(rows_of(width, 30), rows_of(width, 1))))
def test_count_not_above(drawn):
    rows, bounds = drawn
    ordered = ordering.sort_words(rows)
    for bound in bounds:
        expected = sum(row <= bound.tolist() for row in rows.tolist())
        assert kernels.count_not_above(ordered, bound) == expected


@pytest.mark.parametrize("kind", ["wild", "one key"])
def test_memory_does_not_grow_with_the_records(tmp_path, kind):
    """Ten times the limit, with all that sorting and merging need, stays below five times the limit."""
    draw = np.random.default_rng(2)
    limit = 60_000
    block = limit * 24

    def slices():
        for number in range(20):
            rows = draw.integers(0, 2**64, (limit // 2, 3), np.uint64)
            if kind == "one key":
                rows[:, :2] = 5
                rows[number :: len(rows) // 2, 0] = 6
            yield rows

    list(ordering.sort_spilled(slices(), limit, 1000, 3, str(tmp_path)))  # kernels are compiled
    tracemalloc.start()
    try:
        chunks = ordering.sort_spilled(slices(), limit, 1000, 3, str(tmp_path))
        assert sum(map(len, chunks)) == 10 * limit
        assert tracemalloc.get_traced_memory()[1] < 5 * block
    finally:
        tracemalloc.stop()
