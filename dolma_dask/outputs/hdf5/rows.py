"""Second pass of `hdf5`: the rows of each file, from the staging files that their tokens lie in.

Which tokens make which row follows from the sums of the first pass, and where several segments share a row from the number of rows of each window
(`PackStage`), so that the files are the same for any shards and workers. A task writes one file and reads only its part of the staging files. Memory: one
batch of rows, 4 MB, and the tokens of a window if rows are no stream (at most 128 MB).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.formats.hdf5 import RowCounts, RowShape, part_name
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record
from dolma_dask.outputs.hdf5.owners import Sequences
from dolma_dask.outputs.hdf5.staging import Pieces, SegmentReader, StagedTokens, TokenRun
from dolma_dask.sinks.hdf5 import Hdf5Writer
from dolma_dask.sinks.segments import SegmentsWriter
from dolma_dask.text.columns import integers
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.packing import (
    Int64s,
    Rows,
    Segments,
    cut_files,
    pieces_of,
    stream_rows,
    stream_segments,
    window_segments,
)

BATCH_BYTES = 4 << 20
"""Bytes of rows that are made at a time: what fits a cache, and no less than a row."""


class Batch(NamedTuple):
    """Neighbouring rows of a file."""

    rows: NDArray[np.int32]  # (n, channels, length)
    counts: Int64s  # (n, 5 or 6) what was counted in each
    segments: pa.RecordBatch  # of these rows, which are counted among all of the run or of the file


Batches = Iterator[Batch]

Runs = Iterator[tuple[NDArray[np.int32], Rows, Sequences]]
"""Words, the rows that are made of them, and the sequences that they are of."""


class Window(Struct, frozen=True):
    """Neighbouring segments that are packed together, and some of their rows."""

    pieces: Pieces  # ranges of segments
    first: int  # of its own rows
    stop: int


class FileWork(Struct, frozen=True):
    """Rows of one file, and where their tokens are."""

    first: int  # its rows, among all
    stop: int
    words: Pieces = ()  # ranges of words, if all documents are one stream
    windows: tuple[Window, ...] = ()

    @property
    def parts(self) -> list[StagedTokens]:
        """Staging files that are read."""
        every = (self.words, *(window.pieces for window in self.windows))
        return [part for pieces in every for part, _, _ in pieces]


class RowPlan(Struct, frozen=True):
    """All rows of a run."""

    mode: Mode
    parts: tuple[StagedTokens, ...]  # in order
    segments_of: tuple[int, ...]  # segments of each, if they are no stream
    chunks: tuple[int, ...] = ()  # segments of each chunk of ModelZoo, where these are packed together
    packed: tuple[int, ...] = ()  # rows of each window, where several segments share a row

    @property
    def tokens(self) -> int:
        """Tokens of all staging files."""
        return sum(part.tokens for part in self.parts)

    @property
    def windows(self) -> tuple[int, ...]:
        """Segments of each window."""
        if self.mode.packing == "modelzoo":
            return tuple(filter(None, self.chunks))
        size, total = window_segments(self.mode.length), sum(self.segments_of)
        return tuple(min(size, total - first) for first in range(0, total, size))

    @property
    def rows_of(self) -> tuple[int, ...]:
        """Rows of each window."""
        if self.mode.packing is not None:
            return self.packed
        return tuple(segments // self.mode.per_row for segments in self.windows)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        tail = self.mode.stream_tail
        return sum(self.rows_of) if tail is None else stream_rows(self.tokens, self.mode.length, tail)

    def files(self, max_rows: int) -> list[FileWork]:
        """Return the files, of at most so many rows each."""
        cuts = cut_files(self.rows, max_rows)
        if self.mode.stream_tail is not None:
            return [FileWork(first, stop, words=self._words(first, stop)) for first, stop in cuts]
        rows_of, pieces = self.rows_of, self.pieces()
        return [
            FileWork(
                first,
                stop,
                windows=tuple(Window(pieces[at], *rows) for at, *rows in pieces_of(rows_of, first, stop)),
            )
            for first, stop in cuts
        ]

    def _words(self, first: int, stop: int) -> Pieces:
        """Return the words of rows of a stream; these overlap by one token, and the last may be short."""
        begin, end = first * self.mode.length, min(stop * self.mode.length + 1, self.tokens)
        return self._ranges([part.tokens for part in self.parts], begin, end)

    def _ranges(self, sizes: Sequence[int], first: int, stop: int) -> Pieces:
        return tuple((self.parts[at], start, end) for at, start, end in pieces_of(sizes, first, stop))

    def pieces(self) -> list[Pieces]:
        """Return the ranges of segments that each window consists of."""
        windows = self.windows
        bounds = zip(accumulate(windows), windows, strict=True)
        return [self._ranges(self.segments_of, end - size, end) for end, size in bounds]


WINDOWS_OF_A_TASK = 64
"""Windows whose rows a task counts."""


class PackStage(Struct, frozen=True):
    """Counts the rows of windows, between the passes."""

    folder: str  # of the staging files
    mode: Mode
    verb: str = "hdf5-packing"

    def tasks(self, plan: RowPlan) -> list[Task]:
        """Return the work on all windows, in order."""
        pieces = plan.pieces()
        groups = [pieces[at : at + WINDOWS_OF_A_TASK] for at in range(0, len(pieces), WINDOWS_OF_A_TASK)]
        return [Task(f"windows {number}", (), (), group) for number, group in enumerate(groups)]

    def run_shard(self, task: Task) -> list[int]:
        """Return the number of rows of each of some windows; see `dolma_dask.engine.Stage`."""
        with closing(SegmentReader(self.folder, self.mode)) as reader:
            return [len(self.mode.rows(reader.segments(pieces))) for pieces in task.work]


class RowsStage(Struct, frozen=True):
    """Second pass: one file."""

    target: str  # output root
    staging: str  # folder of the words
    mode: Mode  # makes the rows
    tokens: int  # of all staging files
    verb: str = "hdf5"

    def task(self, number: int, work: FileWork, key: str) -> Task:
        """Return the work on file `number`; how much it reads tells the engine which are large."""
        name = part_name(number)
        rows_bytes = (work.stop - work.first) * self.row_bytes
        info = FileInfo(f"rows {work.first} to {work.stop - 1}", rows_bytes, key)
        return Task(name, (Unit(name, key),), (Input(info.path, info),), work)

    @property
    def shape(self) -> tuple[int, int]:
        """Channels of a row, and tokens of each."""
        return len(self.mode.features), self.mode.length

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return 4 * self.shape[0] * self.shape[1]

    @property
    def cost(self) -> str:
        """Name of what it costs; see `dolma_dask.placement`."""
        return self.mode.cost

    def run_shard(self, task: Task) -> list[Record]:
        """Write one file; see `dolma_dask.engine.Stage`."""
        work: FileWork = task.work
        return self.write(task, work.first, work.stop, numbered(self.batches(work), -work.first))

    def write(self, task: Task, first: int, stop: int, batches: Batches) -> list[Record]:
        """Write rows `first` to `stop` - 1."""
        mode, total = self.mode, RowCounts()
        shape = RowShape(stop - first, *self.shape)
        name = task.unit.name
        with (
            Hdf5Writer(self.target, name, shape, self._attributes(first)) as writer,
            SegmentsWriter(self.target, name) as segments,  # appear first
        ):
            for rows, counts, own in batches:
                writer.write(rows)
                segments.write(own)
                total += RowCounts.of(counts, len(mode.ids) * mode.length)
        sums = {
            "rows": total.rows,
            "pad_tokens": total.pad_tokens,
            "loss_tokens": total.loss_tokens,
            "bytes_out": writer.record.bytes,
        }
        info = {"rows": asdict(total)}
        written = [writer.record, segments.record]
        return [task.record(written, task.listed, total.rows, counts=sums, info=info)]

    def _attributes(self, first: int) -> Mapping[str, Any]:
        mode = self.mode
        known = {
            "mode": mode.name,
            "features": list(mode.features),
            "max_seq_length": mode.length,
            "first_row": first,
            "tokenizer": mode.engine.fingerprint,
            "vocab_size": mode.engine.vocab_size,
            "pad_id": mode.specials.pad_id,
        }
        eos = mode.specials.eos_id
        return known if eos is None else {**known, "eos_id": eos}

    def batches(self, work: FileWork) -> Batches:
        """Yield the rows of a file, a batch at a time."""
        size = max(1, BATCH_BYTES // self.row_bytes)
        fill = self.mode.filler(work.first)
        runs = self._of_stream(work, size) if work.words else self._of_windows(work, size)
        row = work.first
        for words, rows, sequences in runs:
            made, counts, placed = fill(words, rows, sequences.bounds)
            yield Batch(made, counts, sequences.rows(placed, row))
            row += len(rows)

    def _of_stream(self, work: FileWork, size: int) -> Runs:
        length = self.mode.length
        with closing(TokenRun(self.staging, work.words, self.mode.words)) as run:
            words = run.take(1)
            for row in range(work.first, work.stop, size):
                stop = min(row + size, work.stop)
                segments = stream_segments(row, stop, self.tokens, length)
                start = row * length
                end = int(segments.starts[-1] + segments.sizes[-1])
                words = np.concatenate([words[-1:], run.take(end - start - 1)])
                begin = start - work.first * length
                sequences = run.sequences(begin, begin + len(words))
                yield words, Rows.of(Segments(segments.starts - start, segments.sizes)), sequences

    def _of_windows(self, work: FileWork, size: int) -> Runs:
        with closing(SegmentReader(self.staging, self.mode)) as reader:
            for window in work.windows:
                words, segments, sequences = reader.read(window.pieces)
                rows = self.mode.rows(segments)
                for at in range(window.first, window.stop, size):
                    yield words, rows.slice(at, min(at + size, window.stop)), sequences


def numbered(batches: Batches, by: int) -> Batches:
    """Yield batches with the rows of their segments counted from another one on."""
    for batch in batches:
        rows = integers(batch.segments.column("row").to_numpy() + by)
        field = batch.segments.schema.field("row")
        yield batch._replace(segments=batch.segments.set_column(0, field, rows))
