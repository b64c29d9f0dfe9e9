"""Connected components of more documents than a process has room for: a parent array in ranges, of which each call has one.

Edges belong to the range of their larger end. `hang` joins the members of a range as union-find does, and hangs each tree below the smallest document
before the range that it is connected with; of two such documents it hands on an edge. So an edge only ever moves to a range before its own, and a range
that no edge reaches is done. A tree that hangs outside learns its root by asking the range that it hangs in (`ask`, `answer`, `follow`): where that
one's tree hangs outside too, it asks there next, and meanwhile that one has moved on, so that the way is halved each time.

`parents` (n,) are those of documents `first` to ``first + n - 1``; none is larger than its document. Cost: a range stays in the cache as far as it fits,
so that joining takes no longer than in one array, and each edge that is handed on is one record more.
"""

from typing import Any

import numpy as np

from dolma_dask.errors import DataError
from dolma_dask.minhash.edges import root_bit
from dolma_dask.text.bits import address_of, prefetch
from dolma_dask.text.kernels import Int, Words, kernel

_AHEAD = 64

RECENT = 1 << 14
"""Edges that were handed on last, which are not handed on again: near copies share many bands, and bring one edge as often."""

_ONE_FACTOR, _OTHER_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_RECENT_SHIFT = np.uint64(64 - 14)


class Hanging:
    """Joins the edges of a range, given by and by."""

    def __init__(self, parents: Any, first: int) -> None:
        self._parents, self._first = parents, first
        unlabel(parents, first, root_bit(parents))
        self._recent = np.zeros((RECENT, 2), np.uint64)

    def add(self, edges: Words) -> Words:
        """Join the ends of edges (high, low), further words are not looked at; return the edges (k, 2) that ranges before this one must join.

        Raises `DataError`: an end that lies behind the range, or the larger one before it.
        """
        sent = np.empty((len(edges), 2), np.uint64)
        count = int(_hang(self._parents, self._first, edges, self._recent, sent))
        if count < 0:
            high, low = edges[~count, :2].tolist()
            last = self._first + self._parents.size - 1
            raise DataError(
                f"an edge between documents {high} and {low}; expected the larger number first, from {self._first} to {last}."
            )
        return sent[:count]


@kernel
def _hang(parents: Any, first: Int, edges: Words, recent: Words, sent: Words) -> Int:
    """Return how many edges are handed on; the complement of the first edge that is not of this range, if there is one."""
    count, written, width = edges.shape[0], 0, parents.itemsize
    for edge in range(count):
        # beyond the last edge the last one is fetched again, which costs nothing
        later = min(edge + _AHEAD, count - 1)
        prefetch(address_of(parents) + width * (np.int64(edges[later, 0]) - first))
        prefetch(address_of(parents) + width * max(np.int64(edges[later, 1]) - first, 0))
        # places in the range; what lies before it is negative
        high, low = np.int64(edges[edge, 0]) - first, np.int64(edges[edge, 1]) - first
        if high < 0 or high >= parents.size or low > high:
            # negative, as no count of edges is
            return ~edge
        top: Int = _top(parents, first, high)
        above = np.int64(parents[top]) - first
        beyond = low
        if low >= 0:
            other = _top(parents, first, low)
            if other == top:
                continue
            beyond = np.int64(parents[other]) - first
            # the larger top below the smaller
            parents[max(top, other)] = first + min(top, other)
            top = min(top, other)
        least, most = min(above, beyond), max(above, beyond)
        parents[top] = first + least
        if most < 0 and least != most:
            slot = (np.uint64(least) * _ONE_FACTOR ^ np.uint64(most) * _OTHER_FACTOR) >> _RECENT_SHIFT
            larger, smaller = np.uint64(first + most), np.uint64(first + least)
            if recent[slot, 0] != larger or recent[slot, 1] != smaller:
                recent[slot, 0], recent[slot, 1] = larger, smaller
                sent[written, 0], sent[written, 1] = larger, smaller
                written += 1
    return written


@kernel
def _top(parents: Any, first: Int, node: Int) -> Int:
    """Top of the tree of a node within the range: its root, or what hangs outside; on the way every other node is hung one level higher."""
    while True:
        above = np.int64(parents[node]) - first
        if above < 0 or above == node:
            return node
        further = np.int64(parents[above]) - first
        if further < 0:
            return above
        parents[node] = first + further
        node = further


@kernel
def unlabel(labels: Any, first: Int, bit: Any) -> None:
    """Make parents of labels again: a root is its own."""
    for node in range(labels.size):
        if labels[node] & bit:
            labels[node] = first + node


@kernel
def settle(parents: Any, first: Int) -> None:
    """Make the parent of each node the top of its tree within the range; tops that hang outside stay where they hang."""
    for node in range(parents.size):
        above = np.int64(parents[node]) - first
        if above >= 0:
            # the parent is smaller, so that it is a top by now or hangs right below one
            further = np.int64(parents[above]) - first
            if further >= 0:
                parents[node] = first + further


@kernel
def count_members(parents: Any, first: Int, sizes: Any) -> None:
    """Add the members of each tree of a range that is settled to the sizes (n,) of its top."""
    for node in range(parents.size):
        above = np.int64(parents[node]) - first
        sizes[node if above < 0 else above] += sizes.dtype.type(1)


@kernel
def ask(parents: Any, first: Int, start: Int, sizes: Any, bit: Any, asks: Words) -> tuple[Int, Int]:
    """Turn settled parents from `start` on into labels: for a root the size of its tree with `bit`, see `dolma_dask.minhash.edges.label_clusters`.

    Of each tree that hangs outside a row of `asks` (m, 3) says (where it hangs, its top, its size). Returns the node at which the rows are full, and how many are filled.
    """
    written = 0
    for node in range(start, parents.size):
        above = np.int64(parents[node]) - first
        if above == node:
            parents[node] = bit | type(bit)(sizes[node])
        elif above < 0:
            if written == asks.shape[0]:
                return node, written
            asks[written, 0] = parents[node]
            asks[written, 1] = first + node
            asks[written, 2] = sizes[node]
            written += 1
    return parents.size, written


@kernel
def answer(labels: Any, first: Int, bit: Any, asks: Words, answers: Words) -> None:
    """Write (top, root, 0) for each of `asks` (m, 3), and add its size to the root; or (top, where the way goes on, size) if that is not in this range."""
    for at in range(asks.shape[0]):
        place = np.int64(asks[at, 0]) - first
        if not labels[place] & bit and np.int64(labels[place]) >= first:
            place = np.int64(labels[place]) - first
        answers[at, 0] = asks[at, 1]
        if labels[place] & bit:
            labels[place] += type(bit)(asks[at, 2])
            answers[at, 1] = first + place
            answers[at, 2] = np.uint64(0)
        else:
            answers[at, 1] = labels[place]
            answers[at, 2] = asks[at, 2]


@kernel
def follow(labels: Any, first: Int, answers: Words, asks: Words) -> Int:
    """Label tops as `answers` (m, 3) say; write (where the way goes on, top, size) of those that have to ask again, and return how many they are."""
    written = 0
    for at in range(answers.shape[0]):
        labels[np.int64(answers[at, 0]) - first] = answers[at, 1]
        if answers[at, 2]:
            asks[written, 0] = answers[at, 1]
            asks[written, 1] = answers[at, 0]
            asks[written, 2] = answers[at, 2]
            written += 1
    return written


@kernel
def hand_down(labels: Any, first: Int, bit: Any) -> None:
    """Give the members of each tree the label of its top, once all tops have theirs."""
    for node in range(labels.size):
        if not labels[node] & bit and np.int64(labels[node]) >= first:
            label = labels[np.int64(labels[node]) - first]
            if not label & bit:
                labels[node] = label


@kernel
def raise_own_matches(matches: Any, first: Int, links: Words) -> None:
    """Raise the matches of the first document of each link (high, low, matches), shape (m, 3), to those of the link where it has fewer."""
    for link in range(links.shape[0]):
        document = np.int64(links[link, 0]) - first
        if links[link, 2] > np.uint64(matches[document]):
            matches[document] = links[link, 2]
