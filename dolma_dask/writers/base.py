"""The protocol of all writers of rows, and what a closed writer tells."""

from types import TracebackType
from typing import Protocol

import pyarrow as pa

from dolma_dask.formats import layout
from dolma_dask.io.files import join, stat
from dolma_dask.io.records import FileRecord


def stamp_of(root: str, path: str) -> str:
    """Return the stamp of a document file that has just appeared; of others, which no reader asks for it, none: it is a request."""
    if not path.startswith(f"{layout.DOCUMENTS}/"):
        return ""
    info = stat(join(root, path))
    return info.stamp if info else ""


class RowWriter(Protocol):
    """Takes rows as complete JSON lines; the file appears on a clean exit, and not at all after an exception."""

    def __enter__(self) -> "RowWriter": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def write(self, rows: pa.LargeBinaryArray) -> None:
        """Append rows, each with its final newline; no nulls."""
        ...

    @property
    def record(self) -> FileRecord:
        """What was written: path, stored bytes, checksum, rows, members; after a clean exit."""
        ...
