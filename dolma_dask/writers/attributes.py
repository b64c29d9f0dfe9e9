"""Attribute files: rows of JSON in the nested form, or Parquet with one column per key.

In Parquet a ``document`` attribute is a plain float64 column, so that any tool can read it; the kinds stand in the schema's metadata.
"""

import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dolma_dask.formats.attributes import AttributeColumn, encode_rows
from dolma_dask.formats.layout import format_of
from dolma_dask.io.attributes import KINDS_KEY
from dolma_dask.io.files import READ_BYTES, join
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.writers.jsonl import JsonlWriter

ROW_GROUP_ROWS = 131_072
"""Rows per Parquet row group; a fixed number, so that the file does not depend on batches."""


class AttributeWriter(Protocol):
    """Writes the attribute rows of one shard."""

    def __enter__(self) -> "AttributeWriter": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(
        self,
        ids: pa.LargeStringArray,
        sources: pa.LargeStringArray,
        lengths: npt.NDArray[np.int64],
        columns: Sequence[AttributeColumn],
        errors: Mapping[int, str],
    ) -> None:
        """Append rows; see `dolma_dask.formats.attributes.encode_rows`."""
        ...

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        ...


def open_attribute_writer(root: str, path: str) -> AttributeWriter:
    """Return the writer for the attribute file `path` below `root`; the suffix chooses the format."""
    return (
        AttributeParquetWriter(root, path)
        if format_of(path) == "parquet"
        else AttributeJsonlWriter(root, path)
    )


class AttributeJsonlWriter(JsonlWriter):
    """Attribute rows as JSON lines."""

    def __enter__(self) -> "AttributeJsonlWriter":
        super().__enter__()
        return self

    def write(  # type: ignore[override]
        self,
        ids: pa.LargeStringArray,
        sources: pa.LargeStringArray,
        lengths: npt.NDArray[np.int64],
        columns: Sequence[AttributeColumn],
        errors: Mapping[int, str],
    ) -> None:
        """Append rows; see `dolma_dask.formats.attributes.encode_rows`."""
        super().write(encode_rows(ids, sources, lengths, columns, errors))


class AttributeParquetWriter:
    """Attribute rows as Parquet (zstd level 1), through local scratch.

    Parameters
    ----------
    root : str
        Of the dataset.
    path : str
        Path below it.
    """

    def __init__(self, root: str, path: str) -> None:
        self._path = path
        self._url = join(root, path)
        self._waiting: list[pa.Table] = []
        self._rows = self._waiting_rows = 0
        self._file: pq.ParquetWriter | None = None

    def __enter__(self) -> "AttributeParquetWriter":
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._spool:
            if kind is None:
                self._write_groups(1)
                self._open(_table([], [], [], {})).close()
                self._publish()

    def write(
        self,
        ids: pa.LargeStringArray,
        sources: pa.LargeStringArray,
        lengths: npt.NDArray[np.int64],
        columns: Sequence[AttributeColumn],
        errors: Mapping[int, str],
    ) -> None:
        """Append rows; `lengths` is not needed here, spans of whole documents are plain numbers."""
        self._waiting.append(_table(ids, sources, columns, errors))
        self._waiting_rows += len(ids)
        self._write_groups(ROW_GROUP_ROWS)

    def _write_groups(self, least: int) -> None:
        """Write whole row groups while at least `least` rows wait."""
        while self._waiting_rows >= least:
            table = pa.concat_tables(self._waiting)
            self._open(table).write_table(table.slice(0, ROW_GROUP_ROWS))
            rest = table.slice(ROW_GROUP_ROWS)
            self._rows += min(table.num_rows, ROW_GROUP_ROWS)
            self._waiting, self._waiting_rows = ([rest] if rest.num_rows else []), rest.num_rows

    def _open(self, table: pa.Table) -> pq.ParquetWriter:
        if self._file is None:
            self._file = pq.ParquetWriter(self._spool, table.schema, compression="zstd", compression_level=1)
        return self._file

    def _publish(self) -> None:
        self._spool.seek(0)
        with publish(self._url) as out:
            while piece := self._spool.read(READ_BYTES):
                out.write(piece)
        self._record = FileRecord(self._path, out.bytes, out.checksum, self._rows)

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        return self._record


def _table(ids: Any, sources: Any, columns: Sequence[AttributeColumn], errors: Mapping[int, str]) -> pa.Table:
    messages = (
        [errors.get(row) for row in range(len(ids))] if errors else pa.nulls(len(ids), pa.large_string())
    )
    arrays = [
        pa.array(ids, pa.large_string()),
        pa.array(sources, pa.large_string()),
        pa.array(messages, pa.large_string()),
    ]
    names = ["id", "source", "error"]
    kinds = {column.key: column.kind for column in columns if column.kind in ("document", "spans")}
    metadata = {KINDS_KEY: msgspec.json.encode(kinds)} if columns and len(kinds) == len(columns) else {}
    arrays += [column.values for column in columns]
    names += [column.key for column in columns]
    table: pa.Table = pa.table(arrays, names=names)
    return table.replace_schema_metadata(metadata)
