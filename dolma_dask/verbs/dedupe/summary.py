"""What `dedupe` found, as tables: by source, and the largest clusters. All of it stands in the journal's records of the shards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from dolma_dask.display import counted, html_table, text_table
from dolma_dask.journal import Record
from dolma_dask.summary import Summary, show
from dolma_dask.verbs.dedupe.survivors import LARGEST
from dolma_dask.verbs.dedupe.tally import MOST_SOURCES, merged

_COUNTS = (
    "documents_in",
    "text_bytes",
    "duplicates",
    "text_bytes_marked",
    "clusters",
    "bad_records",
    "unproved_attribute_files",
)
"""In the order of the table."""

_SHOWN_ID = 60
"""Characters of an id in a table; JSON has all of it."""


@dataclass(frozen=True)
class SourceDuplicates:
    """What was found in the documents of one source.

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
class Cluster:
    """Documents of which one survives.

    Attributes
    ----------
    size : int
        How many they are, the survivor included.
    id, source, shard : str
        Of the survivor.
    row : int
        Of the survivor in its shard.
    """

    size: int
    id: str
    source: str
    shard: str
    row: int


@dataclass(frozen=True, repr=False)
class DedupeSummary(Summary):
    """The outcome of `dedupe`.

    Attributes
    ----------
    sources : tuple of SourceDuplicates
        By source, sorted by name.
    clusters : tuple of Cluster
        The largest, at most 20; of equal ones those that come first in the listing.
    """

    sources: tuple[SourceDuplicates, ...] = ()
    clusters: tuple[Cluster, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            **super().to_json(),
            "sources": [vars(row) for row in self.sources],
            "clusters": [vars(cluster) for cluster in self.clusters],
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table: a label and a value each."""
        rows = super().rows()
        if self.clusters:
            rows.insert(-2, ("largest cluster", counted(self.clusters[0].size, "document")))
        return rows

    def __str__(self) -> str:
        tables = [self._source_rows(), self._cluster_rows()]
        shown = [["", *(f"  {line}" for line in text_table(rows))] for rows in tables if len(rows) > 1]
        return "\n".join([super().__str__(), *(line for lines in shown for line in lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        named = (("By source", self._source_rows()), ("Largest clusters", self._cluster_rows()))
        tables = [html_table(caption, rows) for caption, rows in named if len(rows) > 1]
        return super()._repr_html_() + "".join(tables)

    def _source_rows(self) -> list[list[str]]:
        rows = [["source", "documents", "duplicates", "text marked", "clusters", "largest"]]
        for row in self.sources:
            numbers = (row.documents, row.duplicates, row.clusters, row.largest)
            documents, duplicates, clusters, largest = (f"{number:,}" for number in numbers)
            marked = show("text_bytes_marked", row.text_bytes_marked)
            rows.append([row.source, documents, duplicates, marked, clusters, largest])
        return rows

    def _cluster_rows(self) -> list[list[str]]:
        rows = [["survivor", "documents", "source", "shard", "row"]]
        for cluster in self.clusters:
            name = cluster.id if len(cluster.id) <= _SHOWN_ID else f"{cluster.id[: _SHOWN_ID - 4]} ..."
            rows.append([name, f"{cluster.size:,}", cluster.source, cluster.shard, f"{cluster.row:,}"])
        return rows


def summarize(summary: Summary, records: Sequence[Record], listing: Mapping[str, int]) -> DedupeSummary:
    """Return a summary with the tables that the records of all shards make.

    Parameters
    ----------
    summary : Summary
        Of the run.
    records : sequence of Record
        Of the shards, finished now or before.
    listing : mapping of str to int
        Shard to its number.
    """
    known = {item.name: getattr(summary, item.name) for item in fields(Summary)}
    known["counts"] = {name: summary.counts[name] for name in _COUNTS if name in summary.counts}
    sources = _by_source(records)
    if sources is None:
        known["notes"] = (*summary.notes, f"there are more than {MOST_SOURCES} sources: no table by source")
    return DedupeSummary(**known, sources=sources or (), clusters=_largest(records, listing))


def _by_source(records: Sequence[Record]) -> tuple[SourceDuplicates, ...] | None:
    """Return what was found in each source, or nothing if there are too many."""
    totals: dict[str, list[int]] = {}
    for record in records:
        if record.info.get("many_sources") or len(totals) > MOST_SOURCES:
            return None
        for name, numbers in record.info.get("sources", {}).items():
            totals[name] = merged(totals.get(name), numbers)
    if len(totals) > MOST_SOURCES:
        return None
    return tuple(SourceDuplicates(name, *totals[name]) for name in sorted(totals))


def _largest(records: Sequence[Record], listing: Mapping[str, int]) -> tuple[Cluster, ...]:
    found = [
        Cluster(size, identity, source, record.shard, row)
        for record in records
        for size, row, identity, source in record.info.get("clusters", ())
    ]
    found.sort(key=lambda cluster: (-cluster.size, listing[cluster.shard], cluster.row))
    return tuple(found[:LARGEST])
