"""Read an attribute file into blocks of columns: ids and sources to prove the alignment, and the keys that are asked.

Nested rows, the flat rows of AI2's pretrain-data layout, and Parquet. A row that cannot be read is an error here, never a missing value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import BadRecordError, SchemaError
from dolma_dask.formats.json_attributes import (
    AttributeKind,
    LineError,
    guess_form,
    sample_kinds,
    scan_attributes,
)
from dolma_dask.formats.layout import format_of
from dolma_dask.io.parquet import batch_rows, open_parquet
from dolma_dask.io.records import BadRecord
from dolma_dask.io.stream import BLOCK_BYTES, StoredFile, compression_of, read_lines

SAMPLE_BYTES = 1 << 20
SAMPLE_ROWS = 1000
"""Rows at the start of a file that are looked at to find its keys."""

KINDS_KEY = b"dolma_dask.kinds"
"""Schema metadata of our Parquet attribute files: JSON object from key to kind."""


@dataclass(frozen=True)
class AttributeBlock:
    """Consecutive rows of an attribute file.

    Attributes
    ----------
    ids, sources : pyarrow.LargeStringArray
        Null for a row whose document could not be read; sources null where the file has none.
    columns : Mapping[str, pyarrow.Array]
        The asked keys.
    first_row : int
        Row of the first.
    """

    ids: pa.Array
    sources: pa.Array
    columns: Mapping[str, pa.Array]
    first_row: int

    def slice(self, start: int, length: int) -> "AttributeBlock":
        """Return `length` rows from `start`."""
        columns = {key: array.slice(start, length) for key, array in self.columns.items()}
        return AttributeBlock(
            self.ids.slice(start, length), self.sources.slice(start, length), columns, self.first_row + start
        )


class AttributeFile:
    """One attribute file as an iterable of blocks.

    Parameters
    ----------
    url : str
        Local path or fsspec URL.
    kinds : Mapping[str, AttributeKind]
        The keys to read, and what their values must be.

    Attributes
    ----------
    stored : StoredFile
        Its ``checksum``, after the last block, says which file was read.

    Raises
    ------
    BadRecordError, CorruptFileError, SourceChangedError
        While iterating.
    """

    def __init__(self, url: str, kinds: Mapping[str, AttributeKind]) -> None:
        self.url = url
        self.kinds = dict(kinds)
        self.stored = StoredFile(url)

    def __iter__(self) -> Iterator[AttributeBlock]:
        try:
            yield from self._parquet() if format_of(self.url) == "parquet" else self._lines()
            self.stored.check_unchanged()
        finally:
            self.stored.close()

    def _lines(self) -> Iterator[AttributeBlock]:
        form = None
        for lines in read_lines(self.stored, compression_of(self.url), block_bytes=BLOCK_BYTES):
            starts = lines.starts
            if form is None:
                form = guess_form(lines.data[: starts[1]].tobytes())
            batch = scan_attributes(lines.data, starts, self.kinds, form)
            if batch.errors:
                row, error = batch.errors[0]
                raise self._bad(lines.first_row + row, lines.byte_offset + int(starts[row]), error)
            yield AttributeBlock(batch.ids, batch.sources, batch.columns, lines.first_row)

    def _bad(self, row: int, offset: int, error: LineError) -> BadRecordError:
        record = BadRecord(self.url, row, offset, error.reason, error.expected, b"")
        return BadRecordError(f"{record}. Make the attributes again.", url=self.url, row=row)

    def _parquet(self) -> Iterator[AttributeBlock]:
        while self.stored.read():
            pass
        file = open_parquet(self.url)
        names = file.schema_arrow.names
        first_row = 0
        for batch in file.iter_batches(batch_size=batch_rows(file, BLOCK_BYTES), use_threads=False):
            nothing = pa.nulls(batch.num_rows, pa.large_string())
            columns = {key: self._column(batch, key) for key in self.kinds}
            yield AttributeBlock(
                pc.cast(batch.column("id"), pa.large_string()),
                pc.cast(batch.column("source"), pa.large_string()) if "source" in names else nothing,
                columns,
                first_row,
            )
            first_row += batch.num_rows

    def _column(self, batch: pa.RecordBatch, key: str) -> pa.Array:
        name, _, member = key.partition(".") if self.kinds[key] == "dict" else (key, "", "")
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.float64())
        column = batch.column(name)
        if member:
            if column.type.get_field_index(member) < 0:
                return pa.nulls(batch.num_rows, pa.float64())
            column = pc.struct_field(column, member)
        if self.kinds[key] in ("document", "number", "dict"):
            if not (
                pa.types.is_integer(column.type)
                or pa.types.is_floating(column.type)
                or pa.types.is_null(column.type)
            ):
                raise SchemaError(
                    f"{self.url}: column {key!r} is {column.type}; expected a number.", url=self.url
                )
            return pc.cast(column, pa.float64())
        return column


def sample_file(url: str) -> dict[str, AttributeKind]:
    """Find the keys of an attribute file and their kinds from its first rows.

    Parameters
    ----------
    url : str
        Local path or fsspec URL.

    Returns
    -------
    dict
        Key to kind; empty for an empty file.
    """
    if format_of(url) == "parquet":
        return _parquet_kinds(url)
    stored = StoredFile(url)
    try:
        block = next(read_lines(stored, compression_of(url), block_bytes=SAMPLE_BYTES), None)
    finally:
        stored.close()
    if block is None:
        return {}
    starts = block.starts[: SAMPLE_ROWS + 1]
    lines = [block.data[start:stop].tobytes() for start, stop in zip(starts[:-1], starts[1:], strict=True)]
    return sample_kinds(lines, guess_form(lines[0]))


def _parquet_kinds(url: str) -> dict[str, AttributeKind]:
    schema = open_parquet(url).schema_arrow
    if schema.metadata and KINDS_KEY in schema.metadata:
        return msgspec.json.decode(schema.metadata[KINDS_KEY], type=dict[str, AttributeKind])
    kinds: dict[str, AttributeKind] = {}
    for field in schema:
        if field.name not in ("id", "source", "error"):
            kinds.update(_field_kinds(url, field))
    return kinds


def _field_kinds(url: str, field: pa.Field) -> dict[str, AttributeKind]:
    kind = field.type
    if pa.types.is_boolean(kind):
        return {field.name: "bool"}
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return {field.name: "number"}
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return {field.name: "string"}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {field.name: "spans"}
    if pa.types.is_struct(kind):
        return {f"{field.name}.{kind.field(i).name}": "dict" for i in range(kind.num_fields)}
    raise SchemaError(
        f"{url}: column {field.name!r} is {kind}; expected numbers, strings, bools, spans or a struct.",
        url=url,
    )


def empty_block(kinds: Mapping[str, AttributeKind]) -> AttributeBlock:
    """Return a block of no rows."""
    none = np.zeros(0, np.uint8)
    batch = scan_attributes(none, np.zeros(1, np.int64), kinds, "nested")
    return AttributeBlock(batch.ids, batch.sources, batch.columns, 0)
