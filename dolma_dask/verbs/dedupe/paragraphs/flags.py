"""Spans of duplicate paragraphs beside the documents of each shard, the share of each document that they are, and the counts that its record keeps.

A span ends behind the separator, but never behind its text. Nothing is written for a document without any, whose share is 0.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Unit
from dolma_dask.errors import DataError
from dolma_dask.exchange.contract import Records
from dolma_dask.exchange.flag_rows import Counts, FlagRows
from dolma_dask.exchange.flags import FlagOutput, FlagSink, Mask, ShardCursor, StagedSource
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import AttributeColumn, large_rows
from dolma_dask.formats.json.write import DECIMALS
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record
from dolma_dask.reading.sets import share_key
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.columns import for_kernel, validity
from dolma_dask.verbs.dedupe.flags import MAX_SOURCES, merged_counts
from dolma_dask.verbs.dedupe.paragraphs.marks import mark_paragraphs

PARAGRAPH_TALLIED = ("documents", "paragraphs", "duplicates", "characters", "characters_marked", "copies")
"""Counts for each source; the last one is the most often that a paragraph is there whose survivor is of it."""

JOINED = 1 << 20
"""Flagged paragraphs of a document from which on neighbours are one span, so that its row stays one that readers take."""


class FoundParagraphs(Struct, frozen=True):
    """Consecutive rows of a shard, and what was found out about items of their paragraphs."""

    rows: FlagRows
    items: Counts  # of each paragraph
    at: Counts  # (m,) index of each of these among the items of the rows
    records: Records | None  # (m,) `FLAGS`; None: there are none


class ParagraphSource(StagedSource, frozen=True):
    """Rows of a shard with the places of their paragraphs, and the flags of items."""

    def found(self, cursor: ShardCursor) -> Iterator[FoundParagraphs]:
        """Yield the rows with the records about their items."""
        first = 0
        for rows in self.rows():
            items = items_of(rows)
            count = int(items.sum())
            yield FoundParagraphs(rows, items, *cursor.between(first, count))
            first += count


def items_of(rows: FlagRows) -> Counts:
    """Return how many items each paragraph has: one for each that has a width, where nothing else is staged."""
    column = rows.more["items"]
    _, numbers = flat(rows.more["widths" if column.null_count else "items"])
    return (numbers > 0).astype(np.int64) if column.null_count else numbers


def flat(lists: pa.LargeListArray) -> tuple[Counts, Counts]:
    """Return where each list begins and ends among all numbers (n + 1,), and the numbers."""
    bounds = np.asarray(lists.offsets, np.int64)
    if not len(bounds):
        return np.zeros(1, np.int64), np.empty(0, np.int64)
    numbers = np.asarray(lists.values.slice(bounds[0], bounds[-1] - bounds[0]), np.int64)
    return bounds - bounds[0], numbers


@dataclass(frozen=True)
class ParagraphOutput(FlagOutput):
    """Spans of duplicate paragraphs, beside each shard."""

    verb: str = "dedupe"
    overlap: float | None = None  # share of the n-grams of a paragraph; None: it has one item
    longest: int = MAX_RECORD_BYTES  # bytes of a row that readers take

    def open(self, unit: Unit, shard: str) -> "ParagraphSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return ParagraphSink(self, unit.name)


class Spans(Struct, frozen=True):
    """Flagged paragraphs of some rows (n,), back to back."""

    row: Counts  # (spans,)
    starts: Counts
    ends: Counts
    scores: npt.NDArray[np.float64]

    def joined(self, rows: Mask) -> "Spans":
        """Return the spans with neighbours that touch as one in some of the rows, with the least of their scores."""
        begins = np.ones(len(self.row), np.bool_)
        touches = (self.row[1:] == self.row[:-1]) & (self.starts[1:] == self.ends[:-1])
        begins[1:] = ~(touches & rows[self.row[1:]])
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(begins)) - 1
        scores = np.minimum.reduceat(self.scores, first) if len(first) else self.scores
        return Spans(self.row[first], self.starts[first], self.ends[last], scores)

    def values(self, rows: int) -> pa.Array:
        """Return them as a list for each row, null where there are none."""
        counts = np.bincount(self.row, minlength=rows)
        bounds = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
        names = ("start", "end", "score")
        spans = pa.StructArray.from_arrays(list(map(pa.array, (self.starts, self.ends, self.scores))), names)
        return pa.ListArray.from_arrays(pa.array(bounds), spans, mask=pa.array(counts == 0))


def told_apart(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return shares that are not rounded to 0 or 1 when they are written, unless nothing or everything is flagged."""
    least = 10.0**-DECIMALS
    return np.where((shares > 0) & (shares < 1), np.clip(shares, least, 1 - least), shares)


class ParagraphSink(FlagSink):
    """Writes the spans of one shard, and counts paragraphs by source."""

    def __init__(self, output: ParagraphOutput, path: str) -> None:
        super().__init__(output, path)
        self._overlap, self._longest = output.overlap, output.longest
        self._in_table = layout.format_of(path) == "parquet"
        self._share, self._tally = share_key(output.flag), ParagraphCounts()

    def write(self, found: FoundParagraphs) -> None:
        """Append rows."""
        spans, counts = _marked(found, self._overlap)
        self._tally.add(found.rows, counts)
        self._write(found.rows, spans, counts)

    def _write(self, rows: FlagRows, spans: Spans, counts: Counts) -> None:
        _, flagged, marked, _ = counts
        many = flagged > JOINED
        spans = spans.joined(many) if many.any() else spans
        readable = validity(rows.ids)
        share = told_apart(marked / np.maximum(rows.lengths, 1))
        columns = [
            AttributeColumn(self._flag, "spans", spans.values(len(rows)), whole=self._overlap is None),
            AttributeColumn(self._share, "document", pa.array(share, mask=~readable)),
        ]
        frame = rows.ids, rows.sources, rows.lengths
        if large := large_rows(*frame, columns, rows.errors, self._longest, in_table=self._in_table):
            row, size = next(iter(large.items()))
            raise DataError(
                f"row {rows.first + row} has so many duplicate paragraphs that its attributes take {size:,} bytes or more; expected at most {self._longest:,}, which "
                "readers take. Raise --max-record-bytes here and where they are read, or leave short ones out: --min-length."
            )
        self.writer.write(*frame, columns, rows.errors)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        names = [name for name in PARAGRAPH_TALLIED if name not in ("documents", "copies")]
        totals = dict(zip(PARAGRAPH_TALLIED, self._tally.totals, strict=True))
        self.counts.update({name: totals[name] for name in names})
        return super().record(unit, facts, quarantined)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers need to know, and the counts by source."""
        kinds = {self._flag: "spans", self._share: "document"}
        return {**super().info(facts), "kinds": kinds, **self._tally.info()}


def _marked(found: FoundParagraphs, overlap: float | None) -> tuple[Spans, Counts]:
    """Return the flagged paragraphs of some rows, and what `mark_paragraphs` counts of each row."""
    bounds, widths = flat(found.rows.more["widths"])
    items = found.items
    sizes = np.empty(0, np.int64)
    if found.records is not None:
        sizes = found.records["size"].astype(np.int64)
    counts, scores = np.zeros((4, len(found.rows)), np.int64), np.empty(len(items))
    row, starts, ends = (np.empty(len(items), np.int64) for _ in range(3))
    count = mark_paragraphs(
        for_kernel(bounds), for_kernel(widths), for_kernel(items), for_kernel(found.at), for_kernel(sizes),
        -1.0 if overlap is None else overlap, counts, row, starts, ends, scores,
    )  # fmt: skip
    spans = Spans(row[:count], starts[:count], ends[:count], told_apart(scores[:count]))
    return spans, counts


class ParagraphCounts(Struct):
    """Counts of one shard, in all and by source; as small as `MAX_SOURCES` of them."""

    totals: list[int] = msgspec.field(default_factory=lambda: [0] * len(PARAGRAPH_TALLIED))
    sources: dict[str, list[int]] | None = {}  # None: there are too many

    def add(self, rows: FlagRows, counts: Counts) -> None:
        """Count rows, with what `mark_paragraphs` counts of each."""
        known = validity(rows.ids) & validity(rows.sources)
        every, duplicates, marked, copies = counts
        sums, sources = (
            np.stack([np.ones_like(marked), every, duplicates, rows.lengths, marked]),
            rows.sources,
        )
        if not known.all():
            sums, copies, sources = sums[:, known], copies[known], sources.filter(pa.array(known))
        self.totals = merged_counts(self.totals, [*sums.sum(1).tolist(), int(copies.max(initial=0))])
        if self.sources is None:
            return
        encoded = sources.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        if max(len(names), len(self.sources)) > MAX_SOURCES:
            self.sources = None
            return
        by_source = _by_group(np.asarray(encoded.indices), len(names), sums, copies)
        for name, numbers in zip(names, by_source, strict=True):
            self.sources[name] = merged_counts(self.sources.get(name), numbers)

    def info(self) -> dict[str, Any]:
        """Return the counts by source, unless there are too many."""
        if self.sources is None or len(self.sources) > MAX_SOURCES:
            return {"many_sources": True, "paragraph_sources": {}}
        return {"paragraph_sources": dict(sorted(self.sources.items()))}


def _by_group(group: npt.NDArray[np.int32], count: int, sums: Counts, most: Counts) -> list[list[int]]:
    """Return the sums (m, n) of each of the groups of rows (n,), and the greatest of `most` (n,); sums of a block are exact as floats."""
    added = [np.bincount(group, row, count) for row in sums]
    greatest = np.zeros(count, np.int64)
    np.maximum.at(greatest, group, most)
    numbers: list[list[int]] = np.stack([*added, greatest], 1).astype(np.int64).tolist()
    return numbers
