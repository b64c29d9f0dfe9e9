"""The job of `dedupe` by equal values: keys of all shards through the exchange, then the flags of every shard.

The flags of a shard depend on all shards, so their key holds the checksums of all inputs, which the dataset-wide record of the last run knows,
or else the exchange. When everything is finished, nothing is started.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dolma_dask.engine import Announce, Passes, Plan, Ran, Unit, WorkDir
from dolma_dask.exchange import ShardRecords, Shuffle, exchange
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.verbs.dedupe.shards import FlagStage, KeyEmitter, KeyRecipe
from dolma_dask.verbs.dedupe.summary import DedupeSummary, summarize
from dolma_dask.verbs.dedupe.survivors import SurvivorReducer, largest_of
from dolma_dask.verbs.flagging import Flagging, dataset_unit

VERSION = 3
"""Raised whenever other documents are flagged, or in another way, for the same input and arguments."""

_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass(frozen=True, kw_only=True)
class Deduplication(Flagging, ABC):
    """A call of `dedupe`, with everything that decides its result."""

    shuffle: Shuffle = "files"

    verb = "dedupe"
    depends_on = "documents"

    @property
    def record(self) -> str:
        """Unit of the dataset-wide record."""
        return dataset_unit(self.name)

    @property
    @abstractmethod
    def key(self) -> str:
        """Digest of what was requested."""

    @property
    @abstractmethod
    def flag_stage(self) -> FlagStage:
        """Stage that writes the flags, as far as it is known before the first pass."""

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the flags, under a key that nothing has if the inputs are not known."""
        key = self.flags_key(known.inputs) if known else ""
        return self.plan(self.flag_stage, key if known and known.info.get("key") == key else "", {})

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """Return the summary, with the tables that the records of all shards make."""
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return summarize(ran.summary, tuple(ran.records.values()), listing)

    def flags_key(self, inputs: Iterable[InputRecord]) -> str:
        """Return the key of every shard's flags: it depends on the bytes of all shards."""
        checksums = {item.path: item.checksum for item in inputs}
        content = [checksums[item.info.path] for item in self.inputs]
        return work_key("dedupe", VERSION, {"set": self.key, "inputs": content})

    def stage_with(self, exchanged: ShardRecords, infos: Iterable[Mapping[str, Any]]) -> FlagStage:
        """Return the stage that writes the flags from the output of a reducer, which names the largest clusters of each range."""
        largest = largest_of(cluster for info in infos for cluster in info["largest"])
        return replace(self.flag_stage, records=exchanged, largest=largest)


@dataclass(frozen=True, kw_only=True)
class ExactDeduplication(Deduplication):
    """Documents are duplicates if they are equal in something."""

    recipe: KeyRecipe

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        params = {
            **self.columns.params(),
            "column": self.recipe.column,
            **self.recipe.choice.params(),
            "name": self.name,
            "max_record_bytes": self.policy.max_record_bytes,
        }
        return work_key("dedupe", VERSION, params)

    @property
    def reads(self) -> tuple[str, ...]:
        """Document columns that the flags depend on; attributes may be made of the text."""
        column, choice = self.recipe.column, self.recipe.choice
        by = ("id", "source") if column == "id" else (column,)
        longest = ("text",) if choice.keep == "longest" else ()
        return document_columns((*by, *longest, *choice.names))

    @property
    def flag_stage(self) -> FlagStage:
        """See `Deduplication`."""
        return FlagStage(self.root, self.name, self.reads)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Exchange the keys of all documents, announce which flags hold, and write them."""
        count = len(self.dataset.shards)
        emitter = KeyEmitter("dedupe", self.recipe, self.policy)
        exchanged = yield from exchange(
            work,
            emitter,
            self.reading(range(count)),
            SurvivorReducer(),
            shards=count,
            shuffle=self.shuffle,
        )
        emitted = exchanged.emitted.values()
        inputs = sorted((item for record in emitted for item in record.inputs), key=lambda item: item.path)
        key = self.flags_key(inputs)
        seconds = sum(record.seconds for record in emitted)
        yield Announce(self.dataset_record(Unit(self.record, self.key), key, inputs, seconds=seconds))
        assert exchanged.by_shard is not None
        stage = replace(self.stage_with(exchanged.by_shard, exchanged.infos), folder=work.url)
        ran: Ran = yield self.plan(stage, key, self.staged(exchanged))
        return ran


def document_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the document columns behind columns: themselves, the metadata, or the text, of which attributes may be made."""
    return tuple(sorted(set(map(_document_column, columns))))


def _document_column(column: str) -> str:
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
