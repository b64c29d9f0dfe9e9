"""What `quantiles` keeps between its passes: the values of some shards as keys, column by column, or sketches of them.

A file of values is a row of segments, each with the group codes (uint16) of its rows, if there are groups, and then the keys (uint64,
`dolma_dask.quality.ordered_bits`) of one signal after the other; behind them stand the extents of all signals, and a tail that says how
long everything is. 8 bytes per value and 2 per row. Memory: one segment. Numbers are little-endian.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import CorruptFileError
from dolma_dask.io import files
from dolma_dask.io.publish import PublishedFile
from dolma_dask.quality.ordered_bits import Codes, Extents, write_keys
from dolma_dask.quality.sketches import Sketch
from dolma_dask.text.kernels import Words

SEGMENT_ROWS = 1 << 17
"""Rows of a segment at most: 1 MB per signal."""

SEGMENT_BYTES = 32 << 20
"""Bytes of the keys of a segment, about, where there are many signals."""

_LENGTH = 8
"""Bytes at the end of a file that tell the length of its tail."""

_NO_CODES: Codes = np.zeros(0, np.uint16)

Item = TypeVar("Item", bound=np.generic)


class Tail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the end of a file says.

    Attributes
    ----------
    labels : tuple of str
        Labels of the codes 1, 2, ...; rows with the code 0 have none.
    rows, segment_rows, signals : int
        Rows in all, rows of each segment but the last, number of signals.
    grouped : bool
        Whether there are codes.
    parts : tuple of (int, int)
        Offset and bytes of the sketches of each signal.
    """

    labels: tuple[str, ...] = ()
    rows: int = 0
    segment_rows: int = 0
    signals: int = 0
    grouped: bool = False
    parts: tuple[tuple[int, int], ...] = ()


def _write_tail(out: PublishedFile, tail: Tail) -> None:
    data = msgspec.json.encode(tail)
    out.write(data)
    out.write(len(data).to_bytes(_LENGTH, "little"))


def _read(handle: BinaryIO, offset: int, size: int, url: str) -> bytearray:
    """Return `size` bytes from `offset` on."""
    data = bytearray(size)
    view = memoryview(data)
    handle.seek(offset)
    done = 0
    while done < size:
        piece = handle.read(size - done)
        if not piece:
            raise CorruptFileError(
                f"{url} ends at byte {offset + done:,}, expected {offset + size:,}. Run the same command again with --overwrite.",
                url=url,
            )
        view[done : done + len(piece)] = piece
        done += len(piece)
    return data


def _read_tail(handle: BinaryIO, bytes_: int, url: str) -> Tail:
    length = int.from_bytes(_read(handle, bytes_ - _LENGTH, _LENGTH, url), "little")
    try:
        return msgspec.json.decode(_read(handle, bytes_ - _LENGTH - length, length, url), type=Tail)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptFileError(
            f"{url}: its end cannot be read ({error}); expected what this command wrote. Run it again with --overwrite.",
            url=url,
        ) from error


class ValueWriter:
    """Writes the values of some shards.

    Parameters
    ----------
    out : PublishedFile
        Where to.
    signals, groups : int
        Number of columns, and of codes that there may be; 1: no codes.
    """

    def __init__(self, out: PublishedFile, signals: int, groups: int) -> None:
        self._out = out
        self._segment_rows = min(SEGMENT_ROWS, max(SEGMENT_BYTES // (8 * signals), 1))
        self._keys = np.empty((signals, self._segment_rows), np.uint64)
        self._codes = np.zeros(self._segment_rows if groups > 1 else 0, np.uint16)
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
        place = slice(self._waiting, self._waiting + len(codes))
        if self._codes.size:
            self._codes[place] = codes
        for keys, column, extents in zip(self._keys, columns, self._extents, strict=True):
            write_keys(column, codes, keys[place], extents)
        self._waiting += len(codes)
        if self._waiting == self._segment_rows:
            self._flush()

    def _flush(self) -> None:
        self._out.write(self._codes[: self._waiting].data)
        for keys in self._keys:
            self._out.write(keys[: self._waiting].data)
        self._rows += self._waiting
        self._waiting = 0

    def finish(self, labels: Sequence[str]) -> npt.NDArray[np.int64]:
        """Write the end, and return the counts of all signals and codes, (signals, codes, 3); see `Extents`."""
        if self._waiting:
            self._flush()
        used = len(labels) + 1
        for extents in self._extents:
            self._out.write(np.ascontiguousarray(extents.counts[:used]))
            self._out.write(np.ascontiguousarray(extents.bounds[:used]))
        signals = len(self._extents)
        tail = Tail(tuple(labels), self._rows, self._segment_rows, signals, self._codes.size > 0)
        _write_tail(self._out, tail)
        return np.array([extents.counts[:used] for extents in self._extents])


@dataclass(frozen=True)
class ValueFile:
    """A file that `ValueWriter` wrote.

    Attributes
    ----------
    url : str
        Where it is.
    bytes : int
        Its size.
    tail : Tail
        What its end says.
    """

    url: str
    bytes: int
    tail: Tail

    @classmethod
    def open(cls, url: str, bytes_: int) -> "ValueFile":
        """Read the end of a file."""
        with files.open_read(url) as handle:
            return cls(url, bytes_, _read_tail(handle, bytes_, url))

    def extents(self, signal: int) -> Extents:
        """Return the extents of a signal for each code."""
        tail, groups = self.tail, len(self.tail.labels) + 1
        offset = tail.rows * (8 * tail.signals + 2 * tail.grouped) + signal * groups * 40
        with files.open_read(self.url) as handle:
            data = _read(handle, offset, groups * 40, self.url)
        counts = np.frombuffer(data, np.int64, groups * 3).reshape(groups, 3)
        return Extents(counts, np.frombuffer(data, np.uint64, groups * 2, groups * 24).reshape(groups, 2))

    def blocks(self, signal: int, grouped: bool = True) -> Iterator[tuple[Words, Codes]]:
        """Yield the keys of a signal and the codes of their rows, segment by segment; no codes if there are none or they are not wanted."""
        tail = self.tail
        offset = 0
        with files.open_read(self.url) as handle:
            for first in range(0, tail.rows, tail.segment_rows or 1):
                count = min(tail.segment_rows, tail.rows - first)
                codes = _NO_CODES
                if tail.grouped and grouped:
                    codes = self._array(handle, offset, count, np.uint16)
                keys = offset + count * (2 * tail.grouped + 8 * signal)
                yield self._array(handle, keys, count, np.uint64), codes
                offset += count * (8 * tail.signals + 2 * tail.grouped)

    def _array(self, handle: BinaryIO, offset: int, count: int, dtype: type[Item]) -> npt.NDArray[Item]:
        size = count * np.dtype(dtype).itemsize
        return np.frombuffer(_read(handle, offset, size, self.url), dtype)


class SketchWriter:
    """Writes sketches of the values of some shards; see `ValueWriter`."""

    def __init__(self, out: PublishedFile, signals: int, groups: int) -> None:
        self._out = out
        self._sketches: list[dict[int, Sketch]] = [{} for _ in range(signals)]
        self._extents = [Extents.empty(groups) for _ in range(signals)]

    def add(self, codes: Codes, columns: Sequence[pa.Array]) -> None:
        """Take rows: their codes, (n,), and a column of float64 per signal."""
        keys = np.empty(len(codes), np.uint64)
        order = np.argsort(codes, kind="stable")
        found, starts = np.unique(codes[order], return_index=True)
        parts = list(zip(found.tolist(), np.split(order, starts[1:]), strict=True)) if len(codes) else []
        for column, sketches, extents in zip(columns, self._sketches, self._extents, strict=True):
            write_keys(column, codes, keys, extents)
            values = column.fill_null(np.nan).to_numpy(zero_copy_only=False)
            for code, rows in parts:
                chosen = values[rows]
                sketches.setdefault(code, Sketch()).add(chosen[np.isfinite(chosen)])

    def finish(self, labels: Sequence[str]) -> npt.NDArray[np.int64]:
        """Write the end, and return the counts of all signals and codes."""
        used = len(labels) + 1
        parts = []
        for sketches, extents in zip(self._sketches, self._extents, strict=True):
            offset = self._out.bytes
            content = {code: sketch.to_bytes() for code, sketch in sketches.items()}
            self._out.write(msgspec.msgpack.encode((extents.counts[:used].tolist(), content)))
            parts.append((offset, self._out.bytes - offset))
        _write_tail(self._out, Tail(tuple(labels), parts=tuple(parts)))
        return np.array([extents.counts[:used] for extents in self._extents])


def read_sketches(
    url: str, bytes_: int, signal: int
) -> tuple[Tail, npt.NDArray[np.int64], dict[int, Sketch]]:
    """Return the end of a file that `SketchWriter` wrote, and the counts and sketches of a signal by code."""
    with files.open_read(url) as handle:
        tail = _read_tail(handle, bytes_, url)
        data = _read(handle, *tail.parts[signal], url)
    content: tuple[Any, dict[int, bytes]] = msgspec.msgpack.decode(
        data, type=tuple[list[list[int]], dict[int, bytes]]
    )
    return tail, np.array(content[0], np.int64), {code: Sketch(item) for code, item in content[1].items()}
