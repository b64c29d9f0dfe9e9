"""The cut of each group in a ranking of more documents than fit into memory: a few passes over their hashes.

The first pass counts weights in ranges of hashes, for each group; the range in which the number is reached is counted again, in ever smaller
ranges, until few documents are left, which are sorted. Where very many share one hash, because they have the same id, they are walked through in the
order of the dataset. Two passes for any real dataset, each some 100 ns per document. Memory: `MAX_COUNTERS` numbers twice, and `MAX_COLLECTED`
documents.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_COUNTERS = 1 << 21
"""Ranges of one pass, shared by all groups."""

MAX_BITS = 16
"""Bits of a hash that one pass tells apart at most."""

MAX_COLLECTED = 1 << 20
"""Documents that are sorted instead of being counted further."""

HASH_BITS = 64

RANKED = np.dtype([("hash", "<u8"), ("weight", "<i8"), ("place", "<u8"), ("group", "<u2")])
"""A document: its weight is 0 or more, its place that in the dataset."""

Ranked = npt.NDArray[np.void]
"""Some documents, (n,), in the order of the dataset."""

Ints = npt.NDArray[np.int64]


class FoundCut(NamedTuple):
    """Cut of one group, with what it keeps."""

    total: int  # weight of all its documents
    documents: int
    wanted: int  # the total if all of it is
    kept: int  # weight of those before the cut
    kept_documents: int
    cut: tuple[int, int] | None  # hash and place of the first document that is not kept; None: all are


def find_cuts(
    read: Callable[[], Iterable[Ranked]],
    groups: int,
    wanted: Callable[[Sequence[int], Sequence[int]], Sequence[int | None]],
) -> list[FoundCut]:
    """Find the longest beginning of each group, by hash and place, whose weight does not exceed what is wanted.

    `read` gives all documents anew for each pass, and `wanted` what to keep of each group, by the weights and the documents of all; None: all of it.
    """
    search = _Search(read, groups)
    counted = search.count()
    totals = counted.sum(axis=1)
    limits = wanted(totals[:, 0].tolist(), totals[:, 1].tolist())
    ends = [
        total if limit is None else min(limit, total)
        for limit, total in zip(limits, totals[:, 0].tolist(), strict=True)
    ]
    search.begin(np.array(ends, np.int64), np.array(ends) < totals[:, 0])
    search.narrow(counted)
    while search.bits_left and search.open_documents > MAX_COLLECTED:
        search.narrow(search.count())
    cuts = search.sort() if search.bits_left else search.walk()
    return [
        FoundCut(total, documents, end, *cuts.get(group, (total, documents, None)))
        for group, ((total, documents), end) in enumerate(zip(totals.tolist(), ends, strict=True))
    ]


_Cuts = dict[int, tuple[int, int, tuple[int, int]]]
"""Group -> weight and documents before its cut, and the cut."""


@dataclass
class _Search:
    """The range of hashes of each group in which its cut is known to lie: those that begin with the same bits as `low`."""

    read: Callable[[], Iterable[Ranked]]
    groups: int

    def __post_init__(self) -> None:
        self.bits_left = HASH_BITS  # that are not yet known
        self._low = np.zeros(self.groups, np.uint64)
        self._is_open = np.ones(self.groups, np.bool_)
        self._limits = np.zeros(self.groups, np.int64)
        self._below = np.zeros((self.groups, 2), np.int64)  # weight and documents below `low`
        self.open_documents = 0  # in all ranges

    @property
    def _step(self) -> int:
        """Bits that the next pass tells apart."""
        most = max(MAX_COUNTERS // self.groups, 2).bit_length() - 1
        return min(most, MAX_BITS, self.bits_left)

    def begin(self, limits: Ints, is_open: npt.NDArray[np.bool_]) -> None:
        """Look for cuts in the groups that are open, at the first document with which the weight exceeds the limit."""
        self._limits, self._is_open = limits, is_open

    def count(self) -> Ints:
        """Return weights and documents of each group by the next bits of the hash, (groups, 2**step, 2)."""
        step = self._step
        counted = np.zeros((self.groups << step, 2), np.int64)
        for rows in self._inside():
            bins = (rows["hash"] - self._low[rows["group"]]) >> np.uint64(self.bits_left - step)
            at = (rows["group"].astype(np.int64) << step) + bins.astype(np.int64)
            np.add.at(counted[:, 0], at, rows["weight"])
            np.add.at(counted[:, 1], at, 1)
        return counted.reshape(self.groups, -1, 2)

    def narrow(self, counted: Ints) -> None:
        """Go on with the bin of each open group in which its limit is exceeded."""
        step = self._step
        sums = counted.cumsum(axis=1) + self._below[:, None]
        groups = np.flatnonzero(self._is_open)
        bins = (sums[groups, :, 0] > self._limits[groups, None]).argmax(axis=1)
        self._below[groups] = sums[groups, bins] - counted[groups, bins]
        self.open_documents = int(counted[groups, bins, 1].sum())
        self.bits_left -= step
        self._low[groups] += bins.astype(np.uint64) << np.uint64(self.bits_left)

    def sort(self) -> _Cuts:
        """Sort the documents that are left."""
        rows = np.concatenate([np.zeros(0, RANKED), *self._inside()])
        rows = rows[np.lexsort((rows["place"], rows["hash"], rows["group"]))]
        found = (self._cut(group, part, *self._below[group]) for group, part in _by_group(rows))
        return {cut[0]: cut[1:] for cut in found if cut is not None}

    def walk(self) -> _Cuts:
        """Go through the documents of one hash per group in the order of the dataset."""
        cuts: _Cuts = {}
        for block in self._inside():
            for group, rows in _by_group(block[np.argsort(block["group"], kind="stable")]):
                if group in cuts:
                    continue
                cut = self._cut(group, rows, *self._below[group])
                if cut is not None:
                    cuts[group] = cut[1:]
                self._below[group] += (rows["weight"].sum(), len(rows))
        return cuts

    def _cut(
        self, group: int, rows: Ranked, weight: int, documents: int
    ) -> tuple[int, int, int, tuple[int, int]] | None:
        """Return where some rows in their order exceed the limit, given what lies before them."""
        sums = rows["weight"].cumsum() + weight
        at = int(np.searchsorted(sums, self._limits[group], "right"))
        if at == len(rows):
            return None
        before = int(sums[at] - rows["weight"][at])
        return group, before, int(documents) + at, (int(rows["hash"][at]), int(rows["place"][at]))

    def _inside(self) -> Iterator[Ranked]:
        """Yield the documents in the ranges of the open groups."""
        for rows in self.read():
            groups = rows["group"]
            inside = self._is_open[groups]
            if self.bits_left < HASH_BITS:
                inside &= (rows["hash"] - self._low[groups]) >> np.uint64(self.bits_left) == 0
            yield rows if inside.all() else rows[inside]


def _by_group(rows: Ranked) -> Iterator[tuple[int, Ranked]]:
    """Yield the rows of each group, which lie together."""
    firsts = np.flatnonzero(np.diff(rows["group"].astype(np.int64), prepend=-1)).tolist()
    for first, stop in pairwise([*firsts, len(rows)]):
        yield int(rows["group"][first]), rows[first:stop]
