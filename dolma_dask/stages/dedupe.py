"""dedupe: mark every document but one of those that have the same text, id or other value, over all shards of a dataset.

Each shard is read once. 24 bytes per document go through the exchange, which holds 32 MB of them in memory at a time; 40 bytes per
document wait on disk until the marks of its shard are written. The survivor is the first in the order that was asked, then in the listing: the
marks are the same for any number of workers.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Unpack

import dolma_dask
from dolma_dask import clusters, engine
from dolma_dask.alignment.columns import Columns, find_columns
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.dedup.survivors import SurvivorReducer, largest_of
from dolma_dask.engine import Plan, RunOptions, Task, Unit, inputs_of, resume
from dolma_dask.errors import UsageError
from dolma_dask.exchange import Exchanged, exchange
from dolma_dask.exchange.contract import word_count
from dolma_dask.exchange.folders import remove_exchange, remove_others
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, JournalWriter, Record, work_key
from dolma_dask.stages.dedupe_shards import (
    Keep,
    KeyEmitter,
    KeyKind,
    KeyRecipe,
    MarkStage,
    ShardKeys,
    ShardMarks,
    spooled_shards,
)
from dolma_dask.stages.dedupe_summary import DedupeSummary, summarize
from dolma_dask.stages.marks import COLUMNS, group_name, grouped
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    RecordArgs,
    as_dataset,
    check_choice,
    check_format,
    checked,
    dataset_notes,
    record_policy,
    run_options,
    selected,
    told,
    words_of,
)
from dolma_dask.summary import Summary

VERSION = 1
"""Raised whenever other documents are marked, or in another way, for the same input and arguments."""

_PLACE_BITS = 32
_KEYS: Mapping[str, KeyKind] = {
    "text": "string",
    "string": "string",
    "document": "number",
    "number": "number",
    "dict": "number",
    "bool": "number",
}
_DOCUMENT_READS = ("id", "source", "added", "created", "text")


def dedupe(
    dataset: DatasetLike,
    /,
    *,
    how: Literal["exact"] = "exact",
    by: str = "text",
    keep: Keep = "first",
    rank: str | None = None,
    name: str = "exact",
    format: FileFormat | None = None,
    source: str | None = None,
    attributes: Annotated[Sequence[str], Many] = (),
    shuffle: Literal["files", "p2p"] = "files",
    **options: Unpack[RecordArgs],
) -> DedupeSummary:
    """Mark every document but one of those that are equal, over all shards, and write the marks beside the documents.

    Example: dolma-dask dedupe corpus/wiki --by text --keep longest

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    how : {"exact"}
        Documents are duplicates if they are equal in `by`.
    by : str
        "text"; "id", which means source and id together; another field of documents; "metadata.<field>"; or an attribute key with one value
        per document (a unique ending is enough). A document without a value is nobody's duplicate.
    keep : {"first", "longest", "highest", "lowest"}
        Which of equal documents survives: the first in the listing, that with the longest text, or with the highest or lowest `rank`. Among
        equals the first in the listing survives; a document without rank comes behind those that have one.
    rank : str, optional
        For "highest" and "lowest": an attribute key or a field of the metadata that is a number.
    name : str
        Attribute set to write, and its only key.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field.
    attributes : list of str, optional
        Attribute sets to look for `by` and `rank` in; by default all.
    shuffle : {"files", "p2p"}
        How keys travel: through files beside the dataset, or between the workers of a Dask cluster.

    Returns
    -------
    DedupeSummary
        Documents, duplicates and clusters, by source, and the largest clusters.

    Raises
    ------
    StageError
        Some shards failed.
    ExpressionError
        There is no such column.
    UsageError
        An argument is unknown or has a value that it cannot have, or there is an attribute set of this name that dedupe did not make.

    Notes
    -----
    A survivor has nothing under the key, the others have [[0, length, 1.0]] in code points: keep survivors with --where "exact is None".
    There is no max_bad_fraction: with on_bad_record="quarantine" every bad record keeps its row, with an error in it, and one of them
    makes the exit status 1.
    """
    options = checked(dedupe, options, RecordArgs)
    _check_choices(how, keep, rank, shuffle)
    check_format(format)
    layout.check_name(name, "name")
    found = as_dataset(dataset, source)
    layout.check_no_collision([layout.with_format(shard.path, format) for shard in found.shards])
    _check_whole(options)
    columns = _find(found, by, rank, words_of("attributes", attributes), name)
    params = {
        "how": how,
        "by": by,
        "keep": keep,
        "rank": rank,
        "name": name,
        "format": format,
        "source": source,
    }
    work = _Deduplication(
        found, columns, _recipe(columns, by, keep, rank), name, format, record_policy(options), told(params)
    )
    chosen = selected(found, options)
    with clusters.shared_cluster():
        return work.run(chosen, run_options(options), shuffle)


def _check_choices(how: str, keep: str, rank: str | None, shuffle: str) -> None:
    check_choice("how", how, ("exact",))
    check_choice("keep", keep, ("first", "longest", "highest", "lowest"))
    check_choice("shuffle", shuffle, ("files", "p2p"))
    if (keep in ("highest", "lowest")) != (rank is not None):
        raise UsageError(
            f"keep={keep!r} with rank={rank!r}; expected a rank for keep='highest' or 'lowest' and for nothing else, such as "
            "keep='highest', rank='word_count'."
        )


def _check_whole(options: RecordArgs) -> None:
    """Refuse to mark duplicates among some of the shards: the set would look like that of all."""
    if ("only" in options or "prune" in options) and not options.get("dry_run"):
        raise UsageError(
            "dedupe was given --only or --prune; expected all shards, since a duplicate may be in any of them and the marks of some would "
            "look like those of all. Leave it out, rehearse with --dry-run, or make a dataset of some shards: dolma-dask mix ... --only."
        )


def _find(dataset: Dataset, by: str, rank: str | None, attributes: Sequence[str], name: str) -> Columns:
    """Find the columns that decide; they may not be those that are written."""
    more = [column for column in (by, rank) if column is not None and column not in COLUMNS]
    columns = find_columns(dataset, [*COLUMNS, *more], attributes)
    if columns.sets is not None and name in columns.sets.files:
        raise UsageError(
            f"attribute set {name!r} would be written and is read for {' and '.join(more)}; expected another set. Choose another --name."
        )
    return columns


def _recipe(columns: Columns, by: str, keep: Keep, rank: str | None) -> KeyRecipe:
    more = [column for column in (by, rank) if column is not None and column not in COLUMNS]
    place = {column: len(COLUMNS) + more.index(column) for column in more} | {
        column: COLUMNS.index(column) for column in COLUMNS
    }
    kinds = [columns.kinds[column] for column in columns.names]
    if kinds[place[by]] not in _KEYS:
        raise UsageError(
            f"by={by!r} has many spans per document; expected one value per document: text, id, another field, or a key with one value."
        )
    if rank is not None and _KEYS.get(kinds[place[rank]]) != "number":
        raise UsageError(f"rank={rank!r} is of kind {kinds[place[rank]]}; expected a number per document.")
    kind = "id" if by == "id" else _KEYS[kinds[place[by]]]
    return KeyRecipe(kind, place[by], keep, None if rank is None else place[rank])


@dataclass(frozen=True)
class _Deduplication:
    """A call of `dedupe`, with everything that decides its result."""

    dataset: Dataset
    columns: Columns
    recipe: KeyRecipe
    name: str
    file_format: FileFormat | None
    policy: RecordPolicy
    params: dict[str, Any]

    @property
    def unit(self) -> Unit:
        """The whole set: known under what was asked, finished while all inputs are what they were."""
        recipe = {
            "kind": self.recipe.kind,
            "column": self.columns.names[self.recipe.column],
            "keep": self.recipe.keep,
            "rank": None if self.recipe.rank is None else self.columns.names[self.recipe.rank],
        }
        params = {
            **self.columns.params(),
            **recipe,
            "name": self.name,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return Unit(f"{layout.ATTRIBUTES}/{self.name}/", work_key("dedupe", VERSION, params))

    @property
    def reads(self) -> tuple[str, ...]:
        """Document columns that the marks depend on; attributes may be made of the text."""
        by = ("id", "source") if self.recipe.kind == "id" else (self.columns.names[self.recipe.column],)
        rank = {"first": (), "longest": ("text",)}.get(self.recipe.keep)
        if rank is None:
            rank = (self.columns.names[self.recipe.rank or 0],)
        return tuple(sorted({_document_column(column) for column in (*by, *rank)}))

    def run(self, chosen: Dataset, options: RunOptions, shuffle: Literal["files", "p2p"]) -> DedupeSummary:
        """Do what is left."""
        started = time.monotonic()
        checksums = {} if options.overwrite else self._finished_inputs()
        key = self._key(checksums) if checksums else ""
        ahead = engine.run(self._plan(chosen, key), replace(options, dry_run=True))
        if options.dry_run or (key and not ahead.planned):
            summary = ahead if options.dry_run else engine.run(self._plan(chosen, key), options)
            if not options.dry_run:
                remove_exchange(self._folder)
                remove_others(self._folder)
            return self._summarize(summary, key)
        exchanged = self._exchange(options, shuffle)
        checksums = {item.path: item for record in exchanged.records.values() for item in record.inputs}
        key = self._key(checksums)
        summary = engine.run(self._plan(chosen, key, exchanged), options)
        self._save(checksums)
        exchanged.remove()
        return self._summarize(replace(summary, seconds=time.monotonic() - started), key)

    def _finished_inputs(self) -> dict[str, InputRecord]:
        """Return the inputs of the whole set if they still are what the journal says, else nothing."""
        inputs = inputs_of(
            self.dataset.root,
            [info for shard in self.dataset.shards for info in self.columns.work(shard).files],
        )
        task = Task(self.unit.name, (self.unit,), inputs)
        state = resume.look_back(
            Plan(MarkStage(self.dataset.root, self.name, ()), self.dataset.root, [task], {}, ()), False
        )
        for record in state.renewed:
            self._add(record)
        return {item.path: item for record in state.finished.values() for item in record.inputs}

    def _save(self, checksums: Mapping[str, InputRecord]) -> None:
        """Note that the whole set was made of these inputs; filed under the first shard, older than all others."""
        inputs = tuple(checksums[path] for path in sorted(checksums))
        self._add(Record(self.unit.name, self.dataset.shards[0].path, self.unit.key, inputs))

    def _add(self, record: Record) -> None:
        run = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
        writer = JournalWriter(Journal(self.dataset.root, "dedupe"), run)
        writer.add(record)
        writer.close()

    def _key(self, checksums: Mapping[str, InputRecord]) -> str:
        """Return the key of every shard's marks: it depends on the bytes of all shards."""
        paths = [info.path for shard in self.dataset.shards for info in self.columns.work(shard).files]
        content = [checksums[path].checksum for path in paths]
        return work_key("dedupe", VERSION, {"set": self.unit.key, "inputs": content})

    def _plan(self, chosen: Dataset, key: str, exchanged: Exchanged | None = None) -> Plan:
        root = self.dataset.root
        stage = MarkStage(root, self.name, self.reads)
        if exchanged is not None:
            stage = replace(stage, folder=exchanged.folder, records=exchanged.by_shard)
        works = self._works(exchanged) if exchanged is not None else {}
        return Plan(
            stage=stage,
            root=root,
            tasks=[self._task(shard, key, works.get(shard.path)) for shard in chosen.shards],
            params=self.params,
            writes=(f"{layout.ATTRIBUTES}/{self.name}/",),
            version=dolma_dask.__version__,
            all_units=frozenset(self._path(shard) for shard in self.dataset.shards),
            reads=layout.DOCUMENT_SUFFIXES,
            bad_is_loss=True,
            notes=dataset_notes(self.dataset),
        )

    def _path(self, shard: Shard) -> str:
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def _task(self, shard: Shard, key: str, work: ShardMarks | None) -> Task:
        inputs = inputs_of(self.dataset.root, self.columns.work(shard).files)
        return Task(shard.path, (Unit(self._path(shard), key),), inputs, work)

    def _works(self, exchanged: Exchanged) -> dict[str, ShardMarks]:
        largest = largest_of(cluster for info in exchanged.infos for cluster in info["largest"])
        found: dict[str, ShardMarks] = {}
        for spooled in spooled_shards(exchanged.records):
            inside = tuple(
                (size, place & 0xFFFFFFFF)
                for size, place in largest
                if place >> _PLACE_BITS == spooled.number
            )
            shard = self.dataset.shards[spooled.number]
            found[shard.path] = ShardMarks(shard, spooled, inside)
        return found

    @property
    def _folder(self) -> str:
        """Where the exchange lies: places depend on the listing, and so does its key."""
        listing = [shard.path for shard in self.dataset.shards]
        key = work_key("dedupe", VERSION, {"set": self.unit.key, "listing": listing})
        return files.join(self.dataset.root, f"_exchange/dedupe-{self.name}/{key}")

    def _exchange(self, options: RunOptions, shuffle: Literal["files", "p2p"]) -> Exchanged:
        shards = self.dataset.shards
        groups = grouped([(number, shard.bytes) for number, shard in enumerate(shards)])
        emitter = KeyEmitter(self.dataset.root, "dedupe", self.recipe, self.policy)
        return exchange(
            emitter,
            [self._group_task(numbers) for numbers in groups],
            SurvivorReducer(word_count(emitter.dtype)),
            folder=self._folder,
            key=self._folder.rpartition("/")[2],
            shards=len(shards),
            options=options,
            shuffle=shuffle,
            verb="dedupe",
        )

    def _group_task(self, numbers: Sequence[int]) -> Task:
        shards = self.dataset.shards
        items = tuple(ShardKeys(number, self.columns.work(shards[number])) for number in numbers)
        inputs = inputs_of(self.dataset.root, [info for item in items for info in item.work.files])
        return Task(group_name([shards[number].path for number in numbers]), (), inputs, items)

    def _summarize(self, summary: Summary, key: str) -> DedupeSummary:
        known = Journal(self.dataset.root, "dedupe").records if key else {}
        records = [
            known[path]
            for path in map(self._path, self.dataset.shards)
            if path in known and known[path].key == key
        ]
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return summarize(summary, records, listing)


def _document_column(column: str) -> str:
    """Return the document column behind a column: itself, the metadata, or the text, of which attributes may be made."""
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
