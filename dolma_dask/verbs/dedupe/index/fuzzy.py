"""Deduplication with an index, by similarity: bands of a new dataset meet those of the index, and signatures say who is similar.

A segment holds the band keys of the documents that were kept and, where pairs are verified by their signatures, these too: documents of the index are compared
as new ones are. Without verification 16 bytes for each band are enough. Documents that were flagged are not in it, so that what is similar to them alone is kept.

Documents of the index are numbered before all new ones (docnos), and only those that are similar to a new one take part in clusters: behind the new ones in the array
of labels, as rows of a shard that does not exist. Memory grows with the new dataset, not with the index.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.engine import Gather, Input, Pass, Ran, Step, Task, Unit, WorkDir
from dolma_dask.exchange import ShardRecords
from dolma_dask.exchange.buckets import BucketRange, of_shards
from dolma_dask.exchange.contract import ROW_BITS, Records, to_records, to_words
from dolma_dask.exchange.job import Found
from dolma_dask.exchange.kept import kept
from dolma_dask.exchange.passes import by_shard, reduce, scatter, staged_files, write_records
from dolma_dask.exchange.staged import DEFAULT, Reduced, Staged, file_of
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.minhash.components import flatten, raise_matches, unite
from dolma_dask.minhash.edges import label_clusters, root_bit
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Words
from dolma_dask.verbs.dedupe.flags import add_sizes, count_sizes, largest_of, largest_survivors
from dolma_dask.verbs.dedupe.fuzzy.clusters import MEMBERS, NOWHERE, MemberEmitter, mark_members
from dolma_dask.verbs.dedupe.fuzzy.edges import (
    KEYS,
    MATCHES,
    VERIFIED,
    BandEmitter,
    DocumentLabels,
    bytes_needed,
    check_memory,
    edge_reducer,
    label_type,
    write_numbers,
)
from dolma_dask.verbs.dedupe.fuzzy.job import VERSION, FuzzyDeduplication
from dolma_dask.verbs.dedupe.fuzzy.merging import ArrayMerger, merger_of
from dolma_dask.verbs.dedupe.fuzzy.range_steps import LINKS, VERIFIED_LINKS, to_links
from dolma_dask.verbs.dedupe.fuzzy.ranges import RangeMerger, Ranges
from dolma_dask.verbs.dedupe.fuzzy.signatures import VERSION as SIGNED_VERSION
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignedShard
from dolma_dask.verbs.dedupe.fuzzy.verification import PAIRS, shift_of
from dolma_dask.verbs.dedupe.index.exact import Indexed
from dolma_dask.verbs.dedupe.index.kept_signatures import KeptBands, KeptDocuments, KnownMerges
from dolma_dask.verbs.dedupe.index.kernels import OLD, STATE, known_pairs
from dolma_dask.verbs.dedupe.index.segments import Segment

OLD_MEMBERS = np.dtype([*MEMBERS.descr, ("old", "<u8")])
"""`MEMBERS`, and where in the shard that does not exist the survivor is; `NOWHERE` if it is a new document."""

WAITING = 1 << 20
"""Documents that may wait to be put in order with those that are."""


class KnownLabels(DocumentLabels, frozen=True, kw_only=True):
    """Labels of new documents and, behind them, of those of the index that they touch."""

    olds: FileRecord  # docnos of these

    @classmethod
    def of(cls, merged: Record) -> Self:
        """See `DocumentLabels`."""
        labels, *matches, olds = merged.files
        return cls(labels.rows, max(labels.rows, 1), (labels,), tuple(matches), olds=olds)


@dataclass(frozen=True, kw_only=True)
class IndexedFuzzy(Indexed, FuzzyDeduplication):
    """Documents are duplicates if their texts are similar, or similar to one of the index."""

    @property
    def index_params(self) -> dict[str, Any]:
        """See `Indexed`."""
        versions = {"version": VERSION, "signatures": SIGNED_VERSION}
        return {"how": "fuzzy", **versions, **self.comparison.params(), **super().index_params}

    @property
    def _is_verified(self) -> bool:
        return self.comparison.least_matches > 0

    def _merged(self, work: WorkDir, shards: Sequence[SignedShard]) -> Generator[Step, Any, KnownLabels]:
        """See `FuzzyDeduplication`: all bands at once, since those of the index are read where they are."""
        old, bands = self.index.first_document, self.comparison.bands
        new = [replace(shard, first=shard.first + old) for shard in shards]
        emitter = BandEmitter(self.minhash.num_perm, bands, 0, bands.num_bands)
        keys = yield from scatter(work, emitter, self._tasks(work, new), name="bands-0")
        before = (
            kept(self.index.root, one.keys, KEYS, KEYS, self.index.hint(one)) for one in self.index.before
        )
        every = replace(keys, others=tuple(before)).shared
        if self._is_verified:
            known = [*self._known(), *new]
            pairs = KnownPairs(shift_of(sum(shard.rows for shard in known)), old)
            reduced = yield from reduce(work, pairs, every, name="pairs-0")
            edges = yield from self._verified(work, known, _staged(reduced), ArrayMerger(work, 0))
        else:
            reducer = edge_reducer(bands.num_bands, every)
            edges = yield from reduce(work, reducer, every, name="edges-0")
        documents = sum(shard.rows for shard in shards)
        return (yield from _merge(work, _staged(edges), documents, old, self.merge_bytes))

    def _known(self) -> list[SignedShard]:
        """Return the files of documents of the index, with their docnos."""
        return [
            SignedShard(0, self.index.root, file.path, first, file.rows, file, hint=self.index.hint(one))
            for one in self.index.before
            for first, file in _numbered(one)
        ]

    def _members(
        self, work: WorkDir, shards: Sequence[SignedShard], labels: DocumentLabels
    ) -> Generator[Step, Any, tuple[ShardRecords, tuple[Mapping[str, Any], ...]]]:
        """See `FuzzyDeduplication`."""
        assert isinstance(labels, KnownLabels)
        olds = labels.olds
        count, new = len(shards), sum(shard.rows for shard in shards)
        old = SignedShard(count, work.url, "", new, olds.rows, olds)
        emitter = KnownMembers(labels, self.choice.keep, old=count)
        tasks = [*self._tasks(work, shards), Task("documents of the index", (), (), (old,))]
        records = yield from scatter(work, emitter, tasks, name="members")
        cut = of_shards(count + 1)
        reduced = yield from reduce(work, KnownClusters(count << ROW_BITS), records, name="clusters", cut=cut)
        members = yield from by_shard(work, _staged(reduced))
        return members, tuple({**info, "olds": list(_plain(olds))} for info in reduced.infos)

    def _kept(
        self, work: WorkDir, found: Found, shards: Sequence[SignedShard]
    ) -> Generator[Step, Any, Found]:
        """See `FuzzyDeduplication`: what survives goes into the index."""
        return (yield from self.put(found, lambda segment: self._append(work, found, shards, segment)))

    def _append(
        self, work: WorkDir, found: Found, shards: Sequence[SignedShard], segment: Segment
    ) -> Generator[Step, Any, None]:
        tasks = self._tasks(work, shards)
        stage = KeptDocuments(
            self.index.root,
            work.url,
            self.minhash.num_perm,
            found.records,
            segment.first_shard,
            self._is_verified,
        )
        files = yield Gather(
            stage,
            [
                replace(task, work=(f"{segment.path}/documents/{number:06d}.parquet", task.work))
                for number, task in enumerate(tasks)
            ],
        )
        firsts = accumulate((file.rows for file in files), initial=segment.first_document)
        bands = self.comparison.bands
        emitter = KeptBands(self.minhash.num_perm, bands, 0, bands.num_bands, members=found.records)
        numbered = [
            replace(task, work=(first, task.work)) for task, first in zip(tasks, firsts, strict=False)
        ]
        keys = yield from scatter(work, emitter, numbered, name="kept")
        segment = replace(segment, kept=sum(file.rows for file in files))
        olds = next((FileRecord(*info["olds"]) for info in found.infos), None)
        yield from self.appended(
            found,
            segment,
            keys,
            files,
            lambda table: KnownMerges(
                table.root,
                table.path,
                table.records,
                table.datasets,
                folder=work.url,
                olds=olds,
                known=tuple(self._known()),
            ),
        )


def _staged(reduced: Reduced) -> Staged:
    assert reduced.staged is not None, "all reducers of this job give out records"
    return reduced.staged


def _plain(file: FileRecord) -> tuple[str, int, str, int]:
    return file.path, file.bytes, file.checksum, file.rows


def _numbered(segment: Segment) -> Iterator[tuple[int, FileRecord]]:
    """Yield the files of documents of a segment with the docnos of their first rows."""
    held = segment.named("documents/")
    return zip(accumulate((file.rows for file in held), initial=segment.first_document), held, strict=False)


# ------------------------------------------------------------------------------------------------ pairs


class KnownPairs(Struct, frozen=True):
    """Turns keys in order into pairs of which one at least is new; see `dolma_dask.exchange.Reducer`."""

    shift: int
    old: int  # docno of the first new document
    dtype: np.dtype[Any] = PAIRS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the pairs of a range; returns the documents of the largest bucket."""
        state, largest = np.zeros(STATE, np.uint64), 0
        for run in runs:
            pairs = np.empty(((OLD + 2) * len(run), 2), np.uint64)
            words = for_kernel(to_words(run, run.dtype))
            count, longest = known_pairs(words, np.uint64(self.old), state, pairs)
            pairs[:count, 0] <<= np.uint64(self.shift)
            largest = max(largest, int(longest))
            out(to_records(pairs[:count], PAIRS))
        return {"largest": largest}


# ------------------------------------------------------------------------------------------------ clusters


class KnownMerge(Struct, frozen=True):
    """Work of `KnownMergeStage` and `KnownLinksStage`."""

    edges: Staged
    span: BucketRange  # all of them
    documents: int  # that are new
    old: int  # docno of the first of them

    @property
    def is_verified(self) -> bool:
        """True if edges tell matches."""
        return self.edges.dtype == VERIFIED

    def touched(self) -> Words:
        """Return the documents of the index at the ends of edges, in order, in memory of about twice as many."""
        found, waiting = np.empty(0, np.uint64), list[Words]()
        for rows in self.edges.read(self.span):
            ends = rows[:, :2].ravel()
            waiting.append(np.unique(ends[ends < np.uint64(self.old)]))
            if sum(map(len, waiting)) > max(len(found), WAITING):
                found, waiting = np.unique(np.concatenate([found, *waiting])), []
        return np.unique(np.concatenate([found, *waiting]))

    def moved(self, olds: Words) -> Iterator[Words]:
        """Yield the edges between places in the array: new documents first, and behind them those of the index that are `touched`."""
        for read in self.edges.read(self.span):
            rows = read.copy()
            behind = np.searchsorted(olds, rows[:, :2]).astype(np.uint64) + np.uint64(self.documents)
            old = np.uint64(self.old)
            rows[:, :2] = np.sort(np.where(rows[:, :2] < old, behind, rows[:, :2] - old), axis=1)
            yield rows


class KnownMergeStage(Struct, frozen=True):
    """Joins the edges of new documents, and of those of the index that they touch, in one array; see `dolma_dask.engine.Stage`.

    An edge between two documents of the index is what is left of those of a new one with both.
    """

    verb: str
    folder: str  # of the staging files

    def run_shard(self, task: Task) -> list[Record]:
        """Write the labels, of verified edges the most matches, and the docnos of the documents of the index in their order."""
        unit = task.unit
        work: KnownMerge = task.work
        olds = work.touched()
        documents = work.documents + len(olds)
        check_memory(bytes_needed(documents, work.is_verified) + olds.nbytes)
        parents = np.arange(documents, dtype=label_type(documents))
        matches = np.zeros(documents if work.is_verified else 0, MATCHES)
        for rows in work.moved(olds):
            unite(parents, for_kernel(rows[:, :2]))
            if work.is_verified:
                raise_matches(matches, for_kernel(rows))
        flatten(parents)
        label_clusters(parents, root_bit(parents))
        every = {"": parents, **({".matches": matches} if work.is_verified else {}), ".olds": olds}
        made = [write_numbers(self.folder, f"{unit.name}{name}", one) for name, one in every.items()]
        return [task.record(made, task.listed)]


class KnownLinksStage(Struct, frozen=True):
    """Gives the same edges to the ranges of the array; see `dolma_dask.engine.Stage`."""

    verb: str
    folder: str  # of the staging files
    bits: int  # of the ranges

    def run_shard(self, task: Task) -> list[Record]:
        """Write the links, and the docnos of the documents of the index in their order."""
        path = task.unit.name
        work: KnownMerge = task.work
        olds = work.touched()
        kind = VERIFIED_LINKS if work.is_verified else LINKS
        cut = Ranges(work.documents + len(olds), self.bits).cut

        def give(out: Callable[[Records], None]) -> None:
            for rows in work.moved(olds):
                out(to_links(rows))

        _, made, info = write_records(self.folder, path, kind, cut, DEFAULT, give)
        files = (*made, write_numbers(self.folder, f"{path}.olds", olds))
        return [task.record(files, task.listed, info=info)]


def _merge(
    work: WorkDir, edges: Staged, documents: int, old: int, merge_bytes: int | None
) -> Generator[Step, Any, KnownLabels]:
    """Merge all edges, as steps of a job, in one array or range by range; frees what was read."""
    is_verified = edges.dtype == VERIFIED
    merger = yield from merger_of(work, documents, is_verified, merge_bytes)
    if not isinstance(merger, RangeMerger):
        stage = KnownMergeStage(f"{work.verb}-merge", work.url)
        record = yield from _joined(work, stage, "parents-000.bin", edges, documents, old)
        return KnownLabels.of(record)
    bits, name = merger.ranges.bits, merger.named("moved")
    links = KnownLinksStage(f"{work.verb}-{name}", work.url, bits)
    record = yield from _joined(work, links, file_of(name, 0), edges, documents, old)
    olds = record.files[-1]
    merger.ranges = Ranges(documents + olds.rows, bits)
    kind = VERIFIED_LINKS if is_verified else LINKS
    yield from merger.add(staged_files(work, name, kind, merger.cut, (record,)), True)
    labels = yield from merger.labels()
    return KnownLabels(**asdict(labels), olds=olds)


def _joined(
    work: WorkDir,
    stage: KnownMergeStage | KnownLinksStage,
    name: str,
    edges: Staged,
    documents: int,
    old: int,
) -> Generator[Step, Any, Record]:
    """Return the record of what a stage makes of all edges, which are freed."""
    span = edges.all
    key = work_key("merge", 1, {"documents": documents, "old": old, "edges": edges.content})
    source = FileInfo("edges", span.records * edges.dtype.itemsize, key)
    merge = KnownMerge(edges.without_records, span, documents, old)
    task = Task(name, (Unit(name, key),), (Input(source.path, source),), merge)
    ran: Ran = yield Pass(stage, [task], reads=edges.records)
    yield edges.free()
    return ran.records[name]


class KnownMembers(MemberEmitter, frozen=True, kw_only=True):
    """Sends members as `MemberEmitter` does; those of the index, the rows of shard `old`, come before all others."""

    old: int

    def _ranks(self, shard: SignedShard, folder: str) -> Words:
        if shard.number == self.old:
            return np.ones(shard.rows, np.uint64)
        ranks = super()._ranks(shard, folder)
        second = np.uint64(2)
        return np.full(shard.rows, second) if ranks is None else np.maximum(ranks, second)


class KnownClusters(Struct, frozen=True):
    """Gives each member the size of its cluster, and the survivor if that is of the index; see `ClusterReducer`."""

    old: int  # location of the first document of the index
    dtype: np.dtype[Any] = OLD_MEMBERS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the members of a range; returns ``largest`` and ``sizes`` of the clusters that have a new survivor."""
        state = np.zeros(3, np.uint64)
        every: list[Words] = []
        for run in runs:
            members, closed = np.empty((len(run), 6), np.uint64), np.empty((len(run), 3), np.uint64)
            before = state[0]
            count, ended = mark_members(for_kernel(to_words(run, run.dtype)), state, members, closed)
            members[:count, 5] = self._survivors(members[:count], before)
            out(to_records(members[:count], OLD_MEMBERS))
            every = [self._known([*every, closed[:ended]])]
        clusters = self._known([*every, state.reshape(1, 3)[state[1:2] > 0]])
        return {
            "largest": largest_of(largest_survivors(clusters)),
            "sizes": add_sizes([count_sizes(clusters[:, 1])]),
        }

    def _survivors(self, members: Words, before: np.uint64) -> Words:
        """Return the locations of the survivors of members in order, of which the first may be of the cluster that was open, with survivor `before`."""
        at = np.maximum.accumulate(np.where(members[:, 3] == 1, np.arange(len(members)), -1))
        found = np.where(at < 0, before, members[at, 0])
        return np.where(found >= np.uint64(self.old), found, NOWHERE)

    def _known(self, closed: Sequence[Words]) -> Words:
        rows = np.concatenate(closed)
        return rows[rows[:, 0] < np.uint64(self.old)]
