"""A question in half a page: how many documents each source has.

The example of a fold: it says what is counted in one shard; reading, tasks, workers, progress, failures and the order of the sums are of `fold`.
"""

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from dolma_dask.dataset import open_dataset
from dolma_dask.engine.fold import fold, readable_rows, shards_of
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.reading.reader import AlignedShard


@dataclass(frozen=True)
class CountSources:
    """See `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "sources"

    def start(self) -> Counter[str]:
        return Counter()

    def count(self, shard: AlignedShard) -> Counter[str]:
        return sum((Counter(batch.column("source").to_pylist()) for batch in readable_rows(shard)), Counter())


def sources(root: str, options: RunOptions) -> dict[str, int]:
    """Count the documents of each source."""
    dataset = open_dataset(root)
    columns = find_columns(dataset, ["source"])
    return dict(fold(CountSources(), shards_of(columns), options))
