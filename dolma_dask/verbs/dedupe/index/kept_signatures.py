"""What an index keeps of documents that are compared by similarity: signatures, band keys, and the table of what meets."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.exchange.contract import ROW_BITS, Records, locations
from dolma_dask.exchange.flag_rows import FlagRows
from dolma_dask.exchange.flags import ShardCursor
from dolma_dask.io.records import FileRecord
from dolma_dask.minhash.bands import band_records
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.fuzzy.choices import chosen_rows
from dolma_dask.verbs.dedupe.fuzzy.edges import KEYS, BandEmitter, read_numbers
from dolma_dask.verbs.dedupe.fuzzy.signatures import GROUP_ROWS, SignedShard, read_columns, read_signatures
from dolma_dask.verbs.dedupe.index.merges import MergeTable

_ROWS = np.uint64((1 << ROW_BITS) - 1)


def kept_rows(
    shard: SignedShard, folder: str, members: ShardRecords, num_perm: int
) -> Iterator[tuple[int, npt.NDArray[np.uint32], Bools, Words | None]]:
    """Yield the first of neighbouring rows, their signatures (n, num_perm), which of them are kept (n,), and the hashes of their groups (n,)."""
    chosen: Iterable[tuple[Bools | bool, Words | None]] = repeat((True, None))
    if shard.choice is not None:
        chosen = chosen_rows(folder, shard.choice)
    cursor, first = ShardCursor(members, shard.number), 0
    for (values, valid), (takes_part, salts) in zip(
        read_signatures(shard.url, num_perm), chosen, strict=False
    ):
        found = cursor.beside(_bare(first, len(values)))
        survives = np.ones(len(values), np.bool_)
        if found.records is not None:
            survives[found.at] = found.records["survives"] == 1
        yield first, values, valid & takes_part & survives, salts
        first += len(values)


def _bare(first: int, count: int) -> FlagRows:
    """Return rows of which nothing but the place is known."""
    nothing, none = np.zeros(count, np.int64), pa.nulls(count, pa.large_string())
    return FlagRows(first, none, none, nothing, nothing, {})


class KeptDocuments(Struct, frozen=True):
    """Writes the locations, and the signatures if they are verified, of the documents that are kept; ``task.work`` is (path, shards). See `dolma_dask.engine.Gather`."""

    root: str  # of the index
    folder: str  # of the staging files
    num_perm: int
    members: ShardRecords
    first_shard: int
    has_signatures: bool
    verb: str = "dedupe-index"

    def run_shard(self, task: Task) -> FileRecord:
        """Write one file."""
        path, shards = task.work
        kind = pa.binary(4 * self.num_perm)
        schema = pa.schema(
            [("location", pa.uint64()), *([("signature", kind)] if self.has_signatures else [])]
        )
        with GroupedTable(
            self.root, path, schema, GROUP_ROWS, use_dictionary=False, random=["signature"]
        ) as file:
            for shard in shards:
                for first, values, survives, _ in kept_rows(shard, self.folder, self.members, self.num_perm):
                    where = locations(self.first_shard + shard.number, first, len(values))[survives]
                    columns = [pa.array(where)]
                    if self.has_signatures:
                        stored = pa.py_buffer(np.ascontiguousarray(values[survives], "<u4"))
                        columns.append(pa.FixedSizeBinaryArray.from_buffers(kind, len(where), [None, stored]))
                    file.write(columns)
        return file.record


class KeptBands(BandEmitter, frozen=True, kw_only=True):
    """Sends the keys of the documents that are kept; ``task.work`` is (docno of the first, shards)."""

    members: ShardRecords

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the signatures of some shards."""
        docno, shards = task.work
        for shard in shards:
            for _, values, survives, salts in kept_rows(shard, folder, self.members, self.num_perm):
                count = int(np.count_nonzero(survives))
                docnos = np.zeros(len(values), np.uint64)
                docnos[survives] = np.arange(docno, docno + count, dtype=np.uint64)
                words = band_records(values, survives, docnos, self.bands, self.first, self.last, salts)
                out(words.view(KEYS).reshape(-1))
                docno += count
        inputs = tuple(item for shard in shards for item in shard.inputs)
        return Emitted(inputs, sum(shard.rows for shard in shards))


class KnownMerges(MergeTable, frozen=True, kw_only=True):
    """Writes the table of a segment; locations of survivors are rows of the shard that does not exist."""

    folder: str  # of the staging files
    olds: FileRecord | None
    known: tuple[SignedShard, ...]  # documents of the index

    def pairs(self) -> Iterator[tuple[Words, Words]]:
        """See `MergeTable`; behind the new documents those of the index that they connect with another one."""
        places = self._places()
        for new, old in super().pairs():
            yield new, places[old & _ROWS]
        for records in self.records.chunks_of_shard(self.datasets[-1].count):
            joined = records[records["survives"] == 0]
            if len(joined):
                yield places[joined["location"] & _ROWS], places[joined["old"] & _ROWS]

    def _places(self) -> Words:
        """Return the locations of the documents of the index that take part."""
        if self.olds is None:
            return np.empty(0, np.uint64)
        docnos = read_numbers(self.folder, self.olds, np.dtype("<u8"), 0, self.olds.rows)
        places = np.empty(len(docnos), np.uint64)
        for shard in self.known:
            start, end = np.searchsorted(docnos, [shard.first, shard.first + shard.rows])
            if start < end:
                held = [
                    np.asarray(batch.column(0)) for batch in read_columns(shard.url, ["location"], shard.hint)
                ]
                places[start:end] = np.concatenate(held)[docnos[start:end] - np.uint64(shard.first)]
        return places
