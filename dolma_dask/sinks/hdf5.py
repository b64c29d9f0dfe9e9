"""Writer of one HDF5 token shard: rows deflated by isal, stored as chunks of HDF5's own gzip filter, published when the file is whole.

HDF5 seeks while it writes and an object store cannot, so the file grows in an unnamed one in the system's temporary folder, of which a
killed process leaves nothing, and is copied to the output at the end. No time stamps and the oldest format: the same rows give the same
bytes.

Batches are deflated and stored by a thread of the writer while the next ones are made: a run often has one large file, which is one task, and its other
processors would have nothing to do. When that thread is behind, whoever writes deflates a batch itself, so that neither waits for the other.

Cost: 400 to 600 MB of rows (int32) per CPU-second, half of it deflating; memory of a few batches of rows. Scratch space is the size of the
file; ``TMPDIR`` decides where.
"""

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from dolma_dask.errors import DataError
from dolma_dask.formats.hdf5 import DATASET, DEFLATE_LEVEL, GZIP_LEVEL, ROW_DTYPE, ROWS_ATTRIBUTE, RowShape
from dolma_dask.metering import count_helper
from dolma_dask.sinks.base import FileWriter, in_scratch

COPY_BYTES = 1 << 20

_WAITING, _MOST_WAITING = 1, 3
"""Batches that wait while one is stored: with more than the first, the next are deflated by their writer; with more than the second, it waits."""

Attribute = str | int | Sequence[str]


class Hdf5Writer(FileWriter):
    """Context manager that writes one file of exactly ``shape.rows`` rows; leaving it by an exception writes nothing.

    `attributes` are further attributes of the file. Raises `DataError` on leaving if rows are missing.
    """

    def __init__(
        self, root: str, path: str, shape: RowShape, attributes: Mapping[str, Attribute] | None = None
    ) -> None:
        super().__init__(root, path)
        self._shape = shape
        self._attributes = attributes or {}

    def _begin(self, stack: ExitStack) -> None:
        import h5py  # type: ignore[import-untyped]

        self._scratch = tempfile.TemporaryFile(prefix="dolma-dask-")  # noqa: SIM115
        stack.callback(self._close_one, self._scratch)
        self._file = h5py.File(self._scratch, "w", libver="earliest")
        stack.callback(self._close_one, self._file)
        self._chunks = self._make_array(self._file).id
        self._behind = stack.enter_context(ThreadPoolExecutor(1, "dolma-dask-rows"))
        self._storing = deque[Future[float]]()

    def _close_one(self, file: Any) -> None:
        with in_scratch(self._path):  # where a disk was full, it is full when the rest is written
            file.close()

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
        """Append rows (n, channels, length), which nobody changes afterwards. Raises `DataError` if they are of another shape, or too many.

        What cannot be stored is raised by a later call, or on leaving.
        """
        self._shape.check(rows, self._rows)
        rows = np.ascontiguousarray(rows)
        chunks = (isal_zlib.compress(row, DEFLATE_LEVEL) for row in rows)
        self._settle(_MOST_WAITING)
        is_behind = len(self._storing) > _WAITING
        self._storing.append(
            self._behind.submit(self._store, list(chunks) if is_behind else chunks, self._rows)
        )
        self._rows += len(rows)

    def _settle(self, most: int) -> None:
        """Look at the batches that are stored, and wait until no more than `most` are left."""
        while self._storing and (self._storing[0].done() or len(self._storing) > most):
            count_helper(self._storing.popleft().result())

    def _store(self, chunks: Iterable[bytes], first: int) -> float:
        """Store rows, which are deflated as they are asked for, from row `first` on; return the CPU-seconds of that."""
        begun = time.thread_time()
        with in_scratch(self._path):
            for number, chunk in enumerate(chunks, first):
                self._chunks.write_direct_chunk((number, 0, 0), chunk)
        return time.thread_time() - begun

    def _finish(self) -> None:
        self._settle(0)
        if self._rows != self._shape.rows:
            raise DataError(f"{self._path}: {self._rows} rows were written; expected {self._shape.rows}.")
        with in_scratch(self._path):
            self._file.close()
            self._scratch.seek(0)
        shutil.copyfileobj(self._scratch, self._out, COPY_BYTES)
