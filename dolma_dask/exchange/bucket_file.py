"""Files of records cut into buckets, from which any run of neighbouring buckets is read without touching the rest.

Layout, all little-endian: segments of records, each ordered by bucket; then a table with one row per bucket and one more, one column per
segment: (first record in the file, xxh3-64 of the records); then a tail of 72 bytes. A reader of buckets a to b reads the tail, rows a to
b + 1 of the table and one slice of each segment, and checks every bucket it reads. Cost: 16 bytes per bucket and segment, 1 us per bucket
and segment for the checksum.

The last 8 bytes, its checksum, are a digest of all that the file holds. The journal knows it, and readers compare it:
a file of the same name and size that a process of an earlier call wrote is not taken for it.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import BinaryIO, Self

import numpy as np
import numpy.typing as npt
import xxhash

from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.exchange import kernels
from dolma_dask.exchange.buckets import Bucketing, Histogram
from dolma_dask.exchange.contract import Words, bytes_of
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile

MAGIC = b"DDBUCKET"
VERSION = 2

_TAIL = struct.Struct("<8sQQQQQQQQ")
"""Magic, version, buckets, segments, words of a record, records, place and xxh3-64 of the table, xxh3-64 of what stands before."""

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
        if len(rows):
            self._write(rows)

    def _write(self, rows: Words) -> None:
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


class BucketFile:
    """A bucket file opened for reading; used as a context manager.

    Raises `CorruptFileError`: it is gone, damaged, or another file than that with the words, buckets and checksum of its writer. Such a file
    is removed, so that the same command makes it again.
    """

    def __init__(self, url: str, words: int, buckets: int, checksum: str) -> None:
        self._url = url
        self._checksum = checksum
        self._words = words
        self._buckets = buckets
        self._handle = self._open()
        try:
            self._read_tail()
        except BaseException:
            self._handle.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()

    def _open(self) -> BinaryIO:
        try:
            return files.open_read(self._url, scattered=True)
        except FileNotFoundError:
            raise CorruptFileError(
                f"{self._url} is gone; expected a staging file. Run the same command again: it is made anew.",
                url=self._url,
            ) from None

    def _read_tail(self) -> None:
        size = self._handle.seek(0, 2)
        if size < _TAIL.size:
            raise files.damaged(self._url, f"{size} bytes")
        tail = self._read_at(size - _TAIL.size, _TAIL.size)
        magic, version, buckets, self._segments, words, self.records, self._table_at, _, checksum = (
            _TAIL.unpack(tail)
        )
        if (magic, version) != (MAGIC, VERSION) or checksum != xxhash.xxh3_64_intdigest(tail[:-8]):
            raise files.damaged(self._url, f"a tail {bytes(tail[:16])!r}...")
        expected = self.records * 8 * words + (buckets + 1) * self._segments * ENTRY.itemsize + _TAIL.size
        if (buckets, words, size) != (self._buckets, self._words, expected):
            raise files.damaged(self._url, f"{buckets} buckets of records of {words} words in {size} bytes")
        if f"{checksum:016x}" != self._checksum:
            raise files.damaged(
                self._url, f"what another call has written (checksum {checksum:016x}, not {self._checksum})"
            )

    def slices(self, first: int, last: int) -> Iterator[Words]:
        """Yield the records of buckets `first` to ``last - 1``, one array per segment that has some."""
        if not self._segments:
            return
        table = self._read_table(first, last)
        for segment in range(self._segments):
            starts = table["start"][:, segment].astype(np.int64)
            if starts[0] == starts[-1]:
                self._check_empty(table["checksum"][:-1, segment], first)
                continue
            yield self._read_slice(starts, table["checksum"][:-1, segment].tolist(), first)

    def _read_table(self, first: int, last: int) -> Table:
        row = self._segments * ENTRY.itemsize
        stored = self._read_at(self._table_at + first * row, (last - first + 1) * row)
        table = np.frombuffer(stored, ENTRY).reshape(-1, self._segments)
        starts = table["start"]
        is_last = last == self._buckets  # then the row beyond has no checksum
        if (
            starts.max() > self.records
            or (starts[1:] < starts[:-1]).any()
            or (is_last and table["checksum"][-1].any())
        ):
            raise files.damaged(self._url, f"a table that is not in order in buckets {first} to {last - 1}")
        return table

    def _check_empty(self, checksums: npt.NDArray[np.uint64], first: int) -> None:
        if (checksums != np.uint64(_EMPTY)).any():
            raise files.damaged(self._url, f"records without their bucket after bucket {first}")

    def _read_slice(self, starts: Histogram, checksums: list[int], first: int) -> Words:
        record = 8 * self._words
        rows = np.empty((int(starts[-1] - starts[0]), self._words), np.uint64)
        view = bytes_of(rows)
        files.read_into(self._handle, int(starts[0]) * record, view, self._url)
        bounds = ((starts - starts[0]) * record).tolist()
        digest = xxhash.xxh3_64_intdigest
        for at, checksum in enumerate(checksums):
            begin, end = bounds[at], bounds[at + 1]
            found = _EMPTY if begin == end else digest(view[begin:end])
            if found != checksum:
                raise files.damaged(
                    self._url, f"xxh3-64 {found:016x} instead of {checksum:016x} in bucket {first + at}"
                )
        return rows

    def _read_at(self, offset: int, size: int) -> bytes:
        data = bytearray(size)
        files.read_into(self._handle, offset, memoryview(data), self._url)
        return bytes(data)
