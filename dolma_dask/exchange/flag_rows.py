"""Rows of shards as far as flags need them: read once, and staged while the exchange goes on.

Which documents are flagged is known only when all shards were read (`dolma_dask.exchange`). So that no text is read twice, id, source and
length of every row wait meanwhile in Arrow files, one for the shards of each task, about 40 bytes per document; the attribute files are written from them
(`dolma_dask.exchange.flags`).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Task
from dolma_dask.exchange.contract import Emitted, Records
from dolma_dask.io import files
from dolma_dask.io.files import Input
from dolma_dask.io.publish import PublishedFile
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.io.stored import PieceReader
from dolma_dask.journal import Record, Unit
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks.base import ArrowSink
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths

COLUMNS = ("id", "source", "text")
"""Columns that are read of every document, in this order, before any others."""

BUFFERED = 1 << 18
"""Bytes that a staging file is written in; Arrow gives each column of a batch by itself."""

JOINED_BYTES = 1 << 20
"""Bytes of staged rows that are marked together: those of one block are so few that calls cost more than rows."""

Counts = npt.NDArray[np.int64]

STAGED = pa.schema(
    [
        ("id", pa.large_string()),
        ("source", pa.large_string()),
        ("length", pa.int64()),
        ("bytes", pa.int64()),
        ("error", pa.large_string()),
    ]
)
"""Schema of rows that wait until they are flagged."""


class FlagRows(Struct, frozen=True):
    """Consecutive rows of a shard, as far as flags need them."""

    first: int  # row of the first
    ids: pa.LargeStringArray  # (n,) null where the document could not be read
    sources: pa.LargeStringArray  # (n,)
    lengths: Counts  # (n,) code points of the texts
    sizes: Counts  # (n,) UTF-8 bytes of the texts
    errors: Mapping[int, str]  # index in these rows to why the document could not be read
    more: Mapping[str, pa.Array] = {}  # (n,) each: what an emitter stages besides

    def __len__(self) -> int:
        return len(self.ids)


class StagedShard(msgspec.Struct, frozen=True):
    """A shard that was read; travels through journals as JSON."""

    number: int  # of the shard in the listing
    record: Record  # of its flags, as far as reading it tells; files are those of the quarantine
    staging: FileRecord | None = None  # the Arrow file, below the work folder
    part: tuple[int, int] | None = None  # bytes of its content that are of this shard; None: all


class ShardKeys(Struct, frozen=True):
    """One shard of a task of the exchange; `number` is that of its locations."""

    number: int
    work: AlignedShard
    takes_part: bool = True  # False: its documents are kept whatever others say, and give no records

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.work.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files to read."""
        return self.work.inputs


def document_rows(
    work: AlignedShard, policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
) -> Iterator[tuple[FlagRows, pa.RecordBatch]]:
    """Yield the rows of a shard, whose first columns are `COLUMNS`, with all columns that are read; the facts are complete at the end."""
    first = size = 0
    for block in work.read(frozenset(), policy, quarantine, facts):
        rows = _flag_rows(block, first)
        yield rows, block.batch
        first += block.num_rows
        size += int(rows.sizes.sum())
    unproved = {"unproved_attribute_files": len(facts.unproved)} if work.sources else {}
    facts.counts = {**facts.counts, "text_bytes": size, **unproved}
    facts.info = {"unproved": list(facts.unproved)} if facts.unproved else {}


def _flag_rows(block: Block, first: int) -> FlagRows:
    ids, sources, text = (block.batch.column(number) for number in range(3))
    text = pc.fill_null(text, "") if text.null_count else text
    sizes = np.asarray(pc.binary_length(text), np.int64)
    return FlagRows(first, ids, sources, code_point_lengths(text), sizes, block.errors)


# ------------------------------------------------------------------------------------------------ staging


@dataclass(frozen=True)
class StagingEmitter(ABC):
    """Reads shards once: records into the exchange, what flags need besides into staging files; see `Emitter`."""

    policy: RecordPolicy
    verb: str  # bad records go to its quarantine

    staged: ClassVar[pa.Schema] = STAGED

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""

    @abstractmethod
    def give(
        self,
        rows: FlagRows,
        batch: pa.RecordBatch,
        number: int,
        counts: Counter[str],
        out: Callable[[Records], None],
    ) -> FlagRows:
        """Give out the records of some rows of shard `number`, of which `batch` has all columns that are read; count what a summary shows.

        Returns the rows as they are staged: with `more` where the emitter's schema `staged` has more columns.
        """

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read the shards of a task (a tuple of `ShardKeys`); ``info`` holds a `StagedShard` for each, see `staged_shards`."""
        path = f"staging/{task.work[0].number:08d}.arrow"
        with stage(files.join(folder, path)) as file:
            staged = [self._stage(shard, out, file) for shard in task.work]
        staging = FileRecord(path, file.bytes, file.checksum)
        return Emitted(
            inputs=tuple(item for one in staged for item in one.record.inputs),
            rows=sum(one.record.rows for one in staged),
            info={"shards": msgspec.to_builtins([replace(one, staging=staging) for one in staged])},
            files=(staging,),
        )

    def _stage(self, shard: "ShardKeys", out: Callable[[Records], None], file: PublishedFile) -> StagedShard:
        """Read a shard, and append its rows to a file."""
        work, counts, count, start = shard.work, Counter[str](), 0, file.bytes
        facts, quarantine = ShardFacts(work.name), Quarantine(self.policy)
        sink = pa.BufferedOutputStream(pa.PythonFile(ArrowSink(file), mode="w"), BUFFERED)
        with sink, pa.ipc.new_stream(sink, self.staged) as stream:
            for rows, batch in document_rows(work, self.policy, quarantine, facts):
                if shard.takes_part:
                    rows = self.give(rows, batch, shard.number, counts, out)
                else:
                    counts["documents_excluded"] += len(rows) - len(rows.errors)
                stream.write_batch(to_batch(rows, self.staged))
                count += len(rows)
        kept = quarantine.publish(work.root, self.verb, work.name)
        record = facts.record(Unit("", ""), kept, count, counts=counts)
        return StagedShard(shard.number, record, part=(start, file.bytes))


@dataclass(frozen=True)
class DocumentEmitter(StagingEmitter):
    """Emits records of documents one by one."""

    @abstractmethod
    def records(
        self, rows: FlagRows, batch: pa.RecordBatch, number: int, counts: Counter[str]
    ) -> Iterable[Records]:
        """Return the records of some rows, see `give`."""

    def give(
        self,
        rows: FlagRows,
        batch: pa.RecordBatch,
        number: int,
        counts: Counter[str],
        out: Callable[[Records], None],
    ) -> FlagRows:
        """See `StagingEmitter`."""
        for records in self.records(rows, batch, number, counts):
            out(records)
        return rows


def staged_shards(record: Record) -> list[StagedShard]:
    """Return the shards in a record of `emit_shards`."""
    return msgspec.convert(record.info["shards"], list[StagedShard])


def to_batch(rows: FlagRows, schema: pa.Schema = STAGED) -> pa.RecordBatch:
    """Return rows as a batch with the schema `STAGED`, or one that has more columns behind: null where the rows have none."""
    errors = pa.nulls(len(rows), pa.large_string())
    if rows.errors:
        errors = pa.array([rows.errors.get(row) for row in range(len(rows))], pa.large_string())
    arrays = [rows.ids, rows.sources, pa.array(rows.lengths), pa.array(rows.sizes), errors]
    more = [field for field in schema if field.name not in STAGED.names]
    arrays += [rows.more.get(field.name, pa.nulls(len(rows), field.type)) for field in more]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def read_staged(folder: str, staged: StagedShard) -> Iterator[FlagRows]:
    """Yield the rows of a shard as they were staged."""
    assert staged.staging is not None
    first = 0
    with StagingReader(files.join(folder, staged.staging.path), staged.staging.checksum) as file:
        parts = file.parts(*staged.part or ())
        for batch in _joined(pa.ipc.open_stream(pa.PythonFile(PieceReader(parts), mode="r"))):
            yield from_batch(batch, first)
            first += batch.num_rows


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches, each of a block of text, to some of `JOINED_BYTES`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= JOINED_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def from_batch(batch: pa.RecordBatch, first: int) -> FlagRows:
    """Return the rows of a batch of `to_batch`, of which the first is row `first` of its shard."""
    lengths, sizes = (np.asarray(batch.column(name)) for name in ("length", "bytes"))
    errors = batch.column("error")
    bad = np.flatnonzero(np.asarray(errors.is_valid())).tolist() if errors.null_count < len(errors) else []
    known = {row: errors[row].as_py() for row in bad}
    more = {name: batch.column(name) for name in batch.schema.names if name not in STAGED.names}
    return FlagRows(first, batch.column("id"), batch.column("source"), lengths, sizes, known, more)
