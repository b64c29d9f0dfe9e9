"""Union-find against scipy's components, in any order of edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dolma_dask.errors import DataError
from dolma_dask.minhash.components import flatten, unite


def oracle(nodes, edges):
    """Return the smallest member of each node's component."""
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=False)
    smallest = np.full(nodes, nodes)
    np.minimum.at(smallest, labels, np.arange(nodes))
    return smallest[labels]


def components(nodes, edges, dtype=np.uint32):
    parent = np.arange(nodes, dtype=dtype)
    united = unite(parent, edges)
    flatten(parent)
    return parent, united


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 40))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    return nodes, np.array(edges, np.uint64).reshape(-1, 2)


@pytest.mark.slow
@given(graph=graphs(), dtype=st.sampled_from([np.uint32, np.uint64]), data=st.data())
def test_each_node_gets_the_smallest_member_whatever_the_order(graph, dtype, data):
    nodes, edges = graph
    expected = oracle(nodes, edges)
    parent, united = components(nodes, edges, dtype)
    assert parent.tolist() == expected.tolist()
    assert united == nodes - len(set(expected.tolist()))

    shuffled = edges[data.draw(st.permutations(range(len(edges))))]
    turned = np.where(np.arange(len(edges))[:, np.newaxis] % 2, shuffled, shuffled[:, ::-1])
    cut = data.draw(st.integers(0, len(edges)))
    parent = np.arange(nodes, dtype=np.uint32)
    unite(parent, turned[:cut])
    flatten(parent)  # a flat array takes more edges
    unite(parent, np.ascontiguousarray(turned[cut:]))
    flatten(parent)
    assert parent.tolist() == expected.tolist()


@pytest.mark.parametrize("form", ["chain", "reversed chain", "star", "random", "pairs of halves"])
def test_large_components(form):
    nodes = 20_000
    rng = np.random.default_rng(1)
    chain = np.stack([np.arange(nodes - 1), np.arange(1, nodes)], axis=1)
    edges = {
        "chain": chain,
        "reversed chain": chain[::-1],
        "star": np.stack([np.full(nodes, nodes - 1), np.arange(nodes)], axis=1),
        "random": rng.integers(0, nodes, (12_000, 2)),
        "pairs of halves": np.stack([np.arange(nodes // 2), np.arange(nodes // 2) + nodes // 2], axis=1),
    }[form]
    edges = np.ascontiguousarray(edges, np.uint64)
    parent, united = components(nodes, edges)
    expected = oracle(nodes, edges)
    assert np.array_equal(parent, expected)
    assert united == nodes - len(np.unique(expected))


def test_an_edge_to_a_node_that_is_not_there_is_refused():
    parent = np.arange(4, dtype=np.uint32)
    with pytest.raises(DataError, match="between documents 9 and 1; expected numbers below 4"):
        unite(parent, np.array([[0, 1], [9, 1]], np.uint64))
    with pytest.raises(DataError, match="between documents 0 and 18446744073709551615"):
        unite(parent, np.array([[0, (1 << 64) - 1]], np.uint64))
