"""Parquet (zstd level 1, pages with checksums) straight into a file that appears whole or not at all: no scratch space."""

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from dolma_dask.io.publish import PublishedFile
from dolma_dask.writers.base import FileWriter

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COMPRESSION_LEVEL = 1


class ArrowSink:
    """A file that is being published, with as much of a file object as pyarrow needs."""

    closed = False

    def __init__(self, out: PublishedFile) -> None:
        self._out = out

    def write(self, data: object) -> None:
        self._out.write(data)

    def tell(self) -> int:
        return self._out.bytes

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is published."""

    def close(self) -> None:
        self.closed = True


class TableFile(FileWriter):
    """One Parquet file being written; `use_dictionary` where values repeat often enough."""

    def __init__(self, root: str, path: str, *, use_dictionary: bool) -> None:
        super().__init__(root, path)
        self._use_dictionary = use_dictionary
        self._file: pq.ParquetWriter | None = None

    def _close(self, failed: bool) -> None:
        if self._file is not None:
            with suppress(*((Exception,) if failed else ())):  # a file that failed is thrown away
                self._file.close()

    def _open(self, schema: pa.Schema) -> "pq.ParquetWriter":
        """Fix the columns, unless that has been done."""
        import pyarrow.parquet as pq

        if self._file is None:
            self._file = pq.ParquetWriter(
                pa.PythonFile(ArrowSink(self._out), mode="w"),
                schema,
                compression="zstd",
                compression_level=COMPRESSION_LEVEL,
                use_dictionary=self._use_dictionary,
                write_page_checksum=True,
            )
        return self._file

    def _write_group(self, table: pa.Table) -> None:
        """Append `table` as one row group."""
        self._open(table.schema).write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows
