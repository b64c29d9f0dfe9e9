"""Documents as Parquet: row groups of about 64 MB of JSON, one file per shard."""

from contextlib import ExitStack
from types import TracebackType

import pyarrow as pa

from dolma_dask.formats.document_rows import documents_table
from dolma_dask.io.records import FileRecord
from dolma_dask.writers.table import TableFile

ROW_GROUP_BYTES = 64_000_000
"""Bytes of JSON per row group, about; cut at a record, so that it does not depend on batches."""


CHUNK_BYTES = 4_000_000
"""Bytes of JSON that are turned into columns at a time; likewise cut at a record."""


class ParquetWriter:
    """Writes one Parquet file; memory is about twice a row group.

    Parameters
    ----------
    root : str
        Output root.
    path : str
        Path below it.
    """

    def __init__(self, root: str, path: str) -> None:
        self._table = TableFile(root, path, use_dictionary=False)
        self._lines: list[bytes] = []
        self._chunks: list[pa.Table] = []
        self._line_bytes = self._chunk_bytes = 0

    def __enter__(self) -> "ParquetWriter":
        with ExitStack() as stack:
            stack.enter_context(self._table)
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._table.open(documents_table([]).schema)
            self._end_chunk()
            self._end_group()

    def write(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows, each a complete JSON line; no nulls."""
        for line in rows.to_pylist():
            self._lines.append(line)
            self._line_bytes += len(line)
            if self._line_bytes >= CHUNK_BYTES:
                self._end_chunk()

    def _end_chunk(self) -> None:
        if self._lines:
            self._chunks.append(documents_table(self._lines))
            self._chunk_bytes += self._line_bytes
            self._lines, self._line_bytes = [], 0
        if self._chunk_bytes >= ROW_GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._chunks:
            self._table.write(pa.concat_tables(self._chunks))
            self._chunks, self._chunk_bytes = [], 0

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        return self._table.record
