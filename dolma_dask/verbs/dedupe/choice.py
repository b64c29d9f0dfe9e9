"""Choices of `dedupe` besides likeness: the documents that take part, their groups, and the survivor of a cluster.

By similarity they are made in a pass of their own beside the signatures, which hold for any choice and are made once. It leaves a file per shard in the work
folder with a row per document: whether it takes part, the hash of its group, its rank. Documents are opened only where attributes do not tell everything.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.errors import SourceChangedError
from dolma_dask.exchange.flag_rows import StagedShard
from dolma_dask.formats.digests import LOWEST, number_keys, rank_bits, text_keys
from dolma_dask.formats.exact_numbers import inexact, integers, nearest
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record, work_key
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.rules import Rule
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.text.timestamps import timestamps
from dolma_dask.verbs.dedupe.fuzzy.signatures import GROUP_ROWS, read_columns, read_readable

Keep = Literal["first", "longest", "newest", "oldest", "highest", "lowest"]
"""The document of a cluster that survives."""


class Chosen(Struct, frozen=True):
    """A choice among some rows (n,)."""

    kept: Bools  # take part
    salts: Words | None  # hashes of their groups
    ranks: Words | None  # the lowest survives


class Choice(Struct, frozen=True):
    """A choice of documents; columns are named in full."""

    keep: Keep = "first"
    rank: str | None = None  # column of numbers, or of times as text
    where: Rule | None = None
    within: str | None = None  # column of groups

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that decide."""
        rule = () if self.where is None else sorted(self.where.names)
        single = (name for name in (self.rank, self.within) if name)
        return tuple(dict.fromkeys([*single, *rule]))

    @property
    def selects(self) -> bool:
        """True if some documents may not take part."""
        return self.where is not None or self.within is not None

    def params(self) -> dict[str, Any]:
        """Return everything that decides."""
        rule = {} if self.where is None else {"where": self.where.canonical()}
        within = {} if self.within is None else {"within": self.within}
        return {"keep": self.keep, "rank": self.rank, **rule, **within}

    def of(self, batch: pa.RecordBatch, readable: Bools, counts: Counter[str]) -> Chosen:
        """Choose among rows that can be read, and count those that take no part, or have no rank."""
        kept, salts = readable, None
        if self.where is not None:
            columns = {name: batch.column(name) for name in self.where.names}
            holds = self.where.mask(columns or {"": pa.nulls(batch.num_rows)})
            kept = still_kept(kept, np.asarray(holds), "documents_excluded", counts)
        if self.within is not None:
            known, (salts, _) = value_keys(batch.column(self.within))
            kept = still_kept(kept, known, "documents_without_group", counts)
        ranks = None if self.rank is None else self._ranks(batch.column(self.rank))
        if ranks is not None:
            still_kept(kept, ranks != LOWEST, "documents_without_rank", counts)
        return Chosen(kept, salts, ranks)

    def _ranks(self, column: pa.Array) -> Words:
        """Return integers of which the lowest is that of the survivor, `LOWEST` where there is no rank."""
        highest_first = self.keep in ("highest", "newest")
        if not pa.types.is_large_string(column.type):
            return rank_bits(numbers(column), validity(column), highest_first=highest_first)
        times = timestamps(column)
        words = times.astype(np.uint64)
        return np.where(times < 0, LOWEST, ~words if highest_first else words)


def still_kept(kept: Bools, holds: Bools, name: str, counts: Counter[str]) -> Bools:
    """Return which rows are kept still, and count the others."""
    still = kept & holds
    counts[name] += int(np.count_nonzero(kept) - np.count_nonzero(still))
    return still


def value_keys(column: pa.Array) -> tuple[Bools, tuple[Words, Words]]:
    """Return which rows (n,) have a value, and the two halves of a hash of each: of its UTF-8, or of a number with all digits."""
    valid = validity(column)
    if pa.types.is_large_string(column.type):
        return valid, text_keys(column)
    doubles = numbers(column)
    keys, rows = number_keys(doubles), np.flatnonzero(inexact(column))
    if len(rows):  # integers that no double holds, by their digits
        digits = pa.array(map(str, integers(column, rows)), pa.large_string())
        for half, of_digits in zip(keys, text_keys(digits), strict=True):
            half[rows] = of_digits
    return valid & ~np.isnan(doubles), keys


def numbers(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return numbers or bools as float64 (n,), NaN where null."""
    doubles = pc.fill_null(nearest(column).cast(pa.float64()), np.nan)
    return np.asarray(doubles.to_numpy(zero_copy_only=False), np.float64)


# ------------------------------------------------------------------------------------------------ beside signatures


VERSION = 1
"""Raised when the files change for the same columns."""

_SCHEMA = pa.schema([("kept", pa.bool_()), ("salt", pa.uint64()), ("rank", pa.uint64())])


class Signed(Struct, frozen=True):
    """Work of `ChoiceStage`."""

    number: int  # of the shard in the listing
    columns: AlignedShard  # that decide
    staged: StagedShard  # the rows that were signed
    takes_part: bool = True  # False: no document does


class ChoiceStage(Struct, frozen=True):
    """Chooses among the documents of one shard; ``task.work`` is its `Signed`. See `dolma_dask.engine.Stage`."""

    folder: str  # of the files
    choice: Choice
    max_record_bytes: int = MAX_RECORD_BYTES
    verb: str = "dedupe-choice"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the file of one shard."""
        work: Signed = task.work
        assert work.staged.staging is not None
        readable = read_readable(files.join(work.columns.root, work.staged.staging.path))
        reader = work.columns.open(max_record_bytes=self.max_record_bytes)
        counts: Counter[str] = Counter()
        first = 0
        with self._file(task.unit.name) as file:
            for block in reader:
                rows = readable[first : first + block.num_rows]
                if len(rows) < block.num_rows:
                    raise written_since(work.columns.url)
                if work.takes_part:
                    chosen = self.choice.of(block.batch, rows, counts)
                else:
                    chosen = Chosen(
                        still_kept(rows, np.zeros_like(rows), "documents_excluded", counts), None, None
                    )
                file.write(_columns(chosen))
                first += block.num_rows
        state = reader.state
        if first < len(readable) or state.inputs[0].checksum != work.staged.record.inputs[0].checksum:
            raise written_since(work.columns.url)
        if work.columns.sources:
            counts["unproved_attribute_files"] = len(state.unproved)
        info = {"unproved": list(state.unproved)} if state.unproved else {}
        return [task.record([file.record], state.inputs, first, counts=dict(counts), info=info)]

    def _file(self, path: str) -> GroupedTable:
        unsynced = partial(publish, synced=False)
        return GroupedTable(
            self.folder, path, _SCHEMA, GROUP_ROWS, unsynced, use_dictionary=["salt"], random=["rank"]
        )


def written_since(url: str) -> SourceChangedError:
    """Return the error that says that documents are no more those that were signed."""
    return SourceChangedError(
        f"{url} was written while dedupe read it: its rows are not those that were signed; expected one file from beginning to end. Run the same "
        "command again when it is finished.",
        url=url,
    )


def _columns(chosen: Chosen) -> list[pa.Array]:
    nothing = np.zeros(len(chosen.kept), np.uint64)
    words = (nothing if column is None else column for column in (chosen.salts, chosen.ranks))
    return [pa.array(chosen.kept), *map(pa.array, words)]


def choice_path(number: int) -> str:
    """Return the file of a shard in the work folder."""
    return f"choice/{number:06d}.parquet"


def choice_task(choice: Choice, work: Signed, inputs: tuple[Input, ...]) -> Task:
    """Return the task that chooses in a shard."""
    unit = Unit(choice_path(work.number), work_key("choice", VERSION, choice.params()))
    return Task(work.columns.shard.path, (unit,), inputs, work)


def chosen_rows(folder: str, file: FileRecord) -> Iterator[tuple[Bools, Words]]:
    """Yield which of neighbouring rows take part (n,), and the hashes of their groups (n,), in groups of rows as signatures have them."""
    for batch in read_columns(files.join(folder, file.path), ["kept", "salt"]):
        yield np.array(batch.column(0)), np.array(batch.column(1))


def read_ranks(folder: str, file: FileRecord) -> Words:
    """Return the ranks of all rows (n,)."""
    batches = read_columns(files.join(folder, file.path), ["rank"])
    return np.concatenate([np.empty(0, np.uint64), *(np.asarray(batch.column(0)) for batch in batches)])
