"""One output file as a context: it appears on a clean exit, and not at all after an exception."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from dolma_dask.formats import layout
from dolma_dask.io.files import join, stat
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord


class FileWriter:
    """A file `path` below `root` that is being written; subclasses append to ``_out`` and count ``_rows``."""

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path, self._url = root, path, join(root, path)
        self._rows = 0
        self._members: list[tuple[int, int, int]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._out = stack.enter_context(publish(self._url))
            self._begin(stack)
            stack.push(lambda kind, *_: self._close(kind is not None))
            stack.push(lambda kind, *_: self._finish() if kind is None else None)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _begin(self, stack: ExitStack) -> None:
        """Open what else is needed, to be closed with the file."""

    def _finish(self) -> None:
        """Write what waits; only on a clean exit."""

    def _close(self, failed: bool) -> None:
        """Free what is open, after `_finish`."""

    @property
    def record(self) -> FileRecord:
        """Path, stored bytes, checksum, rows, members; after a clean exit."""
        out, members = self._out, tuple(self._members)
        return FileRecord(self._path, out.bytes, out.checksum, self._rows, members, self._stamp())

    def _stamp(self) -> str:
        """Return the stamp of a document file that has just appeared; none of others, since it costs a request and no reader needs it."""
        info = stat(self._url) if self._path.startswith(f"{layout.DOCUMENTS}/") else None
        return info.stamp if info else ""
