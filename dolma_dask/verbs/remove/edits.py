"""The work of `remove` on files that name documents: bad and dropped records, signatures, clusters, published tables, attributes without documents.

Rows of documents that were taken down go; the numbers that others have in their shards are those of the shards as they are now.
"""

import base64
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.formats import layout
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.records import FileRecord
from dolma_dask.reading.together import OWN
from dolma_dask.verbs.remove.changes import Change, Work
from dolma_dask.verbs.remove.identities import Wanted, find_rows
from dolma_dask.verbs.remove.listing import Place
from dolma_dask.verbs.remove.rewriting import copy_table, edit_lines, is_table, lines_of, shifted
from dolma_dask.verbs.remove.shards import Outcome, RemoveStage

Rows = NDArray[np.int64]

Cuts = Mapping[str, tuple[int, ...]]
"""Rows that are gone, by file of documents relative to the root."""


class EditWork(Struct, frozen=True):
    """A file that names documents."""

    place: Place
    origin: str  # root of the dataset whose shards it names, relative to the root
    cuts: Cuts = {}


class EditStage(RemoveStage, frozen=True):
    """Takes rows out of files that name documents, and renumbers the others."""

    def outcome(self, work: EditWork, checksum: str) -> Outcome:
        """See `RemoveStage`."""
        path = work.place.whole
        if (done := Work(self.root).done(path)) is not None:
            return Outcome(path, (done,))
        if is_table(path):
            return self._table(work)
        return self._lines(work)

    def _lines(self, work: EditWork) -> Outcome:
        path = work.place.whole
        url, edit = files.join(self.root, path), _LineEdit(self.root, self.wanted, work)
        total = left = changed = 0
        for lines, first in lines_of(url):
            kept = edit(lines, first)
            total, left, changed = total + len(lines), left + len(kept), changed + (kept != lines)
        if not changed:
            return Outcome(path)
        change = _change(path, "bad records" if edit.is_quarantine else "rows", total, total - left)
        if not self.dry_run:
            change = Work(self.root).replace(
                path, change.what, lambda out: edit_lines(url, out, edit), change
            )
        return Outcome(path, (change,))

    def _table(self, work: EditWork) -> Outcome:
        path = work.place.whole
        url = files.join(self.root, path)
        found = find_rows(url, self.wanted)
        gone = np.array(found.rows, np.int64)
        edit = None
        if work.place.path.startswith(f"{layout.CLUSTERS}/"):
            edit = _ClusterEdit(self.root, url, gone, work)
            gone = np.union1d(gone, edit.alone)
        if not (len(gone) or (edit and edit.renumbers)):
            return Outcome(path)
        change = _change(path, "clusters" if edit else "rows", found.total, len(gone))
        if not self.dry_run:
            change = Work(self.root).replace(
                path, change.what, lambda out: copy_table(url, out, gone, edit), change
            )
        return Outcome(path, (change,))


def _change(path: str, what: str, total: int, gone: int) -> Change:
    return Change(path, what, FileRecord(path, 0, "", total), FileRecord(path, 0, "", total - gone))


class _Kept(msgspec.Struct):
    """Fields of lines that name documents."""

    id: Any = None
    source: Any = None
    url: Any = None
    row: Any = None
    shard: Any = None
    raw_base64: Any = None


_decoder = msgspec.json.Decoder(_Kept)
_ROW = re.compile(rb'([,{]\s*"row"\s*:\s*)(\d+)')


class _LineEdit:
    """Takes lines of documents out, and renumbers the others."""

    def __init__(self, root: str, wanted: Wanted, work: EditWork) -> None:
        self._root, self._wanted, self._work = root, wanted, work
        self.is_quarantine = work.place.path.startswith(f"{layout.QUARANTINE}/")
        self._cuts = {path: np.array(rows, np.int64) for path, rows in work.cuts.items()}

    def __call__(self, lines: list[bytes], first: int) -> list[bytes]:
        rows = [self._read(line) for line in lines]
        sources, ids = (
            pa.array([_text(getattr(row, name)) for row in rows], pa.large_string())
            for name in ("source", "id")
        )
        gone = self._wanted.find(sources, ids)
        return [
            self._renumbered(line, row)
            for line, row, is_gone in zip(lines, rows, gone, strict=True)
            if not (is_gone or self._is_raw(row))
        ]

    def _read(self, line: bytes) -> _Kept:
        try:
            return _decoder.decode(line)
        except NOT_JSON:
            return _Kept(raw_base64=base64.b64encode(line).decode())

    def _is_raw(self, row: _Kept) -> bool:
        """Tell whether the bytes of a bad record are of a document that was taken down."""
        if not isinstance(row.raw_base64, str):
            return False
        try:
            return self._wanted.is_in(base64.b64decode(row.raw_base64))
        except ValueError:
            return False

    def _renumbered(self, line: bytes, row: _Kept) -> bytes:
        if not self._cuts or type(row.row) is not int:
            return line
        if isinstance(row.shard, str):
            path = f"{self._work.origin}/{layout.document_path(row.shard)}".strip("/")
        else:
            path = str(row.url).removeprefix(f"{self._root}/")
        gone = self._cuts.get(path)
        if gone is None:
            return line
        number = int(shifted(np.array([row.row]), gone)[0])
        return _ROW.sub(lambda found: found[1] + str(number).encode(), line, count=1)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


class _ClusterEdit:
    """Renumbers members of clusters, and makes clusters smaller; `alone` are rows of which no cluster is left."""

    def __init__(self, root: str, url: str, gone: Rows, work: EditWork) -> None:
        self._root, self._work = root, work
        self._cuts = {path: np.array(rows, np.int64) for path, rows in work.cuts.items()}
        self._smaller: Counter[tuple[Any, ...]] = Counter()
        self._renamed: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        with open_parquet(url) as file:
            names = file.schema_arrow.names
        several = "dataset" in names
        self._name = ["cluster_shard", "cluster_row", *(["cluster_dataset"] if several else [])]
        self._member = ["shard", "row", *(["dataset"] if several else [])]
        self.alone = self._look(url, gone)
        self.renumbers = bool(self._cuts) and self._has_moved(url)

    def _look(self, url: str, gone: Rows) -> Rows:
        """Find the clusters that lose members; return the rows of those that have one left."""
        members = self._members(url, set(gone.tolist()), None)
        for name, rows in members.items():
            self._smaller[name] = len(rows)
        left = self._members(url, None, set(members)) if members else {}
        lost = set(gone.tolist())
        alone = []
        for name, rows in left.items():
            rest = [(place, number) for place, number in rows if number not in lost]
            if len(rest) == 1:
                alone.append(rest[0][1])
            elif rest and name not in {place for place, _ in rest}:
                self._renamed[name] = min(rest, key=lambda one: (one[0][2:], one[0][0].encode(), one[0][1]))[
                    0
                ]
        return np.array(sorted(alone), np.int64)

    def _has_moved(self, url: str) -> bool:
        """Tell whether some member has another row now."""
        with open_parquet(url) as file:
            batches = file.iter_batches(columns=[*self._name, *self._member])
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            return any(not self._moved(table).equals(table) for table in tables)

    def _members(
        self, url: str, rows: set[int] | None, names: set[tuple[Any, ...]] | None
    ) -> dict[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]]:
        """Return members, each with its row, by cluster: those in certain rows, or of certain clusters."""
        found: dict[tuple[Any, ...], list[tuple[tuple[Any, ...], int]]] = {}
        first = 0
        with open_parquet(url) as file:
            for batch in file.iter_batches(columns=[*self._name, *self._member]):
                wanted = (
                    range(batch.num_rows)
                    if rows is None
                    else [n - first for n in rows if first <= n < first + batch.num_rows]
                )
                part = batch.take(pa.array(list(wanted), pa.int64())).to_pydict()
                for at, *values in zip(
                    wanted, *(part[name] for name in (*self._name, *self._member)), strict=True
                ):
                    name, place = tuple(values[: len(self._name)]), tuple(values[len(self._name) :])
                    if names is None or name in names:
                        found.setdefault(name, []).append((place, at + first))
                first += batch.num_rows
        return found

    def __call__(self, table: pa.Table, first: int) -> pa.Table:
        names = (
            list(zip(*(table.column(name).to_pylist() for name in self._name), strict=True))
            if self._smaller
            else []
        )
        if names:
            smaller = np.array([self._smaller.get(name, 0) for name in names], np.int64)
            table = _with(table, "size", table.column("size").to_numpy() - smaller)
            for at, column in enumerate(self._name):
                values = [self._renamed.get(name, name)[at] for name in names]
                table = _with(table, column, values)
        return self._moved(table)

    def _moved(self, table: pa.Table) -> pa.Table:
        """Return members and clusters with the rows that they have now."""
        for shard, row, dataset in (
            ("shard", "row", "dataset"),
            ("cluster_shard", "cluster_row", "cluster_dataset"),
        ):
            table = self._renumbered(table, shard, row, dataset)
        return table

    def _renumbered(self, table: pa.Table, shard: str, row: str, dataset: str) -> pa.Table:
        shards = table.column(shard).to_pylist()
        datasets = table.column(dataset).to_pylist() if dataset in table.column_names else [OWN] * len(shards)
        rows = table.column(row).to_numpy().copy()
        paths = np.array(
            [self._path(place, name) for place, name in zip(datasets, shards, strict=True)], object
        )
        for path, gone in self._cuts.items():
            mask = paths == path
            rows[mask] = shifted(rows[mask], gone)
        return _with(table, row, rows)

    def _path(self, dataset: str, shard: str) -> str:
        origin = self._work.place.root
        if dataset != OWN:
            origin = (
                files.seen_from(files.join(self._root, origin), dataset).removeprefix(self._root).strip("/")
            )
        return f"{origin}/{layout.document_path(shard)}".strip("/")


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    """Return a table with other values in a column of the same type."""
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
