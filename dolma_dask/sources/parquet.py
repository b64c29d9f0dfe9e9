"""Parquet tables: one row per record, columns as fields.

A row takes the same way as a line of JSON: its values are written as JSON and spliced by `dolma_dask.sources.documents`, so that a
table and the JSON lines it was made from give the same documents. Dates and times become ISO 8601 strings, durations too, bytes
base64, decimals strings, maps arrays of pairs; NaN and infinities become null, as JSON has none. Bytes in a mapped field or in
``metadata`` are text, as in tables that lack the UTF8 annotation. A text column ``metadata`` that holds JSON objects is taken as objects,
because that is how tables carry free-form metadata. A table that was written here gives back its lines.
Row groups are streamed. Cost: about 110 MB of JSON per CPU-second, measured with one nested column.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.formats.documents import EXTRA, METADATA, is_bytes, is_ours, is_string
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.json.write import string_texts
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.records import QUARANTINE_HEAD, Block, InputRecord
from dolma_dask.io.stream import StoredFile
from dolma_dask.sources.base import BlockBuilder, RawFile, finish
from dolma_dask.sources.documents import Record, RecordConverter
from dolma_dask.sources.functions import FunctionConverter, converter_of
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.rows import add_row, check_columns
from dolma_dask.text import compute as pc

_MAX_BLOCK_ROWS = 16_384
"""Short rows, or rows that a dictionary packs well, come in more blocks than their stored size says."""


def _encode_other(value: Any) -> Any:
    """Return what msgspec does not know as JSON values: subclasses of its types, such as nanosecond time stamps."""
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


_encode = msgspec.json.Encoder(enc_hook=_encode_other).encode
_decode_string = msgspec.json.Decoder(str).decode


class ParquetTable(RawFile, frozen=True):
    """The rows of one Parquet file."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`. Bad rows have no byte offset: a table has no lines."""
        with closing(StoredFile(self.url)) as stored, open_parquet(self.url) as file:
            schema = file.schema_arrow
            if self.function is None:
                check_columns(self.url, schema.names, self)
            is_documents = (self.mapping.is_default or self.function is not None) and is_ours(schema)
            converter = converter_of(self.function, self.mapping, self.path, self.url)
            builder = BlockBuilder(schema=converter.schema)
            for batch in read_batches(
                self.url, file, None, self.block_bytes, max_bytes=self.max_record_bytes
            ):
                for start in range(0, batch.num_rows, _MAX_BLOCK_ROWS):
                    for rows, size in self._cut(batch.slice(start, _MAX_BLOCK_ROWS)):
                        if size:
                            builder.refuse_size(self.url, -1, size, self.max_record_bytes, self._head(rows))
                            continue
                        for record in _records(rows, self.mapping):
                            self._add(builder, converter, record, is_documents)
                    yield builder.take()
            finish(stored, self.path, inputs)

    def _cut(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield each row whose strings are too large by itself, with their bytes, and the rows between, with 0."""
        strings = [column for column in batch.columns if is_string(column.type) or is_bytes(column.type)]
        lengths = [pc.fill_null(pc.binary_length(column.cast(pa.large_binary())), 0) for column in strings]
        sizes = np.sum([np.zeros(batch.num_rows, np.int64), *lengths], axis=0)
        start = 0
        for row in np.flatnonzero(sizes > self.max_record_bytes).tolist():
            yield batch.slice(start, row - start), 0
            yield batch.slice(row, 1), int(sizes[row])
            start = row + 1
        yield batch.slice(start), 0

    def _head(self, row: pa.RecordBatch) -> bytes:
        """Return the first bytes of a row as JSON, of which nothing else is copied."""
        columns = [
            pc.binary_slice(column.cast(pa.large_binary()), 0, QUARANTINE_HEAD)
            if is_string(column.type) or is_bytes(column.type)
            else column
            for column in row.columns
        ]
        values = {name: value.as_py() for name, (value,) in zip(row.schema.names, columns, strict=True)}
        texts = {
            name: value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in values.items()
        }
        return _encode(texts)

    def _add(
        self,
        builder: BlockBuilder,
        converter: RecordConverter | FunctionConverter,
        record: Record | LineError,
        is_document: bool,
    ) -> None:
        """Append the document of a row, or say why it is none."""
        try:
            if isinstance(record, LineError):
                raise record
            if is_document:
                record = _as_document(record)
        except LineError as error:
            builder.refuse(self.url, -1, error.reason, error.expected, b"")
            return
        add_row(builder, self, converter, record, self.url, is_document=is_document)


def _as_document(row: Record) -> Record:
    """Undo the table form of documents: nulls are missing fields, `EXTRA` holds further ones."""
    record = {name: value for name, value in row.items() if value != b"null"}
    extra = record.pop(EXTRA, None)
    return record if extra is None else {**record, **parse_object(_decode_string(extra).encode())}


def _records(batch: pa.RecordBatch, mapping: FieldMapping) -> Iterator[Record | LineError]:
    """Yield the rows with their values as JSON; for a row that has others, what is wrong with it."""
    try:
        columns = [
            _checked_values(column, name, mapping)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
    except LineError as error:
        if batch.num_rows == 1:
            yield error
            return
        for row in range(batch.num_rows):
            yield from _records(batch.slice(row, 1), mapping)
        return
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _checked_values(column: pa.Array, name: str, mapping: FieldMapping) -> list[bytes]:
    """Return the values of a column as JSON; raise `LineError` if one is not UTF-8, or a time that no calendar of Python has."""
    try:
        return _json_values(column, name, mapping)
    except UnicodeDecodeError as error:
        raise LineError("invalid_utf8", "UTF-8 in all text columns") from error
    except (ValueError, OverflowError) as error:  # ArrowInvalid is a ValueError
        if is_string(column.type) or is_bytes(column.type):
            raise LineError("invalid_utf8", "UTF-8 in all text columns") from error
        expected = f"a value in column {name!r} that can be written as JSON, found one of {column.type} that cannot ({error})"
        raise LineError("wrong_type", expected) from error


def _json_values(column: pa.Array, name: str, mapping: FieldMapping) -> list[bytes]:
    mapped = (mapping.id or "id", mapping.text, mapping.source_field, mapping.added, mapping.created)
    if name in (*mapped, METADATA) and is_bytes(column.type):
        column = pc.cast(column, options=pc.CastOptions(pa.large_string(), allow_invalid_utf8=True))
    if name != METADATA and is_string(column.type):
        # no value becomes an object of Python: a text of many MB would be held in several forms
        column.validate(full=True)
        return [value or b"null" for value in string_texts(column).view(pa.large_binary()).to_pylist()]
    values = column.to_pylist()
    if name == METADATA and is_string(column.type):
        return [_object_or_string(value) for value in values]
    for path in mapped:
        outer, *inner = (path or "").split(".")
        if outer == name and inner:
            values = [_with_text(value, inner) for value in values]
    return [_encode(value) for value in values]


def _with_text(value: Any, path: Sequence[str]) -> Any:
    """Return a value of Arrow with the bytes at a path inside of it as text."""
    if not path:
        return value.decode() if isinstance(value, bytes) else value
    is_there = isinstance(value, dict) and path[0] in value
    return {**value, path[0]: _with_text(value[path[0]], path[1:])} if is_there else value


def _object_or_string(value: str | None) -> bytes:
    if value is None or not value.startswith("{"):
        return _encode(value)
    try:
        parse_object(value.encode())
    except LineError:
        return _encode(value)
    if "\n" in value or "\r" in value:
        value = msgspec.json.format(value, indent=-1)  # a document is one line; values stay untouched
    return value.strip().encode()
