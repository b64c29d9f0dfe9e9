"""Writer of one HDF5 token shard: rows deflated by isal, stored as chunks of HDF5's own gzip filter, published when the file is whole.

HDF5 seeks while it writes and an object store cannot, so the file grows in an unnamed one in the system's temporary folder, of which a
killed process leaves nothing, and is copied to the output at the end. No time stamps and the oldest format: the same rows give the same
bytes.

Cost: 600 MB of rows (int32) per CPU-second, of which deflating is most; memory of one batch of rows. Scratch space is the size of the
file; ``TMPDIR`` decides where.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.hdf5 import DATASET, DEFLATE_LEVEL, GZIP_LEVEL, ROW_DTYPE, ROWS_ATTRIBUTE, RowShape
from dolma_dask.io.files import join
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord

COPY_BYTES = 1 << 20

Attribute = str | int | Sequence[str]


class Hdf5Writer:
    """Context manager that writes one file of exactly ``shape.rows`` rows; leaving it by an exception writes nothing.

    `attributes` are further attributes of the file. Raises `DataError` on leaving if rows are missing.
    """

    def __init__(
        self, root: str, path: str, shape: RowShape, attributes: Mapping[str, Attribute] | None = None
    ) -> None:
        self._root = root
        self._path = path
        self._shape = shape
        self._attributes = attributes or {}
        self._record: FileRecord | None = None
        self._stack = ExitStack()
        self.rows = 0

    def __enter__(self) -> Self:
        import h5py  # type: ignore[import-untyped]

        with ExitStack() as opening:
            self._scratch: BinaryIO = opening.enter_context(tempfile.TemporaryFile(prefix="dolma-dask-"))
            self._file = opening.enter_context(h5py.File(self._scratch, "w", libver="earliest"))
            self._chunks = self._make_array(self._file).id
            self._stack = opening.pop_all()
        return self

    def _make_array(self, file: Any) -> Any:
        array = file.create_dataset(
            DATASET,
            shape=self._shape.whole,
            dtype=ROW_DTYPE,
            chunks=self._shape.chunk,
            compression="gzip",
            compression_opts=GZIP_LEVEL,
            track_times=False,
        )
        file.attrs[ROWS_ATTRIBUTE] = np.int64(self._shape.rows)
        for name, value in self._attributes.items():
            file.attrs[name] = np.int64(value) if isinstance(value, int) else value
        return array

    def write(self, rows: NDArray[np.int32]) -> None:
        """Append rows (n, channels, length). Raises `DataError` if they are of another shape, or too many, and `UsageError` if the writer
        is not open.
        """
        if self._record is not None or not hasattr(self, "_chunks"):
            raise UsageError("the writer is not open; write inside of `with Hdf5Writer(...) as writer:`.")
        self._shape.check(rows, self.rows)
        for row in np.ascontiguousarray(rows):
            self._store(isal_zlib.compress(row, DEFLATE_LEVEL))
            self.rows += 1

    def _store(self, chunk: bytes) -> None:
        try:
            self._chunks.write_direct_chunk((self.rows, 0, 0), chunk)
        except OSError as error:
            error.add_note(
                f"while writing {self._path} in {tempfile.gettempdir()}; set TMPDIR to a folder with room for the file"
            )
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self._check_rows()
                self._file.close()
                self._record = self._publish()

    def _check_rows(self) -> None:
        if self.rows != self._shape.rows:
            raise DataError(f"{self._path}: {self.rows} rows were written; expected {self._shape.rows}.")

    def _publish(self) -> FileRecord:
        self._scratch.seek(0)
        with publish(join(self._root, self._path)) as out:
            while piece := self._scratch.read(COPY_BYTES):
                out.write(piece)
        return FileRecord(self._path, out.bytes, out.checksum, self.rows)

    @property
    def record(self) -> FileRecord:
        """Record of the file; after a clean exit."""
        if self._record is None:
            raise UsageError(
                f"{self._path} is not written yet; expected its record to be read after the block has ended."
            )
        return self._record
