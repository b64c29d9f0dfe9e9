"""The work of `dedupe` on shards: keys of all documents into the exchange, and later the flags of each shard.

A record is 24 bytes (32 with a rank); the location of a document is ``shard number << 32 | row``, so that the first of equals is the one that
comes first in the listing, whoever read it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.exchange.contract import ROW_BITS, Records, key_dtype, keyed, locations
from dolma_dask.exchange.flag_rows import (
    FlagRows,
    Mask,
    ShardCursor,
    ShardReading,
    StagedShard,
    emit_shards,
    flag_column,
    flags_record,
    read_staged,
    write_columns,
)
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.digests import keys128, word_keys
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Record
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.choice import Choice, Chosen, value_keys
from dolma_dask.verbs.dedupe.summary import FlagCounts


@dataclass(frozen=True)
class KeyRecipe:
    """Recipe of the record of a document."""

    column: str  # full name of the column; "id" means source and id
    choice: Choice

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return key_dtype() if self.choice.keep == "first" else key_dtype("rank")

    def records(self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]) -> Records:
        """Return the records of those rows of shard `number` that take part and have a key; count those that take no part."""
        chosen = self.choice.of(batch, validity(rows.ids), counts)
        valid, keys = self._keys(batch)
        if chosen.salts is not None:
            keys = word_keys(*keys, chosen.salts)
        ranks = {} if self.choice.keep == "first" else {"rank": _ranks(chosen, rows)}
        records = keyed(keys, locations(number, rows.first, len(rows)), **ranks)
        kept = chosen.kept & valid
        return records if kept.all() else records[kept]

    def _keys(self, batch: pa.RecordBatch) -> tuple[Bools, tuple[Words, Words]]:
        if self.column == "id":
            identity, source = batch.column("id"), batch.column("source")
            return validity(identity), keys128(source, identity)
        return value_keys(batch.column(self.column))


def _ranks(chosen: Chosen, rows: FlagRows) -> Words:
    if chosen.ranks is not None:
        return chosen.ranks
    longest_first: Words = ~rows.lengths.astype(np.uint64)
    return longest_first


@dataclass(frozen=True)
class KeyEmitter:
    """Reads shards once: keys into the exchange, the rest that flags need into staging files; see `dolma_dask.exchange.Emitter`."""

    verb: str
    recipe: KeyRecipe
    policy: RecordPolicy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return self.recipe.dtype

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the shards of a task (a tuple of `ShardKeys`)."""
        readings = (ShardReading(self.verb, shard, self.policy) for shard in task.work)
        return emit_shards(readings, folder, self._records, out)

    def _records(self, rows: FlagRows, batch: pa.RecordBatch, reading: ShardReading) -> Iterator[Records]:
        yield self.recipe.records(rows, batch, reading.shard.number, reading.counts)


@dataclass(frozen=True)
class FlagStage:
    """Writes the flags of each shard; see `dolma_dask.engine.Stage`."""

    root: str  # of the dataset
    name: str  # of the attribute set
    reads: tuple[str, ...]  # document columns that the flags depend on
    folder: str = ""  # of the staging files
    records: ShardRecords | None = None  # output of the reducer
    largest: Sequence[
        Sequence[int]
    ] = ()  # clusters that records name, as (size, location of the survivor, ...)
    verb: str = "dedupe"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard from its staging file; ``task.work`` is its `StagedShard`."""
        staged: StagedShard = task.work
        assert self.records is not None
        cursor = ShardCursor(self.records.chunks_of_shard(staged.number), staged.number)
        tally = FlagCounts()
        named: list[list[Any]] = []

        def flagged() -> Iterator[tuple[FlagRows, list[AttributeColumn]]]:
            for rows in self.rows(staged):
                flags, sizes, columns = self.columns(rows, cursor)
                tally.add(rows, flags, sizes)
                named.extend(self.named(rows, staged.number))
                yield rows, [flag_column(self.name, flags), *columns]

        file = write_columns(self.root, task.units[0].name, flagged())
        info = {**self.described, **tally.info(), "clusters": named}
        return [flags_record(task, staged, file, self.name, self.reads, tally.counts(), info)]

    @property
    def described(self) -> dict[str, Any]:
        """Facts that readers of the attributes need besides the key `name`."""
        return {}

    def rows(self, staged: StagedShard) -> Iterator[FlagRows]:
        """Yield the rows of a shard."""
        return read_staged(self.folder, staged)

    def columns(
        self, rows: FlagRows, cursor: ShardCursor
    ) -> tuple[Mask, npt.NDArray[np.int64], list[AttributeColumn]]:
        """Return what `flags_of` does, and further attributes."""
        return *flags_of(rows, cursor), []

    def named(self, rows: FlagRows, number: int) -> Iterator[list[Any]]:
        """Yield [size, row, id, source, ...] of the survivors of the largest clusters among `rows`."""
        first = (number << ROW_BITS) + rows.first
        for size, location, *others in self.largest:
            if first <= location < first + len(rows):
                at = location - first
                yield [size, rows.first + at, rows.ids[at].as_py(), rows.sources[at].as_py(), *others]


def flags_of(rows: FlagRows, cursor: ShardCursor) -> tuple[Mask, npt.NDArray[np.int64]]:
    """Return for each of `rows` (n,) whether it is a duplicate, and the size of the cluster that it survives, 0 for the others.

    The records are all `FLAGS` of the shard: 16 bytes per document that is not alone.
    """
    found, indices = cursor.among(rows)
    flags, sizes = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.int64)
    if found is not None:
        sizes[indices] = found["size"]
        flags[indices] = found["size"] == 0
    return flags, sizes
