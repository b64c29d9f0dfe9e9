"""Clusters from sorted records, however these are cut: against a dictionary of lists."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.exchange.contract import key_dtype
from dolma_dask.verbs.dedupe.flags import LARGEST, largest_of
from dolma_dask.verbs.dedupe.job import FLAGS, SurvivorReducer

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), max_size=60)


def sorted_records(rows, dtype):
    records = np.zeros(len(rows), dtype)
    for place, row in enumerate(rows):
        records[place] = (*row[: len(dtype.names) - 1], place)
    return np.sort(records, order=list(dtype.names))


def reduced(runs):
    given_out = []
    info = SurvivorReducer().reduce(runs, lambda part: given_out.append(part.copy()))
    return np.sort(np.concatenate([np.empty(0, FLAGS), *given_out]), order=["location"]), info


def expected(rows, dtype):
    """Return {place: size} of all that are not alone, and the sizes of clusters by survivor."""
    clusters = defaultdict(list)
    for place, row in enumerate(rows):
        clusters[row[:2]].append((*row[2 : len(dtype.names) - 1], place))
    marks = {}
    for members in clusters.values():
        (*_, survivor), *others = sorted(members)
        if others:
            marks |= {survivor: len(members), **{place: 0 for *_, place in others}}
    return marks


@given(ROWS, st.booleans(), st.lists(st.integers(0, 60), max_size=5))
def test_marks_equal_a_dictionary_of_lists(rows, ranked, cuts):
    dtype = key_dtype("rank") if ranked else key_dtype()
    records = sorted_records(rows, dtype)
    runs = [run for run in np.split(records, sorted(min(cut, len(records)) for cut in cuts)) if len(run)]
    marks, info = reduced(runs)
    truth = expected(rows, dtype)
    assert dict(marks.tolist()) == truth
    assert len(marks) == len(truth)
    sizes = {place: size for place, size in truth.items() if size}
    assert (
        info["largest"] == sorted(([s, p] for p, s in sizes.items()), key=lambda c: (-c[0], c[1]))[:LARGEST]
    )


@given(ROWS)
def test_records_whose_first_word_no_other_has_make_no_difference(rows):
    assert SurvivorReducer.only_shared
    records = sorted_records(rows, key_dtype())
    words, counts = np.unique(records["hi"], return_counts=True)
    shared = records[np.isin(records["hi"], words[counts > 1])]
    (marks, info), (wanted, told) = reduced([shared]), reduced([records])
    assert (marks.tolist(), info) == (wanted.tolist(), told)


@pytest.mark.slow
def test_one_key_many_times_over_many_chunks_and_more_clusters_than_are_named():
    many = 200_000
    keys = np.concatenate([np.repeat(np.arange(100), 2), np.full(many, 50), np.arange(1000, 2000)])
    records = np.zeros(len(keys), key_dtype())
    records["hi"], records["location"] = keys, np.arange(len(keys))
    records = np.sort(records, order=["hi", "lo", "location"])
    marks, info = reduced(np.array_split(records, 37))
    assert len(marks) == 200 + many
    assert info["largest"][0] == [many + 2, 100]
    assert info["largest"][1:] == [[2, 2 * key] for key in range(LARGEST - 1)]
    assert set(marks["location"][marks["size"] > 0].tolist()) == set(range(0, 200, 2))


def test_largest_of_several_ranges():
    assert largest_of([[2, 9], [5, 7], [2, 3]]) == [[5, 7], [2, 3], [2, 9]]
