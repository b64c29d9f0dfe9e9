"""Deduplication with an index, and how documents with equal values meet it: keys of a new dataset meet those of the index, and what is kept is appended.

The keys of the index are read with those of the dataset, range by range, in order (`dolma_dask.exchange.kept`): 24 bytes for each document that it holds. Of
documents that are equal the one in the index survives, whatever `keep` says of new ones.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Gather, Step, Task, WorkDir
from dolma_dask.exchange import Exchanged, ShardRecords
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.contract import ROW_BITS, Records, key_dtype, to_records, to_words
from dolma_dask.exchange.flag_rows import FlagRows
from dolma_dask.exchange.job import Found
from dolma_dask.exchange.kept import KeepStage, Kept, keep_tasks, kept
from dolma_dask.exchange.passes import by_shard, reduce, scatter
from dolma_dask.exchange.staged import Staged
from dolma_dask.formats import layout
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.options.records import budget
from dolma_dask.reading.indexes import FORMAT
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.flags import largest_of, largest_survivors
from dolma_dask.verbs.dedupe.fuzzy.clusters import NOWHERE
from dolma_dask.verbs.dedupe.index.kernels import flag_known
from dolma_dask.verbs.dedupe.index.merges import MergeTable
from dolma_dask.verbs.dedupe.index.own_segment import index_for, shards_of
from dolma_dask.verbs.dedupe.index.segments import (
    OTHER_OPTIONS,
    SHARDS,
    Index,
    Segment,
    check_replaceable,
    clear,
    commit,
    draft,
    prepare,
    write_small,
)
from dolma_dask.verbs.dedupe.job import VERSION, Deduplication, ExactDeduplication, KeyEmitter
from dolma_dask.verbs.dedupe.options import DedupeOptions

OLD_FLAGS = np.dtype([("location", "<u8"), ("size", "<u8"), ("old", "<u8")])
"""`FLAGS` of a document, and the location of its survivor in the index; `NOWHERE` where that is of the same dataset."""

_NAMES = ("name", "flag", "index")
"""What was requested and does not decide what a segment holds."""


@dataclass(frozen=True, kw_only=True)
class Indexed(Deduplication):
    """A call of `dedupe` with an index."""

    index: Index

    @property
    def index_params(self) -> dict[str, Any]:
        """Parameters that all datasets of an index have in common."""
        within = self.choice.within
        return {
            "within": within,
            "kind of within": None if within is None else self.columns.kinds[within],
        }

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        return {**super().requested, "index": [one.id for one in self.index.before]}

    @property
    def chosen(self) -> str:
        """Digest of all options that decide what is kept, besides the parameters of the index."""
        decides = {name: value for name, value in super().requested.items() if name not in _NAMES}
        return work_key("segment", FORMAT, decides)

    def check(self) -> None:
        """Refuse what cannot be compared, or appended, before anything is read."""
        self.index.check(self.index_params)
        own = self.index.own
        if own is None:
            return
        if own.chosen != self.chosen:
            check_replaceable(self.index, OTHER_OPTIONS)
        is_read = not self.index.overwrite and not self.index.damage(own)
        listing = [(shard.path, shard.bytes) for shard in self.dataset.shards]
        if is_read and [one[:2] for one in shards_of(self.index, own).listing()] != listing:
            check_replaceable(self.index)

    def known_key(self, known: Record) -> str:
        """Return the key of the flags that hold; nothing if the index has not the segment that was made with them."""
        own = self.index.own
        is_there = own is not None and own.id == known.info.get("segment") and not self.index.damage(own)
        return super().known_key(known) if is_there else ""

    def draft(self, found: Found) -> Segment:
        """Return the segment of the documents that were read."""
        before = [one.id for one in self.index.before]
        content = [[item.path, item.checksum] for item in found.read[0]]
        params = {"chosen": self.chosen, "before": before, "content": content, "index": self.index_params}
        one = work_key("segment", FORMAT, params)[:16]
        known = {"chosen": self.chosen, "shards": len(self.dataset.shards), "documents": rows_of(found)[0]}
        return draft(self.index, one, self.index_params, **known)

    def put(
        self, found: Found, append: Callable[[Segment], Generator[Step, Any, None]]
    ) -> Generator[Step, Any, Found]:
        """Append the segment of a dataset, unless the index has it, or so many rows are bad that the run fails; returns what readers of the flags have to know."""
        rows, bad = rows_of(found)
        if bad > budget(self.policy) * (rows + bad):
            return found
        segment = self.draft(found)
        if not self.has(segment):
            yield lambda options: prepare(self.index, segment)
            yield from append(segment)
        return replace(found, info={**found.info, "segment": segment.id})

    def appended(
        self,
        found: Found,
        segment: Segment,
        keys: Staged,
        more: Sequence[FileRecord] = (),
        merges: Callable[[MergeTable], MergeTable] = lambda table: table,
    ) -> Generator[Step, Any, None]:
        """Write the rest of a segment, and let it count; `merges` may put another table in the place of that of locations."""
        root = self.index.root
        checksums = {item.path: item.checksum for item in found.read[0]}
        listing = msgspec.json.encode(
            [
                (shard.path, shard.bytes, checksums[layout.document_path(shard.path)])
                for shard in self.dataset.shards
            ]
        )
        shards = yield lambda options: write_small(root, f"{segment.path}/{SHARDS}", listing)
        segment = replace(segment, files=(shards, *more))
        table = merges(self._table(segment, found.records))
        ((merged, known, known_in),) = yield Gather(table, [Task("merges", (), ())])
        stage = KeepStage(keys.without_records, root, "dedupe-index")
        parts = yield Gather(stage, keep_tasks(keys, f"{segment.path}/keys"))
        made = (*segment.files, merged)
        segment = replace(segment, keys=tuple(parts), files=made, known=known, known_in=known_in)
        yield lambda options: commit(self.index, segment)

    def has(self, segment: Segment) -> bool:
        """Tell whether the index has a segment, and need not get it again."""
        own = self.index.own
        is_there = own is not None and own.id == segment.id and not self.index.damage(own)
        return is_there and not self.index.overwrite

    def _table(self, segment: Segment, records: ShardRecords) -> MergeTable:
        """Return the stage that writes the table of merges."""
        tables = tuple(shards_of(self.index, one) for one in (*self.index.before, segment))
        return MergeTable(self.index.root, f"{segment.path}/merges.parquet", records, tables)


def rows_of(found: Found) -> tuple[int, int]:
    """Return how many documents were read, and how many rows are bad."""
    records = [one.staged.record for one in found.sources[0].values()]
    bad = int(sum(record.counts.get("bad_records", 0) for record in records))
    return sum(record.rows for record in records) - bad, bad


# ------------------------------------------------------------------------------------------------ equal values


@dataclass(frozen=True, kw_only=True)
class NewKeys(KeyEmitter):
    """Emits keys as `KeyEmitter` does, with the locations that the documents have in the index."""

    first: int  # number of the first shard

    def records(self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Any) -> Iterator[Records]:
        """See `KeyEmitter`."""
        yield from super().records(rows, batch, self.first + number, counts)


class KnownReducer(Struct, frozen=True):
    """Reduces sorted records to `OLD_FLAGS`, and to the keys of new documents that survive; see `dolma_dask.exchange.contract.ForkingReducer`."""

    first: int  # location of the first new document
    dtype: np.dtype[Any] = OLD_FLAGS
    beside: np.dtype[Any] = key_dtype()

    def reduce(
        self, runs: Iterable[Records], out: Callable[[Records], None], beside: Callable[[Records], None]
    ) -> dict[str, Any]:
        """Give out the flags of a range; returns ``largest`` as `SurvivorReducer` does."""
        state = np.zeros(4, np.uint64)
        first, largest = np.uint64(self.first), list[list[int]]()
        for run in runs:
            flags, kept_ = np.empty((len(run) + 1, 3), np.uint64), np.empty((len(run), 3), np.uint64)
            words = for_kernel(to_words(run, run.dtype))
            count, survivors = flag_known(words, first, state, flags, kept_)
            beside(to_records(kept_[:survivors], self.beside))
            largest = self._give(flags[:count], largest, out)
        if state[3] > 1 and state[2] >= first:
            last = np.array([[state[2] - first, state[3], NOWHERE]], np.uint64)
            largest = self._give(last, largest, out)
        return {"largest": largest}

    def _give(
        self, flags: Words, largest: list[list[int]], out: Callable[[Records], None]
    ) -> list[list[int]]:
        out(to_records(flags, self.dtype))
        survivors = np.ascontiguousarray(flags[flags[:, 1] > 0, :2])
        return largest_of([*largest, *largest_survivors(survivors)])


@dataclass(frozen=True, kw_only=True)
class IndexedExact(Indexed, ExactDeduplication):
    """Documents are duplicates if they are equal in something, or equal one of the index."""

    @property
    def index_params(self) -> dict[str, Any]:
        """See `Indexed`."""
        kind = self.columns.kinds[self.column]
        return {"how": "exact", "version": VERSION, "by": self.column, "kind": kind, **super().index_params}

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """See `Exchange`."""
        first = self.index.first_shard
        emitter = NewKeys(self.policy, self.verb, self.column, self.choice, least=self.least, first=first)
        new = yield from scatter(work, emitter, self.tasks())
        reducer = KnownReducer(first << ROW_BITS)
        every = replace(new, others=tuple(self._old(new)))
        reduced = yield from reduce(work, reducer, every, cut=of_shards(self.shard_count))
        assert reduced.staged is not None, "the reducer gives out records"
        assert reduced.beside is not None, "the reducer gives out the keys that are kept"
        records = yield from by_shard(work, reduced.staged)
        found = self.found(work, Exchanged(reduced.infos, new.emitted, records))
        keys = reduced.beside

        def append(segment: Segment) -> Generator[Step, Any, None]:
            return self.appended(found, replace(segment, kept=keys.all.records), keys)

        return (yield from self.put(found, append))

    def _old(self, new: Staged) -> Iterator[Kept]:
        """Yield the keys of the segments that this dataset is compared with."""
        for one in self.index.before:
            yield kept(self.index.root, one.keys, new.dtype, key_dtype(), self.index.hint(one))


# ------------------------------------------------------------------------------------------------ a call


def indexed(job: Deduplication, options: DedupeOptions) -> Indexed:
    """Return a job with the index that was requested.

    Raises `UsageError`: the index has other parameters, or the dataset has changed since it has its documents.
    """
    assert options.index is not None
    index = index_for(options.index, job.dataset, overwrite=options.overwrite)
    known: dict[str, Any] = {one.name: getattr(job, one.name) for one in fields(job)}
    if isinstance(job, ExactDeduplication):
        made: Indexed = IndexedExact(**known, index=index)
    else:
        from dolma_dask.verbs.dedupe.index.fuzzy import IndexedFuzzy

        made = IndexedFuzzy(**known, index=index)
    made.check()
    if not options.dry_run:
        clear(index)
    return made
