"""Parquet (zstd level 1, pages with checksums) straight into a file that appears whole or not at all: no scratch space."""

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from dolma_dask.io.files import join
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord
from dolma_dask.writers.base import stamp_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COMPRESSION_LEVEL = 1


class ArrowSink:
    """A file that is being published, with the little of a file object that pyarrow asks for."""

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


class TableFile:
    """One Parquet file being written.

    Parameters
    ----------
    root : str
        Output root.
    path : str
        Path below it.
    use_dictionary : bool
        Whether repeated values are worth a dictionary.
    """

    def __init__(self, root: str, path: str, *, use_dictionary: bool) -> None:
        self._root, self._path = root, path
        self._url = join(root, path)
        self._use_dictionary = use_dictionary
        self._file: pq.ParquetWriter | None = None
        self._rows = 0

    def __enter__(self) -> "TableFile":
        with ExitStack() as stack:
            self._out = stack.enter_context(publish(self._url))
            stack.push(self._finish)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _finish(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None:
            return
        with suppress(*(() if kind is None else (Exception,))):  # a file that failed is thrown away
            self._file.close()

    def open(self, schema: pa.Schema) -> "pq.ParquetWriter":
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

    def write(self, table: pa.Table) -> None:
        """Append `table` as one row group."""
        self.open(table.schema).write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows

    @property
    def record(self) -> FileRecord:
        """What was written; after a clean exit."""
        stamp = stamp_of(self._root, self._path)
        return FileRecord(self._path, self._out.bytes, self._out.checksum, self._rows, stamp=stamp)
