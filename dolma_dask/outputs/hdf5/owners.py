"""Owners of staged sequences: the documents that they are of, in a staging file beside that of the words, for the segments of rows.

A row per sequence, in Arrow's file format, compressed, in batches of a fixed number, so that some are read without the others. Disk: 10 to 40 bytes per
sequence, as ids repeat. Memory of a reader: as much for a part, and one batch.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.io import files
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.sinks.base import ArrowSink
from dolma_dask.sinks.segments import OWNER_SCHEMA, segment_rows
from dolma_dask.text.columns import integers
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.segments import Bounds, Placed

SUFFIX = ".owners"

BATCH_ROWS = 1 << 14
"""Sequences of a batch."""

SCHEMA = OWNER_SCHEMA.append(pa.field("start", pa.int64(), nullable=False))
"""The document, and the number of the sequence's first token among those of the document."""


def starts_of(tokens: Tokens) -> NDArray[np.int64]:
    """Return the number of the first token of each sequence (n,) among those of its document, whose sequences are neighbours."""
    if tokens.owners is None:
        return np.zeros(len(tokens.lengths), np.int64)
    begins = np.cumsum(tokens.lengths, dtype=np.int64) - tokens.lengths
    first = np.searchsorted(tokens.owners, tokens.owners)
    starts: NDArray[np.int64] = begins - begins[first]
    return starts


class OwnerWriter:
    """Writes the owners of a part; `stack` closes the file, which then appears."""

    def __init__(self, folder: str, path: str, stack: ExitStack) -> None:
        self._path = path
        self._out = stack.enter_context(stage(files.join(folder, path)))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        sink = pa.PythonFile(ArrowSink(self._out), mode="w")
        self._file = pa.ipc.new_file(sink, SCHEMA, options=options)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._done = 0

    def write(self, tokens: Tokens, documents: pa.RecordBatch) -> None:
        """Append the owners of sequences, given the documents (n,) that were encoded."""
        owners = documents if tokens.owners is None else documents.take(integers(tokens.owners))
        self._waiting.append(owners.append_column(SCHEMA.field("start"), integers(starts_of(tokens))))
        self._rows += owners.num_rows
        if self._rows - self._done >= BATCH_ROWS:
            self._flush(BATCH_ROWS)

    def finish(self) -> None:
        """Write what waits."""
        self._flush(1)
        self._file.close()

    @property
    def record(self) -> FileRecord:
        """The file, once it is there."""
        return FileRecord(self._path, self._out.bytes, self._out.checksum, self._rows)

    def _flush(self, least: int) -> None:
        table = pa.Table.from_batches(self._waiting, SCHEMA)
        while len(table) >= least:
            (batch,) = table.slice(0, BATCH_ROWS).combine_chunks().to_batches()
            self._file.write_batch(batch)
            self._done += batch.num_rows
            table = table.slice(BATCH_ROWS)
        self._waiting = table.to_batches()


class StagedOwners:
    """The owners of a part, of which some are read at a time."""

    def __init__(self, folder: str, path: str, checksum: str) -> None:
        with StagingReader(files.join(folder, path), checksum) as file:
            self._file = pa.ipc.open_file(pa.py_buffer(file.read(0, file.bytes)))
        self._held: dict[int, pa.RecordBatch] = {}

    def rows(self, first: int, stop: int) -> pa.RecordBatch:
        """Return the owners of some sequences."""
        numbers = range(first // BATCH_ROWS, -(-stop // BATCH_ROWS))
        self._held = {number: self._held.get(number) or self._file.get_batch(number) for number in numbers}
        return _one(list(self._held.values()), SCHEMA).slice(first - numbers.start * BATCH_ROWS, stop - first)


def _one(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return batches as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


class Sequences(Struct, frozen=True):
    """Sequences in a run of words."""

    bounds: Bounds
    owners: pa.RecordBatch  # (n,) documents that they are of

    @classmethod
    def joined(cls, parts: Sequence["Sequences"]) -> "Sequences":
        """Return the sequences of all parts of a run."""
        if len(parts) == 1:
            return parts[0]
        names = Bounds.__struct_fields__
        columns = ([np.empty(0, np.int64), *(getattr(part.bounds, name) for part in parts)] for name in names)
        owners = _one([part.owners for part in parts], OWNER_SCHEMA)
        return cls(Bounds(*map(np.concatenate, columns)), owners)

    def rows(self, placed: Placed, first_row: int) -> pa.RecordBatch:
        """Return segments as rows, counted from `first_row` on."""
        return segment_rows(placed, self.owners.take(integers(placed.sequence)), first_row)


class PartSequences:
    """Sequences of a staging file of words, whose owners are read when they are needed."""

    def __init__(self, lengths: NDArray[np.int32], opened: Callable[[], StagedOwners]) -> None:
        self._ends = np.cumsum(lengths, dtype=np.int64)
        self._begins = self._ends - lengths
        self._opened = opened

    @cached_property
    def _owners(self) -> StagedOwners:
        return self._opened()

    def between(self, first: int, stop: int, at: int) -> Sequences:
        """Return the sequences of words `first` to `stop` - 1, which stand from `at` on in a run."""
        low = int(np.searchsorted(self._ends, first, side="right"))
        high = max(int(np.searchsorted(self._begins, stop, side="left")), low)
        owners = self._owners.rows(low, high)
        begins, ends = (np.clip(one[low:high], first, stop) for one in (self._begins, self._ends))
        starts = owners.column("start").to_numpy() + begins - self._begins[low:high]
        bounds = Bounds(begins - first + at, ends - first + at, starts)
        return Sequences(bounds, owners.select(OWNER_SCHEMA.names))
