"""Attribute files: rows of JSON in the nested form, or Parquet with one column per key.

In Parquet a ``document`` attribute is a plain float64 column, so that any tool can read it; the kinds stand in the schema's metadata.
Both hold the same values: scores of taggers are rounded to 5 decimals, and no number is NaN or infinite.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.formats.attributes import AttributeColumn, check_ids, encode_rows, frame_rows
from dolma_dask.formats.json.attributes import AttributeKind, scan_attributes
from dolma_dask.formats.layout import format_of
from dolma_dask.io.attributes import KINDS_KEY
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, Unit
from dolma_dask.sinks.base import TableFile
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sinks.sink import FileSink, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts

ROW_GROUP_ROWS = 131_072
"""Most rows of a Parquet row group; a fixed number, so that the file does not depend on batches."""

ROW_GROUP_SPANS = 1 << 20
"""A row group ends with the row that brings it this many spans, of 24 bytes each."""


class AttributeWriter:
    """Writes the attribute rows of one shard to `path` below `root`; the suffix decides the format. Of tables, `repeating` names the columns with few
    values; for `member_bytes` see `JsonlWriter`.
    """

    def __init__(
        self,
        root: str,
        path: str,
        repeating: Sequence[str] | None = None,
        member_bytes: int | None = None,
    ) -> None:
        is_table = format_of(path) == "parquet"
        self._file = _RowGroups(root, path, repeating) if is_table else JsonlWriter(root, path, member_bytes)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def write(
        self,
        ids: pa.LargeStringArray,
        sources: pa.LargeStringArray,
        lengths: npt.NDArray[np.int64],
        columns: Sequence[AttributeColumn],
        errors: Mapping[int, str],
    ) -> None:
        """Append rows; see `dolma_dask.formats.attributes.encode_rows`."""
        if isinstance(self._file, _RowGroups) and not errors and all(map(_is_plain, columns)):
            self._file.write(_plain_table(ids, sources, columns))
            return
        rows = encode_rows(ids, sources, lengths, columns, errors)
        if isinstance(self._file, JsonlWriter):
            self._file.write(rows)
        elif len(rows):
            self._file.write(_table(rows, columns, errors))

    def write_rows(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows as `dolma_dask.formats.attributes.encode_rows` gives them, to a file of lines."""
        assert isinstance(self._file, JsonlWriter)
        self._file.write(rows)

    def write_members(
        self,
        ids: pa.LargeStringArray,
        sources: pa.LargeStringArray,
        members: pa.LargeStringArray,
        kinds: Mapping[str, AttributeKind],
        errors: Mapping[int, str],
    ) -> None:
        """Append rows with members that are JSON already, see `dolma_dask.formats.attributes.frame_rows`; their keys are among `kinds`."""
        rows = frame_rows(ids, sources, members, errors)
        if isinstance(self._file, JsonlWriter):
            self._file.write(rows)
        elif len(rows):
            self._file.write(_table_of(rows, kinds, {}, errors))

    @property
    def record(self) -> FileRecord:
        """Record of the file; after a clean exit."""
        return self._file.record


class AttributeSink(FileSink[AttributeWriter]):
    """Base of sinks that write an attribute row for every row of a shard; one that could not be read has its error."""

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        file = self.writer.record
        return facts.record(unit, (file, *quarantined), file.rows, counts=self.counts, info=self.info(facts))


class _RowGroups(TableFile):
    """A table with columns ``id source error`` and one per key, in row groups of `ROW_GROUP_ROWS`, or of fewer rows that have `ROW_GROUP_SPANS`."""

    def __init__(self, root: str, path: str, repeating: Sequence[str] | None) -> None:
        super().__init__(root, path, use_dictionary=True if repeating is None else list(repeating))
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_spans = 0
        self._names: list[str] = []
        self._schema: pa.Schema | None = None  # of the row groups that are written

    def _finish(self) -> None:
        while self._waiting_rows:
            self._write_next()
        self._open(pa.schema(_FRAME))

    def write(self, table: pa.Table) -> None:
        """Append rows; all tables have the same columns."""
        self._names = self._names or table.schema.names
        if table.schema.names != self._names:
            raise self._other_columns(f"{table.schema.names} after {self._names}")
        self._wait(table)
        while self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_spans >= ROW_GROUP_SPANS:
            self._write_next()

    def _wait(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        self._waiting_spans += int(_span_counts(table).sum())

    def _write_next(self) -> None:
        """Write a row group of the waiting rows."""
        table = self._joined()
        ends = np.cumsum(_span_counts(table))
        rows = min(ROW_GROUP_ROWS, int(np.searchsorted(ends, ROW_GROUP_SPANS)) + 1)
        self._write_group(table.slice(0, rows))
        self._waiting, self._waiting_rows, self._waiting_spans = [], 0, 0
        if rows < len(table):  # a slice of no rows would keep the memory of the group
            self._wait(table.slice(rows))

    def _joined(self) -> pa.Table:
        """Return the waiting rows as one table; a column of nulls takes the type that it has elsewhere."""
        known = [] if self._schema is None else [self._schema.empty_table()]
        try:
            table = pa.concat_tables([*known, *self._waiting], promote_options="default")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise self._other_columns(str(error)) from error
        if self._schema is not None and table.schema != self._schema:
            raise self._other_columns("null in all rows of the first group")
        self._schema = table.schema
        return table

    def _other_columns(self, found: str) -> SchemaError:
        return SchemaError(
            f"{self._path}: the attributes of some documents have other columns than those before them ({found}); expected "
            "the same keys and types for all documents. Correct what makes them, or write JSON lines.",
            path=self._path,
        )


_FRAME = (("id", pa.large_string()), ("source", pa.large_string()), ("error", pa.large_string()))


def _is_plain(column: AttributeColumn) -> bool:
    """Tell whether a table holds the values of a column as they are: JSON neither checks nor rounds whole numbers."""
    return column.kind == "scalar" and pa.types.is_integer(column.values.type)


def _plain_table(ids: pa.Array, sources: pa.Array, columns: Sequence[AttributeColumn]) -> pa.Table:
    """Return rows of readable documents as `_table` does, without spelling them as JSON; raises `DataError`: an id is null."""
    check_ids(ids, np.ones(len(ids), np.bool_))
    frame = (ids, pc.fill_null(sources, ""), pa.nulls(len(ids), pa.large_string()))
    values = {column.key: column.values for column in columns}
    table = pa.table({**dict(zip((name for name, _ in _FRAME), frame, strict=True)), **values})
    return table.replace_schema_metadata({KINDS_KEY: b"{}"})


def _table(
    rows: pa.LargeBinaryArray, columns: Sequence[AttributeColumn], errors: Mapping[int, str]
) -> pa.Table:
    """Return rows as a table with the values that a reader would find in their JSON, where that checks and rounds them."""
    kinds: dict[str, AttributeKind] = {
        column.key: column.kind for column in columns if column.kind == "document" or column.kind == "spans"
    }
    others = {column.key: _shown(column, errors) for column in columns if column.key not in kinds}
    table = _table_of(rows, kinds, others, errors)
    return table.select([*(name for name, _ in _FRAME), *(column.key for column in columns)])


def _table_of(
    rows: pa.LargeBinaryArray,
    kinds: Mapping[str, AttributeKind],
    others: Mapping[str, pa.Array],
    errors: Mapping[int, str],
) -> pa.Table:
    """Return rows as a table with the columns `kinds`, of the values that a reader finds in their JSON, and `others`."""
    offsets, data = string_parts(rows)
    read = scan_attributes(data, offsets, kinds)
    for row, error in read.errors:
        raise DataError(f"row {row} of a block cannot be a row of a table: {error}", row=row)
    messages = pa.array([errors.get(row) for row in range(len(rows))], pa.large_string())
    frame = zip((name for name, _ in _FRAME), (read.ids, read.sources, messages), strict=True)
    table = pa.table({**dict(frame), **read.columns, **others})
    return table.replace_schema_metadata({KINDS_KEY: msgspec.json.encode(kinds)})


def _span_counts(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the spans of each row (n,), of all columns together."""
    counts = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            counts += np.asarray(pc.fill_null(pc.list_value_length(column), 0), np.int64)
    return counts


def _shown(column: AttributeColumn, errors: Mapping[int, str]) -> pa.Array:
    """Return the values of a column, null in rows of documents that could not be read."""
    if not errors:
        return column.values
    rows = np.arange(len(column.values))
    return column.values.take(pa.array(rows, mask=np.isin(rows, list(errors))))
