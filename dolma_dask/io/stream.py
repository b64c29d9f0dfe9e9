"""Stored bytes -> decompressed lines, in blocks, with every kind of damage named.

Memory is a few blocks, whatever the size of the file. All stored bytes are hashed on the way (xxh3-128, about 10 GB/s), so that
the reader of a file can say which file it read, and whether it changed meanwhile. gzip goes through isal (600 MB/s of text) with
our own loop over members, because the file classes cannot tell a truncated file from garbage after the last member.
"""

import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from isal import igzip_lib

from dolma_dask.errors import CorruptFileError, SourceChangedError
from dolma_dask.formats.json_lines import line_starts
from dolma_dask.io.files import READ_BYTES, FileInfo, open_read, stat

Compression = Literal["gzip", "zstd"]

BLOCK_BYTES = 2 << 20
"""Decompressed bytes per block: stays in the cache between kernels (344 MB/s read at 2 MiB, 235 at 8 MiB, measured)."""

MAX_RECORD_BYTES = 64_000_000
"""Default for the longest line that is held in memory."""

KEPT_HEAD_BYTES = 64 * 1024
"""Of a longer line, what is kept to show in the quarantine file."""

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PAR1": "parquet",
    b"BZh": "bzip2",
    b"\xfd7zX": "xz",
}


def compression_of(path: str) -> Compression | None:
    """Return what the suffix of `path` says about its compression."""
    if path.endswith(".gz"):
        return "gzip"
    return "zstd" if path.endswith((".zst", ".zstd")) else None


@dataclass(frozen=True)
class Member:
    """Where a gzip member or zstd frame starts, in a file that can be split there.

    Attributes
    ----------
    offset : int
        Stored byte offset.
    row : int
        First row.
    text_offset : int
        Offset in decompressed bytes.
    """

    offset: int = 0
    row: int = 0
    text_offset: int = 0


@dataclass(frozen=True)
class Section:
    """A part of a file that starts and ends at members; the default is the whole file."""

    start: Member = Member()
    stop_offset: int | None = None


class StoredFile:
    """Stored bytes of a file or of a section of it, hashed while they are read.

    Parameters
    ----------
    url : str
        Local path or fsspec URL.
    section : Section
        Which part to read.

    Raises
    ------
    CorruptFileError
        There is no such file.
    """

    def __init__(self, url: str, section: Section | None = None) -> None:
        self.url = url
        self.section = section or Section()
        found = stat(url)
        if found is None:
            raise CorruptFileError(
                f"{url}: no such file; it was listed before: was it moved or deleted?", url=url
            )
        self.info: FileInfo = found
        self._handle: BinaryIO = open_read(url)
        self._digest = xxhash.xxh3_128()
        self.position = self.section.start.offset
        if self.position:
            self._handle.seek(self.position)

    def read(self, size: int = READ_BYTES) -> bytes:
        """Return up to `size` further bytes, empty at the end of the section."""
        if self.section.stop_offset is not None:
            size = min(size, self.section.stop_offset - self.position)
        data = self._handle.read(size) if size > 0 else b""
        self._digest.update(data)
        self.position += len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    @property
    def checksum(self) -> str:
        """The xxh3-128 hex digest of the bytes read so far: of the file, once a whole file has been read."""
        return self._digest.hexdigest()

    def check_unchanged(self) -> None:
        """Compare size and stamp with those at the start.

        Raises
        ------
        SourceChangedError
            The file was written while it was read.
        """
        now = stat(self.url)
        if now is None or (now.bytes, now.stamp) != (self.info.bytes, self.info.stamp):
            found = "is gone" if now is None else f"has {now.bytes} bytes ({now.stamp})"
            raise SourceChangedError(
                f"{self.url} {found}; when reading began it had {self.info.bytes} bytes ({self.info.stamp}). "
                "Expected input files to stay as they are while they are read; run again when nobody writes to them.",
                url=self.url,
            )


def read_pieces(stored: StoredFile, compression: Compression | None) -> Iterator[bytes]:
    """Yield decompressed pieces of at most about `BLOCK_BYTES`.

    Raises
    ------
    CorruptFileError
        The file is truncated, damaged, or of another kind than its suffix says.
    """
    if compression == "gzip":
        return _gunzip(stored)
    return _unzstd(stored) if compression == "zstd" else _plain(stored)


def _plain(stored: StoredFile) -> Iterator[bytes]:
    first = True
    while piece := stored.read(READ_BYTES):
        if first and (kind := _kind_of(piece)):
            raise _wrong_kind(stored, f"{kind} data", "plain text")
        first = False
        yield piece


def _gunzip(stored: StoredFile) -> Iterator[bytes]:
    data = stored.read()
    first = True
    while data:
        if not data.startswith(b"\x1f\x8b"[: len(data)]):
            _check_after_member(stored, data, first)
            return
        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        while not member.eof:
            if not data and member.needs_input and not (data := stored.read()):
                raise _truncated(stored, "gzip member")
            try:
                piece = member.decompress(data, BLOCK_BYTES)
            except (igzip_lib.IsalError, zlib.error) as error:
                raise _damaged(stored, "gzip", error) from error
            data = b""
            if piece:
                yield piece
        data = member.unused_data or stored.read()
        first = False


def _check_after_member(stored: StoredFile, data: bytes, first: bool) -> None:
    """Accept zero padding after the last member, as gzip itself does; refuse the rest."""
    offset = stored.position - len(data)
    if first:
        raise _wrong_kind(stored, f"{_kind_of(data) or 'other'} data ({data[:4]!r})", "gzip data")
    while data:
        if data.strip(b"\0"):
            raise CorruptFileError(
                f"{stored.url}: garbage after the last gzip member, at stored byte {offset}; expected the end of the file or "
                "another gzip member. Was something appended? Fetch or write the file again.",
                url=stored.url,
                offset=offset,
            )
        data = stored.read()


class _Handle:
    """The little of a file object that pyarrow asks for."""

    closed = False
    readable = seekable = writable = staticmethod(lambda: False)

    def __init__(self, stored: StoredFile) -> None:
        self._stored = stored

    def read(self, size: int = -1) -> bytes:
        return self._stored.read(READ_BYTES if size < 0 else size)

    def close(self) -> None:
        self.closed = True


def _unzstd(stored: StoredFile) -> Iterator[bytes]:
    # pyarrow names truncation, which zstandard's stream reader takes for the end of the file
    if not stored.info.bytes:
        return
    with closing(pa.CompressedInputStream(pa.PythonFile(_Handle(stored), mode="r"), "zstd")) as stream:
        read_any = False
        while True:
            try:
                piece = stream.read(READ_BYTES)
            except OSError as error:
                if "Truncated" in str(error):
                    raise _truncated(stored, "zstd frame") from error
                if not read_any:
                    raise _wrong_kind(stored, f"no zstd frame ({error})", "zstd data") from error
                raise _damaged(stored, "zstd", error) from error
            if not piece:
                return
            read_any = True
            yield piece


def _kind_of(data: bytes) -> str | None:
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)


def _wrong_kind(stored: StoredFile, found: str, expected: str) -> CorruptFileError:
    return CorruptFileError(
        f"{stored.url}: found {found} at its start; expected {expected}, as the suffix says. Rename the file to what it is.",
        url=stored.url,
    )


def _truncated(stored: StoredFile, unit: str) -> CorruptFileError:
    return CorruptFileError(
        f"{stored.url}: truncated: the file ends at stored byte {stored.position} inside a {unit}; expected its end. "
        "Fetch or write the file again.",
        url=stored.url,
        offset=stored.position,
    )


def _damaged(stored: StoredFile, kind: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{stored.url}: damaged {kind} data before stored byte {stored.position} ({error}); expected valid {kind} data. "
        "Fetch or write the file again.",
        url=stored.url,
        offset=stored.position,
    )


@dataclass(frozen=True)
class LineBlock:
    """Whole lines.

    Attributes
    ----------
    data : numpy.ndarray of uint8
        The lines, each with its final newline (one is added to a last line without).
    starts : numpy.ndarray of int64
        (n_lines + 1,) where each line starts in `data`, and its end.
    first_row : int
        Row of the first line.
    byte_offset : int
        Where `data` starts in the decompressed file.
    oversize_bytes : int
        If not 0, this is one line of that many bytes, longer than allowed, and `data` holds only its head.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    first_row: int
    byte_offset: int
    oversize_bytes: int = 0


def read_lines(
    stored: StoredFile,
    compression: Compression | None,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[LineBlock]:
    """Cut the decompressed bytes of a file into blocks of whole lines.

    Parameters
    ----------
    stored : StoredFile
        An open file.
    compression : {"gzip", "zstd"} or None
        How it is stored.
    block_bytes : int
        Decompressed bytes per block, about; a longer line makes a longer block.
    max_record_bytes : int
        A line of which more than this is seen without an end is not held: it comes as a block with `oversize_bytes`.

    Yields
    ------
    LineBlock
    """
    cutter = _LineCutter(stored.section.start.row, stored.section.start.text_offset, max_record_bytes)
    waiting: list[bytes] = []
    size = 0
    for piece in read_pieces(stored, compression):
        waiting.append(piece)
        size += len(piece)
        if size >= block_bytes:
            yield from cutter.add(b"".join(waiting))
            waiting, size = [], 0
    yield from cutter.add(b"".join(waiting))
    yield from cutter.end()


class _LineCutter:
    """Holds the unfinished last line between pieces; drops what exceeds the longest allowed record."""

    def __init__(self, row: int, offset: int, max_record_bytes: int) -> None:
        self._row = row
        self._offset = offset
        self._max = max_record_bytes
        self._carry = b""
        self._skipped = 0  # bytes of an oversized line that were dropped

    def add(self, data: bytes) -> Iterator[LineBlock]:
        if self._skipped:
            end = data.find(b"\n") + 1
            if not end:
                self._skipped += len(data)
                return
            self._skipped += end
            data = data[end:]
            yield self._oversize()
        data = self._carry + data if self._carry else data
        cut = data.rfind(b"\n") + 1
        self._carry = data[cut:] if cut else data
        if cut:
            yield self._block(data if cut == len(data) else data[:cut])
        if len(self._carry) > self._max:
            self._skipped = len(self._carry)
            self._carry = self._carry[:KEPT_HEAD_BYTES]

    def end(self) -> Iterator[LineBlock]:
        if self._skipped:
            yield self._oversize()
        elif self._carry:
            yield self._block(self._carry + b"\n")

    def _block(self, data: bytes) -> LineBlock:
        array = np.frombuffer(data, np.uint8)
        starts = line_starts(array)
        block = LineBlock(array, starts, self._row, self._offset)
        self._row += len(starts) - 1
        self._offset += len(data)
        return block

    def _oversize(self) -> LineBlock:
        head = np.frombuffer(self._carry, np.uint8)
        block = LineBlock(head, np.array([0, len(head)]), self._row, self._offset, self._skipped)
        self._row += 1
        self._offset += self._skipped
        self._carry, self._skipped = b"", 0
        return block
