"""Rows of shards as far as flags need them: read once, staged while the exchange goes on, and written as an attribute file of flags.

Which documents are flagged is known only when all shards were read (`dolma_dask.exchange`). So that no text is read twice, id, source and
length of every row wait meanwhile in an Arrow file per shard, about 40 bytes per document; the attribute file is written from it.
A flag is ``[[0, length, 1]]`` under the name of the set, in code points; other documents have nothing there.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.engine import Task
from dolma_dask.exchange import Emitted
from dolma_dask.exchange.contract import ROW_BITS, Records
from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.formats.documents import text_bytes
from dolma_dask.io import files
from dolma_dask.io.files import Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.io.stored import PieceReader
from dolma_dask.journal import Record, Unit
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.sinks.base import ArrowSink
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text.columns import code_point_lengths

COLUMNS = ("id", "source", "text")
"""Columns that are read of every document, in this order, before any others."""

Mask = npt.NDArray[np.bool_]
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


@dataclass(frozen=True)
class FlagRows:
    """Consecutive rows of a shard, as far as flags need them."""

    first: int  # row of the first
    ids: pa.LargeStringArray  # (n,) null where the document could not be read
    sources: pa.LargeStringArray  # (n,)
    lengths: Counts  # (n,) code points of the texts
    sizes: Counts  # (n,) UTF-8 bytes of the texts
    errors: Mapping[int, str]  # index in these rows to why the document could not be read

    def __len__(self) -> int:
        return len(self.ids)


class StagedShard(msgspec.Struct, frozen=True):
    """A shard that was read; travels through journals as JSON."""

    number: int  # of the shard in the listing
    record: Record  # of its flags, as far as reading it tells; files are those of the quarantine
    staging: FileRecord | None = None  # the Arrow file, below the work folder


@dataclass(frozen=True)
class ShardKeys:
    """One shard of a task of the exchange; `number` is that of its locations."""

    number: int
    work: AlignedShard

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.work.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files to read."""
        return self.work.inputs


@dataclass
class ShardReading:
    """One shard being read for flags: an iterable of (`FlagRows`, batch of the requested columns)."""

    verb: str  # bad records go to its quarantine
    shard: ShardKeys  # `COLUMNS` are its first columns
    policy: RecordPolicy
    counts: Counter[str] = field(default_factory=Counter)  # of whoever reads, for the record
    result: StagedShard = field(init=False)  # after the last batch

    def __iter__(self) -> Iterator[tuple[FlagRows, pa.RecordBatch]]:
        work, policy = self.shard.work, self.policy
        quarantine, facts = Quarantine(policy), ShardFacts(work.name)
        rows, size = 0, 0
        for block in work.read(frozenset(), policy, quarantine, facts):
            yield _flag_rows(block, rows), block.batch
            rows += block.num_rows
            size += text_bytes(block.batch.column(2))
        facts.counts = {"documents_in": rows, "text_bytes": size, "bad_records": quarantine.count}
        unproved = {"unproved_attribute_files": len(facts.unproved)} if work.sources else {}
        record = facts.record(
            Unit("", ""),
            quarantine.publish(work.root, self.verb, work.name),
            rows,
            counts={**self.counts, **unproved},
            info={"unproved": list(facts.unproved)} if facts.unproved else {},
        )
        self.result = StagedShard(self.shard.number, record)


def _flag_rows(block: Block, first: int) -> FlagRows:
    ids, sources, text = (block.batch.column(number) for number in range(3))
    text = pc.fill_null(text, "") if text.null_count else text
    sizes = np.asarray(pc.binary_length(text), np.int64)
    return FlagRows(first, ids, sources, code_point_lengths(text), sizes, block.errors)


# ------------------------------------------------------------------------------------------------ staging


def emit_shards(
    readings: Iterable[ShardReading],
    folder: str,
    records_of: Callable[[FlagRows, pa.RecordBatch, ShardReading], Iterable[Records]],
    out: Callable[[Records], None],
) -> Emitted:
    """Read shards once: their records go to `out`, their rows to staging files; `Emitted.info` holds a `StagedShard` for each."""
    staged = []
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    for reading in readings:
        path = f"staging/{reading.shard.number:08d}.arrow"
        with stage(files.join(folder, path)) as published:
            sink = pa.PythonFile(ArrowSink(published), mode="w")
            with pa.ipc.new_stream(sink, STAGED, options=options) as stream:
                for rows, batch in reading:
                    for records in records_of(rows, batch, reading):
                        out(records)
                    stream.write_batch(to_batch(rows))
        file = FileRecord(path, published.bytes, published.checksum)
        staged.append(msgspec.structs.replace(reading.result, staging=file))
    return Emitted(
        inputs=tuple(item for one in staged for item in one.record.inputs),
        rows=sum(one.record.rows for one in staged),
        info={"shards": msgspec.to_builtins(staged)},
        files=tuple(one.staging for one in staged if one.staging),
    )


def staged_shards(record: Record) -> list[StagedShard]:
    """Return the shards in a record of `emit_shards`."""
    return msgspec.convert(record.info["shards"], list[StagedShard])


def to_batch(rows: FlagRows) -> pa.RecordBatch:
    """Return rows as a batch with the schema `STAGED`."""
    errors = pa.nulls(len(rows), pa.large_string())
    if rows.errors:
        errors = pa.array([rows.errors.get(row) for row in range(len(rows))], pa.large_string())
    arrays = [rows.ids, rows.sources, pa.array(rows.lengths), pa.array(rows.sizes), errors]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED)


def read_staged(folder: str, staged: StagedShard) -> Iterator[FlagRows]:
    """Yield the rows of a shard as they were staged."""
    assert staged.staging is not None
    first = 0
    with StagingReader(files.join(folder, staged.staging.path), staged.staging.checksum) as file:
        for batch in pa.ipc.open_stream(pa.PythonFile(PieceReader(file.parts()), mode="r")):
            yield from_batch(batch, first)
            first += batch.num_rows


def from_batch(batch: pa.RecordBatch, first: int) -> FlagRows:
    """Return the rows of a batch of `to_batch`, of which the first is row `first` of its shard."""
    lengths, sizes = (np.asarray(batch.column(name)) for name in ("length", "bytes"))
    errors = batch.column("error")
    bad = np.flatnonzero(np.asarray(errors.is_valid())).tolist() if errors.null_count < len(errors) else []
    known = {row: errors[row].as_py() for row in bad}
    return FlagRows(first, batch.column("id"), batch.column("source"), lengths, sizes, known)


# ------------------------------------------------------------------------------------------------ flags


class ShardCursor:
    """Records of a shard, sorted by location, beside its rows: of all of them, those at hand are in memory."""

    def __init__(self, chunks: Iterable[Records], number: int) -> None:
        self._chunks, self._number = iter(chunks), number
        self._held: Records | None = next(self._chunks, None)

    @property
    def is_done(self) -> bool:
        """True if no records are left."""
        return self._held is None

    def among(self, rows: FlagRows) -> tuple[Records | None, Counts]:
        """Return the records about some rows, which come after those of the last call, and the index of each among these; None if there are none."""
        first = (self._number << ROW_BITS) + rows.first
        parts = list(self._until(first + len(rows)))
        if not parts:
            return None, np.empty(0, np.int64)
        inside = np.concatenate(parts)
        return inside, (inside["location"] - np.uint64(first)).astype(np.int64)

    def _until(self, end: int) -> Iterator[Records]:
        while self._held is not None:
            # NumPy would copy all locations to search them
            stop = bisect_left(self._held["location"], end)
            if stop:
                yield self._held[:stop]
            if stop < len(self._held):
                self._held = self._held[stop:]
                return
            self._held = next(self._chunks, None)


def write_flags(root: str, path: str, name: str, blocks: Iterable[tuple[FlagRows, Mask]]) -> FileRecord:
    """Write the attribute file of a shard, with a flag under `name` where the mask (n,) of a block is true; the suffix selects the format."""
    return write_columns(root, path, ((rows, [flag_column(name, flags)]) for rows, flags in blocks))


def flag_column(name: str, flags: Mask) -> AttributeColumn:
    """Return flags (n,) as an attribute: 1 where true, nothing elsewhere."""
    return AttributeColumn(name, "document", pa.array(np.ones(len(flags)), mask=~flags), whole=True)


def write_columns(
    root: str, path: str, blocks: Iterable[tuple[FlagRows, Sequence[AttributeColumn]]]
) -> FileRecord:
    """Write the attribute file of a shard; the suffix selects the format."""
    with AttributeWriter(root, path) as writer:
        for rows, columns in blocks:
            writer.write(rows.ids, rows.sources, rows.lengths, columns, rows.errors)
    return writer.record


def flags_record(
    task: Task,
    staged: StagedShard,
    file: FileRecord,
    name: str,
    reads: Sequence[str],
    counts: Mapping[str, float],
    info: Mapping[str, Any],
) -> Record:
    """Return the record of the flags of a shard, which depend on the document columns `reads` and are right only beside those of the same key."""
    (unit,) = task.units
    known = staged.record
    described = {"reads": sorted(reads), "kinds": {name: "document"}, "dataset_wide": True}
    return msgspec.structs.replace(
        known,
        unit=unit.name,
        key=unit.key,
        files=(file, *known.files),
        counts={**known.counts, **counts},
        info={**described, **known.info, **info},
    )
