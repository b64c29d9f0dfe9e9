"""Records of WARC files (ISO 28500), from front to end: head, block, and where it starts.

A length that is wrong, or bytes where a head should be, cost that record alone: reading goes on at the next line ``WARC/1.x`` behind an empty one. Memory: a record.
A block longer than allowed is never held: where its length turns out to be wrong the file is read again up to its head.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.records import QUARANTINE_HEAD

MAX_HEAD = 64 << 10
"""Bytes of the longest head; those of crawlers have one or two thousand."""

_END = re.compile(rb"\r?\n\r?\n")
_FOLDED = re.compile(r"\r?\n[ \t]+")
"""A line that goes on with the value of the one before."""

VERSION_LINE = re.compile(rb"WARC/[01]\.\d+[ \t]*\r?\n")
"""The line that starts a record."""

_NEXT = re.compile(rb"\n(?=WARC/[01]\.\d+[ \t]*\r?\n)")
_DATE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_OVERLAP = 32
"""Bytes in which the line that starts a record fits, wherever two pieces meet."""


class WarcRecord(Struct, frozen=True):
    """One record, or bytes that are none."""

    offset: int  # where it starts, in decompressed bytes
    head: Mapping[str, str]  # by names in small letters; empty where there is none
    block: bytes  # what follows the head; its beginning, if `size` is more than allowed; of damaged records all that is known
    size: int  # bytes of the block
    damage: str = ""  # what was expected instead of this

    @property
    def type(self) -> str:
        """What the record is: ``response``, ``conversion``, ``warcinfo`` and so on."""
        return self.head.get("warc-type", "").lower()

    @property
    def date(self) -> str:
        """The time of the record, to the millisecond as the Dolma toolkit writes times; empty if it tells none."""
        found = _DATE.fullmatch(self.head.get("warc-date", ""))
        return f"{found[1]}.{(found[2] or '').ljust(3, '0')[:3]}Z" if found else ""


def read_records(read: Callable[[], Iterator[bytes]], url: str, max_block_bytes: int) -> Iterator[WarcRecord]:
    """Yield the records of decompressed pieces; `read` begins with the first of them each time.

    Raises `CorruptFileError`: the file ends inside of a record, and no other one begins in what is left.
    """
    window = _Window(read)
    while window.skip_blank():
        yield _read_record(window, url, max_block_bytes)


def parse_head(data: bytes) -> dict[str, str]:
    """Return the fields of a head by names in small letters; of those that stand twice the first; lines that are none are left out."""
    text = _text(data)
    if "\n " in text or "\n\t" in text:
        text = _FOLDED.sub(" ", text)
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip().lower(), value.strip())
    return fields


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _read_record(window: "_Window", url: str, max_block_bytes: int) -> WarcRecord:
    if not VERSION_LINE.match(window.peek(_OVERLAP)):
        return _damaged(window, 1, "a line such as WARC/1.0 where a record begins")
    start, head_bytes = window.offset, window.end_of_head()
    if head_bytes is None:
        if window.ends_within(MAX_HEAD) and not window.has_next(1):
            raise _truncated(url, start)
        return _damaged(window, 1, f"an empty line behind the head, within {MAX_HEAD:,} bytes")
    head = parse_head(window.peek(head_bytes).partition(b"\n")[2])
    length = head.get("content-length", "")
    if not (length.isascii() and length.isdecimal() and len(length) < 19):
        return _damaged(
            window, head_bytes, f"Content-Length with a number of bytes, found {length[:40]!r}", head
        )
    if "warc-type" not in head:
        return _damaged(window, head_bytes, "a field WARC-Type", head)
    size = int(length)
    block = _take_block(window, head_bytes, size, max_block_bytes)
    if block is not None:
        return WarcRecord(start, head, block, size)
    is_beyond = window.lacks(head_bytes + size)
    what = "the end of the record after {:,} bytes" if not is_beyond else "{:,} bytes behind the head"
    record = _damaged(window, head_bytes, f"{what.format(size)}, as Content-Length says", head)
    if is_beyond and not window.fill(1):  # nor is there another record
        raise _truncated(url, start)
    return record


def _take_block(window: "_Window", head_bytes: int, size: int, max_block_bytes: int) -> bytes | None:
    """Return the block, its beginning if it is longer than allowed, and go on behind it; None if it does not end where the head says, and stay."""
    start = window.offset
    if window.lacks(head_bytes + size):
        return None
    if size <= max_block_bytes:
        if not (window.fill(head_bytes + size) and window.is_end_at(head_bytes + size)):
            return None
        window.skip(head_bytes)
        return window.take(size)
    window.skip(head_bytes)
    block = window.peek(min(size, QUARANTINE_HEAD))
    if window.skip(size) == size and window.is_end_at(0):
        return block
    window.go_back(start)
    return None


def _damaged(
    window: "_Window", at_least: int, expected: str, head: Mapping[str, str] | None = None
) -> WarcRecord:
    """Leave out what stands before the next record."""
    start = window.offset
    kept = window.skip_to_next(at_least)
    return WarcRecord(start, head or {}, kept, window.offset - start, expected)


def _truncated(url: str, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"{url}: truncated: the file ends inside of the record at byte {offset:,}; expected all bytes that its Content-Length says. "
        "Fetch or write the file again.",
        url=url,
        offset=offset,
    )


class _Window:
    """The next bytes of a file, `offset` being where they start."""

    def __init__(self, read: Callable[[], Iterator[bytes]]) -> None:
        self._read = read
        self._pieces = read()
        self._data = b""
        self._at = 0
        self._end: int | None = None  # of the file, once it was reached
        self.offset = 0

    def fill(self, size: int) -> bool:
        """Hold `size` bytes; False if there are fewer."""
        have = len(self._data) - self._at
        if have >= size:
            return True
        parts = [self._data[self._at :]]
        while have < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            have += len(piece)
        self._data, self._at = b"".join(parts), 0
        if have < size:
            self._end = self.offset + have
        return have >= size

    def lacks(self, size: int) -> bool:
        """Tell whether it is known that the file has fewer than `size` further bytes."""
        return self._end is not None and self.offset + size > self._end

    def go_back(self, offset: int) -> None:
        """Go to a byte that was left behind, by reading the file again."""
        self._pieces, self._data, self._at, self.offset = self._read(), b"", 0, 0
        self.skip(offset)

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer at the end."""
        self.fill(size)
        return self._data[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes and go on behind them."""
        data = self.peek(size)
        self.skip(len(data))
        return data

    def skip(self, size: int) -> int:
        """Leave out `size` bytes; return how many there were."""
        left = size
        while left and self.fill(1):
            step = min(left, len(self._data) - self._at)
            self._at += step
            self.offset += step
            left -= step
        return size - left

    def skip_blank(self) -> bool:
        """Leave out empty lines; False at the end of the file."""
        while self.fill(1):
            if self._data[self._at] not in b"\r\n":
                return True
            self._at += 1
            self.offset += 1
        return False

    def end_of_head(self) -> int | None:
        """Return the bytes up to the block; None if there is no empty line."""
        for size in (4 << 10, MAX_HEAD):
            found = _END.search(self.peek(size))
            if found:
                return found.end()
        return None

    def ends_within(self, size: int) -> bool:
        """Tell whether the file has no more than `size` further bytes."""
        return not self.fill(size + 1)

    def has_next(self, start: int) -> bool:
        """Tell whether a record begins in what is held, from `start` on."""
        return _NEXT.search(self._data, self._at + start - 1) is not None

    def is_end_at(self, size: int) -> bool:
        """Tell whether a record ends after `size` bytes: there are its two line ends, or, as some write it, another record or nothing."""
        behind = self.peek(size + _OVERLAP)[size:]
        rest = behind.lstrip(b"\r\n")
        return behind.startswith(b"\r\n\r\n") or rest.startswith(b"WARC/"[: len(rest)])

    def skip_to_next(self, start: int) -> bytes:
        """Leave out what stands before the next record, which begins at `start` or later; return its first bytes."""
        kept = self.peek(QUARANTINE_HEAD)
        begun = self.offset
        self.skip(start - 1)
        while self.fill(1):
            if found := _NEXT.search(self._data, self._at):
                self.skip(found.end() - self._at)
                break
            held = len(self._data) - self._at
            if not self.fill(held + 1):
                self.skip(held)
                break
            self.skip(held - min(held, _OVERLAP))
        return kept[: self.offset - begun]
