"""Documents as Parquet: zstd level 1, row groups of about 64 MB, one file per shard."""

import tempfile
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

from dolma_dask.io.files import READ_BYTES, join
from dolma_dask.io.parquet import documents_table
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord

ROW_GROUP_BYTES = 64_000_000
"""Bytes of text per row group; cut at a record, so that it does not depend on batches."""


class ParquetWriter:
    """Writes one Parquet file through local scratch.

    Parameters
    ----------
    root : str
        Output root.
    path : str
        Path below it.
    """

    def __init__(self, root: str, path: str) -> None:
        self._path = path
        self._url = join(root, path)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._rows = 0

    def __enter__(self) -> "ParquetWriter":
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  closed in __exit__
        self._file = pq.ParquetWriter(
            self._spool,
            documents_table([]).schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._spool:
            if kind is None:
                self._end_group()
                self._file.close()
                self._publish()

    def write(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows, each a complete JSON line; no nulls."""
        for line in rows.to_pylist():
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            if self._waiting_bytes >= ROW_GROUP_BYTES:
                self._end_group()

    def _end_group(self) -> None:
        if self._waiting:
            self._file.write_table(documents_table(self._waiting))
            self._rows += len(self._waiting)
            self._waiting, self._waiting_bytes = [], 0

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
