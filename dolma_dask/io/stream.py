"""Stored bytes -> decompressed lines, in blocks.

Memory is a few blocks, whatever the size of the file; every byte is copied once between the decompressor and the block. A line longer
than allowed is never held: only its length and head are kept.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.formats.json.exact import NUMBERS_AS_IDS
from dolma_dask.formats.json.strings import line_starts
from dolma_dask.io.decompress import Compression, compression_of, read_pieces
from dolma_dask.io.files import READ_BYTES
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, too_large
from dolma_dask.io.stored import Member, Section, StoredFile
from dolma_dask.text.bits import WINDOW

__all__ = [
    "BLOCK_BYTES",
    "MAX_RECORD_BYTES",
    "Compression",
    "LineBlock",
    "Member",
    "Section",
    "StoredFile",
    "bad_lines",
    "compression_of",
    "cut_lines",
    "read_lines",
    "read_pieces",
]

BLOCK_BYTES = 4 << 20
"""Decompressed bytes per block: stays in the cache between kernels (a mix of 275 MB takes 1.63 CPU-seconds, 1.88 at 2 MiB, where each of more blocks costs a millisecond of Python)."""

MAX_RECORD_BYTES = 64_000_000
"""Default for the longest line, with its newline, that is held in memory."""


_NUMBER_AS_ID = "a string in field 'id', found a number"
"""What the exact parser says of an id as other tools write it."""


class LineBlock(Struct, frozen=True):
    """Complete lines."""

    # the lines, each with its final newline (one is added to a last line without)
    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]  # (n_lines + 1,) where each line starts in `data`, and its end
    first_row: int  # row of the first line
    byte_offset: int  # where `data` starts in the decompressed file
    # if not 0, this is one line of that many bytes, longer than allowed, and `data` holds only its head
    oversize_bytes: int = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield each line with its newline."""
        for start, stop in pairwise(self.starts.tolist()):
            yield self.data[start:stop].tobytes()


def read_lines(
    stored: StoredFile,
    compression: Compression | None,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[LineBlock]:
    """Cut the decompressed bytes of a file into blocks of complete lines, of about `block_bytes`; a longer line makes a longer block.

    A line of which more than `max_record_bytes` is seen without an end is not held: it comes as a block with `oversize_bytes`. Raises
    `CorruptFileError`: the file is truncated, damaged, or of another kind than its suffix says.
    """
    pieces = read_pieces(stored, compression, min(block_bytes, READ_BYTES))
    yield from cut_lines(pieces, stored.section.start, block_bytes, max_record_bytes)


def cut_lines(
    pieces: Iterator[bytes],
    start: Member,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Iterator[LineBlock]:
    """Cut pieces of text, which begin at `start`, into blocks of complete lines; see `read_lines`."""
    cutter = _LineCutter(start, block_bytes, max_record_bytes)
    for piece in pieces:
        yield from cutter.add(piece)
    yield from cutter.end()


def bad_lines(
    url: str, lines: LineBlock, errors: Mapping[int, tuple[str, str]], max_record_bytes: int
) -> tuple[BadRecord, ...]:
    """Return the lines of a block that are longer than allowed or have an error (reason, what was expected), in order."""
    sizes = [lines.oversize_bytes] if lines.oversize_bytes else np.diff(lines.starts)
    large = np.flatnonzero(np.asarray(sizes) > max_record_bytes).tolist()
    bad = []
    for row in sorted({*large, *errors}):
        start, size = int(lines.starts[row]), int(sizes[row])
        reason, expected = errors.get(row, ("", ""))
        raw = lines.data[start : start + size - 1]
        if size > max_record_bytes:
            reason, expected, raw = TOO_LARGE, too_large(size, max_record_bytes), raw[:QUARANTINE_HEAD]
        position = (lines.first_row + row, lines.byte_offset + start)
        advice = (
            "" if position[1] else no_lines(raw[:QUARANTINE_HEAD].tobytes(), "then `dolma-dask convert` it")
        )
        if expected.startswith(_NUMBER_AS_ID):
            advice = f" ({NUMBERS_AS_IDS})"
        bad.append(BadRecord(url, *position, reason, expected, raw.tobytes(), advice))
    return tuple(bad)


def no_lines(first: bytes, further: str = "") -> str:
    """Say what to do, where the first line of a file looks as if the file were one JSON value, or no text at all; else nothing."""
    start = first.strip()
    if start.startswith(b"["):
        advice = 'The file looks like one array: `jq -c ".[]" FILE` writes each of its members as a line'
    elif start == b"{":
        advice = "The file looks like objects over several lines: `jq -c . FILE` writes each as a line"
    elif first[257:262] == b"ustar":
        return (
            ". The file is a tar archive, which `dolma-dask convert` reads under a name that ends with .tar"
        )
    else:
        return ""
    return f". {advice}{', ' if further else ''}{further}"


class _LineCutter:
    """Collects pieces until they make a block of complete lines; every byte is copied once."""

    def __init__(self, start: Member, block_bytes: int, max_record_bytes: int) -> None:
        self._row = start.row
        self._offset = start.text_offset
        self._block_bytes = block_bytes
        self._max = max_record_bytes
        self._whole: list[bytes | memoryview] = []  # lines that have ended
        self._open: list[bytes | memoryview] = []  # the last line, which has not
        self._whole_bytes = self._open_bytes = 0
        self._is_dropping = False  # the last line is too long: of it, only `_head` is kept, not `_open`
        self._head = bytearray()

    def add(self, piece: bytes) -> Iterator[LineBlock]:
        if self._is_dropping:
            end = piece.find(b"\n") + 1
            self._drop(memoryview(piece)[: end or len(piece)])
            if not end:
                return
            yield self._oversize()
            piece = piece[end:]
        self._take(piece)
        if self._open_bytes > self._max:
            yield from self._flush()
            self._start_dropping()
        elif self._whole_bytes + self._open_bytes >= self._block_bytes:
            yield from self._flush()

    def end(self) -> Iterator[LineBlock]:
        """Yield what is left; the last line counts with the newline that it lacks."""
        if self._is_dropping:
            self._drop(memoryview(b"\n"))
            yield self._oversize()
        elif self._open_bytes:
            self._take(b"\n")
        yield from self._flush()

    def _take(self, piece: bytes) -> None:
        cut = piece.rfind(b"\n") + 1
        view = memoryview(piece)
        if cut:
            self._whole += [*self._open, view[:cut]]
            self._whole_bytes += self._open_bytes + cut
            self._open, self._open_bytes = [], 0
        if cut < len(piece):
            self._open.append(view[cut:])
            self._open_bytes += len(piece) - cut

    def _flush(self) -> Iterator[LineBlock]:
        if not self._whole:
            return
        # kernels read whole windows: without room behind it they would copy the last line, which may be all
        room = np.empty(self._whole_bytes + WINDOW, np.uint8)
        room[self._whole_bytes :] = 0
        data = room[: self._whole_bytes]
        at = 0
        for piece in self._whole:
            data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)  # unlike join, without the GIL
            at += len(piece)
        self._whole, self._whole_bytes = [], 0
        starts = line_starts(data)
        block = LineBlock(data, starts, self._row, self._offset)
        self._row += len(starts) - 1
        self._offset += len(data)
        yield block

    def _start_dropping(self) -> None:
        pieces, self._open, self._open_bytes = self._open, [], 0
        self._is_dropping = True
        for piece in pieces:
            self._drop(memoryview(piece))

    def _drop(self, piece: memoryview) -> None:
        self._open_bytes += len(piece)
        self._head += piece[: QUARANTINE_HEAD - len(self._head)]

    def _oversize(self) -> LineBlock:
        head = np.frombuffer(bytes(self._head).removesuffix(b"\n"), np.uint8)
        starts = np.array([0, len(head)], np.int64)
        block = LineBlock(head, starts, self._row, self._offset, self._open_bytes)
        self._row += 1
        self._offset += self._open_bytes
        self._is_dropping, self._head, self._open_bytes = False, bytearray(), 0
        return block
