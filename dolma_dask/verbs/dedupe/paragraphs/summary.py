"""The outcome of `dedupe` among paragraphs as a table by source; all of it is in the journal's records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import asdict

from dolma_dask.display import counted, percent
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.journal import Record
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.dedupe.flags import MAX_SOURCES
from dolma_dask.verbs.dedupe.summary import COUNTS, DedupeSummary, sums_by_source

BY_SOURCE = (
    Column("source", "name"),
    Column("documents"),
    Column("paragraphs"),
    Column("duplicates"),
    Column("characters"),
    Column("share marked", "share", "share"),
    Column("most copies", "integer", "copies", is_quiet=True),
)
"""Columns of the table by source."""


@dataclass(frozen=True)
class SourceParagraphs:
    """Counts of the documents of one source.

    Attributes
    ----------
    source : str
        Its name.
    documents, paragraphs, duplicates : int
        Documents that could be read, their paragraphs, and how many of these are flagged.
    characters, characters_marked : int
        Code points of the texts, and of the flagged paragraphs.
    copies : int
        How often the most frequent paragraph, or n-gram, is there of those whose survivor is of this source.
    """

    source: str
    documents: int
    paragraphs: int
    duplicates: int
    characters: int
    characters_marked: int
    copies: int

    @property
    def share(self) -> float:
        """Share of the characters that are in flagged paragraphs."""
        return self.characters_marked / self.characters if self.characters else 0.0


class ParagraphSummary(DedupeSummary, frozen=True):
    """The outcome of `dedupe` among paragraphs: counts, and `sources` with the columns of `SourceParagraphs`."""

    row: ClassVar[type] = SourceParagraphs

    def plot(self) -> Figure:
        """Raise `UsageError`: paragraphs have no clusters to draw."""
        raise UsageError("duplicates among paragraphs have no figure; expected those of documents.")

    def own_facts(self) -> list[Fact]:
        counts = {name: int(self.counts.get(name, 0)) for name in ("characters", "characters_marked")}
        marked = percent(counts["characters_marked"], counts["characters"])
        return [Fact("share marked", marked), *self.filter_facts()]

    def tables(self) -> list[Table]:
        return [self.by_source()]

    def by_source(self) -> Table:
        """Return the counts of each source."""
        paragraphs, flagged = (
            sum(getattr(row, name) for row in self.sources) for name in ("paragraphs", "duplicates")
        )
        caption = (
            f"{flagged:,} of {counted(paragraphs, 'paragraph')} {'is' if flagged == 1 else 'are'} flagged."
        )
        return Table.of("by source", BY_SOURCE, self.sources, caption)


def summarize(summary: Summary, records: Sequence[Record]) -> ParagraphSummary:
    """Return a summary with the table of the records of all shards, finished now or before."""
    counts = {name: summary.counts[name] for name in COUNTS if name in summary.counts}
    known = {**asdict(summary), "counts": counts}
    sources = sums_by_source(records, "paragraph_sources")
    if sources is None:
        known["notes"] = (*summary.notes, f"there are more than {MAX_SOURCES} sources: no table by source")
    rows = tuple(SourceParagraphs(name, *numbers) for name, numbers in (sources or {}).items())
    return ParagraphSummary(**known, sources=rows)
