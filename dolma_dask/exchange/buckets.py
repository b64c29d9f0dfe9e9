"""Buckets of records: how records are cut, and files from which any run of neighbouring buckets is read without touching the rest.

Records are cut into buckets by the top bits of their first word, and into ranges of neighbouring buckets by size. Buckets are fixed before a
record is seen, so that every task cuts alike; ranges follow from the sum of all histograms, so that they are the same for any number of
workers. A bucket that is too large by itself (one key, many times) is a range of its own.

Layout of a file, all little-endian: segments of records, each ordered by bucket; then a table with one row per bucket and one more, one
column per segment: (first record in the file, xxh3-64 of the records); then a tail of 72 bytes. A reader of buckets a to b reads the tail,
rows a to b + 1 of the table and one slice of each segment, and checks every bucket it reads. Cost: 16 bytes per bucket and segment, 1 us per
bucket and segment for the checksum.

The last 8 bytes, its checksum, are a digest of all that the file holds. The journal knows it, and readers compare it:
a file of the same name and size that a process of an earlier call wrote is not taken for it.
"""

import base64
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.exchange import kernels
from dolma_dask.exchange.contract import Words, bytes_of
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile

MOST_BUCKETS = 1024
"""Buckets of keys, and at most so many of shards."""

Histogram = npt.NDArray[np.int64]
"""Records by bucket, shape (n_buckets,)."""


@dataclass(frozen=True)
class Bucketing:
    """Bucket of a record = ``(its first word >> shift) - first``; there are `count` buckets."""

    shift: int
    count: int
    first: int = 0

    @property
    def low(self) -> np.uint64:
        """Least first word of the first bucket."""
        return np.uint64(self.first << self.shift)


@dataclass(frozen=True)
class BucketRange:
    """Neighbouring buckets ``first`` to ``last - 1`` and the number of records in them."""

    first: int
    last: int
    records: int


def of_keys(buckets: int) -> Bucketing:
    """Return equal ranges of the values of a first word.

    Raises `UsageError`: `buckets` is not a power of two from 2 to 65,536.
    """
    if buckets & (buckets - 1) or not 2 <= buckets <= 1 << 16:
        raise UsageError(f"buckets={buckets}; expected a power of two from 2 to 65,536.")
    return Bucketing(64 - (buckets.bit_length() - 1), buckets)


def of_shards(shards: int) -> Bucketing:
    """Return groups of neighbouring shards, of one shard each as long as there are no more than `MOST_BUCKETS`."""
    bits = 0
    while shards > MOST_BUCKETS << bits:
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
    ranges: list[BucketRange] = []
    first, size = 0, 0
    for bucket, count in enumerate(histogram.tolist()):
        if size and size + count > most_records:
            ranges.append(BucketRange(first, bucket, size))
            first, size = bucket, 0
        size += count
    if size:
        ranges.append(BucketRange(first, len(histogram), size))
    return tuple(ranges)


def pack_histogram(histogram: Histogram) -> str:
    """Return a histogram as a short string for the journal."""
    return base64.b85encode(zlib.compress(histogram.astype("<u8").tobytes(), 1)).decode()


def sum_histograms(packed: Iterable[str], buckets: int) -> Histogram:
    """Return the sum of what `pack_histogram` has packed."""
    total = np.zeros(buckets, np.int64)
    for text in packed:
        total += np.frombuffer(zlib.decompress(base64.b85decode(text)), "<i8")
    return total


# ------------------------------------------------------------------------------------------------ files

MAGIC = b"DDBUCKET"
VERSION = 2

_TAIL = struct.Struct("<8sQQQQQQQQ")
"""Magic, version, buckets, segments, words of a record, records, offset and xxh3-64 of the table, xxh3-64 of what stands before."""

ENTRY = np.dtype([("start", "<u8"), ("checksum", "<u8")])
_EMPTY = xxhash.xxh3_64_intdigest(b"")

Table = npt.NDArray[np.void]


class BucketWriter:
    """Collects records of some words and writes them in segments of `segment_records`; twice as many are held in memory."""

    def __init__(self, out: PublishedFile, words: int, bucketing: Bucketing, segment_records: int) -> None:
        self.histogram: Histogram = np.zeros(bucketing.count, np.int64)  # records by bucket, so far
        self.checksum = ""  # of the file, after `finish`
        self._out = out
        self._words = words
        self._bucketing = bucketing
        self._limit = segment_records
        self._held = np.empty((0, words), np.uint64)  # room for a segment, once there are records
        self._ordered = self._held
        self._held_records = 0
        self._table: list[Table] = []
        self._written = 0

    def add(self, rows: Words) -> None:
        """Take records; they are copied, so that the caller may use the array again."""
        if len(rows) and not len(self._held):
            self._held, self._ordered = (np.empty((self._limit, self._words), np.uint64) for _ in range(2))
        while len(rows):
            taken = min(self._limit - self._held_records, len(rows))
            self._held[self._held_records : self._held_records + taken] = rows[:taken]
            self._held_records += taken
            rows = rows[taken:]
            if self._held_records == self._limit:
                self._write_held()

    def finish(self) -> None:
        """Write what is held, the table and the tail."""
        self._write_held()
        at, columns = self._out.bytes, self._table
        table = np.ascontiguousarray(np.stack(columns, axis=1)) if columns else np.zeros((0, 0), ENTRY)
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
        low, shift, count = self._bucketing.low, self._bucketing.shift, self._bucketing.count
        counts = np.zeros(count, np.int64)
        misplaced = kernels.count_buckets(rows, low, shift, counts)
        if misplaced >= 0:
            raise DataError(
                f"a record for bucket {int(rows[misplaced, 0]) >> shift} was given to the exchange, which has {count}; expected locations "
                "(shard number << 32 | row) in its shards."
            )
        ends = np.cumsum(counts)
        ordered = self._ordered[: len(rows)]
        kernels.spread(rows, low, shift, ends - counts, ordered)
        self._table.append(_table_of(ordered, ends, self._written))
        self._out.write(ordered)
        self._written += len(rows)
        self.histogram += counts


def _table_of(ordered: Words, ends: Histogram, before: int) -> Table:
    """Return the column of the table for one segment, shape (n_buckets + 1,)."""
    table = np.zeros(len(ends) + 1, ENTRY)
    table["start"][0] = before
    table["start"][1:] = ends + before
    digest = xxhash.xxh3_64_intdigest
    bounds = [0, *ends.tolist()]
    view = ordered.data
    table["checksum"][:-1] = [
        _EMPTY if first == last else digest(view[first:last]) for first, last in pairwise(bounds)
    ]
    return table


@dataclass(frozen=True)
class BucketFile:
    """A bucket file to read.

    Reading raises `CorruptFileError`: it is gone, damaged, or another file than that with the words, buckets and checksum of its writer. Such
    a file is removed, so that the same command makes it again.
    """

    url: str
    words: int
    buckets: int
    checksum: str

    def slices(self, first: int, last: int) -> Iterator[Words]:
        """Yield the records of buckets `first` to ``last - 1``, one array per segment that has some."""
        with self._open() as handle:
            segments, records, table_at = self._read_tail(handle)
            if not segments:
                return
            row = segments * ENTRY.itemsize
            stored = self._read_at(handle, table_at + first * row, (last - first + 1) * row)
            table = np.frombuffer(stored, ENTRY).reshape(-1, segments)
            starts, checksums = table["start"].astype(np.int64), table["checksum"]
            if (
                not 0 <= starts.min() <= starts.max() <= records
                or (np.diff(starts, axis=0) < 0).any()
                or (last == self.buckets and checksums[-1].any())  # the row beyond has no checksum
            ):
                raise self._damaged(f"a table that is not in order in buckets {first} to {last - 1}")
            for segment in range(segments):
                rows = self._read_slice(handle, starts[:, segment], checksums[:-1, segment].tolist(), first)
                if len(rows):
                    yield rows

    def _open(self) -> BinaryIO:
        try:
            return files.open_read(self.url, scattered=True)
        except FileNotFoundError:
            raise CorruptFileError(
                f"{self.url} is gone; expected a staging file. Run the same command again: it is made anew.",
                url=self.url,
            ) from None

    def _damaged(self, found: str) -> CorruptFileError:
        return files.damaged(self.url, found)

    def _read_tail(self, handle: BinaryIO) -> tuple[int, int, int]:
        """Return the number of segments and of records, and where the table begins."""
        size = handle.seek(0, 2)
        if size < _TAIL.size:
            raise self._damaged(f"{size} bytes")
        tail = self._read_at(handle, size - _TAIL.size, _TAIL.size)
        magic, version, buckets, segments, words, records, table_at, _, checksum = _TAIL.unpack(tail)
        if (magic, version) != (MAGIC, VERSION) or checksum != xxhash.xxh3_64_intdigest(tail[:-8]):
            raise self._damaged(f"a tail {bytes(tail[:16])!r}...")
        expected = records * 8 * words + (buckets + 1) * segments * ENTRY.itemsize + _TAIL.size
        if (buckets, words, size) != (self.buckets, self.words, expected):
            raise self._damaged(f"{buckets} buckets of records of {words} words in {size} bytes")
        if f"{checksum:016x}" != self.checksum:
            raise self._damaged(
                f"what another call has written (checksum {checksum:016x}, not {self.checksum})"
            )
        return segments, records, table_at

    def _read_slice(self, handle: BinaryIO, starts: Histogram, checksums: list[int], first: int) -> Words:
        record = 8 * self.words
        rows = np.empty((int(starts[-1] - starts[0]), self.words), np.uint64)
        view = bytes_of(rows)
        files.read_into(handle, int(starts[0]) * record, view, self.url)
        bounds = ((starts - starts[0]) * record).tolist()
        for (bucket, checksum), (begin, end) in zip(
            enumerate(checksums, first), pairwise(bounds), strict=True
        ):
            found = _EMPTY if begin == end else xxhash.xxh3_64_intdigest(view[begin:end])
            if found != checksum:
                raise self._damaged(f"xxh3-64 {found:016x} instead of {checksum:016x} in bucket {bucket}")
        return rows

    def _read_at(self, handle: BinaryIO, offset: int, size: int) -> bytes:
        data = bytearray(size)
        files.read_into(handle, offset, memoryview(data), self.url)
        return bytes(data)
