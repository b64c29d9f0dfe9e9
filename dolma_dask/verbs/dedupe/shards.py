"""The work of `dedupe` on shards: keys of all documents into the exchange, and later the flags of each shard.

A record is 24 bytes (32 with a rank); the location of a document is ``shard number << 32 | row``, so that the first of equals is the one that
comes first in the listing, whoever read it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dolma_dask.engine import Unit
from dolma_dask.exchange.contract import Records, key_dtype, keyed, locations
from dolma_dask.exchange.flag_rows import Counts, DocumentEmitter, FlagRows
from dolma_dask.exchange.flags import FlagOutput, FlagSink, FoundRows, Mask
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.digests import keys128, word_keys
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.sinks.sink import ShardFacts
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
class KeyEmitter(DocumentEmitter):
    """Emits the keys of documents."""

    recipe: KeyRecipe

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return self.recipe.dtype

    def records(
        self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]
    ) -> Iterator[Records]:
        """See `DocumentEmitter`."""
        yield self.recipe.records(rows, batch, number, counts)


@dataclass(frozen=True)
class DuplicateOutput(FlagOutput):
    """Flags of duplicates, beside each shard; what came back about documents are `FLAGS`."""

    verb: str = "dedupe"
    largest: Sequence[Sequence[int]] = ()  # clusters to name, as (size, location of the survivor, ...)

    def open(self, unit: Unit, shard: str) -> "DuplicateSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return DuplicateSink(self, unit.name)


@dataclass(frozen=True)
class Marks:
    """Attributes of some rows (n,)."""

    flags: Mask
    sizes: Counts  # of the clusters that rows survive, 0 for the others
    more: Sequence[AttributeColumn] = ()


class DuplicateSink(FlagSink):
    """Writes the flags of one shard; counts duplicates by source, and names the survivors of the largest clusters."""

    def __init__(self, output: DuplicateOutput, path: str) -> None:
        super().__init__(output, path)
        self._largest = output.largest
        self._tally = FlagCounts()
        self._survivors: list[list[Any]] = []

    def write(self, found: FoundRows) -> None:
        """Append rows."""
        marks = self.marks(found)
        self.write_flags(found.rows, marks.flags, marks.more)
        self._tally.add(found.rows, marks.flags, marks.sizes)
        self._survivors.extend(self._survivors_among(found))

    def marks(self, found: FoundRows) -> Marks:
        """Return the attributes of rows; documents of which no record came back are alone."""
        flags, sizes = np.zeros(len(found.rows), np.bool_), np.zeros(len(found.rows), np.int64)
        if found.records is not None:
            sizes[found.at] = found.records["size"]
            flags[found.at] = found.records["size"] == 0
        return Marks(flags, sizes)

    def _survivors_among(self, found: FoundRows) -> Iterator[list[Any]]:
        if found.records is None:
            return
        rows, known = found.rows, found.records["location"]
        for size, location, *others in self._largest:
            place = bisect_left(known, location)
            if place < len(known) and known[place] == location:
                at = int(found.at[place])
                identity = [rows.ids[at].as_py(), rows.sources[at].as_py()]
                yield [size, rows.first + at, *identity, *self.described(size, *others)]

    def described(self, size: int, *sums: int) -> list[Any]:
        """Return what is shown of a cluster besides its survivor."""
        return []

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        self.counts.update(self._tally.counts())
        return super().record(unit, facts, quarantined)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers need to know, and the counts by source and size."""
        return {**super().info(facts), **self._tally.info(), "clusters": self._survivors}
