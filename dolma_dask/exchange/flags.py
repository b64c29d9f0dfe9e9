"""Flags of documents as attribute files: a map of the rows of each shard, with what was found out about some of them.

A flag is ``[[0, length, 1]]`` under its key, in code points; other documents have nothing there. The key is the name of the set, unless it was given.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.exchange.contract import ROW_BITS, Records
from dolma_dask.exchange.flag_rows import Counts, FlagRows, StagedShard, read_staged
from dolma_dask.exchange.staged import ShardRecords
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io.files import Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.sinks.attributes import AttributeSink, AttributeWriter
from dolma_dask.sinks.sink import ShardFacts

Mask = npt.NDArray[np.bool_]


class FoundRows(Struct, frozen=True):
    """Consecutive rows of a shard, and what was found out about some of them."""

    rows: FlagRows
    at: Counts  # (m,) index of each of these among the rows
    records: Records | None = None  # (m,) that an exchange has sent back about them; None: there are none

    @property
    def mask(self) -> Mask:
        """The rows of which something was found out (n,)."""
        found = np.zeros(len(self.rows), np.bool_)
        found[self.at] = True
        return found


class ShardCursor:
    """Records of a shard, sorted by location, beside its rows: of all of them, those at hand are in memory."""

    def __init__(self, records: ShardRecords, number: int) -> None:
        self._chunks, self._number = records.chunks_of_shard(number), number
        self._held: Records | None = next(self._chunks, None)

    @property
    def is_done(self) -> bool:
        """True if no records are left."""
        return self._held is None

    def beside(self, rows: FlagRows) -> FoundRows:
        """Return rows, which come after those of the last call, with the records about them."""
        return FoundRows(rows, *self.between(rows.first, len(rows)))

    def between(self, first: int, count: int) -> tuple[Counts, Records | None]:
        """Return the records of `count` places of the shard from `first` on, and the index of each; they come after those of the last call."""
        first += self._number << ROW_BITS
        parts = list(self._until(first + count))
        if not parts:
            return np.empty(0, np.int64), None
        inside = np.concatenate(parts)
        return (inside["location"] - np.uint64(first)).astype(np.int64), inside

    def _until(self, end: int) -> Iterator[Records]:
        while self._held is not None:
            # NumPy would copy all locations to search them
            stop = bisect_left(self._held["location"], end)
            if stop:
                yield self._held[:stop]
            if stop < len(self._held):
                self._held = self._held[stop:]
                return
            self._held = next(self._chunks, None)


class StagedSource(Struct, frozen=True):
    """Rows of a shard that an earlier pass has read, with the records that an exchange has sent back; see `dolma_dask.engine.map.Source`."""

    staged: StagedShard
    folder: str  # of the staging file
    records: ShardRecords
    inputs: tuple[Input, ...]  # that were read

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.staged.record.shard

    def rows(self) -> Iterator[FlagRows]:
        """Yield the rows as they were staged."""
        return read_staged(self.folder, self.staged)

    def found(self, cursor: ShardCursor) -> Iterator[Any]:
        """Yield the rows with the records about them."""
        return map(cursor.beside, self.rows())

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[Any]:
        """Yield the rows with what is known of them; facts and bad records are those of the pass that has read them."""
        yield from self.found(ShardCursor(self.records, self.staged.number))
        known = self.staged.record
        quarantine.adopt(known.files)
        facts.inputs, facts.counts, facts.info = known.inputs, known.counts, known.info
        facts.ids_digest, facts.content_digest = known.ids_digest, known.content_digest
        facts.seconds = known.seconds


@dataclass(frozen=True)
class FlagOutput:
    """Flags of all documents, beside each shard; see `dolma_dask.sinks.sink.Output`."""

    root: str  # of the dataset
    flag: str  # its key
    reads: tuple[str, ...]  # document columns that the flags depend on
    verb: str
    columns: ClassVar[tuple[str, ...]] = ()  # besides those of the source


class FlagSink(AttributeSink):
    """Base of sinks that write the flags of one shard."""

    def __init__(self, output: FlagOutput, path: str) -> None:
        super().__init__(AttributeWriter(output.root, path))
        self._flag, self._reads = output.flag, output.reads

    def write_flags(self, rows: FlagRows, flags: Mask, more: Iterable[AttributeColumn] = ()) -> None:
        """Append rows with their flags (n,) and further attributes."""
        columns = [flag_column(self._flag, flags), *more]
        self.writer.write(rows.ids, rows.sources, rows.lengths, columns, rows.errors)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers need to know: flags are right only beside those of the same key."""
        return {"reads": sorted(self._reads), "kinds": {self._flag: "document"}, "dataset_wide": True}


def flag_column(key: str, flags: Mask) -> AttributeColumn:
    """Return flags (n,) as an attribute: 1 where true, nothing elsewhere."""
    return AttributeColumn(key, "document", pa.array(np.ones(len(flags)), mask=~flags), whole=True)
