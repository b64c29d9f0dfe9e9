"""One output file as a context: it appears after a clean exit, within a task of the engine when that has ended, and not at all after an exception.

A table is Parquet (zstd level 1, pages with checksums), straight into the file that will appear: no scratch space.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from dolma_dask.errors import DataError, DiskFullError
from dolma_dask.formats import layout
from dolma_dask.io.files import join
from dolma_dask.io.publish import PublishedFile, publish_later, stamp_of
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stores import FULL

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COMPRESSION_LEVEL = 1

Publish = Callable[[str], AbstractContextManager[PublishedFile]]
"""Opens a file that appears when it is whole: `publish_later`, or `dolma_dask.io.staging.stage`."""


@contextmanager
def in_scratch(what: str) -> Iterator[None]:
    """Raise `DiskFullError` that names the temporary folder, in which `what` is put together: the disk of the output may have room."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        folder = tempfile.gettempdir()
        raise DiskFullError(
            f"{folder}: {error.strerror}; expected room for {what}, which is put together there. Set TMPDIR to a folder with room and run the "
            "same command again: what is finished is kept.",
            url=folder,
        ) from error


class FileWriter:
    """A file `path` below `root` that is being written; subclasses append to ``_out`` and count ``_rows``.

    What comes before the first rows, such as a header, is written by ``_begin``, what waits at the end by ``_finish``.
    """

    def __init__(self, root: str, path: str, publish: Publish = publish_later) -> None:
        self._root, self._path, self._url = root, path, join(root, path)
        self._publish = publish
        self._rows = 0
        self._members: list[tuple[int, int, int]] = []
        self._is_whole = False
        self._stack = ExitStack()  # empty until the file is open, whose opening may fail

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._out = stack.enter_context(self._publish(self._url))
            self._begin(stack)
            stack.push(lambda kind, *_: self._close(kind is not None))
            stack.push(lambda kind, *_: self._finish() if kind is None else None)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        self._is_whole = kind is None

    def _begin(self, stack: ExitStack) -> None:
        """Open what else is needed, to be closed with the file."""

    def _finish(self) -> None:
        """Write what waits; only on a clean exit."""

    def _close(self, failed: bool) -> None:
        """Free what is open, after `_finish`."""

    @property
    def record(self) -> FileRecord:
        """Path, stored bytes, checksum, rows, members; raises `DataError` before a clean exit, since no file has appeared."""
        if not self._is_whole:
            raise DataError(
                f"{type(self).__name__} of {self._path} was never closed, so that its file did not appear; expected a sink that leaves its writer (`__exit__`)."
            )
        out, members = self._out, tuple(self._members)
        return FileRecord(self._path, out.bytes, out.checksum, self._rows, members, self._stamp())

    def _stamp(self) -> str:
        """Return the stamp of a file of documents or attributes; none of others, since it costs a request and no reader
        needs it.
        """
        is_read = self._path.startswith((f"{layout.DOCUMENTS}/", f"{layout.ATTRIBUTES}/"))
        return stamp_of(self._url) if is_read else ""


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
    """One Parquet file being written; `use_dictionary` (or the columns) where values repeat often enough, `random` columns are not compressed."""

    def __init__(
        self,
        root: str,
        path: str,
        publish: Publish = publish_later,
        *,
        use_dictionary: bool | list[str],
        random: Sequence[str] = (),
    ) -> None:
        super().__init__(root, path, publish)
        self._use_dictionary, self._random = use_dictionary, random
        self._file: pq.ParquetWriter | None = None

    def _close(self, failed: bool) -> None:
        if self._file is not None:
            with suppress(*((Exception,) if failed else ())):  # a file that failed is thrown away
                self._file.close()

    def _open(self, schema: pa.Schema) -> "pq.ParquetWriter":
        """Fix the columns, unless that has been done."""
        import pyarrow.parquet as pq

        if self._file is None:
            out = pa.PythonFile(ArrowSink(self._out), mode="w")
            self._file = pq.ParquetWriter(
                out, schema, use_dictionary=self._use_dictionary, **self._options(schema)
            )
        return self._file

    def _options(self, schema: pa.Schema) -> dict[str, Any]:
        """Return further options of pyarrow's writer."""
        compressed = [name for name in schema.names if name not in self._random]
        return {
            "compression": {name: "zstd" if name in compressed else "none" for name in schema.names},
            "compression_level": dict.fromkeys(compressed, COMPRESSION_LEVEL),
            "write_page_checksum": True,
        }

    def _write_group(self, table: pa.Table) -> None:
        """Append `table` as one row group."""
        self._open(table.schema).write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows


class GroupedTable(TableFile):
    """A table with known columns, in row groups of a fixed number of rows, so that the file does not depend on batches."""

    def __init__(
        self,
        root: str,
        path: str,
        schema: pa.Schema,
        group_rows: int,
        publish: Publish = publish_later,
        *,
        use_dictionary: bool | list[str],
        random: Sequence[str] = (),
    ) -> None:
        super().__init__(root, path, publish, use_dictionary=use_dictionary, random=random)
        self._schema, self._group_rows = schema, group_rows
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, columns: Sequence[pa.Array]) -> None:
        """Append rows."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self._schema)
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._write_groups(self._group_rows)

    def _finish(self) -> None:
        self._open(self._schema)
        self._write_groups(1)

    def _write_groups(self, min_rows: int) -> None:
        if self._waiting_rows < min_rows:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        while len(table) >= min_rows:
            self._write_group(table.slice(0, self._group_rows).combine_chunks())  # pages end with chunks
            table = table.slice(self._group_rows)
        self._waiting, self._waiting_rows = table.to_batches(), len(table)
