"""JSON lines in gzip members or zstd frames of 8 MiB of text, cut at a record: the same bytes everywhere, splittable, resumable.

Each member is deflated in one call at isal level 0 (460 MB/s; the only one that gives the same bytes in every process), without time or
name. Members cost +0.01 % in size and make the file readable in parts. zstd frames carry a checksum, as gzip members do by
nature, so that a reader finds damage. The cut depends on the bytes alone, never on batches.
"""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType

import numpy as np
import pyarrow as pa
import xxhash
from isal import igzip

from dolma_dask.errors import DataError
from dolma_dask.formats.layout import FileFormat, format_of
from dolma_dask.io.files import join
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord
from dolma_dask.writers.base import stamp_of

MEMBER_BYTES = 8 << 20
"""Text bytes after which a member ends, at the next end of a record."""

GZIP_LEVEL = 0
"""Of isal. Levels 1 and 2 give the same text other bytes in some processes (8 of 40 differed over 600 pieces of 300 bytes; level 0: none),
level 3 on other processors."""

ZSTD_LEVEL = 3

_NEWLINE = 0x0A

Text = bytes | bytearray


def _gzip(data: Text) -> Text:
    return igzip.compress(data, GZIP_LEVEL, mtime=0)


def _zstd(data: Text) -> Text:
    """Return one frame with a checksum, which pyarrow leaves out: a flag in its header and 4 bytes at its end (RFC 8878, 3.1.1)."""
    frame = bytearray(pa.Codec("zstd", compression_level=ZSTD_LEVEL).compress(data, asbytes=True))
    frame[4] |= 0x04
    return frame + (xxhash.xxh64_intdigest(data) & 0xFFFFFFFF).to_bytes(4, "little")


def _plain(data: Text) -> Text:
    return data


_COMPRESS: dict[FileFormat, Callable[[Text], Text]] = {
    "jsonl.gz": _gzip,
    "jsonl.zst": _zstd,
    "jsonl": _plain,
}


class JsonlWriter:
    """Writes one file of JSON lines.

    Parameters
    ----------
    root : str
        Output root.
    path : str
        Path below it; the suffix chooses gzip, zstd or plain.
    """

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path
        self._url = join(root, path)
        self._compress = _COMPRESS[format_of(path)]
        self._members: list[tuple[int, int, int]] = []
        self._waiting = bytearray()
        self._waiting_rows = 0
        self._rows = self._text_bytes = 0

    def __enter__(self) -> "JsonlWriter":
        with ExitStack() as stack:
            self._out: PublishedFile = stack.enter_context(publish(self._url))
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write what waits; an empty file gets one empty member, so that it is a valid file."""
        if kind is None and (self._waiting_rows or not self._members):
            self._end_member()

    def write(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows, each with its final newline; no nulls.

        Raises
        ------
        DataError
            A row is null or lacks its newline: it would be lost, or run into the next.
        """
        if len(rows) == 0:
            return
        _, offsets, data = rows.buffers()
        ends = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
        self._check_rows(rows, ends)
        view = memoryview(data)
        done = 0
        while done < len(rows):
            wanted = ends[done] + MEMBER_BYTES - len(self._waiting)
            stop = min(int(np.searchsorted(ends[done + 1 :], wanted)) + done + 1, len(rows))
            self._waiting += view[ends[done] : ends[stop]]
            self._waiting_rows += stop - done
            if len(self._waiting) >= MEMBER_BYTES:
                self._end_member()
            done = stop

    def _check_rows(self, rows: pa.LargeBinaryArray, ends: np.ndarray) -> None:
        data = np.frombuffer(rows.buffers()[2], np.uint8)
        is_line = np.diff(ends) > 0
        is_line[is_line] = data[ends[1:][is_line] - 1] == _NEWLINE
        if not is_line.all():
            row = self._rows + self._waiting_rows + int(is_line.argmin())
            raise DataError(
                f"{self._url}: row {row} to be written is null or has no newline at its end; expected one line of JSON. "
                "Leave out what could not be read, and end each row with a newline.",
                url=self._url,
                row=row,
            )

    def _end_member(self) -> None:
        self._members.append((self._out.bytes, self._rows, self._text_bytes))
        self._out.write(self._compress(self._waiting))
        self._rows += self._waiting_rows
        self._text_bytes += len(self._waiting)
        self._waiting, self._waiting_rows = bytearray(), 0

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        return FileRecord(
            self._path,
            self._out.bytes,
            self._out.checksum,
            self._rows,
            tuple(self._members),
            stamp_of(self._root, self._path),
        )
