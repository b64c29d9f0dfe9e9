"""Tables that RedPajama-V2 publishes beside its documents, read beside shards of these.

A table lies below the folder of its component as the shard lies below ``documents/``. Rows are joined by the number at the end of the id, which
rises in both, so that memory depends on neither. A document may have no row, and a row no document.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Input
from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.formats import layout
from dolma_dask.formats.redpajama import Component, RisingIds
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.io.redpajama import TableBlock
from dolma_dask.io.stored import StoredFile
from dolma_dask.text.kernels import Counts

B = TypeVar("B", bound=TableBlock)

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class PublishedTables:
    """The tables of some shards."""

    component: Component
    url: str  # of their folder
    tables: Mapping[str, FileInfo]  # by shard; those that are there

    @property
    def listing(self) -> Sequence[Sequence[object]]:
        """The tables that there are; whether they have changed is known where they are read."""
        return [[shard, info.bytes] for shard, info in sorted(self.tables.items())]

    def of_shard(self, shard: str) -> tuple[Input, ...]:
        """Return the table of a shard as input of a task; nothing if it is not there."""
        found = self.tables.get(shard)
        if found is None:
            return ()
        name = f"{self.component.name}:{found.path}"  # no file of the dataset
        return (Input(files.join(self.url, found.path), FileInfo(name, found.bytes, found.stamp)),)


def list_tables(url: str, components: Iterable[Component], shards: Sequence[str]) -> list[PublishedTables]:
    """Return the tables of shards below `url`, for each of the components that has any."""
    listed = {info.path: info for info in files.list_files(url)}
    every = [
        PublishedTables(
            component,
            url,
            {
                shard: listed[path]
                for shard in shards
                for path in reversed(component.candidates(shard))
                if path in listed
            },
        )
        for component in components
    ]
    return [found for found in every if found.tables]


def missing_table(component: Component, folder: str, shard: str) -> CorruptFileError:
    """Return the error for a table that is not there."""
    url = files.join(folder, component.path(shard))
    return CorruptFileError(
        f"{url}: no such file; expected the {component.called} of {shard}. {component.advice}", url=url
    )


@dataclass(frozen=True)
class Stretch(Generic[B]):
    """Consecutive documents beside rows of one block of their table."""

    start: int  # of the first, among the documents that were asked for
    stop: int
    block: B | None  # None: no row is left
    found: Counts  # (k,) rows of the block that have a document
    at: Counts  # (k,) the documents that they are of, from `start` on

    @classmethod
    def without_rows(cls, start: int, stop: int) -> Self:
        """Return documents for which no row is left."""
        return cls(start, stop, None, _NONE, _NONE)


class TableRows(Generic[B]):
    """The rows of a table beside the documents of its shard."""

    def __init__(self, shard: str, table: Input, stored: StoredFile, blocks: Iterator[B]) -> None:
        self._table, self._shard, self._stored = table, shard, stored
        self._blocks = blocks
        self.block: B | None = next(blocks, None)  # at hand; None at the end
        self._ids = RisingIds(layout.document_path(shard))
        self._matched = self._rows = 0

    def close(self) -> None:
        """Close the table."""
        self._stored.close()

    def beside(self, ids: pa.LargeStringArray) -> Iterator[Stretch[B]]:
        """Yield the next documents in stretches that have one block of rows each; ids (n,) are null where a document could not be read.

        Raises `DataError`: they are of another shard than the table, or their numbers do not rise.
        """
        readable = np.flatnonzero(np.asarray(ids.is_valid()))
        rows = self._rows_of(pc.drop_null(ids)) if len(readable) else _NONE
        start = first = 0
        while first < len(rows) and self.block is not None:
            last = int(np.searchsorted(rows, self.block.rows[-1], "right"))
            stop = int(readable[last]) if last < len(rows) else len(ids)
            if stop > start:
                yield self._matching(self.block, rows[first:last], readable[first:last], start, stop)
            start, first = stop, last
            if last < len(rows):
                self._next()
        if start < len(ids):
            yield Stretch.without_rows(start, len(ids))

    def _rows_of(self, ids: pa.LargeStringArray) -> Counts:
        shard_id, rows = self._ids.split(ids)
        if self.block is not None and self.block.shard_id != shard_id:
            raise DataError(
                f"{self._table.url} has rows of {self.block.shard_id}, and documents/{self._shard} documents of {shard_id}; expected one "
                "shard. Give the folder in which tables lie as the shards below documents/.",
                url=self._table.url,
            )
        return rows

    def _matching(self, block: B, rows: Counts, at: Counts, start: int, stop: int) -> Stretch[B]:
        found = np.searchsorted(block.rows, rows)
        found[found == len(block.rows)] = 0
        here = block.rows[found] == rows
        self._matched += int(here.sum())
        return Stretch(start, stop, block, found[here], at[here] - start)

    def _next(self) -> None:
        assert self.block is not None
        self._rows += len(self.block.rows)
        self.block = next(self._blocks, None)

    def finish(self) -> tuple[InputRecord, int]:
        """Read the rest; return the table as it was read, and how many of its rows have no document.

        Several shards that are parts of one raw file share its table: their rows are not counted.
        """
        while self.block is not None:
            self._next()
        self._stored.hash_rest()
        self._stored.check_unchanged()
        record = self._stored.record(self._table.info.path)
        is_own = record.path.partition(":")[2].startswith(f"{layout.stem_of(self._shard)}.")
        return record, self._rows - self._matched if is_own else 0
