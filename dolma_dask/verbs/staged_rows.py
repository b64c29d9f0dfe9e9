"""Rows of shards that wait, while an exchange goes on, for what it says of them: an Arrow file per shard, in the folder of the exchange.

About 40 bytes per document: id, source, length, and why a document could not be read. Whoever reads the spool compares its checksum.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dolma_dask.errors import CorruptFileError
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stored import StoredFile
from dolma_dask.verbs.flag_rows import FlagRows, StagedShard
from dolma_dask.writers.table import ArrowSink

_SPOOL = pa.schema(
    [
        ("id", pa.large_string()),
        ("source", pa.large_string()),
        ("length", pa.int64()),
        ("bytes", pa.int64()),
        ("error", pa.large_string()),
    ]
)


def spool_path(number: int) -> str:
    """Return where the rows of a shard wait, relative to the folder of the exchange."""
    return f"spool/{number:08d}.arrow"


@dataclass
class Spool:
    """Writes the rows of one shard to the folder of an exchange; a context manager.

    Parameters
    ----------
    folder : str
        Of the exchange.
    number : int
        Of the shard.

    Attributes
    ----------
    record : FileRecord
        After a clean exit.
    """

    folder: str
    number: int
    record: FileRecord = field(init=False)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._out = stack.enter_context(publish(files.join(self.folder, spool_path(self.number))))
            sink = pa.PythonFile(ArrowSink(self._out), mode="w")
            options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
            self._stream = stack.enter_context(pa.ipc.new_stream(sink, _SPOOL, options=options))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)
        self.record = FileRecord(spool_path(self.number), self._out.bytes, self._out.checksum)

    def known(self, read: StagedShard) -> StagedShard:
        """Return what is known of the shard, with its spool; after a clean exit."""
        return replace(read, spool=self.record)

    def write(self, rows: FlagRows) -> None:
        """Append rows."""
        errors = pa.array([rows.errors.get(row) for row in range(len(rows))], pa.large_string())
        if not rows.errors:
            errors = pa.nulls(len(rows), pa.large_string())
        arrays = [rows.ids, rows.sources, pa.array(rows.lengths), pa.array(rows.sizes), errors]
        self._stream.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SPOOL))


class _Stored:
    """A stored file as pyarrow reads it."""

    closed = False
    readable = staticmethod(lambda: True)
    seekable = writable = staticmethod(lambda: False)

    def __init__(self, stored: StoredFile) -> None:
        self._stored = stored

    def read(self, size: int = -1) -> bytes:
        pieces = []
        while size and (piece := self._stored.read(size) if size > 0 else self._stored.read()):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def close(self) -> None:
        self.closed = True


def read_staged(folder: str, record: FileRecord | None) -> Iterator[FlagRows]:
    """Yield the rows of a shard as they were staged.

    Raises
    ------
    CorruptFileError
        The file is gone or was changed. It is removed, so that the same command makes it again.
    """
    if record is None:
        return
    url = files.join(folder, record.path)
    stored = StoredFile(url)
    first = 0
    try:
        for batch in pa.ipc.open_stream(pa.PythonFile(_Stored(stored), mode="r")):
            yield _from_spool(batch, first)
            first += batch.num_rows
        while stored.read():
            pass
    except pa.ArrowException as error:
        raise _damaged(url, str(error)) from error
    finally:
        stored.close()
    if stored.checksum != record.checksum:
        raise _damaged(url, f"checksum {stored.checksum}, written were bytes of {record.checksum}")


def _damaged(url: str, found: str) -> CorruptFileError:
    files.remove(url)
    return CorruptFileError(
        f"{url}: damaged ({found}); expected it as it was written. It is removed: run the same command again.",
        url=url,
    )


def _from_spool(batch: pa.RecordBatch, first: int) -> FlagRows:
    lengths, sizes = (np.asarray(batch.column(name)) for name in ("length", "bytes"))
    errors = batch.column("error")
    bad = np.flatnonzero(np.asarray(errors.is_valid())).tolist() if errors.null_count < len(errors) else []
    return FlagRows(
        first,
        batch.column("id"),
        batch.column("source"),
        lengths,
        sizes,
        {row: errors[row].as_py() for row in bad},
    )
