"""Connected components of documents by union-find: a parent array in which every tree hangs from its smallest member.

The larger of two roots is always linked to the smaller, so that the root of a component is its smallest member and the order of the edges
cannot matter. No parent is larger than its child: one forward pass makes all parents roots.

The array is as large as there are nodes, and edges touch it at random places: fetching these 64 edges ahead makes 200 to 240 M edges per
CPU-second of 52 to 59, for 16 M nodes as for 100 M (edges of stars, in the order of their keys).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.errors import DataError
from dolma_dask.text.bits import address_of, prefetch
from dolma_dask.text.kernels import Int, Words, kernel

Parents = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
"""Parent of each node, shape (nodes,); a root is its own."""

_AHEAD = 64


def unite(parent: Parents, edges: Words) -> int:
    """Join the components at both ends of each edge, uint64 (m, 2); return by how many components there are fewer."""
    united = _unite(parent, edges)
    if united < 0:
        edge = edges[~united].tolist()
        raise DataError(
            f"an edge between documents {edge[0]} and {edge[1]}; expected numbers below {parent.size}."
        )
    return int(united)


@kernel
def _unite(parent: Parents, edges: Words) -> Int:
    """Return the components that are gone; the complement of the first edge that leaves the array, if there is one."""
    united, count, width = 0, edges.shape[0], parent.itemsize
    for edge in range(count):
        # beyond the last edge the last one is fetched again, which costs nothing
        later = min(edge + _AHEAD, count - 1)
        prefetch(address_of(parent) + width * np.int64(edges[later, 0]))
        prefetch(address_of(parent) + width * np.int64(edges[later, 1]))
        if max(edges[edge, 0], edges[edge, 1]) >= np.uint64(parent.size):
            # negative, as no count of components is
            return ~edge
        first, second = find(parent, np.int64(edges[edge, 0])), find(parent, np.int64(edges[edge, 1]))
        if first != second:
            # the larger root below the smaller: see above
            parent[max(first, second)] = min(first, second)
            united += 1
    return united


@kernel
def find(parent: Parents, node: Int) -> Int:
    """Root of a node; on the way every other node is hung one level higher (path halving)."""
    while parent[node] != node:
        parent[node] = parent[np.int64(parent[node])]
        node = np.int64(parent[node])
    return node


@kernel
def flatten(parent: Parents) -> None:
    """Make the parent of each node its root: the smallest member of its component."""
    for node in range(parent.size):
        # the parent is smaller, so that it is a root by now
        parent[node] = parent[np.int64(parent[node])]


@kernel
def raise_matches(matches: Any, edges: Words) -> None:
    """Raise the matches of both documents of each edge (low, high, matches), shape (m, 3), to those of the edge where they have fewer."""
    for edge in range(edges.shape[0]):
        for side in range(2):
            document = np.int64(edges[edge, side])
            if edges[edge, 2] > np.uint64(matches[document]):
                matches[document] = edges[edge, 2]
