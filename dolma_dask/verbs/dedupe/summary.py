"""The outcome of `dedupe` as tables: by source, and the largest clusters; in a report also how similar documents were found. All of it is in the journal's records."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from msgspec.structs import asdict, replace

from dolma_dask.display import counted, isolated, percent, shown_name
from dolma_dask.errors import UsageError
from dolma_dask.figures.figure import Figure
from dolma_dask.figures.model import Bars, Line, SignalHistogram
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Record
from dolma_dask.reading.indexes import IndexedDataset, index_table
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Recorded, Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.dedupe.bloom.filters import FilterHead
from dolma_dask.verbs.dedupe.flags import (
    LARGEST,
    MAX_SOURCES,
    SIZE_EDGES,
    add_sizes,
    merged_counts,
    size_words,
)
from dolma_dask.verbs.dedupe.fuzzy.comparison import Comparison, comparison_of

LEFT_OUT = ("documents_excluded", "documents_without_group")
"""Counts of documents that take no part."""

COUNTS = (
    "documents_in",
    "text_bytes",
    *LEFT_OUT,
    "documents_without_rank",
    "paragraphs",
    "compared",
    "duplicates",
    "text_bytes_marked",
    "characters",
    "characters_marked",
    "clusters",
    "short_texts",
    "empty_texts",
    "without_signature",
    "not_in_tables",
    "rows_without_document",
    "signatures_carried",
    "bad_records",
    "unproved_attribute_files",
)
"""In the order of the table."""

BY_SOURCE = (
    Column("source", "name"),
    Column("documents"),
    Column("duplicates"),
    Column("text marked", "size", "text_bytes_marked"),
    Column("clusters"),
    Column("largest"),
)
"""Columns of the table by source."""

_CLUSTERS = (
    Column("survivor", "name", "id"),
    Column("documents", of="size"),
    Column("mean similarity", "real", "similarity"),
    Column("source", "name"),
    Column("shard", "words", "shown_shard"),
    Column("row"),
)


@dataclass(frozen=True)
class SourceDuplicates:
    """Counts of the documents of one source.

    Attributes
    ----------
    source : str
        Its name.
    documents, duplicates : int
        Documents that could be read, and how many of them another one stands for.
    text_bytes_marked : int
        UTF-8 bytes of the duplicates' texts.
    clusters, largest : int
        Clusters whose survivor is of this source, and the documents of the largest of them.
    """

    source: str
    documents: int
    duplicates: int
    text_bytes_marked: int
    clusters: int
    largest: int


@dataclass(frozen=True)
class ClusterRow:
    """Documents of which one survives.

    Attributes
    ----------
    size : int
        How many they are, the survivor included.
    id, source, shard : str
        Of the survivor.
    row : int
        Of the survivor in its shard.
    similarity : float or None
        Mean, over all of them, of the similarity to the nearest one that it was compared with; None where no pairs were verified.
    dataset : str or None
        That of the survivor, as seen from the first one, where several were deduplicated together.
    """

    size: int
    id: str
    source: str
    shard: str
    row: int
    similarity: float | None = None
    dataset: str | None = None

    @property
    def shown_shard(self) -> str:
        """The shard, with its dataset where that is another one."""
        return self.shard if self.dataset in (None, ".") else f"{self.dataset}: {self.shard}"

    def to_json(self) -> dict[str, Any]:
        """Return what is known as JSON-able values."""
        return {name: value for name, value in vars(self).items() if value is not None}


class DedupeSummary(Summary, frozen=True):
    """The outcome of `dedupe`.

    Attributes
    ----------
    sources : tuple of SourceDuplicates
        By source, sorted by name.
    clusters : tuple of ClusterRow
        The largest, at most 20; of equal ones those that come first in the listing.
    comparison : Comparison or None
        How similar documents were found; None where equal ones were.
    beside : tuple of str
        Roots of further datasets whose documents are counted too.
    sizes : tuple of int
        Clusters by their size, in bins of 2, 3, 4 to 5, 6 to 7, 8 to 11 and so on documents; see `plot`.
    bloom : FilterHead or None
        Facts about the Bloom filter that was written, or that was read.
    index : tuple of IndexedDataset
        What the index holds now, dataset by dataset; empty without one.
    """

    row: ClassVar[type] = SourceDuplicates  # of the table by source

    sources: tuple[Any, ...] = ()
    clusters: tuple[ClusterRow, ...] = ()
    comparison: Comparison | None = None
    beside: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    bloom: FilterHead | None = None
    index: tuple[IndexedDataset, ...] = ()

    def plot(self) -> Figure:
        """Return the sizes of all clusters as a figure: how many have 2 documents, 3, 4 to 5, and so on.

        Nothing is read: the journal knows the sizes.

        Raises
        ------
        UsageError
            The flags were made before sizes were counted, or nothing was made.

        Examples
        --------
        >>> marks = dk.dedupe("corpus/v0", how="fuzzy")  # doctest: +SKIP
        >>> marks.plot().save("clusters.svg")  # doctest: +SKIP
        """
        clusters = int(self.counts.get("clusters", 0))
        if sum(self.sizes) != clusters:
            raise UsageError(
                f"the sizes of {counted(clusters - sum(self.sizes), 'cluster')} are not in the journal of {self.target}, as an earlier release made these "
                "flags; expected them there. Make them again: overwrite=True."
            )
        used = [number for number, count in enumerate(self.sizes) if count]
        most = max(self.sizes, default=0)
        bars = Bars(
            "clusters",
            tuple(map(size_words, used)),
            tuple(self.sizes[number] for number in used),
            "documents in a cluster",
            "clusters",
            has_log_axis=most > 50 * min((self.sizes[number] for number in used), default=most),
        )
        documents, copies = (int(self.counts.get(name, 0)) for name in ("documents_in", "duplicates"))
        note = f"{counted(clusters, 'cluster')}; {copies:,} of {counted(documents, 'document')} are copies of a survivor ({percent(copies, documents)})"
        return Figure("Sizes of clusters of duplicates", (bars,), notes=(note,))

    def to_json(self) -> dict[str, Any]:
        known = super().to_json()
        return {
            name: value
            for name, value in known.items()
            if value or name not in ("comparison", "beside", "bloom", "index")
        }

    def facts(self) -> list[Fact]:
        return [*super().facts(), *(Fact("and", root) for root in self.beside)]

    def own_facts(self) -> list[Fact]:
        largest = [Fact("largest cluster", counted(one.size, "document")) for one in self.clusters[:1]]
        return [*largest, *(self.comparison.facts() if self.comparison else []), *self.filter_facts()]

    def filter_facts(self) -> list[Fact]:
        """Return what is to be known of the Bloom filter."""
        return [Fact("Bloom filter", self.bloom.text)] if self.bloom else []

    def tables(self) -> list[Table]:
        return [self.by_source(), self.largest(), *([index_table(self.index)] if self.index else [])]

    def by_source(self) -> Table:
        """Return the counts of each source."""
        documents, copies = (
            sum(getattr(row, name) for row in self.sources) for name in ("documents", "duplicates")
        )
        caption = (
            f"{copies:,} of {counted(documents, 'document')} {'is a copy' if copies == 1 else 'are copies'} of another one, which survives. "
            "A cluster counts for the source of its survivor."
        )
        return Table.of("by source", BY_SOURCE, self.sources, caption)

    def largest(self) -> Table:
        """Return the largest clusters."""
        is_verified = any(cluster.similarity is not None for cluster in self.clusters)
        note = "Similarities are those of each document to the nearest one that it was compared with."
        return Table.of("largest clusters", _CLUSTERS, self.clusters, note if is_verified else "")


def summarize(summary: Summary, records: Sequence[Record], listing: Mapping[str, int]) -> DedupeSummary:
    """Return a summary with the tables of the records of all shards, finished now or before; `listing` numbers the shards."""
    counts = {name: summary.counts[name] for name in COUNTS if name in summary.counts}
    known = {**asdict(summary), "counts": counts}
    sources = sums_by_source(records)
    if sources is None:
        known["notes"] = (*summary.notes, f"there are more than {MAX_SOURCES} sources: no table by source")
    sizes = tuple(add_sizes(record.info.get("sizes", ()) for record in records))
    rows = tuple(SourceDuplicates(name, *numbers) for name, numbers in (sources or {}).items())
    return DedupeSummary(**known, sources=rows, clusters=_largest(records, listing), sizes=sizes)


def sums_by_source(records: Sequence[Record], of: str = "sources") -> dict[str, list[int]] | None:
    """Return the counts of each source by name, or nothing if there are too many; `of` says where records have them."""
    totals: dict[str, list[int]] = {}
    for record in records:
        if record.info.get("many_sources") or len(totals) > MAX_SOURCES:
            return None
        for name, numbers in record.info.get(of, {}).items():
            totals[name] = merged_counts(totals.get(name), numbers)
    return None if len(totals) > MAX_SOURCES else dict(sorted(totals.items()))


def _largest(records: Sequence[Record], listing: Mapping[str, int]) -> tuple[ClusterRow, ...]:
    clusters = [
        ClusterRow(size, identity, source, record.shard, row, *others)
        for record in records
        for size, row, identity, source, *others in record.info.get("clusters", ())
    ]
    clusters.sort(key=lambda cluster: (-cluster.size, listing[cluster.shard], cluster.row))
    return tuple(clusters[:LARGEST])


def joined(summaries: Sequence[DedupeSummary]) -> DedupeSummary:
    """Return the summary of several datasets as that of the first."""
    first, *others = summaries
    if not others:
        return first
    beside = [(files.relative(first.target, one.target), one) for one in others]
    counts: Counter[str] = Counter()
    sources: dict[str, list[int]] = {}
    for one in summaries:
        counts.update(one.counts)
        for row in one.sources:
            name, *numbers = vars(row).values()
            sources[name] = merged_counts(sources.get(name), numbers)
    clusters = [
        dataclasses.replace(cluster, dataset=place)
        for place, one in ((".", first), *beside)
        for cluster in one.clusters
    ]
    return replace(
        first,
        done=sum(one.done for one in summaries),
        skipped=sum(one.skipped for one in summaries),
        counts={name: counts[name] for name in COUNTS if name in counts},
        notes=tuple(dict.fromkeys(note for one in summaries for note in one.notes)),
        planned=(*first.planned, *(f"{place}: {shard}" for place, one in beside for shard in one.planned)),
        lost=any(one.lost for one in summaries),
        sources=tuple(first.row(name, *sources[name]) for name in sorted(sources)),
        clusters=tuple(sorted(clusters, key=lambda cluster: -cluster.size)[:LARGEST]),
        beside=tuple(one.target for one in others),
        sizes=tuple(add_sizes(one.sizes for one in summaries)),
    )


# ------------------------------------------------------------------------------------------------ in a report


SECTION = "Duplicates"


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the tables of each set of flags: by source, how similar documents were found, and clusters."""
    sets: defaultdict[str, list[Record]] = defaultdict(list)
    similar = {record.unit.split("/")[1]: record for record in step.records if "comparison" in record.info}
    for record in step.records:
        if "sources" in record.info:
            sets[record.unit.split("/")[1]].append(record)
    yield from _paragraph_tables(step)
    for name, records in sets.items():
        listing = {record.shard: number for number, record in enumerate(records)}
        summary = summarize(Summary("dedupe", step.root), records, listing)
        by_source, largest = summary.by_source(), summary.largest()
        params = step.params_of(f"{layout.ATTRIBUTES}/{name}/")
        aside = _took_no_part(records, params)
        flags = f"{name}/{key}" if (key := params.get("key")) else name
        tables = [replace(by_source, caption=by_source.caption + aside)]
        if name in similar:
            info = similar[name].info
            tables += [_found_pairs(comparison_of(info["comparison"])), _cluster_sizes(info["sizes"])]
        for table in (*tables, largest):
            title = f"{isolated(flags)} in {shown_name(step.root)}, {table.title}"
            yield replace(table, section=SECTION, title=title)


def _paragraph_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of each set of spans of paragraphs."""
    from dolma_dask.verbs.dedupe.paragraphs.summary import summarize as summarize_paragraphs

    sets: defaultdict[str, list[Record]] = defaultdict(list)
    for record in step.records:
        if "paragraph_sources" in record.info:
            sets[record.unit.split("/")[1]].append(record)
    for name, records in sets.items():
        table = summarize_paragraphs(Summary("dedupe", step.root), records).by_source()
        aside = _took_no_part(records, step.params_of(f"{layout.ATTRIBUTES}/{name}/"))
        title = f"{isolated(name)} in {shown_name(step.root)}, {table.title}"
        yield replace(table, section=SECTION, title=title, caption=table.caption + aside)


def _took_no_part(records: Sequence[Record], params: Mapping[str, Any]) -> str:
    """Say how many documents `dedupe` did not look at, and why not."""
    excluded, apart = (sum(int(record.counts.get(key, 0)) for record in records) for key in LEFT_OUT)
    if not excluded + apart:
        return ""
    where, within = params.get("where"), params.get("within")
    limits = [f"for which {isolated(where)} holds"] if excluded and isinstance(where, str) else []
    limits += [f"with a value of {isolated(within)}"] if apart and isinstance(within, str) else []
    reason = f": only those {' and '.join(limits)} were compared" if limits else ""
    return f" {counted(excluded + apart, 'document')} took no part{reason}."


def _found_pairs(comparison: Comparison) -> Table:
    """Return the table of the S-curve."""
    at, x = np.arange(0.3, 1.0, 0.1), np.linspace(0, 1, 101)
    bound = [(">=", comparison.similarity)]
    line = Line("S-curve", x, comparison.recall(x), "Jaccard similarity", "pairs found", bound)
    words = "; ".join(f"{fact.label}: {fact.text}" for fact in comparison.facts())
    return Table(
        "pairs found by similarity",
        (Column("Jaccard similarity", "real"), Column("expected share of pairs found", "real")),
        [(round(one, 2), round(found, 4)) for one, found in zip(at.tolist(), comparison.recall(at).tolist(), strict=True)],
        f"{words}. The dashed line is the wanted similarity: what is found to the left of it is wrong, what is missed to the right of it is lost.",
        plot=line,
        is_detail=True,
    )  # fmt: skip


def _cluster_sizes(counts: Sequence[int]) -> Table:
    """Return the table of how many clusters have how many documents."""
    edges = SIZE_EDGES[: len(counts) + 1].astype(np.float64)
    numbers = np.array(counts, np.int64)
    sizes = SignalHistogram("sizes of clusters", edges, numbers, scale="log", count_scale="log")
    return Table(
        "sizes of clusters",
        (Column("documents in a cluster", "name"), Column("clusters")),
        [(size_words(number), count) for number, count in enumerate(counts) if count],
        "Both axes of the plot are logarithmic." if counts else "No two documents are similar.",
        plot=sizes if counts else None,
    )
