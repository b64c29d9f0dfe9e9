"""Places of documents among the tokens of their shard: a mark every 1,024 documents for a whole corpus, and sums of lengths between two marks.

The marks of 365 million documents are 3 MB, where all places would be 3 GB. They are made of the lengths when a document is first asked for by its number,
and lie in the user's cache then.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.io.user_cache import cached
from dolma_dask.loaders.shards import CACHE, ShardTable
from dolma_dask.text.kernels import kernel

STEP = 1024
"""Documents between two marks; a power of two."""

Int64s = NDArray[np.int64]


class Marks(Struct, frozen=True):
    """First tokens of every `STEP`-th document of each shard."""

    first: Int64s  # (n_shards + 1,) number of the first mark of each shard
    tokens: Int64s  # (n_marks,) counted in the shard

    def of(self, number: int) -> Int64s:
        """Return the marks of a shard."""
        return self.tokens[self.first[number] : self.first[number + 1]]

    @classmethod
    def find(cls, table: ShardTable) -> "Marks":
        """Return the marks of all shards; raises what `TokenShard.offsets` does."""
        counts = [-(-shard.documents // STEP) for shard in table.shards]

        def write(out: Any) -> None:
            for shard in table.shards:
                out.write(np.ascontiguousarray(shard.offsets()[:-1:STEP]))

        content = cached(CACHE, f"{table.key}.marks", write, is_kept=table.is_settled)
        return cls(starts_of(counts), content.view(np.int64))


def starts_of(counts: Sequence[int]) -> Int64s:
    """Return where each of some groups begins, one behind another, and the end of the last."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def places(lengths: NDArray[np.integer[Any]], marks: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first token of documents of a shard, and the one behind their last; cheapest in their order."""
    starts, stops = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    _find_places(lengths, marks, rows, starts, stops)
    return starts, stops


@kernel
def _find_places(lengths, marks, rows, starts, stops):  # type: ignore[no-untyped-def]
    document, token = -STEP, np.int64(0)
    for at in range(len(rows)):
        row = rows[at]
        if row < document or row // STEP != document // STEP:
            document = row // STEP * STEP
            token = marks[row // STEP]
        for number in range(document, row):
            token += np.int64(lengths[number])
        starts[at] = token
        document, token = row + 1, token + np.int64(lengths[row])
        stops[at] = token


@kernel
def find_document(lengths, marks, token, extra, found):  # type: ignore[no-untyped-def]
    """Write into `found` the document that holds a token, and the first token of it; each document has `extra` tokens behind its own."""
    low, high = 0, len(marks)
    while high - low > 1:
        middle = (low + high) // 2
        if marks[middle] + extra * middle * STEP <= token:
            low = middle
        else:
            high = middle
    document = low * STEP
    start = marks[low] + extra * document
    while start + np.int64(lengths[document]) + extra <= token:
        start += np.int64(lengths[document]) + extra
        document += 1
    found[0], found[1] = document, start
