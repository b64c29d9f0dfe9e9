"""From the labels of all documents to the rows of each shard: members of clusters through the exchange, which finds the survivors.

A cluster sends a header with its size, and a record per member; the header comes first, so that every member learns the size while the records stream.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Task, Unit
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.exchange.contract import Records, key_dtype, locations, to_records, to_words
from dolma_dask.exchange.flag_rows import FlagRows
from dolma_dask.exchange.flags import FoundRows, Mask, ShardCursor, StagedSource
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.layout import clusters_path
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.records import FileRecord
from dolma_dask.minhash.edges import root_bit
from dolma_dask.reading.clusters import table_schema
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Int, Words, kernel
from dolma_dask.verbs.dedupe.choice import Keep
from dolma_dask.verbs.dedupe.flags import (
    DuplicateOutput,
    DuplicateSink,
    Marks,
    add_sizes,
    count_sizes,
    largest_of,
    largest_survivors,
)
from dolma_dask.verbs.dedupe.fuzzy.choices import read_ranks
from dolma_dask.verbs.dedupe.fuzzy.edges import DocumentLabels, Labels
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignedShard, read_lengths, read_rows

MEMBERS = np.dtype(
    [("location", "<u8"), ("cluster", "<u8"), ("size", "<u8"), ("survives", "<u8"), ("matches", "<u8")]
)
"""A document of a cluster of two and more: the docno of the cluster's first, its size, whether this one survives (0 or 1), and the most values in
which its signature agrees with another one of the cluster; 0 where pairs are not verified.
"""

NOWHERE = np.uint64(0xFFFFFFFFFFFFFFFF)
"""No location."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Odd factor that spreads docnos over all 64 bits, by which the exchange shares out its work."""


class MemberEmitter(Struct, frozen=True):
    """Sends the members of clusters with their ranks; a task is a tuple of `SignedShard`. See `dolma_dask.exchange.Emitter`."""

    labels: DocumentLabels
    keep: Keep
    dtype: np.dtype[Any] = np.dtype([*key_dtype("rank").descr, ("matches", "<u8")])

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Send what the labels of some shards say."""
        shards: Sequence[SignedShard] = task.work
        for shard in shards:
            labels = self.labels.read(folder, shard.first, shard.rows)
            out(self._headers(shard, labels))
            out(self._members(shard, labels, folder))
        inputs = tuple(item for shard in shards for item in shard.inputs)
        return Emitted(inputs, sum(shard.rows for shard in shards))

    def _headers(self, shard: SignedShard, labels: Labels) -> Records:
        bit = root_bit(labels)
        rows = np.flatnonzero(labels > (bit | labels.dtype.type(1)))
        sizes = (labels[rows] & ~bit).astype(np.uint64)
        return self._records(rows + shard.first, np.zeros(len(rows), np.uint64), sizes)

    def _members(self, shard: SignedShard, labels: Labels, folder: str) -> Records:
        bit = root_bit(labels)
        rows = np.flatnonzero(labels != (bit | labels.dtype.type(1)))
        roots = labels[rows].astype(np.int64)
        is_root = (labels[rows] & bit) != 0
        roots[is_root] = rows[is_root] + shard.first
        ranks = self._ranks(shard, folder)
        ranks = np.ones(len(rows), np.uint64) if ranks is None else np.maximum(ranks[rows], np.uint64(1))
        where = locations(shard.number, 0, shard.rows)[rows]
        matches = self.labels.read_matches(folder, shard.first, shard.rows)
        return self._records(roots, ranks, where, matches[rows])

    def _records(
        self, clusters: npt.NDArray[np.int64], ranks: Words, location: Words, matches: Any = 0
    ) -> Records:
        records = np.empty(len(clusters), self.dtype)
        records["lo"] = clusters
        records["hi"] = records["lo"] * _SPREAD
        records["rank"], records["location"], records["matches"] = ranks, location, matches
        return records

    def _ranks(self, shard: SignedShard, folder: str) -> Words | None:
        """Return the ranks of all rows, of which the lowest survives; None: they are equal."""
        if self.keep == "first":
            return None
        if self.keep == "longest":
            longest_first: Words = ~read_lengths(shard.url).astype(np.uint64)
            return longest_first
        assert shard.choice is not None
        return read_ranks(folder, shard.choice)


@kernel
def mark_members(records: Words, state: Words, out: Words, closed: Words) -> tuple[Int, Int]:
    """Write `MEMBERS` of sorted records (hi, cluster, rank, location, matches), headers of rank 0 left out, and the clusters that end before another
    one as `closed` rows (location of the survivor, size, sum of matches); returns how many there are of each.

    `state` (3,) is such a row of the cluster that is open; its location is `NOWHERE` until the survivor is found.
    """
    written, ended = 0, 0
    for i in range(records.shape[0]):
        if records[i, 2] == 0:
            if state[1]:
                for place in range(3):
                    closed[ended, place] = state[place]
                ended += 1
            state[0], state[1], state[2] = NOWHERE, records[i, 3], np.uint64(0)
            continue
        out[written, 0] = records[i, 3]
        out[written, 1] = records[i, 1]
        out[written, 2] = state[1]
        out[written, 3] = np.uint64(state[0] == NOWHERE)
        out[written, 4] = records[i, 4]
        state[0] = records[i, 3] if state[0] == NOWHERE else state[0]
        state[2] += records[i, 4]
        written += 1
    return written, ended


class ClusterReducer(Struct, frozen=True):
    """Gives each member the size of its cluster, and finds the survivor: the first by rank, then in the listing."""

    dtype: np.dtype[Any] = MEMBERS

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Give out the members of a range; returns ``largest`` as `SurvivorReducer` does, with the sums of their matches, and ``sizes`` as `count_sizes`."""
        state = np.zeros(3, np.uint64)
        largest: list[list[int]] = []
        sizes: list[int] = []
        for run in runs:
            members, closed = np.empty((len(run), 5), np.uint64), np.empty((len(run), 3), np.uint64)
            count, ended = mark_members(for_kernel(to_words(run, run.dtype)), state, members, closed)
            out(to_records(members[:count], MEMBERS))
            largest = largest_of([*largest, *largest_survivors(closed[:ended])])
            sizes = add_sizes([sizes, count_sizes(closed[:ended, 1])])
        last = state.reshape(1, 3)[state[1:2] > 0]
        largest = largest_of([*largest, *largest_survivors(last)])
        return {"largest": largest, "sizes": add_sizes([sizes, count_sizes(last[:, 1])])}


# ------------------------------------------------------------------------------------------------ what is written


class SignedSource(StagedSource, frozen=True):
    """Rows of a shard from the file of its signatures, with the members of clusters."""

    def rows(self) -> Iterator[FlagRows]:
        """Yield the rows that were signed."""
        assert self.staged.staging is not None
        return read_rows(files.join(self.folder, self.staged.staging.path))


@dataclass(frozen=True)
class ClusterOutput(DuplicateOutput):
    """Flags of duplicates with the sizes of clusters and, if pairs are verified, similarities; what came back about documents are `MEMBERS`."""

    scale: int = 0  # what stands for a similarity of 1; 0: pairs are not verified

    def open(self, unit: Unit, shard: str) -> "ClusterSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return ClusterSink(self, unit.name)


class ClusterSink(DuplicateSink):
    """Writes the flags of one shard with the sizes and similarities of clusters."""

    def __init__(self, output: ClusterOutput, path: str) -> None:
        super().__init__(output, path)
        self._scale = output.scale
        self._size, self._similarity = size_key(output.flag), similarity_key(output.flag)

    def marks(self, found: FoundRows) -> Marks:
        """Return the attributes of rows: those of members of clusters have size and similarity too."""
        columns = np.zeros((3, len(found.rows)))
        if found.records is not None:
            members = found.records
            columns[:, found.at] = members["survives"] == 0, members["size"], members["matches"]
        flags, sizes = columns[0] == 1, columns[1].astype(np.int64)
        is_member = sizes > 0
        more = [_column(self._size, columns[1], is_member)]
        if self._scale:
            more.append(_column(self._similarity, columns[2] / self._scale, is_member))
        return Marks(flags, np.where(flags, 0, sizes), more)

    def described(self, size: int, *sums: int) -> list[Any]:
        """Return the mean similarity of a cluster, of the sum of the matches of its members."""
        (matches,) = sums
        return [round(matches / (size * self._scale), 4) if self._scale else None]

    def info(self, facts: ShardFacts) -> Mapping[str, Any]:
        """Return what readers need to know, and the counts by source and size."""
        known = super().info(facts)
        keys = [*known["kinds"], self._size, *([self._similarity] if self._scale else [])]
        return {**known, "kinds": dict.fromkeys(keys, "document")}


def _column(key: str, values: npt.NDArray[np.float64], valid: Mask) -> AttributeColumn:
    return AttributeColumn(key, "document", pa.array(values, mask=~valid))


def size_key(flag: str) -> str:
    """Return the key of the size of a document's cluster, beside the `flag` of the document."""
    return f"{flag}__cluster_size"


def similarity_key(flag: str) -> str:
    """Return the key of the estimated similarity of a document to the nearest one in its cluster that it was compared with."""
    return f"{flag}__similarity"


GROUP_ROWS = 65_536
"""Rows of a row group of the table."""


def check_place(root: str, name: str) -> None:
    """Refuse to replace a file that is no table of clusters; one that no journal knows may be what a killed run has left."""
    url = files.join(root, clusters_path(name))
    if files.stat(url) is not None and not _is_table(url):
        raise UsageError(
            f"{url} is no table of clusters that dedupe wrote; expected a free place. Choose another --name, or replace it with --overwrite."
        )


def _is_table(url: str) -> bool:
    try:
        with open_parquet(url) as file:
            return any(file.schema_arrow.equals(table_schema(datasets)) for datasets in (1, 2))
    except CorruptFileError:
        return False


class ClusterTable(Struct, frozen=True):
    """Writes all members of clusters of two and more, in the order of the listing; ``task.work`` are all `SignedShard`.

    A cluster is named by the shard and row of its first document; where there are several datasets, by that one's too.
    """

    roots: tuple[str, ...]  # of the datasets; the table is of the first
    name: str  # of the attribute set
    records: ShardRecords
    scale: int  # what stands for a similarity of 1; 0: pairs are not verified
    verb: str = "dedupe-clusters"

    def run_shard(self, task: Task) -> FileRecord:
        """Write the table."""
        shards: Sequence[SignedShard] = task.work
        starts, names = np.array([signed.first for signed in shards], np.int64), self._names(shards)
        schema = table_schema(len(self.roots))
        strings = [field.name for field in schema if pa.types.is_large_string(field.type)]
        path, repeated = clusters_path(self.name), [name for name in strings if name != "id"]
        with GroupedTable(self.roots[0], path, schema, GROUP_ROWS, use_dictionary=repeated) as writer:
            for signed in shards:
                cursor = ShardCursor(self.records, signed.number)
                for rows in read_rows(signed.url) if not cursor.is_done else ():
                    found = cursor.beside(rows)
                    if found.records is not None:
                        writer.write(self._members(found, found.records, signed.number, starts, names))
        return writer.record

    def _names(self, shards: Sequence[SignedShard]) -> list[pa.LargeStringArray]:
        """Return the paths of all shards and, where there are several datasets, theirs as seen from the first."""
        columns = [[signed.path for signed in shards]]
        if len(self.roots) > 1:
            seen = {root: files.relative(self.roots[0], root) for root in self.roots}
            columns.append([seen[signed.root] for signed in shards])
        return [pa.array(column, pa.large_string()) for column in columns]

    def _members(
        self,
        found: FoundRows,
        members: Records,
        number: int,
        starts: npt.NDArray[np.int64],
        names: Sequence[pa.LargeStringArray],
    ) -> list[pa.Array]:
        """Return the columns of the members among rows of a shard; `starts` are the first docnos of all shards, `names` as `_names`."""
        rows, at = found.rows, found.at
        clusters = members["cluster"].astype(np.int64)
        of = np.searchsorted(starts, clusters, "right") - 1
        own = np.full(len(members), number)
        paths, *datasets = names
        columns = [
            paths.take(pa.array(of)),
            clusters - starts[of],
            rows.sources.take(pa.array(at)),
            rows.ids.take(pa.array(at)),
            paths.take(pa.array(own)),
            at + rows.first,
            members["size"].astype(np.int64),
            members["survives"].astype(np.bool_),
            pa.nulls(len(members), pa.float64()),
        ]
        if self.scale:
            columns[-1] = members["matches"] / self.scale
        columns += [one.take(pa.array(shards)) for one in datasets for shards in (of, own)]
        return [pa.array(column) for column in columns]
