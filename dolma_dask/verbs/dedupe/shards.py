"""The work of `dedupe` on shards: keys of all documents into the exchange, and later the marks of each shard.

A record is 24 bytes (32 with a rank); where a document stands is ``shard number << 32 | row``, so that the first of equals is the one that
comes first in the listing, whoever read it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task
from dolma_dask.errors import DataError
from dolma_dask.exchange import Emitted, ShardRecords
from dolma_dask.formats.keys import keys128, number_keys, rank_bits, text_keys
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import Record
from dolma_dask.text.columns import validity
from dolma_dask.verbs.dedupe.survivors import FLAGS, key_dtype
from dolma_dask.verbs.dedupe.tally import Tally
from dolma_dask.verbs.flag_rows import (
    FlagFile,
    FlagRows,
    Mask,
    ShardReading,
    StagedShard,
    flag_info,
)
from dolma_dask.verbs.flagging import ShardKeys
from dolma_dask.verbs.staged_rows import Spool, read_staged

LEAST_INEXACT = 2.0**53
"""The first integer that shares its float64 with another one, 2**53 + 1; numbers are read as float64."""

Keep = Literal["first", "longest", "highest", "lowest"]
"""Which document of a cluster survives."""

KeyKind = Literal["id", "string", "number"]
"""How a key is made: of source and id, of the UTF-8 of a string, or of a number."""

Records = npt.NDArray[Any]

ROW_BITS = 32


@dataclass(frozen=True)
class KeyRecipe:
    """How a document becomes a record.

    Attributes
    ----------
    kind : KeyKind
        How its key is made.
    column : int
        Of the batch, if the key is a string or a number.
    keep : Keep
        Who survives.
    rank : int or None
        Column of the number that decides, if one does.
    """

    kind: KeyKind
    column: int
    keep: Keep
    rank: int | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the records."""
        return key_dtype() if self.keep == "first" else key_dtype("rank")

    def records(self, rows: FlagRows, batch: pa.RecordBatch, number: int) -> Records:
        """Return the records of those rows of shard `number` that have a key."""
        valid, (high, low) = self._keys(batch)
        found = np.empty(batch.num_rows, self.dtype)
        found["hi"], found["lo"] = high, low
        found["location"] = np.arange(rows.first, rows.first + batch.num_rows, dtype=np.uint64) + np.uint64(
            number << ROW_BITS
        )
        if self.keep != "first":
            found["rank"] = self._ranks(rows, batch)
        return found if valid.all() else found[valid]

    def check(self, rows: FlagRows, batch: pa.RecordBatch, path: str) -> None:
        """Refuse numbers that may have looked different before they were read.

        Raises
        ------
        DataError
            A key is a number of `LEAST_INEXACT` or more.
        """
        if self.kind != "number":
            return
        numbers = _numbers(batch.column(self.column))
        inexact = np.abs(numbers) >= LEAST_INEXACT
        if inexact.any():
            place = int(inexact.argmax())
            name = batch.schema.names[self.column]
            raise DataError(
                f"documents/{path}, row {rows.first + place}: {name} is {numbers[place]:.17g}; expected numbers between -2**53 and 2**53, since "
                "larger ones are read in double precision, where different ones look alike. Convert the field to a string.",
                shard=path,
                row=rows.first + place,
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
    """Reads shards once: keys into the exchange, what marks need into spools; see `dolma_dask.exchange.Emitter`.

    Attributes
    ----------
    root, verb : str
        Of the dataset, and what reads it.
    recipe : KeyRecipe
        How a document becomes a record.
    policy : RecordPolicy
        What happens to bad records.
    """

    root: str
    verb: str
    recipe: KeyRecipe
    policy: RecordPolicy

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the records."""
        return self.recipe.dtype

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the shards of a task (a tuple of `ShardKeys`); `Emitted.info` holds a `StagedShard` for each."""
        done = [self._read(item, out, folder) for item in task.work]
        return Emitted(
            inputs=tuple(record for staged in done for record in staged.inputs),
            rows=sum(staged.rows for staged in done),
            counts=_summed([staged.counts for staged in done]),
            info={"shards": [staged.to_json() for staged in done]},
            files=tuple(staged.spool for staged in done if staged.spool),
        )

    def _read(self, item: ShardKeys, out: Callable[[Records], None], folder: str) -> StagedShard:
        reading = ShardReading(self.root, self.verb, item.work, item.number, self.policy)
        with Spool(folder, item.number) as spool:
            for rows, batch in reading:
                self.recipe.check(rows, batch, item.work.shard.path)
                records = self.recipe.records(rows, batch, item.number)
                if len(records):
                    out(records)
                spool.write(rows)
        return spool.known(reading.result)


def _summed(counts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(one[name] for one in counts) for name in counts[0]}


@dataclass(frozen=True)
class ShardFlags:
    """One shard whose marks are written: what is known of it, and the clusters that are named in its record, as (size, row)."""

    shard: Shard
    staged: StagedShard
    largest: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class FlagStage:
    """Writes the marks of each shard; see `dolma_dask.engine.Stage`.

    Attributes
    ----------
    root, name : str
        Of the dataset, and of the attribute set.
    reads : tuple of str
        Document columns that the marks depend on.
    folder : str
        Of the exchange.
    records : ShardRecords or None
        What its reducer gave out.
    """

    root: str
    name: str
    reads: tuple[str, ...]
    folder: str = ""
    records: ShardRecords | None = None
    verb: str = "dedupe"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the attribute file of one shard from its spool."""
        work: ShardFlags = task.work
        (unit,) = task.units
        staged = work.staged
        marks = _Flags.of(self.records, staged.number)
        tally = Tally()
        named: list[list[Any]] = []
        with FlagFile(self.root, unit.name, self.name) as file:
            for rows in read_staged(self.folder, staged.spool):
                marked, sizes = marks.of_rows(rows)
                tally.add(rows, marked, sizes)
                named += _named(rows, work.largest)
                file.write(rows, marked)
        record = Record(
            unit=unit.name,
            shard=work.shard.path,
            key=unit.key,
            inputs=staged.inputs,
            files=(file.record, *staged.quarantined),
            rows=staged.rows,
            ids_digest=staged.ids_digest,
            content_digest=staged.content_digest,
            counts={**staged.counts, **tally.counts()},
            info={
                **flag_info(self.name, self.reads, staged.unproved),
                **tally.info(),
                "clusters": named,
                "dataset_wide": True,  # the marks are right only beside those of all shards under the same key
            },
        )
        return [record]


def _named(rows: FlagRows, largest: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """Return [size, row, id, source] of the survivors of the given clusters among `rows`."""
    inside = [(size, row) for size, row in largest if rows.first <= row < rows.first + len(rows)]
    return [
        [size, row, rows.ids[row - rows.first].as_py(), rows.sources[row - rows.first].as_py()]
        for size, row in inside
    ]


@dataclass(frozen=True)
class _Flags:
    """What the exchange says of one shard, sorted by place: 16 bytes per document that is not alone, and nothing more of all of them."""

    records: Records
    number: int

    @classmethod
    def of(cls, records: ShardRecords | None, number: int) -> "_Flags":
        return cls(np.empty(0, FLAGS) if records is None else records.of_shard(number), number)

    def of_rows(self, rows: FlagRows) -> tuple[Mask, npt.NDArray[np.int64]]:
        """Return for each of `rows` (n,) whether it is a duplicate, and the size of the cluster that it survives, 0 for the others."""
        first = (self.number << ROW_BITS) + rows.first
        inside = self.records[self._before(first) : self._before(first + len(rows))]
        places = (inside["location"] - np.uint64(first)).astype(np.int64)
        sizes = np.zeros(len(rows), np.int64)
        sizes[places] = inside["size"]
        marked = np.zeros(len(rows), np.bool_)
        marked[places] = inside["size"] == 0
        return marked, sizes

    def _before(self, place: int) -> int:
        """Return how many records stand before a place; numpy would copy all of them to search."""
        return bisect_left(self.records["location"], place)


def staged_shards(records: Mapping[str, Record]) -> Iterator[StagedShard]:
    """Yield what the tasks of an exchange told of the shards they read."""
    for record in records.values():
        for found in record.info["shards"]:
            yield StagedShard.from_json(found)
