"""Rows of `hdf5` in a random order: they are spread over the files of an exchange by a hash of the seed and their number, and put in order bucket by bucket.

Their segments go the same way, as rows of Arrow in pieces that have the same buckets (`dolma_dask.outputs.pieces`).

The order depends on the seed and the number of rows alone, not on shards, files or workers. Disk: all rows once, uncompressed, 12 bytes per token, and 100
bytes per segment; memory of a worker: about 100 MB.
"""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.engine import Input, Step, Task, Unit, WorkDir
from dolma_dask.exchange import Emitted, Limits
from dolma_dask.exchange.buckets import BucketRange
from dolma_dask.exchange.passes import scatter
from dolma_dask.exchange.staged import DEFAULT, Staged
from dolma_dask.formats.hdf5 import part_name
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record, work_key
from dolma_dask.outputs.hdf5.rows import Batch, Batches, FileWork, RowPlan, RowsStage
from dolma_dask.outputs.pieces import Scattered, ScatterSink
from dolma_dask.sinks.segments import WAITING_SCHEMA
from dolma_dask.text.columns import integers
from dolma_dask.tokens.packing import Int64s, cut_files, pieces_of
from dolma_dask.tokens.shortening import hashed

ROWS_OF_A_TASK = 20_000
"""Rows that a task spreads at most."""

BUCKET_BYTES = 16 << 20
"""Rows that are put in order at once, about."""

MAX_BUCKETS = 1 << 16

COUNTS = 6
"""Numbers that are counted in each row and travel with it; see `RowCounts.of`."""


def spread(work: WorkDir, stage: RowsStage, plan: RowPlan, seed: int) -> Generator[Step, Any, Staged]:
    """Spread all rows over buckets: a pass of a job, with a name of its own for each seed and content, so that it takes no files of another."""
    wanted = max(plan.rows * stage.row_bytes // BUCKET_BYTES, 1)
    limits = Limits(buckets=min(1 << int(wanted).bit_length(), MAX_BUCKETS))
    content = {"seed": seed, "staged": [[part.checksum, part.owners] for part in plan.parts]}
    name = f"rows-{work_key('rows', 1, content)}"
    emitter = RowEmitter(stage, seed, limits.buckets, name)
    return (yield from scatter(work, emitter, emitter.tasks(plan), name=name, limits=limits))


def segment_pieces(staged: Staged) -> tuple[tuple[str, str], ...]:
    """Return the pieces with the segments of rows that were spread: paths, and checksums of their indexes."""
    every = (record.files[1:] for record in staged.records)
    return tuple((piece.path, index.checksum) for piece, index in every)


_HASHED = WAITING_SCHEMA.append(pa.field("hash", pa.uint64(), nullable=False))


class SegmentScatter(ScatterSink):
    """Scatters the segments of rows into the buckets of these."""

    def hashes(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """See `ScatterSink`."""
        return hashed(numbers.astype(np.uint64), self._seed)

    @staticmethod
    def pack(hashes: NDArray[np.uint64], rows: pa.StructArray) -> bytes:
        """See `ScatterSink`."""
        batch = pa.RecordBatch.from_arrays([*rows.flatten(), integers(hashes)], schema=_HASHED)
        return bytes(batch.serialize())


def _unpack(segment: bytearray) -> tuple[NDArray[np.uint64], pa.StructArray]:
    """Return what `SegmentScatter` has packed."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(segment), _HASHED)
    rows = pa.StructArray.from_arrays(batch.columns[:-1], fields=list(WAITING_SCHEMA))
    return batch.column("hash").to_numpy(), rows


class RowEmitter(Struct, frozen=True):
    """Makes the rows of a part of all, and their segments as side files; see `dolma_dask.exchange.Emitter`."""

    stage: RowsStage
    seed: int
    buckets: int
    name: str  # of the pass

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a record: a hash, the number of the row, its counts, and the row itself."""
        names = ["key", "row", *(f"count{at}" for at in range(COUNTS))]
        words = -(-self.stage.row_bytes // 8)
        return np.dtype([(name, "<u8") for name in [*names, *map(str, range(words))]])

    def tasks(self, plan: RowPlan) -> list[Task]:
        """Return the work on all rows."""
        return [
            Task(
                f"rows {work.first} to {work.stop - 1}",
                (),
                (),
                work,
                (work.stop - work.first) * self.stage.row_bytes,
            )
            for work in plan.files(ROWS_OF_A_TASK)
        ]

    def emit(self, task: Task, out: Any, folder: str) -> Emitted:
        """See `dolma_dask.exchange.Emitter`."""
        work: FileWork = task.work
        row, dtype = work.first, self.dtype
        path = f"{self.name}-segments/{work.first:012d}.rows"
        with SegmentScatter(folder, path, "", self.seed, self.buckets) as scattered:
            for rows, counts, segments in self.stage.batches(work):
                out(self._words(rows, counts, row).view(dtype).reshape(len(rows)))
                scattered.hold(segments.column("row").to_numpy(), segments.to_struct_array())
                row += len(rows)
        return Emitted(task.listed, work.stop - work.first, files=scattered.files)

    def _words(self, rows: NDArray[np.int32], counts: Int64s, first: int) -> NDArray[np.uint64]:
        numbers = np.arange(first, first + len(rows), dtype=np.uint64)
        words = np.zeros((len(rows), self.dtype.itemsize // 8), np.uint64)
        words[:, 0], words[:, 1] = hashed(numbers, self.seed), numbers
        words[:, 2 : 2 + counts.shape[1]] = counts
        places = words[:, 2 + COUNTS :].view(np.int32)
        places[:, : rows[0].size] = rows.reshape(len(rows), -1)
        return words


class Span(Struct, frozen=True):
    """Rows of a bucket, in order, from one to before another."""

    bucket: BucketRange
    first: int
    stop: int


class ShuffledWork(Struct, frozen=True):
    """Rows of one file, and the buckets that they lie in."""

    first: int  # among all, as they are shuffled
    stop: int
    spans: tuple[Span, ...]


class ShuffledStage(Struct, frozen=True):
    """Second pass: one file of rows in their random order."""

    rows: RowsStage
    staged: Staged | None = (
        None  # for workers; None: rows are not spread yet, only what must exist is of interest
    )
    pieces: tuple[tuple[str, str], ...] = ()  # with their segments
    verb: str = "hdf5"

    def tasks(self, plan: RowPlan, max_rows: int, key: str, counts: Sequence[int] = ()) -> list[Task]:
        """Return the work on all files; `counts` are rows by bucket."""
        buckets = [BucketRange(at, at + 1, (count,)) for at, count in enumerate(counts)]
        return [
            self._task(
                number,
                first,
                stop,
                [Span(buckets[at], *rows) for at, *rows in pieces_of(counts, first, stop)],
                key,
            )
            for number, (first, stop) in enumerate(cut_files(plan.rows, max_rows))
        ]

    def _task(self, number: int, first: int, stop: int, spans: Sequence[Span], key: str) -> Task:
        name, size = part_name(number), (stop - first) * self.rows.row_bytes
        info = FileInfo(f"shuffled rows {first} to {stop - 1}", size, key)
        work = ShuffledWork(first, stop, tuple(spans))
        return Task(name, (Unit(name, key),), (Input(info.path, info),), work)

    def run_shard(self, task: Task) -> list[Record]:
        """Write one file; see `dolma_dask.engine.Stage`."""
        work: ShuffledWork = task.work
        return self.rows.write(task, work.first, work.stop, self._batches(work))

    def _batches(self, work: ShuffledWork) -> Batches:
        assert self.staged is not None
        channels, length = self.rows.shape
        buckets = [span.bucket.first for span in work.spans]
        scattered = Scattered(self.staged.folder, self.pieces, min(buckets), max(buckets) + 1)
        done = 0
        for span in work.spans:
            row, segments = 0, scattered.with_hashes(span.bucket.first, _unpack)
            for words in self.staged.sorted(span.bucket, DEFAULT):
                some = words[max(span.first - row, 0) : max(span.stop - row, 0)]
                row += len(words)
                counts = some[:, 2 : 2 + COUNTS].astype(np.int64)
                rows = np.ascontiguousarray(some[:, 2 + COUNTS :]).view(np.int32)
                rows = rows[:, : channels * length].reshape(-1, channels, length)
                yield Batch(rows, counts, _segments_of(some[:, 0], segments, done))
                done += len(some)


def _segments_of(
    keys: NDArray[np.uint64], segments: tuple[NDArray[np.uint64], pa.StructArray] | None, first: int
) -> pa.RecordBatch:
    """Return the segments of rows by their hashes (n,), which ascend; the first row is numbered `first`."""
    if segments is None or not len(keys):
        return pa.RecordBatch.from_pylist([], WAITING_SCHEMA)
    hashes, rows = segments
    low, high = np.searchsorted(hashes, keys[0]), np.searchsorted(hashes, keys[-1], side="right")
    batch = pa.RecordBatch.from_struct_array(rows.slice(low, high - low))
    numbers = integers(np.searchsorted(keys, hashes[low:high]) + first)
    return pa.RecordBatch.from_arrays([numbers, *batch.columns[1:]], schema=WAITING_SCHEMA)
