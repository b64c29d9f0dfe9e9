"""The work of `dedupe` on shards: keys of all documents into the exchange, and later the flags of each shard.

A record is 24 bytes (32 with a rank); the location of a document is ``shard number << 32 | row``, so that the first of equals is the one that
comes first in the listing, whoever read it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Task
from dolma_dask.errors import DataError
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.formats.keys import keys128, number_keys, rank_bits, text_keys
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Record
from dolma_dask.text.columns import validity
from dolma_dask.verbs.dedupe.summary import Tally
from dolma_dask.verbs.dedupe.survivors import FLAGS, key_dtype
from dolma_dask.verbs.flag_rows import (
    FlagRows,
    Mask,
    ShardKeys,
    ShardReading,
    StagedShard,
    emit_shards,
    flags_record,
    read_staged,
    write_flags,
)

LEAST_INEXACT = 2.0**53
"""The first integer that shares its float64 with another one, 2**53 + 1; numbers are read as float64."""

Keep = Literal["first", "longest", "highest", "lowest"]
"""The document of a cluster that survives."""

KeyKind = Literal["id", "string", "number"]
"""Source of a key: source and id, of the UTF-8 of a string, or of a number."""

Records = npt.NDArray[Any]

ROW_BITS = 32


@dataclass(frozen=True)
class KeyRecipe:
    """Recipe of the record of a document."""

    kind: KeyKind  # how its key is made
    column: int  # of the batch, if the key is a string or a number
    keep: Keep  # who survives
    rank: int | None = None  # column of the number that decides, if one does

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return key_dtype() if self.keep == "first" else key_dtype("rank")

    def records(self, rows: FlagRows, batch: pa.RecordBatch, number: int) -> Records:
        """Return the records of those rows of shard `number` that have a key."""
        valid, (high, low) = self._keys(batch)
        records = np.empty(batch.num_rows, self.dtype)
        records["hi"], records["lo"] = high, low
        records["location"] = np.arange(rows.first, rows.first + batch.num_rows, dtype=np.uint64) + np.uint64(
            number << ROW_BITS
        )
        if self.keep != "first":
            records["rank"] = self._ranks(rows, batch)
        return records if valid.all() else records[valid]

    def check(self, rows: FlagRows, batch: pa.RecordBatch, path: str) -> None:
        """Refuse numbers that may have looked different before they were read.

        Raises `DataError`: a key is a number of `LEAST_INEXACT` or more.
        """
        if self.kind != "number":
            return
        numbers = _numbers(batch.column(self.column))
        inexact = np.abs(numbers) >= LEAST_INEXACT
        if inexact.any():
            index = int(inexact.argmax())
            name = batch.schema.names[self.column]
            raise DataError(
                f"documents/{path}, row {rows.first + index}: {name} is {numbers[index]:.17g}; expected numbers between -2**53 and 2**53, since "
                "larger ones are read in double precision, where different ones look alike. Convert the field to a string.",
                shard=path,
                row=rows.first + index,
                column=name,
            )

    def _keys(
        self, batch: pa.RecordBatch
    ) -> tuple[npt.NDArray[np.bool_], tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]]:
        identity, source = batch.column(0), batch.column(1)
        valid = validity(identity)
        if self.kind == "id":
            return valid, keys128(source, identity)
        column = batch.column(self.column)
        valid = valid & validity(column)
        if self.kind == "string":
            return valid, text_keys(column)
        numbers = _numbers(column)
        return valid & ~np.isnan(numbers), number_keys(numbers)

    def _ranks(self, rows: FlagRows, batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        if self.rank is None:
            return ~rows.lengths.astype(np.uint64)  # the longest first
        column = batch.column(self.rank)
        return rank_bits(_numbers(column), validity(column), highest_first=self.keep == "highest")


def _numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers or bools as float64 (n,), NaN where null."""
    numbers = pc.fill_null(column.cast(pa.float64()), np.nan)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


@dataclass(frozen=True)
class KeyEmitter:
    """Reads shards once: keys into the exchange, the rest that flags need into staging files; see `dolma_dask.exchange.Emitter`."""

    root: str  # of the dataset
    verb: str
    recipe: KeyRecipe
    policy: RecordPolicy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        return self.recipe.dtype

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the shards of a task (a tuple of `ShardKeys`)."""
        readings = (ShardReading(self.root, self.verb, shard, self.policy) for shard in task.work)
        return emit_shards(readings, folder, self._records, out)

    def _records(self, rows: FlagRows, batch: pa.RecordBatch, shard: ShardKeys) -> Iterator[Records]:
        self.recipe.check(rows, batch, shard.work.shard.path)
        yield self.recipe.records(rows, batch, shard.number)


@dataclass(frozen=True)
class ShardFlags:
    """One shard whose flags are written, and the clusters that are named in its record, as (size, row)."""

    staged: StagedShard
    largest: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FlagStage:
    """Writes the flags of each shard; see `dolma_dask.engine.Stage`."""

    root: str  # of the dataset
    name: str  # of the attribute set
    reads: tuple[str, ...]  # document columns that the flags depend on
    folder: str = ""  # of the staging files
    records: ShardRecords | None = None  # output of the reducer
    verb: str = "dedupe"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard from its staging file."""
        work: ShardFlags = task.work
        tally = Tally()
        named: list[list[Any]] = []

        def flagged() -> Iterator[tuple[FlagRows, Mask]]:
            known = _Flags.of(self.records, work.staged.number)
            for rows in read_staged(self.folder, work.staged):
                flags, sizes = known.of_rows(rows)
                tally.add(rows, flags, sizes)
                named.extend(_named(rows, work.largest))
                yield rows, flags

        file = write_flags(self.root, task.units[0].name, self.name, flagged())
        info = {**tally.info(), "clusters": named}
        return [flags_record(task, work.staged, file, self.name, self.reads, tally.counts(), info)]


def _named(rows: FlagRows, largest: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """Return [size, row, id, source] of the survivors of the given clusters among `rows`."""
    inside = [(size, row) for size, row in largest if rows.first <= row < rows.first + len(rows)]
    return [
        [size, row, rows.ids[row - rows.first].as_py(), rows.sources[row - rows.first].as_py()]
        for size, row in inside
    ]


@dataclass(frozen=True)
class _Flags:
    """Output of the exchange for one shard, sorted by location: 16 bytes per document that is not alone, and nothing more of all of them."""

    records: Records
    number: int

    @classmethod
    def of(cls, records: ShardRecords | None, number: int) -> "_Flags":
        return cls(np.empty(0, FLAGS) if records is None else records.of_shard(number), number)

    def of_rows(self, rows: FlagRows) -> tuple[Mask, npt.NDArray[np.int64]]:
        """Return for each of `rows` (n,) whether it is a duplicate, and the size of the cluster that it survives, 0 for the others."""
        first = (self.number << ROW_BITS) + rows.first
        inside = self.records[self._before(first) : self._before(first + len(rows))]
        indices = (inside["location"] - np.uint64(first)).astype(np.int64)
        sizes = np.zeros(len(rows), np.int64)
        sizes[indices] = inside["size"]
        flags = np.zeros(len(rows), np.bool_)
        flags[indices] = inside["size"] == 0
        return flags, sizes

    def _before(self, location: int) -> int:
        """Return the number of records before a location; numpy would copy all of them to search."""
        return bisect_left(self.records["location"], location)
