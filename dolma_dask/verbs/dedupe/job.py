"""The job of `dedupe` by equal values: keys of all shards through an exchange, then the flags of every shard.

The flags of a shard depend on all shards, so their key holds the checksums of all inputs, which the dataset-wide record of the last run knows,
or else the exchange. When everything is finished, nothing is started. Several datasets are several jobs of one run (`dolma_dask.exchange.job`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dolma_dask.engine import Ran
from dolma_dask.exchange.job import Exchange
from dolma_dask.journal import Record
from dolma_dask.verbs.dedupe.shards import DuplicateOutput, KeyEmitter, KeyRecipe
from dolma_dask.verbs.dedupe.summary import DedupeSummary, summarize
from dolma_dask.verbs.dedupe.survivors import SurvivorReducer, largest_of

VERSION = 3
"""Raised whenever other documents are flagged, or in another way, for the same input and arguments."""

_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass(frozen=True, kw_only=True)
class Deduplication(Exchange):
    """A call of `dedupe` for one dataset, with everything that decides its result."""

    verb = "dedupe"
    version = VERSION

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """Return the summary, with the tables that the records of all shards make."""
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return summarize(ran.summary, tuple(ran.records.values()), listing)


@dataclass(frozen=True, kw_only=True)
class ExactDeduplication(Deduplication):
    """Documents are duplicates if they are equal in something."""

    recipe: KeyRecipe

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        return {**super().requested, "column": self.recipe.column, **self.recipe.choice.params()}

    @property
    def emitter(self) -> KeyEmitter:
        """See `Exchange`."""
        return KeyEmitter(self.policy, self.verb, self.recipe)

    @property
    def reducer(self) -> SurvivorReducer:
        """See `Exchange`."""
        return SurvivorReducer()

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> DuplicateOutput:
        """See `Exchange`."""
        return DuplicateOutput(self.root, self.name, reads=self.reads, largest=largest_named(infos))

    @property
    def reads(self) -> tuple[str, ...]:
        """Document columns that the flags depend on; attributes may be made of the text."""
        column, choice = self.recipe.column, self.recipe.choice
        by = ("id", "source") if column == "id" else (column,)
        longest = ("text",) if choice.keep == "longest" else ()
        return document_columns((*by, *longest, *choice.names))


def largest_named(infos: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Return the largest of the clusters that reducers name for each range of keys."""
    return largest_of(cluster for info in infos for cluster in info["largest"])


def document_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the document columns behind columns: themselves, the metadata, or the text, of which attributes may be made."""
    return tuple(sorted(set(map(_document_column, columns))))


def _document_column(column: str) -> str:
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
