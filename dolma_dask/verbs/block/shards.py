"""The work of `block` on shards: flags from a list in memory in one pass, or keys into the exchange and flags from its result.

In the exchange the list comes first: its entries have the locations of shards before those of documents, `ENTRIES_PER_SHARD` in each, so that
an entry meets the documents of its key, and entries that nothing matched go back to the list by number.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
    ShardKeys,
    ShardReading,
    StagedShard,
    emit_shards,
    flags_record,
    read_staged,
    write_flags,
)
from dolma_dask.formats.digests import keys128
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.io.id_keys import contains, entry_keys, list_keys
from dolma_dask.io.id_lists import IdListFile, ListFacts
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Record
from dolma_dask.rules.membership import FREE

ENTRIES_PER_SHARD = 1 << 24
"""Entries of a list that count as one shard of the exchange: 16 million, whose numbers take 128 MB when all are unmatched."""

READS = ("id", "source")
"""Document columns that the flags depend on."""


def entry_shards(facts: ListFacts) -> int:
    """Return how many shards of the exchange belong to a list."""
    return -(-facts.entries // ENTRIES_PER_SHARD)


def entry_locations(first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the locations (count,) of entries from number `first` on."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    shard, row = numbers // np.uint64(ENTRIES_PER_SHARD), numbers % np.uint64(ENTRIES_PER_SHARD)
    return (shard << np.uint64(ROW_BITS)) | row


def _write(
    root: str,
    name: str,
    task: Task,
    blocks: Iterable[tuple[FlagRows, Mask]],
    staged: Callable[[], StagedShard],
) -> list[Record]:
    """Write the attribute file of a shard with flags of listed documents; `staged` is called after the last block."""
    counts = {"listed": 0, "text_bytes_listed": 0}

    def counted() -> Iterator[tuple[FlagRows, Mask]]:
        for rows, flags in blocks:
            counts["listed"] += int(flags.sum())
            counts["text_bytes_listed"] += int(rows.sizes[flags].sum())
            yield rows, flags

    file = write_flags(root, task.units[0].name, name, counted())
    return [flags_record(task, staged(), file, name, READS, counts, {})]


@dataclass(frozen=True)
class ListedInMemory:
    """Flags shards in one pass, with the list in the memory of each process; see `dolma_dask.engine.Stage`."""

    root: str  # of the dataset
    name: str  # of the attribute set
    facts: ListFacts
    policy: RecordPolicy
    verb: str = "block"

    @property
    def urls(self) -> tuple[str, ...]:
        """Files that are read besides the inputs of tasks."""
        return (self.facts.url,)

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard; ``task.work`` is its `AlignedShard`."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        reading = ShardReading(self.verb, ShardKeys(0, task.work), self.policy)
        blocks = ((rows, contains(keys, rows.sources, rows.ids)) for rows, _ in reading)
        return _write(self.root, self.name, task, blocks, lambda: reading.result)


@dataclass(frozen=True)
class ListEmitter:
    """Reads the list, or shards; see `dolma_dask.exchange.Emitter`."""

    facts: ListFacts
    policy: RecordPolicy
    dtype: np.dtype[Any] = field(default=key_dtype())

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Emit the keys of a task: of shards (a tuple of `ShardKeys`), or of the list (None)."""
        if task.work is None:
            return self._emit_list(task, out)
        readings = (ShardReading("block", shard, self.policy) for shard in task.work)
        return emit_shards(readings, folder, self._records, out)

    def _emit_list(self, task: Task, out: Callable[[Records], None]) -> Emitted:
        file = IdListFile(self.facts.url)
        entries = 0
        for block in file:
            out(keyed(entry_keys(block), entry_locations(entries, len(block))))
            entries += len(block)
        (item,) = task.inputs
        stored = file.stored
        read = stored.record(item.info.path)
        return Emitted(inputs=(read,), rows=entries, info={"shards": []})

    def _records(self, rows: FlagRows, _: pa.RecordBatch, reading: ShardReading) -> Iterator[Records]:
        """Yield the records of documents that can be read: by id, and by source and id, as the list asks."""
        where = locations(reading.shard.number, rows.first, len(rows))
        known = np.asarray(rows.ids.is_valid())
        columns = [(rows.ids,)] * bool(self.facts.bare) + [(rows.sources, rows.ids)] * bool(self.facts.pairs)
        for names in columns:
            yield keyed(keys128(*names), where)[known]


@dataclass(frozen=True)
class ListedByExchange:
    """Writes the flags of shards from staging files and the result of an exchange; see `dolma_dask.engine.Stage`."""

    root: str  # of the dataset
    name: str  # of the attribute set
    folder: str  # of the staging files
    records: ShardRecords | None  # output of the reducer
    verb: str = "block"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard; ``task.work`` is its `StagedShard`."""
        staged: StagedShard = task.work
        assert self.records is not None
        listed = ShardCursor(self.records.chunks_of_shard(staged.number), staged.number)

        def flagged() -> Iterator[tuple[FlagRows, Mask]]:
            for rows in read_staged(self.folder, staged):
                flags = np.zeros(len(rows), np.bool_)
                flags[listed.among(rows)[1]] = True
                yield rows, flags

        return _write(self.root, self.name, task, flagged(), lambda: staged)


@dataclass(frozen=True)
class MatchedEntries:
    """Finds which entries of a list in memory the flagged documents of a shard match; a stage that only reads."""

    root: str  # of the dataset
    name: str  # of the attribute set
    facts: ListFacts
    verb: str = "block-entries"

    @property
    def urls(self) -> tuple[str, ...]:
        """Files that are read besides the inputs of tasks."""
        return (self.facts.url,)

    def run_shard(self, task: Task) -> npt.NDArray[np.int32]:
        """Return the numbers of the entries, each once, in order; ``task.work`` is the attribute file's path."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        matched = [np.empty(0, np.int32)]
        for block in AttributeFile(files.join(self.root, task.work), {self.name: "document"}):
            flagged = block.columns[self.name].is_valid()
            for numbers in keys.find(block.sources.filter(flagged), block.ids.filter(flagged)):
                matched.append(np.unique(numbers[numbers != FREE]))
        return np.unique(np.concatenate(matched))
