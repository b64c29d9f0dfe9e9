"""How many documents, and how much of the text, the thresholds of each level keep.

Attributes alone are read, of shards that are spread evenly over the dataset: all of a small one, `SHARE_BYTES` of a large one, so that the cost is bounded (2 s).
Text is measured by a column of lengths.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.engine.fold import mask_of, readable_rows
from dolma_dask.errors import DolmaDaskError, UsageError
from dolma_dask.reading.columns import Columns, find_columns
from dolma_dask.reading.lengths import find_length
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.quantile_table import QuantileTable
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.strictness import LEVELS, Strictness
from dolma_dask.rules.tails import Tail
from dolma_dask.rules.thresholds import By, Kind, Thresholds, thresholds_of

SHARE_BYTES = 64 << 20
"""Stored bytes of attributes that are read."""


class KeptShares(Struct, frozen=True):
    """What is asked of the levels of some quantiles."""

    dataset: Dataset  # the shards that the quantiles are of
    level: Strictness  # that was asked for; shown first
    by: By
    kind: Kind
    tails: Mapping[str, Tail]
    where: Rule | None = None  # the documents that the quantiles are of

    def count(self, table: QuantileTable) -> dict[str, Any]:
        """Return documents and text that each level keeps, for the journal; why not, where they cannot be counted."""
        try:
            return self._count(dict(self._levels(table)))
        except DolmaDaskError as error:
            return {"note": str(error)}

    def _levels(self, table: QuantileTable) -> Iterator[tuple[str, Thresholds]]:
        """Yield the levels that there are quantiles for; a document without a value is dropped, whatever mix will do with it."""
        for name in dict.fromkeys([str(self.level), *LEVELS]):
            try:
                yield name, thresholds_of(table, name, self.by, self.kind, self.tails)
            except UsageError:  # of probabilities that were not asked for
                continue

    def _count(self, levels: Mapping[str, Thresholds]) -> dict[str, Any]:
        columns, length = self._columns(levels[str(self.level)])
        works = [columns.work(shard, identities=True) for shard in self.dataset.shards]
        chosen = _spread(works)
        sums = np.zeros((len(levels) + 1, 2))
        for work in chosen:
            for rows in readable_rows(work):
                sums += self._of_rows(rows, list(levels.values()), length)
        kept = [[name, *own] for name, own in zip(["all", *levels], sums.tolist(), strict=True)]
        return {"kept": kept, "length": length, "shards": len(chosen), "shards_of": len(works)}

    def _columns(self, cuts: Thresholds) -> tuple[Columns, str | None]:
        """Return the columns to read, and that of the lengths."""
        names = sorted(cuts.names | (self.where.names if self.where is not None else frozenset()))
        length = find_length(self.dataset, names)
        more = [] if length is None or length in names else [length]
        return find_columns(self.dataset, [*names, *more]), length

    def _of_rows(
        self, rows: pa.RecordBatch, levels: Sequence[Thresholds], length: str | None
    ) -> npt.NDArray[np.float64]:
        """Return documents and units of text (levels + 1, 2): of all, and of those that each level keeps."""
        kept = rows if self.where is None else rows.filter(mask_of(self.where, rows))
        sizes = np.ones(kept.num_rows)
        if length is not None:
            sizes = np.nan_to_num(
                np.asarray(kept.column(length).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
            )
        masks = [np.asarray(mask_of(one, kept).to_numpy(zero_copy_only=False), bool) for one in levels]
        every = np.stack([np.ones(kept.num_rows, bool), *masks])
        return np.stack([every.sum(axis=1), every @ sizes], axis=1).astype(np.float64)


def _spread(works: Sequence[AlignedShard]) -> list[AlignedShard]:
    """Return shards from all over a dataset, of so many bytes together that they are soon read."""
    total = sum(info.bytes for work in works for info in work.files)
    count = len(works) if total <= SHARE_BYTES else max(1, len(works) * SHARE_BYTES // total)
    return [works[number * len(works) // count] for number in range(count)]
