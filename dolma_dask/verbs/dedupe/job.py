"""The job of `dedupe` by equal values: keys of all shards through an exchange, then the flags of every shard.

The flags of a shard depend on all shards, so their key holds the checksums of all inputs, which the dataset-wide record of the last run knows,
or else the exchange. When everything is finished, nothing is started. Several datasets are several jobs of one run (`dolma_dask.exchange.job`).
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.dataset import Shard
from dolma_dask.display import counted
from dolma_dask.engine import Plan, Ran, Step, Unit, WorkDir
from dolma_dask.exchange import Emitter, Reducer
from dolma_dask.exchange.contract import Records, key_dtype, keyed, locations, to_records, to_words
from dolma_dask.exchange.flag_rows import DocumentEmitter, FlagRows
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.exchange.job import Exchange, Found
from dolma_dask.formats.digests import keys128, word_keys
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.reading.together import COMPARED
from dolma_dask.text.columns import for_kernel, validity
from dolma_dask.text.kernels import Bools, Int, Words, kernel
from dolma_dask.verbs.dedupe.bloom.filters import Seen
from dolma_dask.verbs.dedupe.bloom.pieces import (
    FilteredFound,
    FoundReducer,
    Ordered,
    exchange_with_filter,
    head_in,
)
from dolma_dask.verbs.dedupe.bloom.toolkit import NOTHING_FOUND, ToolkitFilter
from dolma_dask.verbs.dedupe.choice import Choice, Chosen, still_kept, value_keys
from dolma_dask.verbs.dedupe.flags import (
    FLAGS,
    DuplicateOutput,
    largest_clusters,
    largest_of,
    largest_survivors,
)
from dolma_dask.verbs.dedupe.short import ANY, Least
from dolma_dask.verbs.dedupe.summary import DedupeSummary, summarize

VERSION = 3
"""Raised whenever other documents are flagged, or in another way, for the same input and arguments."""

_STATE = 4  # key (two words), location of the survivor, size; a size of 0 means that no cluster is open

Outcome = TypeVar("Outcome", bound=DedupeSummary)

_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass(frozen=True)
class KeyEmitter(DocumentEmitter):
    """Emits the keys of documents: 24 bytes, or 32 with a rank.

    The location of a document is ``shard number << 32 | row``, so that the first of equals is the one that comes first in the listing, whoever read it.
    """

    column: str  # full name of the column; "id" means source and id
    choice: Choice
    seen: Seen | None = None  # only documents whose keys are in it have records
    least: Least = ANY  # of what is compared
    cost: ClassVar[str] = "dedupe"

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return key_dtype() if self.choice.keep == "first" else key_dtype("rank")

    def records(
        self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]
    ) -> Iterator[Records]:
        """Yield the records of the rows that take part and have a key; count those that take no part."""
        chosen = self.choice.of(batch, validity(rows.ids), counts)
        valid, keys = self._keys(batch)
        if chosen.salts is not None:
            keys = word_keys(*keys, chosen.salts)
        ranks = {} if self.choice.keep == "first" else {"rank": ranks_of(chosen, rows)}
        records = keyed(keys, locations(number, rows.first, len(rows)), **ranks)
        kept = chosen.kept & valid
        if self.least != ANY:
            kept = still_kept(
                kept, self.least.met_by(batch.column(self.column)), "documents_excluded", counts
            )
        if self.seen is not None:
            kept &= self.seen.contains(keys, batch.column(self.column))
        yield records if kept.all() else records[kept]

    def _keys(self, batch: pa.RecordBatch) -> tuple[Bools, tuple[Words, Words]]:
        if self.column == "id":
            identity, source = batch.column("id"), batch.column("source")
            return validity(identity), keys128(source, identity)
        return value_keys(batch.column(self.column))


def ranks_of(chosen: Chosen, rows: FlagRows) -> Words:
    """Return what decides who survives among equals: the lowest; by default the longest text."""
    if chosen.ranks is not None:
        return chosen.ranks
    longest_first: Words = ~rows.lengths.astype(np.uint64)
    return longest_first


@kernel
def flag_clusters(records: Words, state: Words, out: Words) -> Int:
    """Go on with sorted records, (n, words); write (location, size) of documents that are not alone as soon as they are known.

    `state` (`_STATE`,) is all 0 at the start. Returns how many rows of `out`, (n + 1, 2), are filled.
    """
    written = 0
    last = records.shape[1] - 1
    for i in range(records.shape[0]):
        if state[3] > 0 and records[i, 0] == state[0] and records[i, 1] == state[1]:
            state[3] += np.uint64(1)
            out[written, 0] = records[i, last]
            out[written, 1] = np.uint64(0)
            written += 1
            continue
        if state[3] > 1:
            out[written, 0] = state[2]
            out[written, 1] = state[3]
            written += 1
        state[0] = records[i, 0]
        state[1] = records[i, 1]
        state[2] = records[i, last]
        state[3] = np.uint64(1)
    return written


class SurvivorReducer(Struct, frozen=True):
    """Reduces sorted records to `FLAGS`; the exchange calls it once per range of keys."""

    only_shared: ClassVar[bool] = True

    dtype: np.dtype[Any] = FLAGS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the flags of a range, from runs that are sorted by all fields; the records of one key may go on in the next run.

        Returns ``largest``: up to `LARGEST` clusters as [size, location of the survivor].
        """
        state = np.zeros(_STATE, np.uint64)
        largest: list[list[int]] = []
        for run in runs:
            flags = np.empty((len(run) + 1, 2), np.uint64)
            count = flag_clusters(for_kernel(to_words(run, run.dtype)), state, flags)
            largest = _give(flags[:count], largest, out)
        if state[3] > 1:
            largest = _give(state[2:].reshape(1, 2), largest, out)
        return {"largest": largest}


def _give(flags: Words, largest: list[list[int]], out: Callable[[Records], None]) -> list[list[int]]:
    """Give out flags, and return the largest clusters with those among them."""
    out(to_records(flags, FLAGS))
    return largest_of([*largest, *largest_survivors(flags[flags[:, 1] > 0])])


@dataclass(frozen=True, kw_only=True)
class Deduplication(Exchange):
    """A call of `dedupe` for one dataset, with everything that decides its result."""

    choice: Choice
    own_key: str | None = None  # of the flags; None: the name of the set
    compared: frozenset[str] | None = None  # paths of the shards whose documents take part; None: all
    ordered: Ordered | None = None  # the filter to write
    seen: Seen | None = None  # a filter that says what is flagged; None: other documents do

    verb = "dedupe"
    version = VERSION

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        compared = None if self.compared is None else sorted(self.compared)
        more: dict[str, Any] = {"compared": compared, "flag": self.own_key}
        more |= {"bloom": None if self.ordered is None else self.ordered.params()}
        more |= {"seen": None if self.seen is None else asdict(self.seen.head)}
        own = {name: value for name, value in more.items() if value is not None}
        return {**super().requested, **self.choice.params(), **own}

    @property
    def flag(self) -> str:
        """Key of the flags."""
        return self.own_key or self.name

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of the flags, all of them to be made where the filter is not; refuse a file in its place that this set has not made."""
        if self.ordered is None or self.number > 0:
            return super().outputs(known, overwrite)
        of_old = Journal(self.root, self.verb).records.get(dataset_unit(self.name))
        is_there = self.ordered.check_place(of_old.info if of_old else {}, known, overwrite=overwrite)
        return super().outputs(known if is_there else None, overwrite)

    def exchanged(self, work: WorkDir, emitter: Emitter, reducer: Reducer) -> Generator[Step, Any, Found]:
        """See `Exchange`; with a filter of all keys, if one was ordered, or with all that one has found."""
        if self.seen is not None:
            return (yield from super().exchanged(work, emitter, FoundReducer()))
        if self.ordered is None:
            return (yield from super().exchanged(work, emitter, reducer))
        exchanged, join = yield from exchange_with_filter(
            work, emitter, self.tasks(), reducer, self.shard_count, self.ordered
        )
        return FilteredFound.of(self.found(work, exchanged), join, self.ordered.file)

    def announce(self, key: str, found: Found) -> Generator[Step, Any, None]:
        """Say which flags hold, and which filter is beside them; then write it."""
        if isinstance(found, FilteredFound):
            found.join.check()
        yield from super().announce(key, found)
        if isinstance(found, FilteredFound):
            yield found.join.step()

    def dataset_record(
        self, unit: Unit, inputs: Sequence[InputRecord] = (), made: Sequence[FileRecord] = (), **info: Any
    ) -> Record:
        """See `Exchange`."""
        part = {} if self.compared is None else {COMPARED: self._part}
        return super().dataset_record(unit, inputs, made, **part, **info)

    @property
    def _part(self) -> str:
        return f"{len(self.compared or ()):,} of {counted(len(self.dataset.shards), 'shard')}"

    def takes_part(self, shard: Shard) -> bool:
        """See `Exchange`."""
        return self.compared is None or shard.path in self.compared

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """Return the summary, with the tables that the records of all shards make."""
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return self._told(summarize(ran.summary, tuple(ran.records.values()), listing), known)

    def needs(self) -> tuple[str, ...]:
        """Return notes about the memory and disk that the call takes, for a rehearsal."""
        return ()

    def _told(self, summary: Outcome, known: Record | None) -> Outcome:
        """Return a summary with what it says of filters, and of shards that were left out."""
        head = head_in(known.info if known else {}) if self.seen is None else self.seen.head
        if head is not None and (self.ordered or self.seen):
            summary = replace(summary, bloom=head)
        if isinstance(self.seen, ToolkitFilter) and not summary.counts.get("duplicates", 1):
            summary = replace(summary, notes=(*summary.notes, NOTHING_FOUND))
        if self.compared is None:
            return summary
        return replace(
            summary, notes=(*summary.notes, f"documents of {self._part} were compared; all others are kept")
        )


@dataclass(frozen=True, kw_only=True)
class ExactDeduplication(Deduplication):
    """Documents are duplicates if they are equal in something."""

    column: str  # full name of the column; "id" means source and id
    least: Least = ANY  # of what is compared

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        return {**super().requested, "column": self.column, **self.least.params()}

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """See `Exchange`."""
        emitter = KeyEmitter(self.policy, self.verb, self.column, self.choice, self.seen, self.least)
        return (yield from self.exchanged(work, emitter, SurvivorReducer()))

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> DuplicateOutput:
        """See `Exchange`."""
        return DuplicateOutput(self.root, self.flag, reads=self.reads, largest=largest_clusters(infos))

    @property
    def reads(self) -> tuple[str, ...]:
        """Document columns that the flags depend on; attributes may be made of the text."""
        by = ("id", "source") if self.column == "id" else (self.column,)
        longest = ("text",) if self.choice.keep == "longest" else ()
        return document_columns((*by, *longest, *self.choice.names))


def document_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the document columns behind columns: themselves, the metadata, or the text, of which attributes may be made."""
    return tuple(sorted(set(map(_document_column, columns))))


def _document_column(column: str) -> str:
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
