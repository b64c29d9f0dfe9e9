"""JSON lines in gzip members or zstd frames of 8 MiB of text, cut at a record: the same bytes everywhere, splittable, resumable.

Each member is deflated in one call at isal level 0 (460 MB/s; the only one that gives the same bytes in every process), without time or
name. Members cost +0.01 % in size and make the file readable in parts. zstd frames carry a checksum, as gzip members do by
nature, so that a reader finds damage. The cut depends on the bytes alone, never on batches.
"""

import bz2
import lzma
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import xxhash
from isal import igzip_lib

from dolma_dask.errors import DataError
from dolma_dask.formats.layout import FileFormat, format_of
from dolma_dask.io.publish import publish_later
from dolma_dask.sinks.base import FileWriter, Publish
from dolma_dask.text.columns import copy_pieces, for_kernel
from dolma_dask.text.kernels import Bools, Bytes, Counts

MEMBER_BYTES = 8 << 20
"""Text bytes after which a member ends, at the next end of a record."""

GZIP_LEVEL = 0
"""Level of isal. Levels 1 and 2 give the same text other bytes in some processes (8 of 40 differed over 600 pieces of 300 bytes; level 0: none),
level 3 on other processors."""

ZSTD_LEVEL = 3

_FIRST_ROOM = 1 << 18
"""Bytes that a writer has room for at first: there may be many writers of small files."""

_NEWLINE = 0x0A

_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\x04\xff"
"""No name, no time, fast compression, no system."""

Parts = tuple[bytes | memoryview, ...]


def gzip_member(data: memoryview) -> Parts:
    """Return a member of a gzip file in parts."""
    return _GZIP_HEADER, igzip_lib.compress(data, GZIP_LEVEL, flag=igzip_lib.COMP_GZIP_NO_HDR)


def _zstd(data: memoryview) -> Parts:
    """Return one frame with a checksum, which pyarrow leaves out: a flag in its header and 4 bytes at its end (RFC 8878, 3.1.1)."""
    frame = pa.Codec("zstd", compression_level=ZSTD_LEVEL).compress(data, asbytes=True)
    checksum = (xxhash.xxh64_intdigest(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return frame[:4], bytes([frame[4] | 0x04]), memoryview(frame)[5:], checksum


def _plain(data: memoryview) -> Parts:
    return (data,)


_COMPRESS: dict[FileFormat, Callable[[memoryview], Parts]] = {
    "jsonl.gz": gzip_member,
    "jsonl.zst": _zstd,
    "jsonl": _plain,
}


_NO_END = 1 << 60
"""Bytes of text that no file has."""

_ONLY_KEPT: dict[str, Callable[[memoryview], Parts]] = {
    ".bz2": lambda data: (bz2.compress(data),),
    ".xz": lambda data: (lzma.compress(data),),
}
"""Compressions of files that are written again and keep their names; no new one has them."""


class JsonlWriter(FileWriter):
    """Writes one file of JSON lines; the suffix decides between gzip, zstd and plain, and a member ends after `member_bytes` of text at most, or
    with the file if it is `whole`.
    """

    def __init__(
        self,
        root: str,
        path: str,
        member_bytes: int | None = None,
        publish: Publish = publish_later,
        *,
        whole: bool = False,
    ) -> None:
        super().__init__(root, path, publish)
        self._member_bytes = _NO_END if whole else min(member_bytes or MEMBER_BYTES, MEMBER_BYTES)
        self._compress = _ONLY_KEPT.get(path[path.rfind(".") :]) or _COMPRESS[format_of(path)]
        self._waiting = np.empty(_FIRST_ROOM, np.uint8)  # the first `_size` bytes of it
        self._size = 0
        self._waiting_rows = 0
        self._text_bytes = 0

    def _finish(self) -> None:
        """Write what waits; an empty file gets one empty member, so that it is a valid file."""
        if self._waiting_rows or not self._members:
            self._end_member()

    def write(self, rows: pa.LargeBinaryArray, taken: Bools | None = None) -> None:
        """Append rows, each with its final newline, or those of them that are taken; no nulls.

        Raises `DataError`: a row is null or lacks its newline: it would be lost, or run into the next.
        """
        if len(rows) == 0:
            return
        _, offsets, data = rows.buffers()
        cut = np.frombuffer(offsets, np.int64, len(rows) + 1, 8 * rows.offset)
        starts, sizes = cut[:-1], np.diff(cut)
        if taken is not None:
            starts, sizes = starts[taken], sizes[taken]
        text = np.frombuffer(b"" if data is None else data, np.uint8)
        self._check_rows(text, starts, sizes)
        ends = np.cumsum(sizes)
        done = written = 0
        while done < len(sizes):
            target = written + self._member_bytes - self._size
            stop = min(int(np.searchsorted(ends, target)) + 1, len(sizes))
            self._add(text, starts[done:stop], sizes[done:stop])
            done, written = stop, int(ends[stop - 1])

    def _add(self, text: Bytes, starts: Counts, sizes: Counts) -> None:
        """Append the next rows of a member, and end it when it is full; a long row that makes one alone is not copied."""
        self._waiting_rows += len(sizes)
        first, total = int(starts[0]), int(sizes.sum())
        is_one_piece = int(starts[-1] + sizes[-1]) - first == total
        if is_one_piece and not self._size and total >= self._member_bytes:
            self._write_member(text[first : first + total])
            return
        room = self._room(total)
        if is_one_piece:
            room[:] = text[first : first + total]  # without the GIL
        else:
            copy_pieces(for_kernel(text), for_kernel(starts), for_kernel(sizes), room)
        if self._size >= self._member_bytes:
            self._end_member()

    def _room(self, count: int) -> Bytes:
        """Return room for bytes behind those that wait; it grows up to a member and stays for the next one."""
        start, self._size = self._size, self._size + count
        if self._size > len(self._waiting):
            larger = np.empty(
                max(self._size, min(4 * len(self._waiting), self._member_bytes * 9 // 8)), np.uint8
            )
            larger[:start] = self._waiting[:start]
            self._waiting = larger
        return self._waiting[start : self._size]

    def _check_rows(self, text: Bytes, starts: Counts, sizes: Counts) -> None:
        is_line = sizes > 0
        is_line[is_line] = text[(starts + sizes)[is_line] - 1] == _NEWLINE
        if not is_line.all():
            row = self._rows + self._waiting_rows + int(is_line.argmin())
            raise DataError(
                f"{self._url}: row {row} to be written is null or has no newline at its end; expected one line of JSON. "
                "Leave out what could not be read, and end each row with a newline.",
                url=self._url,
                row=row,
            )

    def _end_member(self) -> None:
        self._write_member(self._waiting[: self._size])
        self._size = 0
        if len(self._waiting) > 2 * MEMBER_BYTES:  # a long row was in it
            self._waiting = np.empty(_FIRST_ROOM, np.uint8)

    def _write_member(self, text: Bytes) -> None:
        self._members.append((self._out.bytes, self._rows, self._text_bytes))
        for part in self._compress(text.data):
            self._out.write(part)
        self._rows += self._waiting_rows
        self._text_bytes += len(text)
        self._waiting_rows = 0

    @property
    def text_bytes(self) -> int:
        """Bytes of all lines; after a clean exit."""
        return self._text_bytes
