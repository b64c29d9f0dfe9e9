"""Windows of a fixed number of tokens, cut out of each shard from its beginning."""

from collections.abc import Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.loaders.index import Int64s, starts_of

if TYPE_CHECKING:
    from dolma_dask.loaders.ragged import RaggedDataset


class Windows(Sequence[NDArray[np.integer[Any]]]):
    """Windows of a dataset; `overlap` is the number of tokens that the next one begins with too."""

    def __init__(self, dataset: "RaggedDataset", length: int, overlap: int = 0) -> None:
        if length < 1:
            raise UsageError(f"windows of {length} tokens; expected 1 or more.")
        self._dataset, self._length, self._overlap = dataset, length, overlap
        counts = [max(shard.tokens - overlap, 0) // length for shard in dataset.shards]
        self._starts = starts_of(counts)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def first_tokens(self, rows: Int64s) -> Int64s:
        """Return where windows begin among the tokens of all shards."""
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        return self._dataset.token_starts[numbers] + (rows - self._starts[numbers]) * self._length

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return list(self._runs(np.arange(*row.indices(len(self)))))
        number = index(row)
        if not -len(self) <= number < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        return next(self._runs(np.array([number % len(self)])))

    def __iter__(self) -> Iterator[NDArray[np.integer[Any]]]:
        for first in range(0, len(self), 1024):
            yield from self._runs(np.arange(first, min(first + 1024, len(self))))

    def _runs(self, rows: Int64s) -> Iterator[NDArray[np.integer[Any]]]:
        sizes = np.full(len(rows), self._length + self._overlap)
        return self._dataset.runs(self.first_tokens(rows), sizes)
