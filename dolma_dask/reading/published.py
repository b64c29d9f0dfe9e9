"""Tables that RedPajama-V2 publishes beside its documents, read beside shards of these.

A table lies below the folder of its component as the shard lies below ``documents/``, or below a folder there. Rows are joined by the number at the end of the id, which
rises in both, so that memory depends on neither. A document may have no row, and a row no document. A shard in which `convert` has combined
published files has the tables of all of them, one after another, or one table with the rows of all.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import CorruptFileError, DataError
from dolma_dask.formats import layout
from dolma_dask.formats.redpajama import Component, RisingIds, own_stems, runs_of_places
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo, Input
from dolma_dask.io.records import InputRecord
from dolma_dask.io.redpajama import TableBlock
from dolma_dask.io.stored import StoredFile
from dolma_dask.journal import Journal
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Counts

B = TypeVar("B", bound=TableBlock)

_NONE = np.empty(0, np.int64)

PLACED = (
    "in folders as the shards below documents/, or as the published files. Those of files that were combined are known in the dataset that convert "
    "wrote, not in a mix of it."
)
"""Description in errors of the folders of tables."""


class PublishedTables(Struct, frozen=True):
    """The tables of some shards."""

    component: Component
    url: str  # of their folder
    tables: Mapping[str, tuple[FileInfo, ...]]  # by shard; those that are there
    incomplete: frozenset[str] = frozenset()  # shards of several published files, of which some have no table

    @property
    def listing(self) -> Sequence[Sequence[object]]:
        """The tables that there are; whether they have changed is known where they are read."""
        return [[shard, *(info.bytes for info in found)] for shard, found in sorted(self.tables.items())]

    def of_shard(self, shard: str) -> tuple[Input, ...]:
        """Return the tables of a shard as inputs of a task; nothing if there are none."""
        return tuple(map(self._input, self.tables.get(shard, ())))

    def _input(self, found: FileInfo) -> Input:
        name = f"{self.component.name}:{found.path}"  # no file of the dataset
        return Input(files.join(self.url, found.path), FileInfo(name, found.bytes, found.stamp))


def list_tables(
    root: str, url: str, components: Iterable[Component], shards: Sequence[str]
) -> list[PublishedTables]:
    """Return the tables of shards of the dataset at `root`, below `url`, for each of the components that has any."""
    listed = {info.path: info for info in files.list_files(url)}
    places = combined_places(root)
    every = [
        _tables_of(url, component, {shard: places.get(shard, [shard]) for shard in shards}, listed)
        for component in components
    ]
    return [found for found in every if found.tables]


def combined_places(root: str) -> dict[str, list[str]]:
    """Return the published files that shards were made of, where `convert` has combined them."""
    records = Journal(root, "convert").records.values()
    return {record.shard: record.info["places"] for record in records if "places" in record.info}


def _tables_of(
    url: str, component: Component, places: Mapping[str, Sequence[str]], listed: Mapping[str, FileInfo]
) -> PublishedTables:
    tables: dict[str, tuple[FileInfo, ...]] = {}
    incomplete = set()
    for shard, names in places.items():
        of_all = _listed_table(component, shard, listed)
        infos = [of_all] if of_all else [_listed_table(component, name, listed) for name in names]
        tables[shard] = tuple(info for info in infos if info)
        if None in infos:
            incomplete.add(shard)
    found = {shard: infos for shard, infos in tables.items() if infos}
    return PublishedTables(component, url, found, frozenset(incomplete & found.keys()))


def _listed_table(component: Component, name: str, listed: Mapping[str, FileInfo]) -> FileInfo | None:
    return next((listed[path] for path in component.candidates(name) if path in listed), None)


def missing_table(component: Component, folder: str, shard: str) -> CorruptFileError:
    """Return the error for a table that is not there."""
    url = files.join(folder, component.path(shard))
    return CorruptFileError(
        f"{url}: no such file; expected the {component.called} of {shard}. {component.advice}", url=url
    )


class Stretch(Struct, Generic[B], frozen=True):
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
    """The rows of a table beside the documents of its shard.

    A table of several published files has the rows of each together, in the order of `places`, in which the documents come too.
    """

    def __init__(
        self,
        shard: str,
        table: Input,
        stored: StoredFile,
        blocks: Iterator[B],
        places: Sequence[str] = (),
    ) -> None:
        self._table, self._shard, self._stored = table, shard, stored
        self._blocks = blocks
        self._held: B | None = next(blocks, None)  # None at the end
        self._ids = RisingIds(layout.document_path(shard))
        self._numbers = {place: number for number, place in enumerate(places)}
        self._place: str | None = None  # whose documents come; of one published file nobody asks
        self._matched = self._rows = 0

    @property
    def block(self) -> B | None:
        """The rows at hand; None behind those of the published file whose documents come."""
        if self._numbers and self._held is not None and self._held.shard_id != self._place:
            return None
        return self._held

    def close(self) -> None:
        """Close the table."""
        self._stored.close()

    def beside(self, ids: pa.LargeStringArray) -> Iterator[Stretch[B]]:
        """Yield the next documents in stretches that have one block of rows each; ids (n,) are null where a document could not be read.

        Raises `DataError`: they are of another shard than the table, or in another order.
        """
        if not self._numbers:
            return self._beside(ids)
        return _by_place(ids, self._go_to, self._beside)

    def _go_to(self, place: str | None, _: pa.LargeStringArray) -> None:
        """Leave out the rows before those of a published file."""
        if place is None or place == self._place:
            return
        number, before = self._numbers.get(place), self._numbers.get(self._place or "", -1)
        if number is None or number < before:
            found = "no rows" if number is None else f"the rows of {self._place} behind those"
            raise DataError(
                f"{self._table.url} has {found} of {place}, whose documents come now in documents/{self._shard}; expected a table made of the published files of "
                "this shard, in their order. Make it again: dolma-dask sign DATASET FOLDER --signatures TABLES.",
                url=self._table.url,
            )
        self._place, self._ids = place, RisingIds(layout.document_path(self._shard))
        while self._held is not None and self._numbers[self._held.shard_id] < number:
            self._next()

    def _beside(self, ids: pa.LargeStringArray) -> Iterator[Stretch[B]]:
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
        assert self._held is not None
        self._rows += len(self._held.rows)
        self._held = next(self._blocks, None)

    def finish(self) -> tuple[tuple[InputRecord, ...], int]:
        """Read the rest; return the table as it was read, and how many of its rows have no document.

        Several shards that are parts of one raw file share its table: their rows are not counted.
        """
        while self._held is not None:
            self._next()
        self._stored.hash_rest()
        self._stored.check_unchanged()
        record = self._stored.record(self._table.info.path)
        path = record.path.partition(":")[2]
        is_own = any(path.startswith(f"{stem}.") for stem in own_stems(self._shard))
        return (record,), self._rows - self._matched if is_own else 0


class CombinedRows(Generic[B]):
    """The rows of several tables beside the documents of one shard, in which published files were combined; see `TableRows`."""

    def __init__(
        self,
        component: Component,
        tables: Sequence[Input],
        open_table: Callable[[str, Input], TableRows[B]],
        missing: Callable[[str], None],
    ) -> None:
        """Open nothing yet. `missing` is called with the name of a published file that has documents and no table."""
        self._open_table, self._missing = open_table, missing
        self._left = {_stem(component, table): table for table in tables}  # not yet opened
        self._order = {table.info.path: number for number, table in enumerate(tables)}
        self._places: set[str] = set()  # whose documents have come
        self._place: str | None = None  # whose documents were the last
        self._current: TableRows[B] | None = None
        self._read: list[InputRecord] = []
        self._unmatched = 0

    block: None = None  # none is at hand before the first documents

    def close(self) -> None:
        """Close the table that is open."""
        if self._current is not None:
            self._current.close()

    def beside(self, ids: pa.LargeStringArray) -> Iterator[Stretch[B]]:
        """Yield the next documents in stretches; see `TableRows.beside`."""
        return _by_place(ids, self._go_to, self._beside)

    def _beside(self, ids: pa.LargeStringArray) -> Iterable[Stretch[B]]:
        return self._current.beside(ids) if self._current else [Stretch.without_rows(0, len(ids))]

    def _go_to(self, place: str | None, ids: pa.LargeStringArray) -> None:
        if place is None or place == self._place:
            return
        if place in self._places:
            raise DataError(
                f"documents of {place} stand before and behind others; expected those of each published file together. Convert the files anew."
            )
        self._finish_current()
        self._place = place
        self._places.add(place)
        table = self._left.pop(layout.stem_of(place), None)
        if table is None:
            RisingIds(place).split(pc.drop_null(ids))  # other ids have no table anywhere
            self._missing(place)
        else:
            self._current = self._open_table(place, table)

    def _finish_current(self) -> None:
        if self._current is not None:
            read, unmatched = self._current.finish()
            self._read += read
            self._unmatched += unmatched
            self._current.close()
            self._current = None

    def finish(self) -> tuple[tuple[InputRecord, ...], int]:
        """Read the rest; return the tables as they were read, and how many of their rows have no document."""
        for stem in list(self._left):  # of files none of whose documents is there
            self._finish_current()
            self._current = self._open_table(stem, self._left.pop(stem))
        self._finish_current()
        return tuple(sorted(self._read, key=lambda one: self._order[one.path])), self._unmatched


def is_combined(component: Component, shard: str, tables: Sequence[Input]) -> bool:
    """Tell whether tables are of the published files that were combined in a shard, not of the shard itself."""
    own = {*own_stems(shard), *own_stems(layout.unit_of(shard))}
    return any(_stem(component, table) not in own for table in tables)


def _stem(component: Component, table: Input) -> str:
    path = table.info.path.partition(":")[2]
    return path.removesuffix(next(suffix for suffix in component.suffixes if path.endswith(suffix)))


def _by_place(
    ids: pa.LargeStringArray,
    go_to: Callable[[str | None, pa.LargeStringArray], None],
    beside: Callable[[pa.LargeStringArray], Iterable[Stretch[B]]],
) -> Iterator[Stretch[B]]:
    """Yield the stretches of documents, those of one published file after those of another."""
    for start, stop, place in runs_of_places(ids):
        part = ids.slice(start, stop - start)
        go_to(place, part)
        for one in beside(part):
            yield replace(one, start=one.start + start, stop=one.stop + start)
