"""Members of a gzip file, found from any stored byte on: where a file can be cut that has one for each record."""

import re
from contextlib import closing

from isal import igzip_lib

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.decompress import INFLATE_ERRORS, gzip_ends
from dolma_dask.io.stored import Member, Section, StoredFile

_HEADER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
"""First bytes of a member (RFC 1952, 2.3.1); any bytes of compressed data may look so."""

_HEAD = 64 << 10
"""Stored bytes of a member that are looked at for its text."""

_TEXT = 64
"""Bytes of text by which a member is known."""

_STORED_BLOCK = 65_540
"""Bytes of the longest block that deflate stores as it is (RFC 1951, 3.2.4). An archive within a member, which is not deflated again, lies in such blocks: its members do
not go on behind the end of one.
"""


def find_member(url: str, start: int, text: re.Pattern[bytes]) -> int:
    """Return the stored byte where the first member from `start` on begins whose text begins as the pattern says; the size of the file if there is none.

    Members of an archive that stands within another member are passed over. Cost: a search for two bytes, at the speed of reading; the members behind the one that is found
    are inflated, 64 KiB at least.
    """
    while True:
        found = _find_head(url, start, text)
        wrong = _find_damage(url, found)
        if wrong is None:
            return found
        start = wrong + 1  # members up to there lead to the same damage


def _find_damage(url: str, start: int) -> int | None:
    """Follow the members from `start` on for longer than a stored block; return where one begins that is not whole, None if all are."""
    at = start
    with closing(StoredFile(url, Section(Member(start)))) as stored:
        try:
            for at in gzip_ends(stored):
                if at - start > _STORED_BLOCK:
                    break
        except CorruptFileError:
            return at
    return None


def _find_head(url: str, start: int, text: re.Pattern[bytes]) -> int:
    """Return where bytes begin that look like the member; the size of the file if there are none."""
    with closing(StoredFile(url, Section(Member(start)))) as stored:
        data, at = b"", start
        while more := stored.read():
            data += more
            is_all = stored.position == stored.info.bytes
            size = len(data) if is_all else max(len(data) - _HEAD, 0)
            if (found := _first(data, size, text)) is not None:
                return at + found
            data, at = data[size:], at + size
        return stored.info.bytes


def _first(data: bytes, size: int, text: re.Pattern[bytes]) -> int | None:
    """Return where the first member begins, if one does within `size` bytes."""
    view = memoryview(data)
    members = (found.start() for found in _HEADER.finditer(data) if found.start() < size)
    return next((at for at in members if text.match(_text_of(view[at : at + _HEAD]))), None)


def _text_of(member: memoryview) -> bytes:
    """Return the first bytes of the text of a member; none if it is no member."""
    try:
        return bytes(igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP).decompress(member, _TEXT))
    except INFLATE_ERRORS:
        return b""
