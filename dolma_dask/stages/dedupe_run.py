"""A call of `dedupe` from what is finished to its summary: keys of all shards, the exchange, marks of every shard.

The marks of a shard depend on all shards, so their key holds the checksums of all inputs. These are known from a record of the whole set
that the last run left, or else from the exchange. When everything is finished, nothing is started. That record tells readers which marks
hold; it is written before the first of them, so that after a kill old marks are refused beside new ones.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import dolma_dask
from dolma_dask import engine
from dolma_dask.alignment.columns import Columns
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.dedup.survivors import SurvivorReducer, largest_of
from dolma_dask.engine import Plan, RunOptions, Task, Unit, inputs_of, resume
from dolma_dask.exchange import Exchanged, exchange
from dolma_dask.exchange.contract import word_count
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.stages.dedupe_shards import (
    KeyEmitter,
    KeyRecipe,
    MarkStage,
    ShardKeys,
    ShardMarks,
    spooled_shards,
)
from dolma_dask.stages.dedupe_summary import DedupeSummary, summarize
from dolma_dask.stages.marks import group_name, grouped, note, tidy
from dolma_dask.stages.options import dataset_notes
from dolma_dask.summary import Summary

VERSION = 2
"""Raised whenever other documents are marked, or in another way, for the same input and arguments."""

_PLACE_BITS = 32
_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass(frozen=True)
class Deduplication:
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
            return self._summarize(
                ahead if options.dry_run else self._nothing_left(chosen, key, options), key
            )
        exchanged = self._exchange(options, shuffle)
        checksums = {item.path: item for record in exchanged.records.values() for item in record.inputs}
        key = self._key(checksums)
        self._save(key, checksums, sum(record.seconds for record in exchanged.records.values()))
        summary = engine.run(self._plan(chosen, key, exchanged), options)
        tidy(self.dataset.root, "dedupe", self._folder)
        return self._summarize(replace(summary, seconds=time.monotonic() - started), key)

    def _nothing_left(self, chosen: Dataset, key: str, options: RunOptions) -> Summary:
        summary = engine.run(self._plan(chosen, key), options)
        tidy(self.dataset.root, "dedupe", self._folder)
        return summary

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
            note(self.dataset.root, "dedupe", record)
        return {item.path: item for record in state.finished.values() for item in record.inputs}

    def _save(self, key: str, checksums: Mapping[str, InputRecord], seconds: float) -> None:
        """Note what the whole set is made of, how long that was read, and which marks hold from now on."""
        inputs = tuple(checksums[path] for path in sorted(checksums))
        info = {"key": key, "depends_on": "documents"}
        shard = self.dataset.shards[0].path
        record = Record(self.unit.name, shard, self.unit.key, inputs, seconds=seconds, info=info)
        note(self.dataset.root, "dedupe", record)

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
