"""Read an attribute file into blocks of columns: ids and sources to prove the alignment, and the requested keys.

Nested rows, the flat rows of AI2's pretrain-data layout, and Parquet (`dolma_dask.io.attribute_table`) give the same columns. A row that
cannot be read is an error here, never a missing value.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import BadRecordError
from dolma_dask.formats.json.attributes import (
    AttributeKind,
    Form,
    guess_form,
    sample_kinds,
    scan_attributes,
)
from dolma_dask.formats.json.block import Lines, RequestedKey, fill_strings
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.json.scan import RAW
from dolma_dask.formats.layout import format_of
from dolma_dask.io.attribute_table import KINDS_KEY, AttributeTable, table_kinds
from dolma_dask.io.records import TOO_LARGE, BadRecord, too_large
from dolma_dask.io.stored import START
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    Member,
    Section,
    StoredFile,
    compression_of,
    read_lines,
)
from dolma_dask.text.columns import large_bytes

__all__ = [
    "KINDS_KEY",
    "OBJECT",
    "AttributeBlock",
    "AttributeFile",
    "empty_block",
    "member_texts",
    "sample_file",
]

OBJECT = "\x1fobject"
"""Column of all attributes of each row as a JSON object; no attribute has this name."""

_OF_ROW = ("id", "source", "error", "attributes")

SAMPLE_BYTES = 1 << 20
SAMPLE_ROWS = 1000
"""Rows at the start of a file that are looked at to find its keys."""


@dataclass(frozen=True)
class AttributeBlock:
    """Consecutive rows of an attribute file."""

    # null for a row whose document could not be read; sources null where the file has none
    ids: pa.Array
    sources: pa.Array
    columns: Mapping[str, pa.Array]  # the requested keys
    first_row: int  # row of the first

    def slice(self, start: int, length: int) -> "AttributeBlock":
        """Return `length` rows from `start`."""
        columns = {key: array.slice(start, length) for key, array in self.columns.items()}
        return AttributeBlock(
            self.ids.slice(start, length), self.sources.slice(start, length), columns, self.first_row + start
        )


class AttributeFile:
    """One attribute file as an iterable of blocks; each iteration reads it anew.

    `kinds` are the keys to read and what their values must be; `with_objects` adds the column `OBJECT` (JSON lines only). A row longer
    than `max_record_bytes` is an error. Reading begins at `start`, a member or row group; rows from there up to `first_row` are skipped,
    lines without being parsed. After the last block ``stored.checksum`` says which file was read, unless reading began later than at its
    start.

    While iterating, raises `BadRecordError`, `CorruptFileError` (also at once if there is no such file), `SchemaError` and
    `SourceChangedError`.
    """

    def __init__(
        self,
        url: str,
        kinds: Mapping[str, AttributeKind],
        *,
        with_objects: bool = False,
        max_record_bytes: int = MAX_RECORD_BYTES,
        block_bytes: int = BLOCK_BYTES,
        start: Member = START,
        first_row: int = 0,
    ) -> None:
        self.url = url
        self.kinds = dict(kinds)
        self.with_objects = with_objects
        self.max_record_bytes = max_record_bytes
        self.block_bytes = block_bytes
        self.first_row = first_row
        self._section = Section(start)
        self._is_table = format_of(url) == "parquet"
        self.stored = StoredFile(url, None if self._is_table else self._section)

    def __iter__(self) -> Generator[AttributeBlock]:
        if self.stored.position != self.stored.section.start.offset:
            self.stored.rewind()
        try:
            yield from self._rows_of_table() if self._is_table else self._lines()
            self.stored.check_unchanged()
        finally:
            self.stored.close()

    def _rows_of_table(self) -> Iterator[AttributeBlock]:
        while (
            not self.first_row and self.stored.read()
        ):  # the checksum; a table itself is read from its footer
            pass
        row = self._section.start.row
        for ids, sources, columns in AttributeTable(self.url, self.kinds, self.block_bytes, self._section):
            block = AttributeBlock(ids, sources, columns, row)
            row += len(ids)
            if row > self.first_row:
                skipped = max(self.first_row - block.first_row, 0)
                yield block.slice(skipped, len(ids) - skipped)

    def _lines(self) -> Iterator[AttributeBlock]:
        form: Form | None = None
        for lines in read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        ):
            rest = _from_row(lines, self.first_row)
            if rest is None:
                continue
            lines = rest
            self._check_sizes(lines)
            form = form or self._form(lines)
            batch = scan_attributes(lines.data, lines.starts, self.kinds, form)
            for row, error in batch.errors:
                raise self._bad(lines, row, error.reason, error.expected)
            columns = batch.columns
            if self.with_objects:
                columns = {**columns, OBJECT: _objects(Lines(lines.data, lines.starts), form)}
            yield AttributeBlock(batch.ids, batch.sources, columns, lines.first_row)

    def _check_sizes(self, lines: LineBlock) -> None:
        sizes = np.array([lines.oversize_bytes]) if lines.oversize_bytes else np.diff(lines.starts)
        row = int(sizes.argmax())
        if sizes[row] > self.max_record_bytes:
            raise self._bad(lines, row, TOO_LARGE, too_large(int(sizes[row]), self.max_record_bytes))

    def _form(self, lines: LineBlock) -> Form:
        try:
            return guess_form(lines.data[: lines.starts[1]].tobytes())
        except LineError as error:
            raise self._bad(lines, 0, error.reason, error.expected) from None

    def _bad(self, lines: LineBlock, row: int, reason: str, expected: str) -> BadRecordError:
        offset = lines.byte_offset + int(lines.starts[row])
        record = BadRecord(self.url, lines.first_row + row, offset, reason, expected, b"")
        return record.error("Make the attributes again.")


def _from_row(lines: LineBlock, first_row: int) -> LineBlock | None:
    """Return `lines` without those before `first_row`, None if nothing is left."""
    skipped = first_row - lines.first_row
    if skipped <= 0:
        return lines
    if skipped >= len(lines.starts) - 1:
        return None
    at = int(lines.starts[skipped])
    return LineBlock(lines.data[at:], lines.starts[skipped:] - at, first_row, lines.byte_offset + at)


def sample_file(url: str) -> dict[str, AttributeKind]:
    """Find the keys of an attribute file and their kinds from its first rows; none for an empty file. Rows that cannot be read are left to
    `AttributeFile`, which names them.
    """
    if format_of(url) == "parquet":
        return table_kinds(url)
    stored = StoredFile(url)
    try:
        block = next(read_lines(stored, compression_of(url), block_bytes=SAMPLE_BYTES), None)
    finally:
        stored.close()
    if block is None:
        return {}
    lines = [block.data[start:stop].tobytes() for start, stop in pairwise(block.starts[: SAMPLE_ROWS + 1])]
    try:
        return sample_kinds(lines, guess_form(lines[0]))
    except LineError:
        return {}


def empty_block(kinds: Mapping[str, AttributeKind], *, with_objects: bool = False) -> AttributeBlock:
    """Return a block of no rows."""
    batch = scan_attributes(np.zeros(0, np.uint8), np.zeros(1, np.int64), kinds, "nested")
    objects = {OBJECT: pa.array([], pa.large_string())} if with_objects else {}
    return AttributeBlock(batch.ids, batch.sources, {**batch.columns, **objects}, 0)


def member_texts(lines: Lines, name: str) -> pa.LargeStringArray:
    """Return the JSON text of one member of each line; null where it is absent or null, or the line cannot be read."""
    status = lines.utf8_status()
    walk = lines.walk([RequestedKey(name, 0, RAW, 0)], status)
    slow = {row: _member(lines.line(row), name) for row in np.flatnonzero(status).tolist()}
    return fill_strings(walk.strings(0, unescape=False), slow)


def _member(line: bytes, name: str) -> str | None:
    try:
        raw = parse_object(line).get(name, b"null")
    except LineError:  # a bad record, which its reader reports
        return None
    return None if raw == b"null" else raw.decode()


def _objects(lines: Lines, form: Form) -> pa.LargeStringArray:
    """Return the attributes of each row as a JSON object."""
    if form == "nested":
        return member_texts(lines, "attributes")
    from dolma_dask.rules.splicing import Edit, splice  # rarely needed kernels

    objects = splice(large_bytes(lines.starts, lines.block), [Edit(name, None) for name in _OF_ROW])
    return pc.utf8_rtrim(objects.cast(pa.large_string()), characters="\n")
