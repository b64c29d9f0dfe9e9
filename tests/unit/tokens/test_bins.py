"""Packings against plain Python that places one segment at a time, and against published figures."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.errors import DataError, UsageError
from dolma_dask.tokens.bins import PACKINGS, Bins, best_fit, count_bins, modelzoo, next_fit, spfhp

Rows = list[list[int]]


def longest_first(sizes: list[int]) -> list[int]:
    return sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))


def room_of(row: list[int], sizes: list[int], capacity: int) -> int:
    return capacity - sum(sizes[number] for number in row)


def by_length(sizes: list[int], capacity: int, most: float, choose: Callable[[list[int]], int]) -> Rows:
    """Place segments one by one in open rows, of which the one that was filled last stands last."""
    rows: Rows = []
    lonely = set()
    for number in longest_first(sizes):
        rooms = [room_of(row, sizes, capacity) if len(row) < most else 0 for row in rows]
        fitting = [room for room in rooms if room >= sizes[number] and sizes[number] not in lonely]
        if not fitting:
            rows.append([number])
            if choose is max:
                lonely.add(sizes[number])
            continue
        room = choose(fitting)
        row = rows.pop(max(at for at, other in enumerate(rooms) if other == room))
        rows.append([*row, number])
    return sorted(map(sorted, rows))


def in_order(sizes: list[int], capacity: int, most: float) -> Rows:
    rows: Rows = []
    for number, size in enumerate(sizes):
        if not rows or room_of(rows[-1], sizes, capacity) < size or len(rows[-1]) == most:
            rows.append([])
        rows[-1].append(number)
    return rows


def backwards(sizes: list[int], capacity: int, most: float) -> Rows:
    rows = [[number] for number in range(len(sizes))]
    for last in range(len(rows) - 1, 0, -1):
        size = sum(sizes[number] for number in rows[last])
        for earlier in range(last - 1, -1, -1):
            if room_of(rows[earlier], sizes, capacity) >= size:
                rows[earlier] += rows.pop(last)
                break
    return rows


ORACLES: dict[str, Callable[[list[int], int, float], Rows]] = {
    "best_fit": lambda *problem: by_length(*problem, min),
    "lpfhp": lambda *problem: by_length(*problem, min),
    "spfhp": lambda *problem: by_length(*problem, max),
    "next_fit": in_order,
    "modelzoo": backwards,
}


def rows_of(bins: Bins) -> Rows:
    return [
        bins.order[first:stop].tolist() for first, stop in zip(bins.bounds[:-1], bins.bounds[1:], strict=True)
    ]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int]:
    capacity = draw(st.integers(1, 200))
    few = draw(st.lists(st.integers(1, capacity), min_size=1, max_size=6))
    size = st.integers(1, capacity) | st.sampled_from(few)  # many of one size, too
    return draw(st.lists(size, max_size=60)), capacity


def as_array(sizes: list[int]) -> np.ndarray:
    return np.array(sizes, np.int64)


@pytest.mark.parametrize("name", PACKINGS)
@given(problem=problems(), most=st.none() | st.integers(1, 5))
def test_rows_are_those_of_plain_python(name, problem, most):
    sizes, capacity = problem
    limit = None if name == "modelzoo" else most
    bins = PACKINGS[name](as_array(sizes), capacity, limit)
    assert rows_of(bins) == ORACLES[name](sizes, capacity, math.inf if limit is None else limit)
    assert len(bins) == len(rows_of(bins))
    assert bins.order.dtype == bins.bounds.dtype == np.int64


@pytest.mark.parametrize("name", PACKINGS)
@given(problem=problems(), most=st.none() | st.integers(1, 5))
def test_each_segment_is_in_one_row_and_rows_are_not_too_full(name, problem, most):
    sizes, capacity = problem
    limit = None if name == "modelzoo" else most
    bins = PACKINGS[name](as_array(sizes), capacity, limit)
    rows = rows_of(bins)
    assert sorted(number for row in rows for number in row) == list(range(len(sizes)))
    assert all(0 <= room_of(row, sizes, capacity) < capacity for row in rows)
    assert all(len(row) <= (limit or len(sizes)) for row in rows)
    assert len(rows) >= math.ceil(sum(sizes) / capacity)
    firsts = [row[0] for row in rows]
    assert firsts == sorted(firsts)


def fewest_rows(sizes: list[int], capacity: int) -> int:
    """Return the number of rows of the best packing: for each set of segments the fewest rows, and the least that the last one holds."""
    best = {0: (1, 0)}
    for members in range(1, 1 << len(sizes)):
        found = []
        for number in (number for number in range(len(sizes)) if members >> number & 1):
            rows, held = best[members ^ (1 << number)]
            fits = held + sizes[number] <= capacity
            found.append((rows, held + sizes[number]) if fits else (rows + 1, sizes[number]))
        best[members] = min(found)
    return best[(1 << len(sizes)) - 1][0]


@given(
    st.integers(1, 60).flatmap(
        lambda top: st.tuples(st.lists(st.integers(1, top), min_size=1, max_size=9), st.just(top))
    )
)
def test_best_fit_is_near_the_best_packing(problem):
    """The bound of best-fit decreasing: 11/9 of the fewest rows and one more (Johnson 1973)."""
    sizes, capacity = problem
    assert 9 * len(best_fit(as_array(sizes), capacity)) <= 11 * fewest_rows(sizes, capacity) + 9


@given(problems(), st.none() | st.integers(1, 5), st.booleans())
def test_rows_can_be_counted_without_the_segments(problem, most, is_widest):
    sizes, capacity = problem
    packing = spfhp if is_widest else best_fit
    counts = np.bincount(as_array(sizes), minlength=capacity + 1)
    assert count_bins(counts, most, is_widest=is_widest) == len(packing(as_array(sizes), capacity, most))


HISTOGRAMS = json.loads(Path(__file__).with_name("histograms.json").read_text())

PUBLISHED = [
    ("wikipedia", 12, True, 8_166_708, 99.6040),
    ("wikipedia", 12, False, 8_149_619, 99.8129),
    ("wikipedia", None, False, 8_138_483, 99.9494),
    ("squad_1_1", 12, True, 40_711, 97.5466),
    ("squad_1_1", 12, False, 40_631, 97.7386),
    ("squad_1_1", None, False, 40_631, 97.7386),
]
"""Rows, and percent of them that are tokens: those with 12 sequences in a row stand in the paper's README."""


@pytest.mark.parametrize("name, most, is_widest, rows, percent", PUBLISHED)
def test_figures_are_the_published_ones(name, most, is_widest, rows, percent):
    counts = as_array([0, *HISTOGRAMS[name]])
    tokens, capacity = int(counts @ np.arange(len(counts))), len(counts) - 1
    assert count_bins(counts, most, is_widest=is_widest) == rows
    assert round(100 * tokens / (rows * capacity), 4) == percent


def test_segments_of_a_published_histogram_are_packed_as_counted():
    counts = as_array([0, *HISTOGRAMS["squad_1_1"]])
    sizes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    assert len(best_fit(sizes, 384)) == 40_631
    assert len(spfhp(sizes, 384, 12)) == 40_711


@pytest.mark.parametrize("name", PACKINGS)
def test_sizes_that_fit_no_row_are_refused(name):
    with pytest.raises(DataError, match="segment 1 has 9 tokens to predict; expected 1 to 8"):
        PACKINGS[name](as_array([8, 9]), 8, None)
    with pytest.raises(DataError, match="segment 0 has 0 tokens"):
        PACKINGS[name](as_array([0, 9]), 8, None)


def test_limits_that_cannot_be_kept_are_refused():
    with pytest.raises(UsageError, match="at most 0 segments in a row; expected 1 or more"):
        next_fit(as_array([1]), 8, 0)
    with pytest.raises(UsageError, match="expected no limit, or another of best_fit"):
        modelzoo(as_array([1]), 8, 3)
