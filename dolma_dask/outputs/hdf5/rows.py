"""Second pass of `hdf5`: the rows of each file, from the staging files that they lie in.

Which tokens make which row follows from the sums of the first pass alone, so that the files are the same for any shards and workers. A task
writes one file and reads only its part of the staging files. Memory: one batch of rows, 4 MB, and the lengths of a shard's documents if rows
belong to documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.formats.hdf5 import RowCounts, RowShape, part_name
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record
from dolma_dask.outputs.hdf5.staging import StagedFile, StagedTokens, TokenRun
from dolma_dask.sinks.hdf5 import Hdf5Writer
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.packing import Windows, cut_files, pieces_of, stream_rows, stream_windows

BATCH_BYTES = 4 << 20
"""Bytes of rows that are made at a time: what fits a cache, and no less than a row."""

Rows = NDArray[np.int32]


class FileWork(Struct, frozen=True):
    """Rows of one file, and where their tokens are."""

    first: int  # its rows, among all
    stop: int
    pieces: tuple[tuple[StagedTokens, int, int], ...]
    """Ranges of staged ids if all documents are one stream, else of rows."""


class RowPlan(Struct, frozen=True):
    """All rows of a run."""

    mode: Mode  # what a row is
    parts: tuple[StagedTokens, ...]  # in order
    rows_of: tuple[int, ...]  # rows of each staging file, if rows belong to documents

    @property
    def tokens(self) -> int:
        """Tokens of all staging files."""
        return sum(part.tokens for part in self.parts)

    @property
    def rows(self) -> int:
        """Rows of all files."""
        tail = self.mode.stream_tail
        return sum(self.rows_of) if tail is None else stream_rows(self.tokens, self.mode.length, tail)

    def files(self, max_rows: int) -> list[FileWork]:
        """Return the files, of at most so many rows each."""
        return [
            FileWork(first, stop, self._pieces(first, stop)) for first, stop in cut_files(self.rows, max_rows)
        ]

    def _pieces(self, first: int, stop: int) -> tuple[tuple[StagedTokens, int, int], ...]:
        """Return what rows are made of; rows of a stream overlap by one token, and the last may be short."""
        sizes: Sequence[int] = self.rows_of
        if self.mode.stream_tail is not None:
            sizes = [part.tokens for part in self.parts]
            first, stop = (first * self.mode.length, min(stop * self.mode.length + 1, self.tokens))
        return tuple((self.parts[part], start, end) for part, start, end in pieces_of(sizes, first, stop))


class RowsStage(Struct, frozen=True):
    """Second pass: one file."""

    target: str  # output root
    staging: str  # folder of the ids
    mode: Mode  # makes the rows
    tokens: int  # of all staging files
    verb: str = "hdf5"

    def task(self, number: int, work: FileWork, key: str) -> Task:
        """Return the work on file `number`; how much it reads tells the engine which are large."""
        name = part_name(number)
        rows_bytes = (work.stop - work.first) * self._row_bytes
        info = FileInfo(f"rows {work.first} to {work.stop - 1}", rows_bytes, key)
        return Task(name, (Unit(name, key),), (Input(info.path, info),), work)

    @property
    def _row_bytes(self) -> int:
        return 4 * len(self.mode.features) * self.mode.length

    def run_shard(self, task: Task) -> list[Record]:
        """Write one file; see `dolma_dask.engine.Stage`."""
        work: FileWork = task.work
        shape = RowShape(work.stop - work.first, len(self.mode.features), self.mode.length)
        total = RowCounts()
        with Hdf5Writer(self.target, task.unit.name, shape, self._attributes(work)) as writer:
            of_documents = self.mode.stream_tail is None
            for rows, counts in self._of_documents(work) if of_documents else self._of_stream(work):
                writer.write(rows)
                total += counts
        sums = {
            "rows": total.rows,
            "pad_tokens": total.pad_tokens,
            "loss_tokens": total.loss_tokens,
            "bytes_out": writer.record.bytes,
        }
        info = {"rows": asdict(total)}
        return [task.record([writer.record], task.listed, total.rows, counts=sums, info=info)]

    def _attributes(self, work: FileWork) -> Mapping[str, Any]:
        mode = self.mode
        known = {
            "mode": mode.name,
            "features": list(mode.features),
            "max_seq_length": mode.length,
            "first_row": work.first,
            "tokenizer": mode.engine.fingerprint,
            "vocab_size": mode.engine.vocab_size,
            "pad_id": mode.specials.pad_id,
        }
        eos = mode.specials.eos_id
        return known if eos is None else {**known, "eos_id": eos}

    @property
    def _batch(self) -> int:
        return max(1, BATCH_BYTES // self._row_bytes)

    def _of_stream(self, work: FileWork) -> Iterator[tuple[Rows, RowCounts]]:
        length = self.mode.length
        with closing(TokenRun(self.staging, work.pieces, self.mode.engine.dtype)) as run:
            tokens = run.take(1)
            for row in range(work.first, work.stop, self._batch):
                stop = min(row + self._batch, work.stop)
                windows = stream_windows(row, stop, self.tokens, length)
                start = row * length
                end = int(windows.starts[-1] + windows.sizes[-1])
                tokens = np.concatenate([tokens[-1:], run.take(end - start - 1)])
                yield self.mode.make(tokens, Windows(windows.starts - start, windows.sizes), row)

    def _of_documents(self, work: FileWork) -> Iterator[tuple[Rows, RowCounts]]:
        row = work.first
        for part, first, stop in work.pieces:
            with closing(StagedFile(self.staging, part, self.mode.engine.dtype)) as opened:
                windows = self.mode.windows(opened.lengths()).slice(first, stop)
                for at in range(0, len(windows), self._batch):
                    some = windows.slice(at, at + self._batch)
                    start, end = int(some.starts[0]), int(some.starts[-1] + some.sizes[-1])
                    tokens = opened.tokens(start, end)
                    yield self.mode.make(tokens, Windows(some.starts - start, some.sizes), row)
                    row += len(some)
