"""Copies of files without some rows: lines and tables in their own form, all other rows byte for byte or value for value.

Lines: a gzip member or zstd frame that loses no row is copied as it is stored, where the journal knows members; so a large file costs little more than a
copy. Tables: one row group is in memory at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.formats.layout import format_of
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.publish import PublishedFile
from dolma_dask.io.stored import Member, Section
from dolma_dask.io.stream import StoredFile, compression_of, read_lines
from dolma_dask.sinks.base import COMPRESSION_LEVEL, ArrowSink
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.text.columns import large_bytes
from dolma_dask.verbs.remove.changes import Written

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Rows = NDArray[np.int64]
Members = Sequence[tuple[int, int, int]]

_ANY = 1 << 62
"""Bytes of a line: what stood in the file stays, however long it is."""

Edit = Callable[[pa.Table, int], pa.Table]
"""Changes rows of a table, of which the first has this number."""

EditLines = Callable[[list[bytes], int], list[bytes]]
"""Changes lines, or leaves some out; the first has this number."""


def copy_lines(url: str, out: PublishedFile, gone: Rows, total: int, members: Members = ()) -> Written:
    """Copy JSON lines without the rows `gone` (sorted) of `total`; `members` are those of the file, if they are known."""
    if len(members) > 1:
        return _by_member(url, out, gone, total, members)
    with _writer(url, out) as writer:
        for lines in _blocks(StoredFile(url), url):
            writer.write(_without(*lines, gone))
    return Written(total, total - len(gone), writer.record.members)


def edit_lines(url: str, out: PublishedFile, edit: EditLines) -> Written:
    """Copy JSON lines as `edit` returns them."""
    before = after = 0
    with _writer(url, out) as writer:
        for rows, first in _blocks(StoredFile(url), url):
            lines = edit(rows.to_pylist(), first)
            before, after = before + len(rows), after + len(lines)
            writer.write(pa.array(lines, pa.large_binary()))
    return Written(before, after, writer.record.members)


def _writer(url: str, out: PublishedFile, *, whole: bool = False) -> JsonlWriter:
    folder, _, name = url.rpartition("/")
    return JsonlWriter(folder, name, publish=lambda _: nullcontext(out), whole=whole)


def lines_of(url: str) -> Iterator[tuple[list[bytes], int]]:
    """Yield the lines of a file in blocks, each with the number of its first."""
    for rows, first in _blocks(StoredFile(url), url):
        yield rows.to_pylist(), first


def _blocks(stored: StoredFile, url: str) -> Iterator[tuple[pa.LargeBinaryArray, int]]:
    try:
        for block in read_lines(stored, compression_of(url), max_record_bytes=_ANY):
            yield large_bytes(block.starts, block.data), block.first_row
        stored.check_unchanged()
    finally:
        stored.close()


def _without(rows: pa.LargeBinaryArray, first: int, gone: Rows) -> pa.LargeBinaryArray:
    start, stop = np.searchsorted(gone, [first, first + len(rows)])
    if start == stop:
        return rows
    mask = np.ones(len(rows), np.bool_)
    mask[gone[start:stop] - first] = False
    return rows.filter(pa.array(mask))


def _by_member(url: str, out: PublishedFile, gone: Rows, total: int, members: Members) -> Written:
    """Copy members that lose nothing, and write the others with what they have left."""
    made: list[tuple[int, int, int]] = []
    rows = text = 0
    info = files.stat(url)
    ends = [*members[1:], (0 if info is None else info.bytes, total, -1)]
    with files.open_read(url) as handle:
        for (start, first, text_start), (stop, last, text_stop) in zip(members, ends, strict=True):
            own = gone[(gone >= first) & (gone < last)]
            if last - first == len(own) and last > first:
                continue
            made.append((out.bytes, rows, text))
            rows += last - first - len(own)
            if len(own):
                text += _shorter_member(url, out, Section(Member(start, first, text_start), stop), own)
            else:
                _copy(handle, out, start, stop)
                text += text_stop - text_start
    if not made:
        made.append((0, 0, 0))
        _write_member(url, out, [])
    return Written(total, rows, tuple(made))


def _shorter_member(url: str, out: PublishedFile, section: Section, gone: Rows) -> int:
    """Write a member without some rows as one member; return the bytes of its text."""
    return _write_member(
        url, out, [_without(rows, first, gone) for rows, first in _blocks(StoredFile(url, section), url)]
    )


def _write_member(url: str, out: PublishedFile, blocks: Sequence[pa.LargeBinaryArray]) -> int:
    with _writer(url, out, whole=True) as writer:
        for rows in blocks:
            writer.write(rows)
    return writer.text_bytes


def _copy(handle: Any, out: PublishedFile, start: int, stop: int) -> None:
    handle.seek(start)
    while start < stop and (piece := handle.read(min(files.READ_BYTES, stop - start))):
        out.write(piece)
        start += len(piece)


def copy_table(url: str, out: PublishedFile, gone: Rows, edit: Edit | None = None) -> Written:
    """Copy a table without the rows `gone` (sorted), in its row groups and compressions; `edit` may change those that stay."""
    import pyarrow.parquet as pq

    total = rows = 0
    with open_parquet(url) as file:
        sink = pa.PythonFile(ArrowSink(out), mode="w")
        with pq.ParquetWriter(sink, file.schema_arrow, **writer_options(file)) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                kept = _table_without(table, total, gone)
                kept = kept if edit is None else edit(kept, total)
                total, rows = total + table.num_rows, rows + kept.num_rows
                if kept.num_rows:
                    writer.write_table(kept.combine_chunks(), row_group_size=kept.num_rows)
            if footer := _footer(file):
                writer.add_key_value_metadata(footer)
    return Written(total, rows)


def _footer(file: "pq.ParquetFile") -> dict[bytes, bytes]:
    """Return what stands in the footer of a table besides its schema."""
    known = {b"ARROW:schema", *(file.schema_arrow.metadata or {})}
    return {key: value for key, value in (file.metadata.metadata or {}).items() if key not in known}


def _table_without(table: pa.Table, first: int, gone: Rows) -> pa.Table:
    start, stop = np.searchsorted(gone, [first, first + table.num_rows])
    if start == stop:
        return table
    mask = np.ones(table.num_rows, np.bool_)
    mask[gone[start:stop] - first] = False
    return table.filter(pa.array(mask))


def writer_options(file: "pq.ParquetFile") -> dict[str, Any]:
    """Return how a table was written, as far as its first row group tells."""
    if not file.num_row_groups:
        return {"compression": "zstd", "compression_level": COMPRESSION_LEVEL, "write_page_checksum": True}
    group = file.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    codecs = {column.path_in_schema: column.compression.lower() for column in columns}
    levels = {name: COMPRESSION_LEVEL for name, codec in codecs.items() if codec == "zstd"}
    return {
        "compression": {name: "none" if codec == "uncompressed" else codec for name, codec in codecs.items()},
        **({"compression_level": levels} if levels else {}),
        "use_dictionary": [
            column.path_in_schema
            for column in columns
            if {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(column.encodings)
        ],
        "write_page_checksum": True,
    }


def is_table(path: str) -> bool:
    """Tell whether a file is a table, and not lines."""
    return format_of(path) == "parquet"


def shifted(rows: Rows, gone: Rows) -> Rows:
    """Return the numbers that rows have once those `gone` (sorted) are no longer counted."""
    moved: Rows = rows - np.searchsorted(gone, rows)
    return moved
