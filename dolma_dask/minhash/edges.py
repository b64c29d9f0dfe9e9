"""Edges between documents that share keys: stars of sorted keys, and forests that say the same with as few edges as possible.

A star is made while records stream, so that a key of ten million documents needs no more memory than others. A `Forest` is a
union-find over the documents of a task, of which only those that share a key are held.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Int, Words, kernel
from dolma_dask.text.ngrams import find_or_add, table_slots

STATE = 4
"""Words that `star_edges` keeps between calls: the key, its first document, how many documents it has so far, and the last of them."""

NODES = 1 << 19
"""Documents that a `Forest` holds before it gives out its edges, a power of two: 24 MB."""


@kernel
def star_edges(keys: Words, state: Words, edges: Words, neighbours: bool) -> tuple[Int, Int]:
    """Write an edge from the first document of each key to each of its others, of (key, document) in order, shape (n, 2).

    With `neighbours` also one from each document to the next: at most ``2 (m - 1)`` for a key of m documents. `state` (`STATE`,) is all 0 at
    the start, `edges` has room for n, or 2 n. Returns the number of edges and the documents of the largest key.
    """
    count, largest = 0, np.uint64(0)
    for i in range(keys.shape[0]):
        # `state` outlives the call: a key may go on in the next batch
        if state[2] == 0 or keys[i, 0] != state[0]:
            state[0] = keys[i, 0]
            state[1] = keys[i, 1]
            state[2] = np.uint64(1)
        else:
            edges[count, 0] = state[1]
            edges[count, 1] = keys[i, 1]
            count += 1
            # the neighbour of the second document is the first, with which it has an edge
            if neighbours and state[2] > 1:
                edges[count, 0] = state[3]
                edges[count, 1] = keys[i, 1]
                count += 1
            state[2] += np.uint64(1)
        state[3] = keys[i, 1]
        largest = max(largest, state[2])
    return count, np.int64(largest)


@kernel
def _root(parents: Words, node: np.uint64) -> np.uint64:
    while parents[node] != node:
        # path halving: each look makes the way shorter
        parents[node] = parents[parents[node]]
        node = parents[node]
    return node


@kernel
def _join(
    edges: Words, start: Int, table: Words, generation: Int, nodes: Words, parents: Words, count: Int
) -> tuple[Int, Int]:
    """Add edges from `start` on while there is room for two more nodes; return where it stopped, and how many nodes there are."""
    slots = table.size // 2
    for i in range(start, edges.shape[0]):
        # before an edge, never half way through it
        if count + 2 > nodes.size:
            return i, count
        first = find_or_add(table, slots, generation, edges[i, 0], count)
        if first == count:
            nodes[count] = edges[i, 0]
            parents[count] = np.uint64(count)
            count += 1
        second = find_or_add(table, slots, generation, edges[i, 1], count)
        if second == count:
            nodes[count] = edges[i, 1]
            parents[count] = np.uint64(count)
            count += 1
        one, other = _root(parents, np.uint64(first)), _root(parents, np.uint64(second))
        # the smallest document is the root, so that the order of edges does not matter
        if nodes[one] < nodes[other]:
            parents[other] = one
        elif one != other:
            parents[one] = other
    return edges.shape[0], count


@kernel
def _edges_of(nodes: Words, parents: Words, count: Int, edges: Words) -> Int:
    """Write an edge from each root to each of the nodes below it."""
    written = 0
    for node in range(count):
        root = _root(parents, np.uint64(node))
        if root != np.uint64(node):
            edges[written, 0] = nodes[root]
            edges[written, 1] = nodes[node]
            written += 1
    return written


class Forest:
    """Edges with the same components as those that were added, fewer than documents."""

    def __init__(self, capacity: int = NODES) -> None:
        self._table = np.zeros(2 * table_slots(capacity), np.uint64)
        self._nodes, self._parents = np.empty(capacity, np.uint64), np.empty(capacity, np.uint64)
        self._count: Int = 0
        self._generation = 1

    def add(self, edges: Words) -> Iterator[Words]:
        """Take edges (n, 2), the smaller document first; yield those of a forest that is full."""
        edges = for_kernel(edges)
        at: Int = 0
        while at < len(edges):
            at, self._count = _join(
                edges, at, self._table, self._generation, self._nodes, self._parents, self._count
            )
            if at < len(edges):
                yield self.take()

    def take(self) -> Words:
        """Return the edges of the forest, which is empty then."""
        edges = np.empty((self._count, 2), np.uint64)
        written = _edges_of(self._nodes, self._parents, self._count, edges)
        self._count, self._generation = 0, self._generation + 1
        return edges[:written]


@kernel
def label_clusters(parents: Any, root_bit: Any) -> tuple[Int, Int]:
    """Turn parents (n,), each at most its own index, into labels: the root of a document, or for a root the size of its cluster with `root_bit`.

    Returns the clusters of two and more, and the documents in them.
    """
    clusters, members = 0, 0
    for node in range(parents.size):
        parent = parents[node]
        if parent == node:
            parents[node] = root_bit | type(parent)(1)
            continue
        # a parent is smaller and was visited: it is a root with its size, or has the label of its root
        root = parent if parents[parent] & root_bit else parents[parent]
        parents[node] = root
        parents[root] += type(parent)(1)
        # a root becomes a cluster with its second member, and both count from then on
        is_second = parents[root] == root_bit | type(parent)(2)
        clusters += is_second
        members += 1 + is_second
    return clusters, members


def root_bit(labels: npt.NDArray[Any]) -> Any:
    """Return the bit that tells labels of roots: the highest of their type."""
    kind = labels.dtype.type
    return kind(1) << kind(8 * labels.itemsize - 1)
