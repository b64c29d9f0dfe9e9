"""Published signatures: the MinHash tables of RedPajama-V2 in place of signatures that are made of the texts.

A table lies below its folder as the shard lies below ``documents/``, and is read beside it: rows are joined by the number at the end of the id, which
rises in both, so that memory depends on neither. A document may have no row, and a row no document.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Input
from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.redpajama import TABLE_SUFFIX, RisingIds, table_path
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.io.redpajama import MinHashBlock, read_minhash
from dolma_dask.io.stored import StoredFile
from dolma_dask.minhash.redpajama import PUBLISHED
from dolma_dask.minhash.schemes import ABSENT, SHORT, SIGNED, MinHash, Signatures
from dolma_dask.text.kernels import Bools, Counts

_COLUMN = "signature_sim1.0"
"""The column that holds all values."""


@dataclass(frozen=True)
class PublishedTables:
    """The tables of some shards."""

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
        return (
            Input(files.join(self.url, found.path), FileInfo(_name(found.path), found.bytes, found.stamp)),
        )


def find_tables(url: str, minhash: MinHash, shards: Iterable[str]) -> PublishedTables:
    """Find the tables of shards below `url`. Raises `UsageError`: signatures with other parameters are requested, or there is no table."""
    if minhash != PUBLISHED:
        raise UsageError(
            f"signatures={url!r} with {minhash.label}; expected scheme='redpajama_v2', ngram={PUBLISHED.ngram}, num_perm={PUBLISHED.num_perm} and "
            f"seed={PUBLISHED.seed}: "
            "these tables hold no others. Leave signatures out to make them of the texts."
        )
    listed = {info.path: info for info in files.list_files(url)}
    found = {shard: listed[path] for shard in shards for path in _candidates(shard) if path in listed}
    if not found:
        raise UsageError(
            f"signatures={url!r}: no MinHash table of these documents there; expected files such as 2023-06/0000/en_head{TABLE_SUFFIX}, in folders as the "
            "shards below documents/. Write them with: dolma-dask sign DATASET FOLDER."
        )
    return PublishedTables(url, found)


def _candidates(shard: str) -> list[str]:
    """Return where the table of a shard may lie, the best place last; a part of a raw file may have a table of its own."""
    return [table_path(layout.unit_of(shard)), table_path(shard)]


def _name(path: str) -> str:
    """Return the name of a table in the journal; it lies in no dataset."""
    return f"minhash/{path}"


class TableReader:
    """Signatures of documents from the table of their shard."""

    def __init__(self, folder: str, shard: str, table: Sequence[Input]) -> None:
        if not table:
            raise CorruptFileError(
                f"{files.join(folder, table_path(shard))}: no such file; expected the MinHash table of {shard}. Fetch it, or make all tables: "
                "dolma-dask sign DATASET FOLDER.",
                url=files.join(folder, table_path(shard)),
            )
        self._table, self._shard = table[0], shard
        self._stored = StoredFile(self._table.url)
        self._blocks = read_minhash(self._table.url, _COLUMN)
        self._block: MinHashBlock | None = next(self._blocks, None)
        self._ids = RisingIds(layout.document_path(shard))
        self._matched = self._rows = 0

    def sign(self, ids: pa.LargeStringArray) -> Signatures:
        """Return the signatures of neighbouring documents (n,), of which those that could not be read have null for an id."""
        values = np.zeros((len(ids), PUBLISHED.num_perm), np.uint32)
        kinds = np.full(len(ids), ABSENT, np.uint8)
        readable = np.flatnonzero(np.asarray(ids.is_valid()))
        if len(readable):
            rows = self._rows_of(pc.drop_null(ids))
            while self._block is not None:
                self._take(self._block, rows, readable, values, kinds)
                if self._block.rows[-1] >= rows[-1]:
                    break
                self._next()
        return Signatures(values, kinds)

    def _rows_of(self, ids: pa.LargeStringArray) -> Counts:
        shard_id, rows = self._ids.split(ids)
        if self._block is not None and self._block.shard_id != shard_id:
            raise DataError(
                f"{self._table.url} has signatures of {self._block.shard_id}, and documents/{self._shard} documents of {shard_id}; expected one "
                "shard. Give the folder in which tables lie as the shards below documents/.",
                url=self._table.url,
            )
        return rows

    def _take(
        self, block: MinHashBlock, rows: Counts, at: Counts, values: np.ndarray, kinds: np.ndarray
    ) -> None:
        """Take the signatures of those documents that the block has; document `i` is number ``at[i]`` of all."""
        found = np.searchsorted(block.rows, rows)
        found[found == len(block.rows)] = 0
        here: Bools = block.rows[found] == rows
        found, at = found[here], at[here]
        values[at] = block.values[found]
        kinds[at] = np.where(block.valid[found], SIGNED, SHORT)
        self._matched += len(at)

    def _next(self) -> None:
        assert self._block is not None
        self._rows += len(self._block.rows)
        self._block = next(self._blocks, None)

    def finish(self) -> tuple[InputRecord, int]:
        """Read the rest; return the table as it was read, and how many of its rows have no document.

        Several shards that are parts of one raw file share its table: their rows are not counted.
        """
        while self._block is not None:
            self._next()
        self._stored.hash_rest()
        self._stored.check_unchanged()
        record = self._stored.record(self._table.info.path)
        self._stored.close()
        is_shared = record.path != _name(table_path(self._shard))
        return record, 0 if is_shared else self._rows - self._matched
