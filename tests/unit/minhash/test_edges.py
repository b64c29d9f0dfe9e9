"""Edges of sorted keys against a dictionary of buckets; forests and labels against scipy's components."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dolma_dask.exchange.contract import to_records
from dolma_dask.minhash.components import flatten, unite
from dolma_dask.minhash.edges import STATE, Forest, label_clusters, root_bit, star_edges
from dolma_dask.verbs.dedupe.fuzzy.edges import KEYS, EdgeReducer

DOCUMENTS = 30


@st.composite
def keys(draw):
    """Keys of some bands, in order: (key, document), of few values each."""
    pairs = draw(st.sets(st.tuples(st.integers(0, 12), st.integers(0, DOCUMENTS - 1)), max_size=80))
    return np.array(sorted(pairs), np.uint64).reshape(-1, 2)


def components(edges):
    """Return the smallest member of each document's component."""
    edges = np.asarray(edges, np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(DOCUMENTS, DOCUMENTS))
    _, labels = connected_components(graph, directed=False)
    smallest = np.full(DOCUMENTS, DOCUMENTS)
    np.minimum.at(smallest, labels, np.arange(DOCUMENTS))
    return smallest[labels].tolist()


def stars(rows):
    """The oracle: an edge from the first document of each key to each other."""
    buckets = {}
    for key, document in rows.tolist():
        buckets.setdefault(key, []).append(document)
    return [[some[0], other] for some in buckets.values() for other in some[1:]], buckets


def runs_of(rows, cuts):
    return [run for run in np.split(rows, sorted(cut % (len(rows) + 1) for cut in cuts)) if len(run)]


@pytest.mark.slow
@given(rows=keys(), cuts=st.lists(st.integers(0, 100), max_size=4), neighbours=st.booleans())
def test_stars_of_keys_that_go_on_in_the_next_run(rows, cuts, neighbours):
    expected, buckets = stars(rows)
    if neighbours:
        expected += [list(pair) for some in buckets.values() for pair in pairwise(some[1:])]
    state, found, largest = np.zeros(STATE, np.uint64), [], 0
    for run in runs_of(rows, cuts):
        edges = np.empty((2 * len(run), 2), np.uint64)
        count, longest = star_edges(np.ascontiguousarray(run), state, edges, neighbours)
        found += edges[:count].tolist()
        largest = max(largest, int(longest))
    assert sorted(found) == sorted(expected)
    assert largest == max(map(len, buckets.values()), default=0)


@pytest.mark.slow
@given(
    rows=keys(), cuts=st.lists(st.integers(0, 100), max_size=4), capacity=st.sampled_from([2, 4, 8, 32, 64])
)
def test_a_forest_joins_the_same_documents_with_fewer_edges(rows, cuts, capacity):
    edges, _ = stars(rows)
    given_edges = np.array(edges, np.uint64).reshape(-1, 2)
    forest, found = Forest(capacity), []
    for part in runs_of(given_edges, cuts):
        found += [edge for full in forest.add(part) for edge in full.tolist()]
    found += forest.take().tolist()
    assert components(found) == components(edges)
    assert all(low < high for low, high in found)
    documents = {document for edge in edges for document in edge}
    if capacity > len(documents) + 1:
        assert len(found) <= max(len(documents) - 1, 0)
    assert len(forest.take()) == 0


@pytest.mark.slow
@given(rows=keys(), cuts=st.lists(st.integers(0, 100), max_size=4))
def test_reducers_that_contract_and_that_do_not_find_the_same(rows, cuts):
    edges, buckets = stars(rows)
    runs = [to_records(np.ascontiguousarray(run), KEYS) for run in runs_of(rows, cuts)]
    plain, contracted = [], []
    for number, found in ((1, plain), (5, contracted)):
        told = EdgeReducer(number).reduce(runs, found.append)
        assert told == {"largest": max(map(len, buckets.values()), default=0)}
    assert [list(edge) for part in plain for edge in part.tolist()] == edges
    assert components([edge for part in contracted for edge in part.tolist()]) == components(edges)


@given(rows=keys(), dtype=st.sampled_from([np.uint32, np.uint64]))
def test_labels_name_the_root_and_count_the_members(rows, dtype):
    edges, _ = stars(rows)
    parents = np.arange(DOCUMENTS, dtype=dtype)
    unite(parents, np.array(edges, np.uint64).reshape(-1, 2))
    flatten(parents)
    roots = parents.tolist()
    bit = int(root_bit(parents))
    clusters, members = label_clusters(parents, root_bit(parents))
    sizes = {root: roots.count(root) for root in roots}
    assert parents.tolist() == [
        bit | sizes[root] if root == document else root for document, root in enumerate(roots)
    ]
    assert clusters == sum(size > 1 for size in sizes.values())
    assert members == sum(size for size in sizes.values() if size > 1)
