"""Staging files of `quantiles`: the values of some shards as keys, column by column.

A file of values is a row of segments, each with the keys (uint64, `dolma_dask.rules.ordered_bits`) of one signal after the other. The rows
of a segment are ordered by group, so that its readers count one group at a time, whose counters stay in the cache. Behind the segments
stand how many rows of each group they have, the extents of all signals, and a tail that says how long everything is. 8 bytes per value.
Memory: one segment, twice for one signal. Numbers are little-endian.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader
from dolma_dask.rules.ordered_bits import Codes, Extents, write_keys
from dolma_dask.text.kernels import Counts, Words

FORM = 4
"""Raised when the files change for the same values."""

SEGMENT_ROWS = 1 << 17
"""Rows of a segment at most: 1 MB per signal."""

SEGMENT_BYTES = 32 << 20
"""Bytes of the keys of a segment, about, where there are many signals."""

_LENGTH = 8
"""Bytes at the end of a file that tell the length of its tail."""

_COUNT = np.dtype(np.uint32)
"""Type of the number of rows of a group in a segment."""


class Tail(msgspec.Struct, frozen=True, omit_defaults=True):
    """End of a file."""

    labels: tuple[str, ...] = ()  # of the codes 1, 2, ...; rows with the code 0 have none
    rows: int = 0
    segment_rows: int = 0  # rows of each segment but the last
    signals: int = 0
    grouped: bool = False  # whether rows have codes


class ValueWriter:
    """Writes the values of some shards: `signals` columns, and codes of `groups` groups (1: no codes)."""

    def __init__(self, out: PublishedFile, signals: int, groups: int) -> None:
        self._out = out
        self._segment_rows = min(SEGMENT_ROWS, max(SEGMENT_BYTES // (8 * signals), 1))
        self._keys = np.empty((signals, self._segment_rows), np.uint64)
        self._codes = np.zeros(self._segment_rows if groups > 1 else 0, np.uint16)
        self._counts = list[Counts]()  # of the codes of each segment, as far as there are any
        self._extents = [Extents.empty(groups) for _ in range(signals)]
        self._waiting = self._rows = 0

    def add(self, codes: Codes, columns: Sequence[pa.Array]) -> None:
        """Take rows: their codes, (n,), all 0 without groups, and a column of float64 per signal."""
        start = 0
        while start < len(codes):
            count = min(len(codes) - start, self._segment_rows - self._waiting)
            self._take(codes[start : start + count], [column.slice(start, count) for column in columns])
            start += count

    def _take(self, codes: Codes, columns: Sequence[pa.Array]) -> None:
        part = slice(self._waiting, self._waiting + len(codes))
        if self._codes.size:
            self._codes[part] = codes
        for keys, column, extents in zip(self._keys, columns, self._extents, strict=True):
            write_keys(column, codes, keys[part], extents)
        self._waiting += len(codes)
        if self._waiting == self._segment_rows:
            self._flush()

    def _flush(self) -> None:
        codes, segment = self._codes[: self._waiting], self._keys[:, : self._waiting]
        if codes.size:
            self._counts.append(np.bincount(codes))
        if self._counts and self._counts[-1].max() < len(codes):
            order = np.argsort(codes, kind="stable")
            for keys in segment:
                self._out.write(keys[order])
        else:
            for keys in segment:
                self._out.write(keys)
        self._rows += self._waiting
        self._waiting = 0

    def finish(self, labels: Sequence[str]) -> Counts:
        """Write the end, and return the counts of all signals and codes, (signals, codes, 3); see `Extents`."""
        if self._waiting:
            self._flush()
        used = len(labels) + 1
        for counts in self._counts:
            self._out.write(np.pad(counts, (0, used - len(counts))).astype(_COUNT))
        for extents in self._extents:
            self._out.write(np.ascontiguousarray(extents.counts[:used]))
            self._out.write(np.ascontiguousarray(extents.bounds[:used]))
        signals = len(self._extents)
        grouped = self._codes.size > 0
        tail = Tail(tuple(labels), self._rows, self._segment_rows, signals, grouped)
        data = msgspec.json.encode(tail)
        self._out.write(data)
        self._out.write(len(data).to_bytes(_LENGTH, "little"))
        return np.array([extents.counts[:used] for extents in self._extents])


class ValueFile(Struct, frozen=True):
    """A file that `ValueWriter` wrote, as one signal needs it."""

    url: str
    checksum: str  # of the file
    tail: Tail
    sizes: Counts  # rows of each segment and code, (segments, codes); one column for all rows if they have no codes
    extents: Extents  # of the signal for each code

    @classmethod
    def look(cls, folder: str, kept: FileRecord, signal: int) -> "ValueFile":
        """Read the end of a file."""
        url = files.join(folder, kept.path)
        with StagingReader(url, kept.checksum, scattered=True) as file:
            length = int.from_bytes(file.read(file.bytes - _LENGTH, _LENGTH), "little")
            tail = msgspec.json.decode(file.read(file.bytes - _LENGTH - length, length), type=Tail)
            firsts, groups = np.arange(0, tail.rows, tail.segment_rows or 1), len(tail.labels) + 1
            at = 8 * tail.rows * tail.signals
            sizes = np.minimum(tail.rows - firsts, tail.segment_rows)[:, None]
            if tail.grouped:
                stored = file.read(at, len(firsts) * groups * _COUNT.itemsize)
                sizes = np.frombuffer(stored, _COUNT).reshape(-1, groups).astype(np.int64)
                at += len(stored)
            data = file.read(at + signal * groups * 40, groups * 40)
        counts = np.frombuffer(data, np.int64, groups * 3).reshape(groups, 3)
        bounds = np.frombuffer(data, np.uint64, groups * 2, groups * 24).reshape(groups, 2)
        return cls(url, kept.checksum, tail, sizes, Extents(counts, bounds))

    def open(self) -> StagingReader:
        """Open the file for `read`."""
        return StagingReader(self.url, self.checksum)

    def read(self, file: StagingReader, signal: int, segment: int, out: Words) -> None:
        """Fill `out` with the keys of a signal in a segment, those of code 0 first."""
        before = segment * self.tail.segment_rows * self.tail.signals
        out.data.cast("B")[:] = file.read(8 * (before + signal * len(out)), out.nbytes)
