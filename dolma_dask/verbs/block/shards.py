"""The work of `block` on shards: marks from a list in memory in one pass, or keys into the exchange and marks from its result.

In the exchange the list comes first: its entries have the places of shards before those of documents, `ENTRIES_PER_SHARD` in each, so that
an entry meets the documents of its key, and entries that nothing matched go back to the list by number.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.formats.keys import keys128
from dolma_dask.io import files
from dolma_dask.io.attributes import AttributeFile
from dolma_dask.io.id_keys import contains, entry_keys, list_keys
from dolma_dask.io.id_lists import IdListFile, ListFacts
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record
from dolma_dask.rules.membership import FREE
from dolma_dask.verbs.dedupe.survivors import key_dtype
from dolma_dask.verbs.flag_rows import (
    FlagFile,
    FlagRows,
    Mask,
    ShardReading,
    StagedShard,
    flag_info,
    flagged_rows,
)
from dolma_dask.verbs.flagging import ShardKeys
from dolma_dask.verbs.staged_rows import Spool, read_staged

ENTRIES_PER_SHARD = 1 << 24
"""Entries of a list that count as one shard of the exchange: 16 million, whose numbers take 128 MB when all are unmatched."""

READS = ("id", "source")
"""What the marks depend on."""

Records = npt.NDArray[Any]


def entry_shards(facts: ListFacts) -> int:
    """Return how many shards of the exchange belong to a list."""
    return -(-facts.entries // ENTRIES_PER_SHARD)


def entry_places(first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the places (count,) of entries from number `first` on."""
    numbers = np.arange(first, first + count, dtype=np.uint64)
    shard, row = numbers // np.uint64(ENTRIES_PER_SHARD), numbers % np.uint64(ENTRIES_PER_SHARD)
    return (shard << np.uint64(32)) | row


def _keyed(
    keys: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]], places: npt.NDArray[np.uint64]
) -> Records:
    records = np.empty(len(places), key_dtype())
    records["hi"], records["lo"] = keys
    records["location"] = places
    return records


@dataclass(frozen=True)
class ListedRecord:
    """What becomes the record of a shard's marks."""

    name: str

    def record(
        self, task: Task, staged: StagedShard, file: FileRecord, listed: int, listed_bytes: int
    ) -> Record:
        """Return the record of a finished shard."""
        (unit,) = task.units
        return Record(
            unit=unit.name,
            shard=task.shard,
            key=unit.key,
            inputs=staged.inputs,
            files=(file, *staged.quarantined),
            rows=staged.rows,
            ids_digest=staged.ids_digest,
            content_digest=staged.content_digest,
            counts={**staged.counts, "listed": listed, "text_bytes_listed": listed_bytes},
            info={
                **flag_info(self.name, READS),
                "dataset_wide": True,  # the marks are right only beside those of the same list
            },
        )


@dataclass(frozen=True)
class ListedInMemory:
    """Marks shards in one pass, with the list in the memory of each process; see `dolma_dask.engine.Stage`.

    Attributes
    ----------
    root, name : str
        Of the dataset, and of the attribute set.
    facts : ListFacts
        Of the list.
    policy : RecordPolicy
        What happens to bad records.
    """

    root: str
    name: str
    facts: ListFacts
    policy: RecordPolicy
    verb: str = "block"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard; ``task.work`` is its `AlignedShard`."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        reading = ShardReading(self.root, self.verb, task.work, 0, self.policy)
        marks = ((rows, contains(keys, rows.sources, rows.ids)) for rows, _ in reading)
        file, listed, size = write_flags(self.root, self.name, task, marks)
        return [ListedRecord(self.name).record(task, reading.result, file, listed, size)]


def write_flags(
    root: str, name: str, task: Task, marks: Iterable[tuple[FlagRows, Mask]]
) -> tuple[FileRecord, int, int]:
    """Write an attribute file; return it, the marked documents and the bytes of their texts."""
    listed = size = 0
    with FlagFile(root, task.units[0].name, name) as file:
        for rows, marked in marks:
            file.write(rows, marked)
            listed += int(marked.sum())
            size += int(rows.sizes[marked].sum())
    return file.record, listed, size


@dataclass(frozen=True)
class ListEmitter:
    """Reads the list, or shards; see `dolma_dask.exchange.Emitter`.

    Attributes
    ----------
    root : str
        Of the dataset.
    facts : ListFacts
        Of the list.
    policy : RecordPolicy
        What happens to bad records.
    """

    root: str
    facts: ListFacts
    policy: RecordPolicy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the records."""
        return key_dtype()

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Emit the keys of a task: of shards (a tuple of `ShardKeys`), or of the list (None)."""
        if task.work is None:
            return self._emit_list(task, out)
        done = [self._read(item, out, folder) for item in task.work]
        return Emitted(
            inputs=tuple(record for staged in done for record in staged.inputs),
            rows=sum(staged.rows for staged in done),
            info={"shards": [staged.to_json() for staged in done]},
            files=tuple(staged.spool for staged in done if staged.spool),
        )

    def _emit_list(self, task: Task, out: Callable[[Records], None]) -> Emitted:
        file = IdListFile(self.facts.url)
        entries = 0
        for block in file:
            out(_keyed(entry_keys(block), entry_places(entries, len(block))))
            entries += len(block)
        (item,) = task.inputs
        stored = file.stored
        read = InputRecord(item.info.path, stored.info.bytes, stored.info.stamp, stored.checksum)
        return Emitted(inputs=(read,), rows=entries, info={"shards": []})

    def _read(self, item: ShardKeys, out: Callable[[Records], None], folder: str) -> StagedShard:
        reading = ShardReading(self.root, "block", item.work, item.number, self.policy)
        with Spool(folder, item.number) as spool:
            for rows, _ in reading:
                for records in self._records(rows, item.number):
                    out(records)
                spool.write(rows)
        return spool.known(reading.result)

    def _records(self, rows: FlagRows, number: int) -> Iterator[Records]:
        """Yield the records of documents that can be read: by id, and by source and id, as the list asks."""
        places = np.arange(rows.first, rows.first + len(rows), dtype=np.uint64) + np.uint64(number << 32)
        known = np.asarray(rows.ids.is_valid())
        columns = [(rows.ids,)] * bool(self.facts.bare) + [(rows.sources, rows.ids)] * bool(self.facts.pairs)
        for names in columns:
            records = _keyed(keys128(*names), places)[known]
            if len(records):
                yield records


@dataclass(frozen=True)
class ListedByExchange:
    """Writes the marks of shards from spools and the result of an exchange; see `dolma_dask.engine.Stage`.

    Attributes
    ----------
    root, name : str
        Of the dataset, and of the attribute set.
    folder : str
        Of the exchange.
    records : ShardRecords or None
        What its reducer gave out.
    """

    root: str
    name: str
    folder: str
    records: ShardRecords | None
    verb: str = "block"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard; ``task.work`` is its `StagedShard` as JSON."""
        staged = StagedShard.from_json(task.work)
        rows = numbers_of(self.records, staged.number)
        spool = read_staged(self.folder, staged.spool)
        marks = ((part, flagged_rows(part, rows)) for part in spool)
        file, listed, size = write_flags(self.root, self.name, task, marks)
        return [ListedRecord(self.name).record(task, staged, file, listed, size)]


def numbers_of(records: ShardRecords | None, shard: int) -> npt.NDArray[np.int64]:
    """Return the rows of a shard that the exchange gave out, in order; one may stand there twice."""
    if records is None:
        return np.empty(0, np.int64)
    places = records.of_shard(shard)["location"]
    rows: npt.NDArray[np.int64] = np.bitwise_and(places, np.uint64(0xFFFFFFFF)).view(np.int64)
    return rows


@dataclass(frozen=True)
class MatchedEntries:
    """Finds which entries of a list in memory the marked documents of a shard match; a stage that only reads.

    Attributes
    ----------
    root, name : str
        Of the dataset, and of the attribute set.
    facts : ListFacts
        Of the list.
    """

    root: str
    name: str
    facts: ListFacts
    verb: str = "block-entries"

    def run_shard(self, task: Task) -> npt.NDArray[np.int32]:
        """Return the numbers of the entries, each once, in order; ``task.work`` is the attribute file's path."""
        keys = list_keys(self.facts.url, self.facts.checksum)
        matched = [np.empty(0, np.int32)]
        for block in AttributeFile(files.join(self.root, task.work), {self.name: "document"}):
            marked = block.columns[self.name].is_valid()
            for numbers in keys.find(block.sources.filter(marked), block.ids.filter(marked)):
                matched.append(np.unique(numbers[numbers != FREE]))
        return np.unique(np.concatenate(matched))
