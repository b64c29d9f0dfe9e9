"""The work of `block` on shards: flags from a list in memory in one pass, or keys into the exchange and flags from its result.

In the exchange the list comes first: its entries have the locations of shards before those of documents, `ENTRIES_PER_SHARD` in each, so that
an entry meets the documents of its key, and entries that nothing matched go back to the list by number.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import ROW_BITS, Records, key_dtype, keyed, locations
from dolma_dask.exchange.flag_rows import DocumentEmitter, FlagRows, document_rows
from dolma_dask.exchange.flags import FlagOutput, FlagSink, FoundRows
from dolma_dask.formats.digests import keys128
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.io.id_keys import contains, entry_keys, list_keys
from dolma_dask.io.id_lists import IdListFile, ListFacts
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.membership import FREE
from dolma_dask.sinks.sink import ShardFacts

ENTRIES_PER_SHARD = 1 << 24
"""Entries of a list that count as one shard of the exchange: 16 million, whose numbers take 128 MB when all are unmatched."""


def entry_shards(facts: ListFacts) -> int:
    """Return how many shards of the exchange belong to a list."""
    return -(-facts.entries // ENTRIES_PER_SHARD)


def entry_locations(first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the locations (count,) of entries from number `first` on."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    shard, row = numbers // np.uint64(ENTRIES_PER_SHARD), numbers % np.uint64(ENTRIES_PER_SHARD)
    return (shard << np.uint64(ROW_BITS)) | row


@dataclass(frozen=True)
class ListedOutput(FlagOutput):
    """Flags of listed documents, beside each shard."""

    verb: str = "block"
    reads: tuple[str, ...] = ("id", "source")
    urls: tuple[str, ...] = ()  # of the list, if it is held in memory

    def open(self, unit: Unit, shard: str) -> "ListedSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return ListedSink(self, unit.name)


class ListedSink(FlagSink):
    """Writes the flags of one shard, and counts the listed documents."""

    def __init__(self, output: ListedOutput, path: str) -> None:
        super().__init__(output, path)
        self.counts.update(listed=0, text_bytes_listed=0)

    def write(self, found: FoundRows) -> None:
        """Append rows; documents are listed of which something was found out, perhaps by two entries."""
        flags = found.mask
        self.write_flags(found.rows, flags)
        self.counts["listed"] += int(flags.sum())
        self.counts["text_bytes_listed"] += int(found.rows.sizes[flags].sum())


class MatchedRows(Struct, frozen=True):
    """Rows of a shard compared with a list in the memory of each process; see `dolma_dask.engine.map.Source`."""

    documents: AlignedShard
    facts: ListFacts

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.documents.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files of the shard."""
        return self.documents.inputs

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[FoundRows]:
        """Yield the rows, and which of them are listed."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        for rows, _ in document_rows(self.documents, policy, quarantine, facts):
            yield FoundRows(rows, np.flatnonzero(contains(keys, rows.sources, rows.ids)))


@dataclass(frozen=True)
class ListEmitter(DocumentEmitter):
    """Reads the list, or shards; see `dolma_dask.exchange.Emitter`."""

    facts: ListFacts

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return key_dtype()

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Emit the keys of a task: of shards (a tuple of `ShardKeys`), or of the list (None)."""
        return self._emit_list(task, out) if task.work is None else super().emit(task, out, folder)

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

    def records(
        self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]
    ) -> Iterator[Records]:
        """Yield the records of documents that can be read: by id, and by source and id, as the list asks."""
        where = locations(number, rows.first, len(rows))
        known = np.asarray(rows.ids.is_valid())
        columns = [(rows.ids,)] * bool(self.facts.bare) + [(rows.sources, rows.ids)] * bool(self.facts.pairs)
        for names in columns:
            yield keyed(keys128(*names), where)[known]


class MatchedEntries(Struct, frozen=True):
    """Finds which entries of a list in memory the flagged documents of a shard match; a stage that only reads."""

    root: str  # of the dataset
    name: str  # of the attribute set
    facts: ListFacts
    verb: str = "block-entries"

    @property
    def urls(self) -> tuple[str, ...]:
        """Files that are read besides the inputs of tasks."""
        return (self.facts.url,)

    def run_shard(self, task: Task) -> "Matches":
        """Return the entries; ``task.work`` is the attribute file's path."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        matched, pairs = [np.empty(0, np.int32)], [np.empty((2, 0), np.uint64)]
        for block in AttributeFile(files.join(self.root, task.work), {self.name: "document"}):
            flagged = block.columns[self.name].is_valid()
            sources = block.sources.filter(flagged)
            for number, entries in enumerate(keys.find(sources, block.ids.filter(flagged))):
                hit = entries != FREE
                matched.append(np.unique(entries[hit]))
                if number == 0 and self.facts.bare and hit.any():
                    pair = np.stack([entries[hit].astype(np.uint64), keys128(sources)[0][hit]])
                    pairs.append(np.unique(pair, axis=1))
        return Matches(np.unique(np.concatenate(matched)), np.unique(np.concatenate(pairs, axis=1), axis=1))


class Matches(Struct, frozen=True):
    """Entries of a list that the flagged documents of a shard match."""

    numbers: npt.NDArray[np.int32]  # (n,) each once, in order
    bare: npt.NDArray[
        np.uint64
    ]  # (2, m) of those without a source: number, and digest of a source whose documents they match


def entries_of_several_sources(entries: int, matches: Iterable[Matches]) -> npt.NDArray[np.int64]:
    """Return the numbers of the entries without a source that match documents of several sources, in order."""
    first, several = np.zeros(entries, np.uint64), np.zeros(entries, np.bool_)
    for each in matches:
        numbers, sources = each.bare[0].astype(np.int64), each.bare[1]
        first[numbers] = np.where(first[numbers] == 0, sources, first[numbers])
        several[numbers[first[numbers] != sources]] = True
    return np.flatnonzero(several)
