"""Flags of duplicates beside the documents of each shard, with the counts that its record keeps: by source, by the sizes of clusters, and the largest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.engine import Unit
from dolma_dask.exchange.flag_rows import Counts, FlagRows
from dolma_dask.exchange.flags import FlagOutput, FlagSink, FoundRows, Mask
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Words

MAX_SOURCES = 200
"""Sources that a shard's record tells apart; a dataset with more has no table by source."""

TALLIED = ("documents", "duplicates", "bytes", "clusters", "largest")
"""Counts for each source: clusters are those of its survivors."""

FLAGS = np.dtype([("location", "<u8"), ("size", "<u8")])
"""Flag of a document that is not alone: 0 for one that another stands for, else the size of the cluster it stands for."""

LARGEST = 20
"""Clusters whose survivors are shown, the largest first."""

SIZE_EDGES = np.array([part << octave for octave in range(48) for part in (2, 3)])
"""Smallest sizes of the bins; each ends before the next."""


@dataclass(frozen=True)
class DuplicateOutput(FlagOutput):
    """Flags of duplicates, beside each shard; what came back about documents are `FLAGS`."""

    verb: str = "dedupe"
    largest: Sequence[Sequence[int]] = ()  # clusters to show, as (size, location of the survivor, ...)

    def open(self, unit: Unit, shard: str) -> "DuplicateSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return DuplicateSink(self, unit.name)


class Marks(Struct, frozen=True):
    """Attributes of some rows (n,)."""

    flags: Mask
    sizes: Counts  # of the clusters that rows survive, 0 for the others
    more: Sequence[AttributeColumn] = ()


class DuplicateSink(FlagSink):
    """Writes the flags of one shard; counts duplicates by source, and keeps the survivors of the largest clusters."""

    def __init__(self, output: DuplicateOutput, path: str) -> None:
        super().__init__(output, path)
        self._largest = output.largest
        self._tally = FlagCounts()
        self._survivors: list[list[Any]] = []

    def write(self, found: FoundRows) -> None:
        """Append rows."""
        marks = self.marks(found)
        self.write_flags(found.rows, marks.flags, marks.more)
        self._tally.add(found.rows, marks.flags, marks.sizes)
        self._survivors.extend(self._survivors_among(found))

    def marks(self, found: FoundRows) -> Marks:
        """Return the attributes of rows; documents of which no record came back are alone."""
        flags, sizes = np.zeros(len(found.rows), np.bool_), np.zeros(len(found.rows), np.int64)
        if found.records is not None:
            sizes[found.at] = found.records["size"]
            flags[found.at] = found.records["size"] == 0
        return Marks(flags, sizes)

    def _survivors_among(self, found: FoundRows) -> Iterator[list[Any]]:
        if found.records is None:
            return
        rows, known = found.rows, found.records["location"]
        for size, location, *others in self._largest:
            place = bisect_left(known, location)
            if place < len(known) and known[place] == location:
                at = int(found.at[place])
                identity = [rows.ids[at].as_py(), rows.sources[at].as_py()]
                yield [size, rows.first + at, *identity, *self.described(size, *others)]

    def described(self, size: int, *sums: int) -> list[Any]:
        """Return what is shown of a cluster besides its survivor."""
        return []

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        self.counts.update(self._tally.counts())
        return super().record(unit, facts, quarantined)

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers need to know, and the counts by source and size."""
        return {**super().info(facts), **self._tally.info(), "clusters": self._survivors}


def largest_clusters(infos: Iterable[Mapping[str, Any]]) -> list[list[int]]:
    """Return the largest of the clusters that a reducer has found in each range of keys."""
    return largest_of(cluster for info in infos for cluster in info["largest"])


def largest_survivors(survivors: Words) -> list[list[int]]:
    """Return the largest clusters of survivors (location, size, ...) as [size, location, ...]; those of the lowest locations among equals."""
    if len(survivors) > LARGEST:
        least = np.partition(survivors[:, 1], -LARGEST)[-LARGEST]
        survivors = survivors[survivors[:, 1] >= least]
        survivors = survivors[np.lexsort((survivors[:, 0], ~survivors[:, 1]))][:LARGEST]
    return [[size, location, *others] for location, size, *others in survivors.tolist()]


def largest_of(clusters: Iterable[list[int]]) -> list[list[int]]:
    """Return the first `LARGEST` of [size, location, ...], by size and then by location."""
    return sorted(clusters, key=lambda cluster: (-cluster[0], cluster[1]))[:LARGEST]


# ------------------------------------------------------------------------------------------------ counts of a shard


class FlagCounts(Struct):
    """Counts of one shard, in all and by source; as small as `MAX_SOURCES` of them, however many there are."""

    # `TALLIED` of all documents that could be read
    totals: list[int] = msgspec.field(default_factory=lambda: [0] * len(TALLIED))
    # name to `TALLIED`; None: there are too many
    sources: dict[str, list[int]] | None = {}
    sizes: list[int] = []  # clusters by size, as `count_sizes`

    def add(self, rows: FlagRows, flags: npt.NDArray[np.bool_], sizes: npt.NDArray[np.int64]) -> None:
        """Count rows: which are flagged, and the sizes of the clusters they survive."""
        known = validity(rows.ids) & validity(rows.sources)
        columns = flags[known], sizes[known], rows.sizes[known]
        self.totals = merged_counts(self.totals, _counts(np.zeros(len(columns[0]), np.int64), *columns, 1)[0])
        self.sizes = add_sizes([self.sizes, count_sizes(columns[1][columns[1] > 0])])
        if self.sources is None:
            return
        encoded = rows.sources.dictionary_encode()
        if len(encoded.dictionary) <= MAX_SOURCES:
            source = np.asarray(encoded.indices.fill_null(0), np.int64)[known]
            names = encoded.dictionary.to_pylist()
            for name, numbers in zip(names, _counts(source, *columns, len(names)), strict=True):
                self.sources[name] = merged_counts(self.sources.get(name), numbers)
        if max(len(encoded.dictionary), len(self.sources)) > MAX_SOURCES:
            self.sources = None

    def counts(self) -> dict[str, float]:
        """Return the counts of the shard."""
        return {
            "duplicates": self.totals[1],
            "text_bytes_marked": self.totals[2],
            "clusters": self.totals[3],
        }

    def info(self) -> dict[str, Any]:
        """Return the counts by size, and by source unless there are too many sources."""
        by_source = (
            {"sources": dict(sorted(self.sources.items()))}
            if self.sources is not None
            else {"many_sources": True}
        )
        return {**by_source, "sizes": self.sizes}


def _counts(
    source: npt.NDArray[np.int64],
    flags: npt.NDArray[np.bool_],
    sizes: npt.NDArray[np.int64],
    texts: npt.NDArray[np.int64],
    count: int,
) -> list[list[int]]:
    """Return `TALLIED` for each of `count` sources, of rows (n,) by the number of their `source`."""
    text_bytes, largest = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(text_bytes, source[flags], texts[flags])
    np.maximum.at(largest, source, sizes)
    columns = [
        np.bincount(source, minlength=count),
        np.bincount(source[flags], minlength=count),
        text_bytes,
        np.bincount(source[sizes > 0], minlength=count),
        largest,
    ]
    counts: list[list[int]] = np.stack(columns, axis=1).tolist()
    return counts


def merged_counts(one: Sequence[int] | None, other: Sequence[int]) -> list[int]:
    """Return the counts `TALLIED` of two parts as those of the whole."""
    if one is None:
        return list(other)
    *sums, _ = (a + b for a, b in zip(one, other, strict=True))
    return [*sums, max(one[-1], other[-1])]


def count_sizes(sizes: npt.NDArray[np.integer[Any]]) -> list[int]:
    """Return how many of the sizes (n,) of clusters are in each bin of `SIZE_EDGES`, up to the last that has some."""
    bins = np.searchsorted(SIZE_EDGES, sizes.astype(np.int64), "right") - 1
    counts: list[int] = np.bincount(bins).tolist()
    return counts


def add_sizes(counts: Iterable[Sequence[int]]) -> list[int]:
    """Return the sums of what `count_sizes` has returned for parts."""
    return [sum(bins) for bins in zip_longest(*counts, fillvalue=0)]


def size_words(number: int) -> str:
    """Return the sizes of a bin in words: ``2``, ``4 to 5``."""
    first, last = int(SIZE_EDGES[number]), int(SIZE_EDGES[number + 1]) - 1
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
