"""Buckets of records: how records are cut, and files from which any run of neighbouring buckets is read without touching the rest.

Records are cut into buckets by the top bits of their first word, and into ranges of neighbouring buckets by size. Buckets are fixed before a
record is seen, so that every task cuts alike; ranges follow from the sum of all histograms, so that they are the same for any number of
workers. A bucket that is too large by itself (one key, many times) is a range of its own.

Layout of a file, all little-endian: segments of records, each ordered by bucket; then a table with one row per bucket and one more, one
column per segment: (first record in the file, sum of the mixed words of the bucket); then a tail of 72 bytes. A reader of buckets a to b reads the
tail, rows a to b + 1 of the table and one slice of each segment, and checks every bucket it reads. Cost: 16 bytes per bucket and segment,
and for each file that is read 25 us, and 5 us per segment.

The last 8 bytes, its checksum, are a digest of all that the file holds. The journal knows it, and readers compare it:
a file of the same name and size that a process of an earlier call wrote is not taken for it.
"""

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.exchange import kernels
from dolma_dask.exchange.contract import Words
from dolma_dask.exchange.pieces import Piece, read_pieces
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile

MAX_BUCKETS = 1024
"""Buckets of keys, and at most so many of shards."""

Histogram = npt.NDArray[np.int64]
"""Records by bucket, shape (n_buckets,)."""


class Bucketing(Struct, frozen=True):
    """Bucket of a record = ``(its first word >> shift) - first``; there are `count` buckets."""

    shift: int
    count: int
    first: int = 0

    @property
    def low(self) -> np.uint64:
        """Least first word of the first bucket."""
        return np.uint64(self.first << self.shift)


class BucketRange(Struct, frozen=True):
    """Neighbouring buckets ``first`` to ``last - 1`` and the number of records in each."""

    first: int
    last: int
    counts: tuple[int, ...]

    @property
    def records(self) -> int:
        """Records in all of them."""
        return sum(self.counts)


def of_keys(buckets: int) -> Bucketing:
    """Return equal ranges of the values of a first word.

    Raises `UsageError`: `buckets` is not a power of two from 2 to 65,536.
    """
    if buckets & (buckets - 1) or not 2 <= buckets <= 1 << 16:
        raise UsageError(f"buckets={buckets}; expected a power of two from 2 to 65,536.")
    return Bucketing(64 - (buckets.bit_length() - 1), buckets)


def of_shards(shards: int) -> Bucketing:
    """Return groups of neighbouring shards, of one shard each as long as there are no more than `MAX_BUCKETS`."""
    bits = 0
    while shards > MAX_BUCKETS << bits:
        bits += 1
    return Bucketing(32 + bits, max(-(-shards // (1 << bits)), 1))


def each_shard(span: BucketRange, cut: Bucketing) -> Bucketing:
    """Return a bucket for each of the shards in a range of the buckets of `of_shards`."""
    bits = cut.shift - 32
    return Bucketing(32, (span.last - span.first) << bits, span.first << bits)


def choose_ranges(histogram: Histogram, most_records: int) -> tuple[BucketRange, ...]:
    """Join neighbouring buckets to ranges of at most `most_records`, unless a single bucket holds more.

    No range is empty, and all buckets with records are covered.
    """
    counts = histogram.tolist()
    bounds: list[tuple[int, int]] = []
    first, size = 0, 0
    for bucket, count in enumerate(counts):
        if size and size + count > most_records:
            bounds.append((first, bucket))
            first, size = bucket, 0
        size += count
    if size:
        bounds.append((first, len(counts)))
    return tuple(BucketRange(first, last, tuple(counts[first:last])) for first, last in bounds)


def pack_histogram(histogram: Histogram) -> str:
    """Return a histogram as a short string for the journal."""
    return base64.b64encode(zlib.compress(histogram.astype("<u8").tobytes(), 1)).decode()


def sum_histograms(packed: Iterable[str], buckets: int) -> Histogram:
    """Return the sum of what `pack_histogram` has packed."""
    total = np.zeros(buckets, np.int64)
    for text in packed:
        total += np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8")
    return total


# ------------------------------------------------------------------------------------------------ files

MAGIC = b"DDBUCKET"
VERSION = 3

_TAIL = struct.Struct("<8sQQQQQQQQ")
"""Magic, version, buckets, segments, words of a record, records, offset and xxh3-64 of the table, xxh3-64 of what stands before."""

ENTRY_BYTES = 16

FIRST_BYTES = 2 << 20
"""Bytes of records for which there is room at first. Larger arrays lie in large pages, all of which the system clears."""

Column = npt.NDArray[np.uint64]
"""Part of the table for one segment, shape (n_buckets + 1, 2): the first record of a bucket in the file, and its digest."""

FILES_AT_ONCE = 64
"""Files whose tables are read before their records: a store is asked for all of them at the same time."""


class FileFacts(NamedTuple):
    """Facts about a bucket file in the journal, by which its readers know it."""

    bytes: int
    records: int
    checksum: str


class Rooms:
    """Arrays that the tasks of a pass use one after another in a process: the system clears new memory, which costs as much as spreading records.

    They go with the stage that holds them; one that is sent to another process begins without.
    """

    def __init__(self) -> None:
        self._free: list[Words] = []

    def __reduce__(self) -> tuple[type["Rooms"], tuple[()]]:
        return Rooms, ()

    def take(self, rows: int, words: int) -> Words:
        """Return an array of this shape."""
        room = self._free.pop() if self._free else None
        return np.empty((rows, words), np.uint64) if room is None or room.shape != (rows, words) else room

    def give(self, room: Words) -> None:
        """Take back an array that nobody uses any more."""
        self._free.append(room)


class BucketWriter:
    """Collects records of some words and writes them in segments of `segment_records`; twice as many are held in memory."""

    def __init__(
        self,
        out: PublishedFile,
        words: int,
        bucketing: Bucketing,
        segment_records: int,
        rooms: Rooms | None = None,
    ) -> None:
        self.histogram: Histogram = np.zeros(bucketing.count, np.int64)  # records by bucket, so far
        self.checksum = ""  # of the file, after `finish`
        self._out = out
        self._words = words
        self._bucketing = bucketing
        self._limit = segment_records
        self._rooms = rooms or Rooms()
        self._held = np.empty((0, words), np.uint64)  # room for a segment, once there are records
        self._ordered = self._held
        self._held_records = 0
        self._counts: Histogram = np.zeros(bucketing.count, np.int64)  # of those that are held, by bucket
        self._table: list[Column] = []
        self._written = 0

    def add(self, rows: Words) -> None:
        """Take records; they are copied, so that the caller may use the array again."""
        self._make_room(len(rows))
        while len(rows):
            taken = min(self._limit - self._held_records, len(rows))
            held = self._held[self._held_records : self._held_records + taken]
            held[:] = rows[:taken]
            self._count(held)
            self._held_records += taken
            rows = rows[taken:]
            if self._held_records == self._limit:
                self._write_held()

    def _make_room(self, more: int) -> None:
        """Have room for so many records more, or for a segment; for few at first, since a task may have no more."""
        needed = self._held_records + more
        if needed <= len(self._held) or len(self._held) == self._limit:
            return
        few = min(FIRST_BYTES // (8 * self._words), self._limit)
        room = self._room(few if needed <= few else self._limit)
        room[: self._held_records] = self._held[: self._held_records]
        self._held = room

    def _room(self, rows: int) -> Words:
        if rows == self._limit:
            return self._rooms.take(rows, self._words)
        return np.empty((rows, self._words), np.uint64)

    def _count(self, rows: Words) -> None:
        """Count records by bucket, while they are in the cache."""
        low, shift = self._bucketing.low, self._bucketing.shift
        misplaced = kernels.count_buckets(rows, 0, low, shift, self._counts)
        if misplaced >= 0:
            raise DataError(
                f"a record for bucket {int(rows[misplaced, 0]) >> shift} was given to the exchange, which has {len(self._counts)}; expected "
                "locations (shard number << 32 | row) in its shards."
            )

    def finish(self) -> None:
        """Write what is held, the table and the tail; give back the memory."""
        self._write_held()
        for room in (self._held, self._ordered):
            if len(room) == self._limit:
                self._rooms.give(room)
        self._held = self._ordered = room[:0]
        at, columns = self._out.bytes, self._table
        table = np.stack(columns, axis=1) if columns else np.zeros(0, np.uint64)
        digest = xxhash.xxh3_64_intdigest(table.tobytes())
        if table.size:
            self._out.write(table)
        shape = self._bucketing.count, len(columns), self._words, self._written
        head = _TAIL.pack(MAGIC, VERSION, *shape, at, digest, 0)[:-8]
        checksum = xxhash.xxh3_64_intdigest(head)
        self._out.write(head + checksum.to_bytes(8, "little"))
        self.checksum = f"{checksum:016x}"

    def _write_held(self) -> None:
        rows, self._held_records = self._held[: self._held_records], 0
        if not len(rows):
            return
        ends = np.cumsum(self._counts)
        if len(self._ordered) < len(rows):
            self._ordered = self._room(len(self._held))
        ordered = self._ordered[: len(rows)]
        kernels.spread(rows, 0, self._bucketing.low, self._bucketing.shift, ends - self._counts, ordered)
        self._table.append(_column_of(ordered, ends, self._written))
        self._out.write(ordered)
        self._written += len(rows)
        self.histogram += self._counts
        self._counts[:] = 0


def _column_of(ordered: Words, ends: Histogram, before: int) -> Column:
    """Return the column of the table for one segment."""
    column = np.zeros((len(ends) + 1, 2), np.uint64)
    column[0, 0] = before
    column[1:, 0] = ends + before
    kernels.digest_buckets(ordered.reshape(-1), ordered.shape[1], column)
    return column


class Slice(NamedTuple):
    """Records of neighbouring buckets from one segment, ordered by bucket."""

    rows: Words  # overwritten when the next slice is asked for
    column: Column


class BucketFile(Struct, frozen=True):
    """A bucket file to read."""

    url: str
    words: int
    buckets: int
    facts: FileFacts

    @property
    def table_at(self) -> int:
        """Offset of the table."""
        return self.facts.records * 8 * self.words

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the table."""
        return (self.facts.bytes - _TAIL.size - self.table_at) // (self.buckets + 1)

    def head(self, first: int, last: int) -> tuple[Piece, Piece]:
        """Return the tail, and where the table tells of buckets `first` to ``last - 1``."""
        rows, at = self.row_bytes, self.table_at + first * self.row_bytes
        tail = Piece(self.url, self.facts.bytes - _TAIL.size, _TAIL.size)
        return tail, Piece(self.url, at, (last - first + 1) * rows)

    def check_tail(self, tail: memoryview) -> None:
        """Check that the file is the one that the journal names."""
        magic, version, buckets, _, words, _, _, _, checksum = _TAIL.unpack(tail)
        if (magic, version) != (MAGIC, VERSION) or checksum != xxhash.xxh3_64_intdigest(tail[:-8]):
            raise self.damaged(f"a tail {bytes(tail[:16])!r}...")
        if (buckets, words) != (self.buckets, self.words):
            raise self.damaged(f"{buckets} buckets of records of {words} words")
        if checksum != int(self.facts.checksum, 16):
            raise self.damaged(
                f"what another call has written (checksum {checksum:016x}, not {self.facts.checksum})"
            )

    def columns(self, stored: memoryview, first: int, last: int) -> Iterator[Column]:
        """Yield what rows of the table tell of each segment."""
        table = np.frombuffer(stored, np.uint64).reshape(last - first + 1, -1, 2).swapaxes(0, 1).copy()
        # the row beyond the last bucket has no digest
        if not kernels.is_table(table, self.facts.records) or (
            last == self.buckets and table[:, -1, 1].any()
        ):
            raise self.damaged(f"a table that is not in order in buckets {first} to {last - 1}")
        return iter(table)

    def slice(self, stored: memoryview, column: Column, first: int) -> Slice:
        """Return the records of buckets from `first` on, if they are those that a column of the table tells of."""
        words = np.frombuffer(stored, np.uint64)
        bucket = kernels.find_damage(words, self.words, column)
        if bucket >= 0:
            raise self.damaged(f"other records than its table tells of in bucket {first + bucket}")
        return Slice(words.reshape(-1, self.words), column)

    def piece(self, column: Column) -> Piece:
        """Return where the records lie that a column of the table tells of."""
        record, first, last = 8 * self.words, int(column[0, 0]), int(column[-1, 0])
        return Piece(self.url, first * record, (last - first) * record)

    def damaged(self, found: str) -> CorruptFileError:
        """Remove the file, and return the error that says so."""
        return files.damaged(self.url, found)


def read_buckets(sources: Sequence[BucketFile], first: int, last: int) -> Iterator[Slice]:
    """Yield the records of buckets `first` to ``last - 1`` of some files, one slice per segment that has some.

    Raises `CorruptFileError`: a file is gone, damaged, or another than that of its facts. Such a file is removed, so that the same command
    makes it again.
    """
    for start in range(0, len(sources), FILES_AT_ONCE):
        group = [file for file in sources[start : start + FILES_AT_ONCE] if file.facts.records]
        segments = [
            (file, column)
            for file, columns in _read_tables(group, first, last)
            for column in columns
            if column[0, 0] < column[-1, 0]
        ]
        stored = read_pieces([file.piece(column) for file, column in segments])
        for (file, column), data in zip(segments, stored, strict=True):
            yield file.slice(data, column, first)


def _read_tables(
    sources: Sequence[BucketFile], first: int, last: int
) -> Iterator[tuple[BucketFile, Iterator[Column]]]:
    stored = read_pieces([piece for file in sources for piece in file.head(first, last)])
    for file in sources:
        file.check_tail(next(stored))
        yield file, file.columns(next(stored), first, last)


def gather(slices: Iterable[Slice], counts: Sequence[int], words: int) -> Words | None:
    """Return the records of slices in one array, ordered by bucket and then as they come; None if they are not as many as `counts`."""
    ends = np.cumsum(counts)
    next_rows = ends - counts
    rows = np.empty((sum(counts), words), np.uint64)
    fits = all(
        kernels.place(part.rows.reshape(-1), words, part.column, next_rows, ends, rows.reshape(-1))
        for part in slices
    )
    return rows if fits and (next_rows == ends).all() else None
