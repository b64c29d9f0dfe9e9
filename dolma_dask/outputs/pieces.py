"""Documents as outputs of a mix: a file for each shard, or a piece that packed and shuffled files are put together from.

In listing order a piece is a file of small members, which the last pass only has to copy. For a shuffle rows are scattered into buckets by a hash
of the seed, the path of their shard and their row, and each bucket is sorted: the order depends on the seed and the listing alone, never on
workers. Disk: the stored size of what is kept, once (twice while a shuffle is sorted). Memory: `RUN_BYTES` of text and its copy while rows are
scattered, three times `BUCKET_BYTES` while a bucket is sorted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from isal import igzip, isal_zlib
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Task, Unit
from dolma_dask.formats.documents import RAW
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.journal import Record
from dolma_dask.sinks.jsonl import GZIP_LEVEL, JsonlWriter
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.text.columns import large_bytes, string_parts


class PieceOutput(Struct, frozen=True):
    """A piece for each shard, in the work folder of a packed or shuffled mix."""

    root: str  # of the output, for the quarantine
    folder: str  # of the pieces
    member_bytes: int
    seed: int | None  # of a shuffle
    buckets: int  # of a shuffle
    verb: str  # see `DocumentOutput`
    columns: ClassVar[tuple[str, ...]] = (RAW,)

    def open(self, unit: Unit, shard: str) -> "PieceSink | ScatterSink":
        """See `dolma_dask.sinks.sink.Output`."""
        if self.seed is None:
            return PieceSink(JsonlWriter(self.folder, unit.name, self.member_bytes, stage))
        return ScatterSink(self.folder, unit.name, shard, self.seed, self.buckets)


class PieceSink(WriterSink[JsonlWriter]):
    """Writes the lines of documents as a file of small members."""

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        assert rows.lines is not None
        self.writer.write(rows.lines)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        return piece_record(unit, facts, (self.writer.record,), self.writer.text_bytes, quarantined)


RUN_BYTES = 32 << 20
"""Text that is held before it is scattered."""

BUCKET_BYTES = 32 << 20
"""Text of a bucket, about."""

TEXT_PER_STORED = 4
"""Text bytes per stored byte of gzip, about."""

MAX_BUCKETS = 1 << 14

Hashes = npt.NDArray[np.uint64]

INDEX = np.dtype("<u8")
"""Type of the index of a scattered piece."""


def bucket_count(stored_bytes: int) -> int:
    """Return into how many buckets documents of this stored size are scattered, a power of two."""
    needed = stored_bytes * TEXT_PER_STORED // BUCKET_BYTES + 1
    return min(1 << (needed - 1).bit_length(), MAX_BUCKETS)


def order_hashes(seed: int, path: str, rows: npt.NDArray[np.int64]) -> Hashes:
    """Return the hash by which the rows of a shard are ordered in a shuffle; rows (n,) do not descend, and equal ones have several hashes."""
    base = np.uint64(xxhash.xxh64_intdigest(path.encode(), seed))
    firsts = np.searchsorted(rows, rows)
    copies = (np.arange(len(rows)) - firsts).astype(np.uint64)
    with np.errstate(over="ignore"):
        word = (
            base
            + rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            + copies * np.uint64(0xD1342543DE82EF95)
        )
        # the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014), twice
        for _ in range(2):
            word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            word = word ^ (word >> np.uint64(31))
    return word


class ScatterSink(WriterSink[AbstractContextManager[None]]):
    """Scatters the kept rows of one shard into buckets of a file, a power of two of them.

    The index beside it has the suffix ``.index``: uint64[segments, 4], bucket, first byte, bytes and xxh3-64.
    """

    pack: Callable[[Hashes, Any], bytes] = staticmethod(lambda hashes, rows: pack_rows(hashes, rows))
    """Makes a segment of rows; `Unpack` reads it."""

    def __init__(self, root: str, path: str, shard: str, seed: int, buckets: int) -> None:
        self._path, self._shard, self._seed = path, shard, seed
        self._shift = 64 - (buckets.bit_length() - 1)
        self._lines: list[pa.Array] = []
        self._hashes: list[Hashes] = []
        self._held = 0
        super().__init__(self._opened(files.join(root, path)))

    @contextmanager
    def _opened(self, url: str) -> Iterator[None]:
        with stage(f"{url}.index") as self._index_out, publish(url, synced=False) as self._out:
            yield
            self._flush()

    def write(self, rows: DocumentRows) -> None:
        """Hold rows until there are many."""
        if rows.lines:
            self.hold(rows.numbers, pa.concat_arrays([rows.lines]))

    def hold(self, numbers: npt.NDArray[np.int64], rows: pa.Array) -> None:
        """Hold what is scattered of rows (n,), by their numbers in the shard."""
        self._hashes.append(self.hashes(numbers))
        self._lines.append(rows)
        self._held += rows.nbytes
        if self._held >= RUN_BYTES:
            self._flush()

    def hashes(self, numbers: npt.NDArray[np.int64]) -> Hashes:
        """Return the hashes by which rows (n,) are ordered."""
        return order_hashes(self._seed, self._shard, numbers)

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The piece and its index, after a clean exit."""
        return tuple(
            FileRecord(path, out.bytes, out.checksum)
            for path, out in ((self._path, self._out), (f"{self._path}.index", self._index_out))
        )

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        return piece_record(unit, facts, self.files, 0, quarantined)

    def _flush(self) -> None:
        """Write what is held, a segment for each bucket."""
        if not self._lines:
            return
        hashes, lines = np.concatenate(self._hashes), pa.concat_arrays(self._lines)
        self._hashes, self._lines, self._held = [], [], 0
        order = np.argsort(hashes, kind="stable")
        hashes, lines = hashes[order], lines.take(pa.array(order))
        bucket = (hashes >> np.uint64(1) >> np.uint64(self._shift - 1)).astype(np.int64)  # 64 in two steps
        firsts, index = np.flatnonzero(np.diff(bucket, prepend=-1)), list[tuple[int, int, int, int]]()
        for first, stop in zip(firsts.tolist(), [*firsts[1:].tolist(), len(bucket)], strict=True):
            segment = self.pack(hashes[first:stop], lines.slice(first, stop - first))
            digest = xxhash.xxh3_64_intdigest(segment)
            index.append((int(bucket[first]), self._out.bytes, len(segment), digest))
            self._out.write(segment)
        self._index_out.write(np.array(index, INDEX).tobytes())


def piece_record(
    unit: Unit,
    facts: ShardFacts,
    files: tuple[FileRecord, ...],
    text_bytes: int,
    quarantined: tuple[FileRecord, ...],
) -> Record:
    """Return the record of a piece; its quarantine belongs to the dataset-wide record."""
    return facts.record(
        unit,
        files,
        int(facts.counts["documents_out"]),
        counts={"unproved_attribute_files": len(facts.unproved)},
        info={
            "text_bytes": text_bytes,
            "unproved": list(facts.unproved),
            "quarantine": [[file.path, file.bytes, file.checksum, file.rows] for file in quarantined],
        },
    )


def pack_rows(hashes: Hashes, lines: pa.LargeBinaryArray) -> bytes:
    """Return rows as gzip: their number, hashes and ends, and the lines."""
    cut, data = string_parts(lines)
    ends = (cut[1:] - cut[0]).astype("<i8")
    head = np.array([len(lines)], "<i8").tobytes()
    parts = [head, hashes.astype("<u8").tobytes(), ends.tobytes(), data[cut[0] : cut[-1]].tobytes()]
    return igzip.compress(b"".join(parts), GZIP_LEVEL, mtime=0)


def unpack_rows(segment: bytearray) -> tuple[Hashes, pa.LargeBinaryArray]:
    """Return what `pack_rows` was given."""
    data = isal_zlib.decompress(segment, wbits=31)
    count = int(np.frombuffer(data, "<i8", 1)[0])
    hashes = np.frombuffer(data, "<u8", count, 8)
    offsets = np.zeros(count + 1, np.int64)
    offsets[1:] = np.frombuffer(data, "<i8", count, 8 + 8 * count)
    return hashes, large_bytes(offsets, np.frombuffer(data, np.uint8, -1, 8 + 16 * count))


MAX_SORT_TASKS = 512
"""Tasks that sort at most: each reads the indexes of all pieces, whose size grows with that of the documents as well."""


def sorted_units(folder: str, suffix: str, buckets: int, key: str) -> list[tuple[Unit, ...]]:
    """Return the sorted pieces of neighbouring buckets, those of each task."""
    units = [Unit(f"{folder}/{number:08d}.{suffix}", key) for number in range(buckets)]
    together = -(-buckets // MAX_SORT_TASKS)
    return [tuple(units[first : first + together]) for first in range(0, buckets, together)]


def _bucket_of(unit: Unit) -> int:
    return int(unit.name.rpartition("/")[2].partition(".")[0])


class SortStage(Struct, frozen=True):
    """The second pass of a shuffle: the rows of some buckets from all pieces, each sorted."""

    folder: str  # where pieces wait
    # their paths and the checksums of their indexes, in the order of shards
    pieces: tuple[tuple[str, str], ...]
    member_bytes: int  # of the sorted pieces
    verb: str = "mix-sort"

    def run_shard(self, task: Task) -> list[Record]:
        """Sort some neighbouring buckets; see `dolma_dask.engine.Stage`."""
        buckets = {_bucket_of(unit): unit for unit in task.units}
        scattered = Scattered(self.folder, self.pieces, min(buckets), max(buckets) + 1)
        records = []
        for bucket, unit in buckets.items():
            file, text_bytes = self.write(unit.name, scattered.sorted(bucket, self.unpack))
            info = {"text_bytes": text_bytes}
            records.append(replace(task, units=(unit,)).record([file], rows=file.rows, info=info))
        return records

    def unpack(self, segment: bytearray) -> tuple[Hashes, pa.Array]:
        """Return hashes and rows of a segment, as they were packed."""
        return unpack_rows(segment)

    def write(self, path: str, rows: pa.Array | None) -> tuple[FileRecord, int]:
        """Write a sorted piece; return its file, and the bytes of its texts."""
        with JsonlWriter(self.folder, path, self.member_bytes, stage) as writer:
            if rows is not None:
                writer.write(rows)
        return writer.record, writer.text_bytes


Unpack = Callable[[bytearray], tuple[Hashes, pa.Array]]
"""Returns hashes and rows of a segment, as they were packed."""


class Scattered:
    """Rows of neighbouring buckets in all pieces; `pieces` are paths and the checksums of their indexes, of which the part for the buckets is in memory."""

    def __init__(self, folder: str, pieces: Sequence[tuple[str, str]], first: int, stop: int) -> None:
        self._pieces = [
            (files.join(folder, path), _index(files.join(folder, path), checksum, first, stop))
            for path, checksum in pieces
        ]

    def sorted(self, bucket: int, unpack: Unpack) -> pa.Array | None:
        """Return the rows of a bucket, sorted; None if there are none."""
        found = self.with_hashes(bucket, unpack)
        return None if found is None else found[1]

    def with_hashes(self, bucket: int, unpack: Unpack) -> tuple[Hashes, pa.Array] | None:
        """Return hashes and rows of a bucket, sorted; None if there are none."""
        parts = [part for url, index in self._pieces for part in _segments(url, index, bucket, unpack)]
        if not parts:
            return None
        hashes = np.concatenate([part[0] for part in parts])
        order = np.argsort(hashes, kind="stable")  # equal ones stay in the order of shards and rows
        return hashes[order], pa.concat_arrays([part[1] for part in parts]).take(pa.array(order))


def _index(url: str, checksum: str, first: int, stop: int) -> npt.NDArray[np.uint64]:
    """Return the segments (n, 4) of some buckets in a piece; see `ScatterSink`."""
    with StagingReader(f"{url}.index", checksum) as file:
        every = np.frombuffer(file.read(0, file.bytes), INDEX).reshape(-1, 4)
    return every[(every[:, 0] >= first) & (every[:, 0] < stop)]


def _segments(
    url: str, index: npt.NDArray[np.uint64], bucket: int, unpack: Unpack
) -> Iterator[tuple[Hashes, pa.Array]]:
    """Yield the rows of a bucket in one piece, run by run."""
    segments = index[index[:, 0] == bucket]
    if not len(segments):
        return
    with files.open_read(url, scattered=True) as handle:
        for _, first, size, digest in segments.tolist():
            data = bytearray(size)
            files.read_into(handle, first, memoryview(data), url)
            if xxhash.xxh3_64_intdigest(data) != digest:
                raise files.damaged(url, f"another checksum of bytes {first} to {first + size}")
            yield unpack(data)
