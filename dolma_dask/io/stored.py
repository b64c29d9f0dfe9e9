"""The stored bytes of a file, hashed while they are read, so that a reader can say which file it read.

xxh3-128 costs about 10 GB/s. A file that another writer changes meanwhile is detected by its size and stamp at the end.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import xxhash
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, SourceChangedError
from dolma_dask.io import late
from dolma_dask.io.files import READ_BYTES, FileInfo, open_read, open_with_info, stat
from dolma_dask.io.records import InputRecord


class Member(Struct, frozen=True):
    """Start of a gzip member, zstd frame, line or row group, where a file can be split."""

    offset: int = 0  # stored byte offset; in a table the number of the row group
    row: int = 0  # first row
    text_offset: int = 0  # offset in decompressed bytes


START = Member()
"""Start of any file."""


class Section(Struct, frozen=True):
    """A part of a file that starts and ends at members; by default all of it."""

    start: Member = START
    stop_offset: int | None = None


WHOLE = Section()
"""All of a file."""


class StoredFile:
    """Stored bytes of a file or of a section of it; opened at the first read.

    ``info`` is the file when reading began, ``position`` the offset of the next stored byte. Raises `CorruptFileError`: there is no such
    file.
    """

    def __init__(self, url: str, section: Section | None = None) -> None:
        self.url = url
        self.section = section or Section()
        self.window_bytes = 0  # of zstd frames with a long window, which is held in memory
        self._handle: BinaryIO | None = None
        self.rewind()

    def rewind(self) -> None:
        """Start again, with the file as it is now."""
        self.close()
        handle, info = open_with_info(self.url)
        if info is None and late.is_seen(self.url):
            handle, info = open_with_info(self.url)
        if info is None:
            raise _missing(self.url)
        self.info: FileInfo = info
        self.position = self.section.start.offset
        if handle is not None:
            handle.seek(self.position)
            self._handle = handle
        self._digest = xxhash.xxh3_128()

    @contextmanager
    def anew(self) -> Iterator[None]:
        """Read from the start of the section in a block, at whose end the file must be as it was, and is closed.

        Raises `SourceChangedError`: see `check_unchanged`.
        """
        if self.position != self.section.start.offset:
            self.rewind()
        try:
            yield
            self.check_unchanged()
        finally:
            self.close()

    def read(self, size: int = READ_BYTES) -> bytes:
        """Return up to `size` further bytes, empty at the end of the section."""
        if self._handle is None:
            self._handle = self._open()
        if self.section.stop_offset is not None:
            size = min(size, self.section.stop_offset - self.position)
        elif (
            self.position <= self.info.bytes
        ):  # room for all that is left, and for what tells that there is more
            size = min(size, self.info.bytes - self.position + 1)
        data = self._handle.read(size) if size > 0 else b""
        if size > 0 and not data and self.section.stop_offset is not None:
            raise CorruptFileError(
                f"{self.url}: ends at stored byte {self.position:,}; expected to read up to byte {self.section.stop_offset:,}. Was it written meanwhile? Run again when nobody writes to it.",
                url=self.url,
                offset=self.position,
            )
        self._digest.update(data)
        self.position += len(data)
        return data

    def hash_rest(self) -> None:
        """Read what is left for the checksum alone."""
        while self.read():
            pass

    def _open(self) -> BinaryIO:
        try:
            handle = open_read(self.url)
        except FileNotFoundError:
            raise _missing(self.url) from None
        handle.seek(self.position)
        return handle

    def close(self) -> None:
        """Close the file; `checksum` and `position` stay."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    @property
    def stops_within(self) -> bool:
        """True if the section ends before the file does."""
        stop = self.section.stop_offset
        return stop is not None and stop < self.info.bytes

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of the bytes read so far: of the file, once a whole file has been read."""
        return self._digest.hexdigest()

    def record(self, path: str) -> InputRecord:
        """Return what was read, once a whole file has been; `path` is relative to its dataset."""
        return InputRecord(path, self.info.bytes, self.info.stamp, self.checksum, self.window_bytes)

    def check_unchanged(self) -> None:
        """Compare size and stamp with those at the start.

        Raises `SourceChangedError`: the file was written while it was read.
        """
        now = stat(self.url)
        if now is None or (now.bytes, now.stamp) != (self.info.bytes, self.info.stamp):
            state = "is gone" if now is None else f"has {now.bytes} bytes ({now.stamp})"
            raise SourceChangedError(
                f"{self.url} {state}; when reading began it had {self.info.bytes} bytes ({self.info.stamp}). "
                "Expected input files to stay as they are while they are read; run again when nobody writes to them.",
                url=self.url,
            )


def _missing(url: str) -> CorruptFileError:
    return CorruptFileError(
        f"{url}: no such file; expected the file that was listed. Was it moved or deleted? Put it back, or list again. Does {socket.gethostname()} see this folder, as all machines must?{late.waited(url)}",
        url=url,
    )


class PieceReader:
    """Pieces of bytes as a file that pyarrow reads."""

    closed = False
    readable = staticmethod(lambda: True)
    seekable = writable = staticmethod(lambda: False)

    def __init__(self, pieces: Iterator[bytes | memoryview]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer at the end; all that follow without a size."""
        parts = []
        while size:
            self._rest = self._rest or memoryview(next(self._pieces, b""))
            if not self._rest:
                break
            part = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(part) :]
            size -= len(part) if size > 0 else 0
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self.closed = True
