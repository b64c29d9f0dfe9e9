"""A call of `dedupe` from what is finished to its summary: keys of all shards, the exchange, marks of every shard.

The marks of a shard depend on all shards, so their key holds the checksums of all inputs. These are known from a record of the whole set
that the last run left, or else from the exchange. When everything is finished, nothing is started. That record tells readers which marks
hold; it is written before the first of them, so that after a kill old marks are refused beside new ones.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dolma_dask import engine
from dolma_dask.dataset import Dataset
from dolma_dask.dedup.survivors import SurvivorReducer, largest_of
from dolma_dask.engine import Plan, RunOptions, Unit
from dolma_dask.exchange import Exchanged, exchange
from dolma_dask.exchange.contract import word_count
from dolma_dask.exchange.folders import parent_of
from dolma_dask.exchange.owners import owned
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import work_key
from dolma_dask.stages.deduplication.shards import (
    PLACE_BITS,
    KeyEmitter,
    KeyRecipe,
    MarkStage,
    ShardMarks,
    spooled_shards,
)
from dolma_dask.stages.deduplication.summary import DedupeSummary, summarize
from dolma_dask.stages.marking import Marking, whole_unit
from dolma_dask.summary import Summary

VERSION = 2
"""Raised whenever other documents are marked, or in another way, for the same input and arguments."""

_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass(frozen=True, kw_only=True)
class Deduplication(Marking):
    """A call of `dedupe`, with everything that decides its result."""

    recipe: KeyRecipe

    verb = "dedupe"
    depends_on = "documents"

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
        return Unit(whole_unit(self.name), work_key("dedupe", VERSION, params))

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
        key = "" if options.overwrite else self._finished_key()
        ahead = engine.run(self._plan(chosen, key), replace(options, dry_run=True)).summary
        if options.dry_run:
            return self._summarize(ahead, key)
        if key and not ahead.planned:
            summary = engine.run(self._plan(chosen, key), options).summary
        else:
            with owned(parent_of(self._folder), "dedupe"):
                exchanged = self._exchange(options, shuffle)
                key = self._announce(exchanged)
                summary = engine.run(self._plan(chosen, key, exchanged), options).summary
        self.tidy(self._folder)
        return self._summarize(replace(summary, seconds=time.monotonic() - started), key)

    def _finished_key(self) -> str:
        """Return the key of the marks that hold, if all inputs still are what the journal says; else nothing."""
        record = self.finished(self.unit)
        key = self._key(record.inputs) if record else ""
        return key if record and record.info.get("key") == key else ""

    def _announce(self, exchanged: Exchanged) -> str:
        """Note what the whole set is made of, and which marks hold from now on; return their key."""
        records = exchanged.records.values()
        inputs = [item for record in records for item in record.inputs]
        key = self._key(inputs)
        inputs.sort(key=lambda item: item.path)
        self.save(self.unit, key, inputs, seconds=sum(record.seconds for record in records))
        return key

    def _key(self, inputs: Iterable[InputRecord]) -> str:
        """Return the key of every shard's marks: it depends on the bytes of all shards."""
        checksums = {item.path: item.checksum for item in inputs}
        paths = [info.path for shard in self.dataset.shards for info in self.columns.work(shard).files]
        content = [checksums[path] for path in paths]
        return work_key("dedupe", VERSION, {"set": self.unit.key, "inputs": content})

    def _plan(self, chosen: Dataset, key: str, exchanged: Exchanged | None = None) -> Plan:
        stage = MarkStage(self.root, self.name, self.reads)
        if exchanged is None:
            return self.plan(stage, chosen.shards, key, {})
        stage = replace(stage, folder=exchanged.folder, records=exchanged.by_shard)
        return self.plan(stage, chosen.shards, key, self._works(exchanged))

    def _works(self, exchanged: Exchanged) -> dict[str, ShardMarks]:
        largest = largest_of(cluster for info in exchanged.infos for cluster in info["largest"])
        found: dict[str, ShardMarks] = {}
        for spooled in spooled_shards(exchanged.records):
            inside = tuple(
                (size, place & 0xFFFFFFFF) for size, place in largest if place >> PLACE_BITS == spooled.number
            )
            shard = self.dataset.shards[spooled.number]
            found[shard.path] = ShardMarks(shard, spooled, inside)
        return found

    @property
    def _folder(self) -> str:
        """Where the exchange lies: places depend on the listing, and so does its key."""
        listing = [shard.path for shard in self.dataset.shards]
        return self.folder(work_key("dedupe", VERSION, {"set": self.unit.key, "listing": listing}))

    def _exchange(self, options: RunOptions, shuffle: Literal["files", "p2p"]) -> Exchanged:
        count = len(self.dataset.shards)
        emitter = KeyEmitter(self.root, "dedupe", self.recipe, self.policy)
        return exchange(
            emitter,
            self.reading(range(count)),
            SurvivorReducer(word_count(emitter.dtype)),
            folder=self._folder,
            key=self._folder.rpartition("/")[2],
            shards=count,
            options=options,
            shuffle=shuffle,
            verb="dedupe",
        )

    def _summarize(self, summary: Summary, key: str) -> DedupeSummary:
        known = self.records if key else {}
        paths = map(self.path, self.dataset.shards)
        records = [known[path] for path in paths if path in known and known[path].key == key]
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return summarize(summary, records, listing)


def _document_column(column: str) -> str:
    """Return the document column behind a column: itself, the metadata, or the text, of which attributes may be made."""
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
