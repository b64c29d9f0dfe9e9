"""Stored bytes -> decompressed pieces, with every kind of damage named.

gzip goes through isal (600 MB/s of text) with our own loop over members, because the file classes cannot tell a truncated file from
garbage after the last member; thousands of tiny members cost no more than their bytes. bzip2 and xz take the same loop through the standard library.
zstd goes through pyarrow, files with windows of more than 128 MiB (``zstd --long=31``, as dumps of Reddit are) through zstandard: their reader needs
as much memory as the window has.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
from isal import igzip_lib
from msgspec import Struct

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.files import READ_BYTES
from dolma_dask.io.stored import PieceReader, StoredFile

Compression = Literal["gzip", "zstd", "bz2", "xz"]

_SUFFIXES: dict[str, Compression] = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".zst": "zstd",
    ".zstd": "zstd",
    ".bz2": "bz2",
    ".xz": "xz",
}

_FIRST_FEED = 16 * 1024
_LARGEST_FEED = 128 * 1024
"""Bytes given to a decompressor at a time: it copies what it leaves over, so a tiny member gets little, and none more than makes one piece."""

_LONG_FEED = 4 * 1024
"""The same for zstd with a long window, whose decompressor gives back all that is in it: 128 MiB at most, of a file that is made for that."""

_ARROW_WINDOW = 1 << 27
"""Bytes of the longest window of zstd that pyarrow reads."""

MAX_WINDOW = 1 << 31
"""Bytes of the longest window of zstd that is read, as ``zstd --long=31`` writes it."""

_KINDS = (
    (rb"\x1f\x8b", "gzip data"),
    (rb"\x28\xb5\x2f\xfd", "zstd data"),
    (rb"PAR1\x15", "a Parquet table"),
    (rb"BZh[1-9]1AY&SY", "bzip2 data"),
    (rb"\xfd7zXZ\0", "xz data"),
    (rb"PK\x03\x04", "a zip archive"),
    (rb"[ \t\r\n]*\{", "plain JSON"),
)
"""First bytes of files, as a pattern: long enough that no text is taken for something else."""

INFLATE_ERRORS: tuple[type[Exception], ...] = (
    igzip_lib.IsalError,
    zlib.error,
    OSError,
    ValueError,
    lzma.LZMAError,
)  # type: ignore[assignment]
"""Errors of the decompressors that work member by member."""

_XZ_MEMORY = 1 << 30
"""Bytes that an xz file may ask for; its highest level takes 65 MB."""


def compression_of(path: str) -> Compression | None:
    """Return the compression that the suffix of `path` names."""
    return _SUFFIXES.get(path[path.rfind(".") :])


def read_pieces(
    stored: StoredFile, compression: Compression | None, piece_bytes: int = READ_BYTES
) -> Iterator[bytes]:
    """Yield decompressed pieces of at most `piece_bytes`, none of them empty.

    Raises `CorruptFileError`: the file is truncated, damaged, or of another kind than its suffix says.
    """
    if compression is None:
        return _plain(stored, piece_bytes)
    if not stored.info.bytes:
        raise CorruptFileError(
            f"{stored.url}: truncated: the file has 0 bytes; expected {compression} data, which has some even for an empty text. "
            "Fetch or write the file again, or remove it.",
            url=stored.url,
            offset=0,
        )
    return (
        _unzstd(stored, piece_bytes)
        if compression == "zstd"
        else _by_members(stored, _MEMBERS[compression], piece_bytes)
    )


def _plain(stored: StoredFile, piece_bytes: int) -> Iterator[bytes]:
    piece = stored.read(piece_bytes)
    if _kind_of(piece) not in ("plain JSON", "other data"):
        raise _wrong_kind(stored, piece, "plain text")
    while piece:
        yield piece
        piece = stored.read(piece_bytes)


class _Feed:
    """Stored bytes in portions; what one member leaves over is there for the next."""

    def __init__(self, stored: StoredFile, head: bytes = b"") -> None:
        self._stored = stored
        self._data = head
        self._at = 0

    def starts_with(self, magic: bytes) -> bool:
        """Tell whether what comes next is `magic`, or as much of it as was read."""
        self._fill()
        return self._data.startswith(magic[: len(self._data) - self._at], self._at)

    def take(self, size: int) -> memoryview:
        """Return up to `size` bytes, empty at the end."""
        self._fill()
        start = self._at
        self._at = min(start + size, len(self._data))
        return memoryview(self._data)[start : self._at]

    def give_back(self, count: int) -> None:
        """Return the last `count` bytes that were taken."""
        self._at -= count

    def _fill(self) -> None:
        if self._at == len(self._data):
            self._data, self._at = self._stored.read(), 0

    @property
    def is_empty(self) -> bool:
        """True if nothing is left."""
        self._fill()
        return not self._data

    @property
    def position(self) -> int:
        """Stored byte that comes next."""
        return self._stored.position - len(self._data) + self._at


class _Members(Struct, frozen=True):
    """A format of which a file is a sequence of members, each with an end of its own."""

    name: str
    magic: bytes
    open: Callable[[], Any]  # a decompressor as those of the standard library


_MEMBERS: dict[Compression, _Members] = {
    "gzip": _Members("gzip", b"\x1f\x8b", lambda: igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)),
    "bz2": _Members("bzip2", b"BZh", bz2.BZ2Decompressor),
    "xz": _Members("xz", b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)),
}


def gzip_ends(stored: StoredFile) -> Iterator[int]:
    """Yield the stored byte behind each member of a gzip file, or section of one; raises what `read_pieces` raises."""
    feed = _Feed(stored)
    while not feed.is_empty:
        if not feed.starts_with(_MEMBERS["gzip"].magic):
            _check_after_member(stored, feed, "gzip", is_first=False)
            return
        for _ in _inflate_member(stored, feed, _MEMBERS["gzip"], READ_BYTES):
            pass
        yield feed.position


def _by_members(stored: StoredFile, kind: _Members, piece_bytes: int) -> Iterator[bytes]:
    feed = _Feed(stored)
    is_first = True
    while not feed.is_empty:
        if not feed.starts_with(kind.magic):
            _check_after_member(stored, feed, kind.name, is_first)
            return
        yield from _inflate_member(stored, feed, kind, piece_bytes)
        is_first = False


def _inflate_member(stored: StoredFile, feed: _Feed, kind: _Members, piece_bytes: int) -> Iterator[bytes]:
    member = kind.open()
    size = _FIRST_FEED
    while not member.eof:
        given: bytes | memoryview = b""
        if member.needs_input:
            given = feed.take(size)
            size = min(2 * size, _LARGEST_FEED)
            if not given:
                raise _truncated(stored, f"{kind.name} member")
        try:
            piece = member.decompress(given, piece_bytes)
        except INFLATE_ERRORS as error:
            raise _damaged(stored, kind.name, error) from error
        if piece:
            yield piece
    feed.give_back(len(member.unused_data))


def _check_after_member(stored: StoredFile, feed: _Feed, name: str, is_first: bool) -> None:
    """Accept zero padding after the last member of a file, as gzip and xz do; refuse the rest."""
    data = bytes(feed.take(READ_BYTES))
    offset = stored.position - len(data)
    if is_first:
        raise _wrong_kind(stored, data, f"{name} data")
    while data and not data.strip(b"\0"):
        data = bytes(feed.take(READ_BYTES))
    if data or stored.stops_within:
        raise CorruptFileError(
            f"{stored.url}: garbage after the last {name} member, at stored byte {offset}; expected the end of the file or "
            f"another {name} member. Was something appended? Fetch or write the file again.",
            url=stored.url,
            offset=offset,
        )


class _LongWindowError(Exception):
    """A frame refers back to more than the decompressor of pyarrow holds."""


def _unzstd(stored: StoredFile, piece_bytes: int) -> Iterator[bytes]:
    # pyarrow names truncation, which zstandard's stream reader takes for the end of the file
    head = stored.read(_LARGEST_FEED)
    if head and not head.startswith(b"\x28\xb5\x2f\xfd"[: len(head)]) and head[1:4] != b"\x2a\x4d\x18":
        raise _wrong_kind(stored, head, "zstd data")
    if _window_of(head) > _ARROW_WINDOW:
        yield from _unzstd_long(stored, head, piece_bytes, 0)
        return
    done = 0
    try:
        for piece in _unzstd_by_arrow(stored, head, piece_bytes):
            done += len(piece)
            yield piece
    except _LongWindowError:  # of a later frame
        stored.rewind()
        yield from _unzstd_long(stored, b"", piece_bytes, done)


def _unzstd_by_arrow(stored: StoredFile, head: bytes, piece_bytes: int) -> Iterator[bytes]:
    pieces = chain([head], iter(lambda: stored.read(_LARGEST_FEED), b""))
    handle = pa.PythonFile(PieceReader(pieces), mode="r")
    with closing(pa.CompressedInputStream(handle, "zstd")) as stream:
        while True:
            try:
                piece = stream.read(piece_bytes)
            except OSError as error:
                if "too much memory" in str(error):
                    raise _LongWindowError from error
                if "Truncated" in str(error):
                    raise _truncated(stored, "zstd frame") from error
                raise _damaged(stored, "zstd", error) from error
            if not piece:
                return
            yield piece


def _unzstd_long(stored: StoredFile, head: bytes, piece_bytes: int, skipped: int) -> Iterator[bytes]:
    """Yield the pieces of a file with long windows that follow its first `skipped` bytes; `head` has been read of it."""
    for data in _long_frames(stored, _Feed(stored, head)):
        start = min(skipped, len(data))
        skipped -= start
        for at in range(start, len(data), piece_bytes):
            yield data[at : at + piece_bytes]


def _long_frames(stored: StoredFile, feed: _Feed) -> Iterator[bytes]:
    import zstandard  # 12 MB that few files need

    while not feed.is_empty:
        frame, is_begun = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(), False
        while not frame.eof:
            given = feed.take(_LONG_FEED)
            if not given:
                raise _truncated(stored, "zstd frame")
            if not is_begun:
                stored.window_bytes, is_begun = max(stored.window_bytes, _window_of(given)), True
            try:
                data = frame.decompress(given)
            except zstandard.ZstdError as error:
                raise _damaged(stored, "zstd", error) from error
            if data:
                yield data
        feed.give_back(len(frame.unused_data))


def _window_of(frame: bytes | memoryview) -> int:
    """Return the bytes of the window that the header of a zstd frame declares, or all of its text where that is the window (RFC 8878, 3.1.1.1); 0 if it is none."""
    if len(frame) < 18 or frame[:4] != b"\x28\xb5\x2f\xfd":
        return 0
    flags = frame[4]
    if not flags & 0x20:
        base = 1 << (10 + (frame[5] >> 3))
        return base + base // 8 * (frame[5] & 7)
    at, size = 5 + (0, 1, 2, 4)[flags & 3], (1, 2, 4, 8)[flags >> 6]
    return int.from_bytes(frame[at : at + size], "little")


def _kind_of(data: bytes) -> str:
    return next((kind for pattern, kind in _KINDS if re.match(pattern, data)), "other data")


def _wrong_kind(stored: StoredFile, data: bytes, expected: str) -> CorruptFileError:
    return CorruptFileError(
        f"{stored.url}: found {_kind_of(data)} ({data[:4]!r}) at its start; expected {expected}, as the suffix says. Rename the file "
        "to what it is.",
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
