"""The job of `dedupe` by similarity: signatures, keys of bands, edges, clusters, flags.

1. Each document gets a signature, in files that stay beside the documents (`signatures`): other bands need no text.
2. Bands go through the exchange in groups, one after another, so that disk holds the keys of one group: 16 bytes per document and band (`bands`), 4 GiB or an
   eighth of what the signatures take. Each range of keys becomes edges (`edges`), and those of a group are joined in one array with 4 bytes per document, or range by range (`merging`).
3. Members of clusters meet once more: who survives, and how large is the cluster (`clusters`).
4. The table of clusters and the flags of every shard are written.
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from msgspec.structs import replace

from dolma_dask.engine import Gather, Pass, Plan, Ran, Step, Task, Unit, WorkDir
from dolma_dask.engine.map import Map
from dolma_dask.engine.resume import look_back
from dolma_dask.errors import SourceChangedError
from dolma_dask.exchange import ShardRecords
from dolma_dask.exchange.buckets import of_shards
from dolma_dask.exchange.flag_rows import COLUMNS, ShardKeys, StagedShard
from dolma_dask.exchange.job import Found
from dolma_dask.exchange.passes import by_shard, reduce, scatter
from dolma_dask.exchange.staged import Reduced, Staged
from dolma_dask.formats.layout import clusters_path
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.options.records import budget
from dolma_dask.reading.columns import Columns
from dolma_dask.reading.published import PublishedTables
from dolma_dask.verbs.dedupe.flags import add_sizes, largest_clusters
from dolma_dask.verbs.dedupe.fuzzy.carried import CarriedSignatures, CarriedSigner, found_elsewhere
from dolma_dask.verbs.dedupe.fuzzy.choices import ChoiceStage, Signed, choice_path, choice_task
from dolma_dask.verbs.dedupe.fuzzy.clusters import (
    ClusterOutput,
    ClusterReducer,
    ClusterTable,
    MemberEmitter,
    SignedSource,
    check_place,
)
from dolma_dask.verbs.dedupe.fuzzy.comparison import Comparison
from dolma_dask.verbs.dedupe.fuzzy.edges import KEYS, BandEmitter, DocumentLabels, edge_reducer
from dolma_dask.verbs.dedupe.fuzzy.merging import Merger, described_ranges, merger_of, ranges_notes
from dolma_dask.verbs.dedupe.fuzzy.needs import count_documents, needs_note
from dolma_dask.verbs.dedupe.fuzzy.ngram_sets import JaccardReducer, NgramReducer, Texts
from dolma_dask.verbs.dedupe.fuzzy.signatures import VERB as SIGNED_VERB
from dolma_dask.verbs.dedupe.fuzzy.signatures import (
    DocumentSigner,
    SignatureOutput,
    SignedShard,
    folder_of,
    remove_gone,
    signature_key,
    signed_tasks,
    staged_shard,
)
from dolma_dask.verbs.dedupe.fuzzy.verification import CompareReducer, PairReducer, SignReducer, shift_of
from dolma_dask.verbs.dedupe.job import Deduplication, document_columns
from dolma_dask.verbs.dedupe.summary import DedupeSummary

VERSION = 2
"""Raised whenever other documents are flagged, or in another way, for the same input and arguments."""

GROUP_BYTES = 4 << 30
"""Keys of bands that may always be on disk at once; those of one band are, however many."""

GROUP_SHARE = 8
"""Share of the signatures' bytes that keys may take on disk, as a divisor: each group of bands reads all signatures again."""


@dataclass(frozen=True, kw_only=True)
class FuzzyDeduplication(Deduplication):
    """Documents are duplicates if their texts are similar."""

    comparison: Comparison
    published: PublishedTables | None = None  # where signatures are taken from
    carried: CarriedSignatures | None = None  # likewise; neither: all are made
    merge_bytes: int | None = None  # that one array may take; None: half of a worker's memory

    @property
    def minhash(self) -> MinHash:
        """Parameters of the signatures."""
        return self.comparison.minhash

    @property
    def writes(self) -> Sequence[str]:
        """See `Job`."""
        return (clusters_path(self.name),) if self.number == 0 else ()

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        signatures = {"signatures": self.published.listing} if self.published else {}
        if self.carried and self.carried.is_published:
            signatures = {"signatures": self.carried.checksums}
        return {**super().requested, **self.comparison.params(), **signatures}

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        return work_key("dedupe-fuzzy", VERSION, self.described)

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> ClusterOutput:
        """See `Exchange`."""
        reads = document_columns(("text", *self.choice.names))
        scale, largest = self.comparison.similarity_scale, largest_clusters(infos)
        return ClusterOutput(self.root, self.flag, reads=reads, scale=scale, largest=largest)

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of the flags, unless a file that is not ours is in the way of the table of clusters."""
        if self.writes and not overwrite and self.writes[0] not in Journal(self.root, self.verb).by_file():
            check_place(self.root, self.name)
        return super().outputs(known, overwrite)

    def known_key(self, known: Record) -> str:
        """Return the key of the flags that hold; nothing if a published table has changed, of which their records know nothing."""
        is_current = self.published is None or not look_back(self._signatures(), False).left
        return super().known_key(known) if is_current else ""

    def found_key(self, found: Found) -> str:
        """Return the key of the flags of all datasets: other tables make other flags of the same documents."""
        key = super().found_key(found)
        if self.published is None:
            return key
        signatures = [one.staged.staging for held in found.sources for one in held.values()]
        checksums = [file.checksum for file in signatures if file]
        return work_key(self.verb, self.version, {"flags": key, "signatures": checksums})

    def announce(self, key: str, found: Found) -> Generator[Step, Any, None]:
        """Say which flags hold; the table of clusters is of the first dataset, and others have none from then on."""
        path = clusters_path(self.name)
        others = [part.root for part in self.parts[1:]]
        of_old = [root for root in others if path in Journal(root, self.verb).by_file()]
        yield from super().announce(key, found)
        for root in of_old:  # of calls in which another dataset came first
            files.remove(files.join(root, path))

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """See `Deduplication`."""
        summary = replace(super().summarize(ran, known), comparison=self.comparison)
        return replace(summary, notes=(*summary.notes, *ranges_notes(known.info if known else {})))

    def needs(self) -> tuple[str, ...]:
        """See `Deduplication`."""
        documents, guessed = count_documents([part.dataset for part in self.parts])
        first, last = groups(self.comparison.bands.num_bands, documents, self.group_bytes(documents))[0]
        return (needs_note(documents, guessed, self.comparison, last - first, self.merge_bytes),)

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """Sign all documents, and find their clusters."""
        signed: list[list[Record]] = []
        for part in self.parts:
            plan = part._signatures()
            left = {task.shard for task in look_back(plan, False).left} if part.carried else ()
            if left:
                plan = part._signatures((yield from part._found_elsewhere(work, left)))
            ran: Ran = yield plan
            remove_gone(part.root, part._folder, {shard.path for shard in part.dataset.shards})
            signed.append([ran.records[part._path(shard.path)] for shard in part.dataset.shards])
        records = [record for held in signed for record in held]
        staged = [staged_shard(number, record) for number, record in enumerate(records)]
        chosen = yield from self._chosen(work, staged)
        shards = _numbered(self._places, records, chosen)
        labels = yield from self._merged(work, shards)
        members, infos = yield from self._members(work, shards, labels)
        roots = tuple(part.root for part in self.parts)
        (table,) = yield Gather(
            ClusterTable(roots, self.name, members, self.comparison.similarity_scale),
            [Task("clusters", (), (), shards)],
        )
        for part, held in zip(self.parts, signed, strict=True):
            part._check_signed(held)
        read = {one.number: _with_choice(one, record) for one, record in zip(staged, chosen, strict=True)}
        sources = [
            part.sources(read, first, partial(SignedSource, folder=part.root, records=members))
            for part, first in self.numbered()
        ]
        described = {**self._described(infos), **described_ranges(labels)}
        found = Found(sources, infos, members, files=(table,), info=described)
        return (yield from self._kept(work, found, shards))

    def _kept(
        self, work: WorkDir, found: Found, shards: Sequence[SignedShard]
    ) -> Generator[Step, Any, Found]:
        """Return what was found, once what later calls need of it is kept: nothing here."""
        yield from ()
        return found

    @property
    def _places(self) -> list[tuple[str, str]]:
        """Root of the dataset, and path, of every shard."""
        return [(part.root, shard.path) for part in self.parts for shard in part.dataset.shards]

    def _check_signed(self, records: Sequence[Record]) -> None:
        """Refuse signatures that another run has made anew meanwhile: with another source, or of documents that have changed."""
        known = Journal(self.root, SIGNED_VERB).records
        for record in records:
            now = known.get(record.unit)
            if now is not None and now.files != record.files:
                url = files.join(self.root, record.unit)
                raise SourceChangedError(
                    f"{url} was written by another run while dedupe read it; expected one file from beginning to end. Run the same command again "
                    "when the other one is finished.",
                    url=url,
                )

    def _described(self, infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return what reports show besides the flags."""
        return {
            "comparison": self.comparison.params(),
            "sizes": add_sizes(info["sizes"] for info in infos),
        }

    def _path(self, shard: str) -> str:
        return f"{self._folder}/{shard}.parquet"

    @property
    def _folder(self) -> str:
        return folder_of(self.minhash, published=self._is_published)

    @property
    def _is_published(self) -> bool:
        """True if no signature is made of a text."""
        return self.published is not None or (self.carried is not None and self.carried.is_published)

    @property
    def _texts(self) -> Columns:
        """Columns that are compared, without those that choose."""
        return replace(self.columns, names=COLUMNS, fields={}, sets=None)

    def _found_elsewhere(self, work: WorkDir, left: Collection[str]) -> Generator[Step, Any, ShardRecords]:
        """Return the signatures of the documents of some shards that another dataset has."""
        assert self.carried is not None
        shards = [
            ShardKeys(number, self._texts.work(shard))
            for number, shard in enumerate(self.dataset.shards, 1)
            if shard.path in left
        ]
        return (yield from found_elsewhere(work, self.carried, shards, self.policy, str(self.number)))

    def _signatures(self, found: ShardRecords | None = None) -> Plan:
        """Return the plan that signs the documents of all shards; `found` are signatures that another dataset has."""
        published = self.published
        key = signature_key(
            self.minhash,
            self.dataset,
            self.policy.max_record_bytes,
            published=self._is_published,
        )
        output = SignatureOutput(self.root, self.minhash, is_published=self._is_published)
        stage = Map((output,), self.policy, SIGNED_VERB)
        url = published.url if published else ""
        tasks = []
        for number, shard in enumerate(self.dataset.shards, 1):
            documents = self._texts.work(shard)
            if found is None:
                tables = published.of_shard(shard.path) if published else ()
                source = DocumentSigner(documents, self.minhash, url, tables)
            else:
                source = CarriedSigner(
                    documents,
                    self.minhash,
                    found=found,
                    number=number,
                    is_published=self._is_published,
                )
            tasks.append(stage.task(source, Unit(self._path(shard.path), key)))
        return Plan(
            stage,
            self.root,
            tasks,
            self.minhash.params(),
            (f"{self._folder}/",),
            bad_is_loss=True,
            max_bad_fraction=budget(self.policy),
        )

    def _chosen(
        self, work: WorkDir, staged: Sequence[StagedShard]
    ) -> Generator[Step, Any, Sequence[Record | None]]:
        """Return the records of the choice in all shards, if columns decide."""
        if not self.choice.names and all(part.compared is None for part in self.parts):
            return [None] * len(staged)
        tasks = self.tasks_of(lambda part, first: part._choices(staged[first:]))
        stage = ChoiceStage(work.url, self.choice, self.policy.max_record_bytes)
        ran: Ran = yield Pass(stage, tasks)
        return [ran.records[choice_path(one.number)] for one in staged]

    def _choices(self, staged: Sequence[StagedShard]) -> list[Task]:
        """Return the tasks of `ChoiceStage` for the shards of this dataset, with which `staged` begins."""
        deciding = replace(self.columns, names=self.choice.names)
        return [
            choice_task(
                self.choice,
                Signed(one.number, deciding.work(shard, exact=True), one, self.takes_part(shard)),
                self.inputs_of([shard]),
            )
            for one, shard in zip(staged, self.dataset.shards, strict=False)
        ]

    def group_bytes(self, documents: int) -> int:
        """Return how many bytes of keys of bands are on disk at once."""
        return max(GROUP_BYTES, 4 * self.minhash.num_perm * documents // GROUP_SHARE)

    def _merged(self, work: WorkDir, shards: Sequence[SignedShard]) -> Generator[Step, Any, DocumentLabels]:
        """Find the clusters that the bands make, group by group; return the labels of all documents."""
        documents, bands = sum(shard.rows for shard in shards), self.comparison.bands
        every = groups(bands.num_bands, documents, self.group_bytes(documents))
        tasks = self._tasks(work, shards)
        found: list[Staged] = []
        is_verified = self.comparison.least_matches > 0
        merger = yield from merger_of(work, documents, is_verified, self.merge_bytes)
        for number, (first, last) in enumerate(every):
            emitter = BandEmitter(self.minhash.num_perm, bands, first, last)
            keys = yield from scatter(work, emitter, tasks, name=f"bands-{number}")
            if is_verified:
                pairs = PairReducer(shift_of(documents))
                found.append(_staged((yield from reduce(work, pairs, keys.shared, name=f"pairs-{number}"))))
            else:
                reducer = merger.taking(edge_reducer(last - first, keys))
                name = merger.named(f"edges-{number}")
                edges = yield from reduce(work, reducer, keys.shared, name=name, cut=merger.cut)
                yield from merger.add(_staged(edges), number == len(every) - 1)
        if found:
            pairs_found = replace(found[0], others=tuple(found[1:]))
            edges = yield from self._verified(work, shards, pairs_found, merger)
            yield from merger.add(_staged(edges), True)
        return (yield from merger.labels())

    def _tasks(self, work: WorkDir, shards: Sequence[SignedShard]) -> list[Task]:
        """Return tasks that read the signatures of all datasets."""
        return self.tasks_of(
            lambda part, first: signed_tasks(work.url, shards[first : first + len(part.dataset.shards)])
        )

    def _verified(
        self, work: WorkDir, shards: Sequence[SignedShard], pairs: Staged, merger: Merger
    ) -> Generator[Step, Any, Reduced]:
        """Return the pairs that are similar enough, for `merger`: by their signatures, and by their n-grams if that was requested."""
        shift = shift_of(sum(shard.rows for shard in shards))
        sign = SignReducer(shards, self.minhash.num_perm, shift)
        signed = yield from reduce(work, sign, pairs, name="signed", part=sign.part)
        is_last = self.comparison.verify == "signatures"
        least = self.comparison.least_matches
        compare = CompareReducer(shards, self.minhash.num_perm, shift, least, is_last)
        if is_last:
            return (yield from self._given(work, merger, compare, _staged(signed), "compared"))
        near = yield from reduce(work, compare, _staged(signed), name="compared", part=compare.part)
        works = [part._texts.work(shard) for part in self.parts for shard in part.dataset.shards]
        texts = Texts(works, shards, self.minhash, self.policy, shift)
        ngrams = NgramReducer(texts)
        sets = yield from reduce(work, ngrams, _staged(near), name="ngrams", part=ngrams.part)
        jaccard = JaccardReducer(texts, self.comparison.similarity)
        return (yield from self._given(work, merger, jaccard, _staged(sets), "jaccard"))

    def _given(
        self,
        work: WorkDir,
        merger: Merger,
        reducer: CompareReducer | JaccardReducer,
        staged: Staged,
        name: str,
    ) -> Generator[Step, Any, Reduced]:
        """Return the edges that the last reducer of verification gives out, for `merger`."""
        named, part = merger.named(name), merger.part_of(reducer.part)
        return reduce(work, merger.taking(reducer), staged, name=named, cut=merger.cut, part=part)

    def _members(
        self, work: WorkDir, shards: Sequence[SignedShard], labels: DocumentLabels
    ) -> Generator[Step, Any, tuple[ShardRecords, tuple[Mapping[str, Any], ...]]]:
        """Return the members of all clusters by shard, and what the reducer tells of each range."""
        emitter = MemberEmitter(labels, self.choice.keep)
        records = yield from scatter(work, emitter, self._tasks(work, shards), name="members")
        cut = of_shards(len(shards))
        reduced = yield from reduce(work, ClusterReducer(), records, name="clusters", cut=cut)
        return (yield from by_shard(work, _staged(reduced))), reduced.infos


def _staged(reduced: Reduced) -> Staged:
    assert reduced.staged is not None, "all reducers of this job give out records"
    return reduced.staged


def groups(bands: int, documents: int, most_bytes: int) -> list[tuple[int, int]]:
    """Return groups of bands, as (first, last + 1), whose keys have at most so many bytes, or of one band."""
    size = min(max(most_bytes // (KEYS.itemsize * max(documents, 1)), 1), bands)
    return [(first, min(first + size, bands)) for first in range(0, bands, size)]


def _numbered(
    places: Sequence[tuple[str, str]], records: Sequence[Record], chosen: Sequence[Record | None]
) -> list[SignedShard]:
    """Return shards, given by the roots of their datasets and their paths, with the docnos of their first rows."""
    starts = accumulate((record.rows for record in records), initial=0)
    return [
        SignedShard(
            number, root, path, first, record.rows, record.files[0], choice.files[0] if choice else None
        )
        for number, ((root, path), first, record, choice) in enumerate(
            zip(places, starts, records, chosen, strict=False)
        )
    ]


def _with_choice(staged: StagedShard, choice: Record | None) -> StagedShard:
    """Return a shard whose record knows what the choice has read and counted."""
    if choice is None:
        return staged
    known = staged.record
    record = replace(
        known,
        inputs=choice.inputs,
        counts={**known.counts, **choice.counts},
        info={**known.info, **choice.info},
        seconds=known.seconds + choice.seconds,
    )
    return replace(staged, record=record)
