"""One pass over columns of a dataset: some shards to a task, rows that could be read, whatever is counted in them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, inputs_of
from dolma_dask.reading import AlignedShard, Columns
from dolma_dask.rules.rules import Rule
from dolma_dask.text.columns import validity

MOST_TASKS = 256
"""Results that travel; where there are more shards, several share a task."""


def column_tasks(columns: Columns, shards: Sequence[Shard]) -> list[Task]:
    """Return the work of reading columns of the selected shards, with all digits of their numbers."""
    works = [columns.work(shard, exact=True, identities=True) for shard in shards]
    return few_tasks(columns.dataset.root, works, works)


def few_tasks(root: str, works: Sequence[Any], shards: Sequence[AlignedShard]) -> list[Task]:
    """Return at most `MOST_TASKS` tasks of equally many pieces of work; each piece reads one of `shards`."""
    size = max(-(-len(works) // MOST_TASKS), 1)
    return [
        _task(root, works[start : start + size], shards[start : start + size])
        for start in range(0, len(works), size)
    ]


def _task(root: str, works: Sequence[Any], shards: Sequence[AlignedShard]) -> Task:
    infos = {info.path: info for shard in shards for info in shard.files}
    return Task(shards[0].shard.path, (), inputs_of(root, infos.values()), tuple(works))


def readable_batches(task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the documents that could be read."""
    for work in task.work:
        for block in work.open():
            readable = validity(block.batch.column("id"))
            yield block.batch if readable.all() else block.batch.filter(pa.array(readable))


def mask_of(rule: Rule, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return where a rule over full names holds."""
    columns: Mapping[str, pa.Array] = {name: batch.column(name) for name in rule.names}
    return rule.mask(columns or {"": pa.nulls(batch.num_rows)})
