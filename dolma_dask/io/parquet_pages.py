"""Headers of Parquet pages: what a row group makes of memory, which its footer does not say.

A page is decompressed whole, however few of its rows are asked for, a dictionary is held along with it, and each row of an encoded page may
unfold to the largest value of the dictionary, which therefore is read. Headers are records of Thrift's compact protocol in front of the pages.
Cost: a read of 1 kB per page, and the dictionaries once more.
"""

from collections.abc import Iterator
from contextlib import suppress
from io import RawIOBase
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Int, kernel

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_BODIES = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""Types of pages, and the field of the header that describes each; readers skip pages of other types."""

_BEGINNINGS = 7  # encoding of strings by what they have in common with the one before
_UNFOLDING = (2, _BEGINNINGS, 8)
"""Encodings whose rows may be larger than their page; two of them are of dictionaries."""

_LARGEST_DICTIONARY = 64_000_000
"""Bytes of a dictionary that is read for its longest value."""

_CODECS = ("snappy", "zstd", "gzip", "lz4_raw", "brotli")

_LENGTH = 4
"""Bytes of the length in front of a string of a dictionary."""

_NUMBER_BYTES = 12
"""Memory for a value, its width and levels, and so for what stands beside a string."""

HEADER_BYTES = 1 << 10
"""Bytes that are read for a header at first."""

_LONGEST_HEADER = 16 << 20
_DEEPEST = 8

Fields = dict[int, Any]


class _Page(Struct, frozen=True):
    kind: int
    at: int  # where it begins, behind its header
    size: int  # bytes when decompressed
    packed: int  # bytes as they are stored
    values: int
    encoding: int


class ColumnPages(Struct, frozen=True):
    """Pages of one column of a row group."""

    name: str
    rows: np.ndarray  # (pages + 1,) rows before each page, and all; where rows hold several values, as if all held equally many
    sizes: np.ndarray  # (pages,) bytes of the data pages; 0 where rows unfold
    largest: int  # bytes of the dictionary and the largest page, as it is stored too
    unfolded: int  # most bytes that a row unfolds to
    row_bytes: int  # bytes of a row that holds as many values as the mean, without its strings

    @property
    def held(self) -> int:
        """Bytes in memory for a single row."""
        return self.largest + self.row_bytes

    def bytes_of(self, rows: int) -> int:
        """Return the most bytes of so many rows in succession, besides what is held for one."""
        before = np.concatenate([[0], np.cumsum(self.sizes)])
        last = np.searchsorted(self.rows, self.rows[1:] + (rows - 1), "left").clip(max=len(self.sizes))
        beyond = before[last] - before[1:]
        return int(beyond.max(initial=0)) + rows * (self.unfolded + self.row_bytes)


def column_pages(
    source: RawIOBase, group: "pq.RowGroupMetaData", column: int, name: str, is_repeated: bool
) -> ColumnPages:
    """Read the headers of a column; those behind a damaged one are left to the reader of the pages."""
    chunk = group.column(column)
    starts, sizes, dictionary, longest, unfolded, largest = [0], [], 0, 0, 0, 0
    for page in _pages(source, chunk):
        if page.kind == _DICTIONARY:
            dictionary, longest = page.size, _longest_value(source, chunk, page)
            continue
        is_unfolding = page.encoding in _UNFOLDING
        unfolded = max(unfolded, (page.size if page.encoding == _BEGINNINGS else longest) * is_unfolding)
        starts.append(starts[-1] + page.values)
        sizes.append(0 if is_unfolding else page.size)
        largest = max(largest, page.size + page.packed * (page.packed != page.size))
    per_row = max(1, chunk.num_values) / max(1, group.num_rows) if is_repeated else 1
    rows = np.rint(np.array(starts) / per_row).astype(np.int64)
    row_bytes = int(per_row * (_NUMBER_BYTES + unfolded * is_repeated))
    return ColumnPages(name, rows, np.array(sizes, np.int64), largest + dictionary, unfolded, row_bytes)


def _pages(source: RawIOBase, chunk: "pq.ColumnChunkMetaData") -> Iterator[_Page]:
    """Yield the dictionary and the pages of values."""
    at, seen = chunk.data_page_offset, 0
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < at:
        at = chunk.dictionary_page_offset
    while seen < chunk.num_values:
        header, size = _header(source, at)
        kind, unpacked, packed = (_number(header, field) for field in (1, 2, 3))
        if min(kind, unpacked, packed) < 0:
            return
        at += size
        if kind in _BODIES:
            data = header.get(_BODIES[kind])
            values, encoding = _number(data, 1), _number(data, 4 if kind == _DATA_V2 else 2)
            if values < 0:
                return
            yield _Page(kind, at, unpacked, packed, values, encoding)
            seen += values if kind != _DICTIONARY else 0
        at += packed


def _number(fields: object, field: int) -> int:
    """Return a number among the fields of a structure, -1 for what is none."""
    value = fields.get(field) if isinstance(fields, dict) else None
    return value if type(value) is int else -1


def _longest_value(source: RawIOBase, chunk: "pq.ColumnChunkMetaData", page: _Page) -> int:
    """Return the bytes of the longest string of a dictionary, all of them where it cannot be read; 0 for what is no string."""
    if chunk.physical_type != "BYTE_ARRAY":
        return 0
    if page.size > _LARGEST_DICTIONARY:
        return page.size
    source.seek(page.at)
    stored = source.read(page.packed) or b""
    return next(
        filter(None, (_longest_in(data, page.values) for data in _unpacked(stored, page.size))), page.size
    )


def _unpacked(stored: bytes, size: int) -> Iterator[bytes]:
    """Yield a page as it may be meant; pyarrow ends the process when it is asked for a codec that a damaged footer names."""
    yield stored
    for codec in _CODECS:
        with suppress(pa.ArrowException, ValueError, OSError):
            yield pa.Codec(codec).decompress(stored, size, asbytes=True)


def _longest_in(data: bytes, values: int) -> int:
    """Return the bytes of the longest of so many strings, each behind its length; 0 if the data are something else."""
    return int(_longest_of(for_kernel(np.frombuffer(data, np.uint8)), values))


@kernel
def _longest_of(data: Bytes, values: Int) -> Int:
    longest = at = 0
    for _ in range(values):
        if at + _LENGTH > data.size:
            return 0
        size = 0
        for byte in range(_LENGTH):
            size |= int(data[at + byte]) << (8 * byte)
        longest = max(longest, size)
        at += _LENGTH + size
    return longest if at == data.size else 0


def _header(source: RawIOBase, at: int) -> tuple[Fields, int]:
    """Return the fields of the header at byte `at` and its size; none of one that is damaged."""
    size = HEADER_BYTES
    while at >= 0 and size <= _LONGEST_HEADER:
        source.seek(at)
        data = source.read(size) or b""
        try:
            return _struct(data, 0, 0)
        except ValueError:
            break
        except IndexError:
            if len(data) < size:
                break
            size *= 16
    return {}, 0


def _struct(data: bytes, at: int, depth: int) -> tuple[Fields, int]:
    """Return the fields of a Thrift structure at byte `at`, and where it ends."""
    fields: Fields = {}
    number = 0
    while data[at]:
        step, kind = divmod(data[at], 16)
        at += 1
        if step:
            number += step
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, kind, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:
        size, at = _unsigned(data, at)
        return None, at + size
    if kind == 12 and depth < _DEEPEST:
        return _struct(data, at, depth + 1)
    raise ValueError(f"Thrift type {kind} in a page header")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _unsigned(data, at)
    return value >> 1 ^ -(value & 1), at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a Thrift integer of more than ten bytes")
