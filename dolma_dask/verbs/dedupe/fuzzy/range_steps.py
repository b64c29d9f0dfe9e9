"""Steps of a round on one range of documents: join edges, make labels, answer questions for roots, follow answers; and the records that go from range to range.

Each step has the numbers of one range in memory, as much besides at most, and what was sent to the range piece by piece. `dolma_dask.minhash.ranges` has the kernels.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.exchange import Reducer
from dolma_dask.exchange.contract import Records, to_records, to_words
from dolma_dask.minhash import ranges as kernels
from dolma_dask.minhash.edges import root_bit
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.fuzzy.edges import MATCHES, VERIFIED, Labels

LINKS = np.dtype([("high", "<u8"), ("low", "<u8")])
"""Two documents of one cluster, for the range of the larger docno."""

VERIFIED_LINKS = np.dtype([*LINKS.descr, ("matches", "<u8")])
"""A link of which it is known in how many values the signatures agree; of a document with itself it tells this alone."""

ASKS = np.dtype([("document", "<u8"), ("other", "<u8"), ("size", "<u8")])
"""Question for the root of a document, by the top of a tree of so many that hangs there; or the answer to a top: its root, or with a size where it asks next."""

ASKED = 1 << 16
"""Questions that are given to the exchange at once."""

Numbers = npt.NDArray[Any]


class ByRange(Struct, frozen=True):
    """Gives out the edges of another reducer for the ranges of their larger ends."""

    edges: Reducer

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records that it gives out."""
        return VERIFIED_LINKS if self.edges.dtype == VERIFIED else LINKS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """See `dolma_dask.exchange.Reducer`."""
        return self.edges.reduce(runs, lambda edges: out(to_links(to_words(edges, edges.dtype))))


def to_links(words: Words) -> Records:
    """Return edges (low, high), or with their matches, as links; the smaller end learns its matches by a link with itself."""
    if words.shape[1] == 2:
        return to_records(words[:, ::-1], LINKS)
    return to_records(np.concatenate([words[:, [1, 0, 2]], words[:, [0, 0, 2]]]), VERIFIED_LINKS)


class RangeStep(Protocol):
    """Work of a round on the numbers of a range, which it changes."""

    dtype: ClassVar[np.dtype[Any]]  # of what it sends

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """Take what was sent to a range that begins with document `first`; return further numbers of its documents, by the ending of their file."""
        ...


class Join(Struct, frozen=True):
    """Joins edges in parents, or in labels, which become parents again."""

    is_verified: bool
    dtype: ClassVar[np.dtype[Any]] = LINKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        hanging = kernels.Hanging(numbers, first)
        matches = np.zeros(len(numbers) if self.is_verified else 0, MATCHES)
        for rows in read:
            links = for_kernel(rows)
            out(to_records(hanging.add(links), LINKS))
            if self.is_verified:
                kernels.raise_own_matches(matches, first, links)
        return {".matches": matches} if self.is_verified else {}


class Label(Struct, frozen=True):
    """Makes labels of parents, and asks for the roots of trees that hang outside."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        sizes, asks = np.zeros(len(numbers), np.uint32), np.empty((ASKED, 3), np.uint64)
        bit, node = root_bit(numbers), 0
        kernels.unlabel(numbers, first, bit)
        kernels.settle(numbers, first)
        kernels.count_members(numbers, first, sizes)
        while node < len(numbers):
            end, count = kernels.ask(numbers, first, node, sizes, bit, asks)
            out(to_records(asks[:count], ASKS))
            node = int(end)
        return {}


class Answer(Struct, frozen=True):
    """Answers questions, and counts those who ask into the clusters of their roots."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        for asks in read:
            answers = np.empty_like(asks)
            kernels.answer(numbers, first, root_bit(numbers), for_kernel(asks), answers)
            out(to_records(answers, ASKS))
        return {}


class Follow(Struct, frozen=True):
    """Takes answers, and asks again where they are not the last."""

    dtype: ClassVar[np.dtype[Any]] = ASKS

    def run(
        self, numbers: Labels, first: int, read: Iterable[Words], out: Callable[[Records], None]
    ) -> Mapping[str, Numbers]:
        """See `RangeStep`."""
        open_tops = 0
        for answers in read:
            asks = np.empty_like(answers)
            count = int(kernels.follow(numbers, first, for_kernel(answers), asks))
            out(to_records(asks[:count], ASKS))
            open_tops += count
        if not open_tops:
            kernels.hand_down(numbers, first, root_bit(numbers))
        return {}
