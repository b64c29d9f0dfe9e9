"""Read a document file into blocks of columns, strict and streaming.

The newline scan defines rows. Only the asked columns are made; ``raw`` is a view of the block. Lines are checked in full (strict JSON,
valid UTF-8, required strings); what is wrong comes as `BadRecord` beside its null row. Memory: a few blocks of 8 MB, whatever the file.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.documents import METADATA, RAW, check_columns, null_batch, required_of, without_rows
from dolma_dask.formats.json_exact import Field, LineError
from dolma_dask.formats.json_lines import scan_documents
from dolma_dask.formats.layout import format_of
from dolma_dask.io.parquet import read_parquet_documents
from dolma_dask.io.records import BadRecord, Block
from dolma_dask.io.stream import (
    BLOCK_BYTES,
    MAX_RECORD_BYTES,
    LineBlock,
    Section,
    StoredFile,
    compression_of,
    read_lines,
)


class DocumentFile:
    """One document file, or a section of it, as an iterable of blocks.

    Parameters
    ----------
    url : str
        Local path or fsspec URL with a document suffix.
    columns : sequence of str
        Any of ``id text source added created`` (large_string), ``metadata`` (its JSON text), ``raw`` (the line, large_binary).
    source : str, optional
        Source of documents that lack the field.
    section : Section, optional
        Part of a gzip or plain file, cut at members.
    max_record_bytes : int
        Longer lines are bad records (``too_large``) and never held in memory.
    block_bytes : int
        Decompressed bytes per block.

    Attributes
    ----------
    stored : StoredFile
        Its ``info`` and, after the last block, ``checksum`` say which file was read.

    Raises
    ------
    CorruptFileError, SourceChangedError
        While iterating.
    """

    def __init__(
        self,
        url: str,
        columns: Sequence[str] = ("id", "text", "source"),
        *,
        source: str | None = None,
        section: Section | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.url = url
        self.columns = check_columns(columns)
        self.source = source
        self.max_record_bytes = max_record_bytes
        self.block_bytes = block_bytes
        self.stored = StoredFile(url, section)
        self._fields = [
            Field(name, "raw" if name == METADATA else "string") for name in self.columns if name != RAW
        ]
        self._required = required_of(self.columns, has_source=source is not None)

    def __iter__(self) -> Iterator[Block]:
        try:
            yield from self._parquet() if format_of(self.url) == "parquet" else self._lines()
            self.stored.check_unchanged()
        finally:
            self.stored.close()

    def _parquet(self) -> Iterator[Block]:
        while self.stored.read():  # the checksum; parquet itself is read by its footer
            pass
        for block in read_parquet_documents(self.url, self.columns, self._required, self.block_bytes):
            yield Block(self._with_source(block.batch), block.first_row, block.bad)

    def _lines(self) -> Iterator[Block]:
        lines = read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        )
        for block in lines:
            yield self._oversize(block) if block.oversize_bytes else self._parse(block)

    def _oversize(self, block: LineBlock) -> Block:
        bad = self._bad(block, 0, 0, len(block.data), self._too_large(block.oversize_bytes))
        return Block(null_batch(self.columns), block.first_row, (bad,))

    def _too_large(self, found: int) -> LineError:
        return LineError(
            "too_large",
            f"at most {self.max_record_bytes:,} bytes (max_record_bytes), found {found:,}; raise the limit or drop the record",
            0,
        )

    def _parse(self, lines: LineBlock) -> Block:
        starts = lines.starts
        batch, errors = scan_documents(lines.data, starts, self._fields, self._required)
        lengths = np.diff(starts)
        found = dict(errors)
        if int(lengths.max(initial=0)) > self.max_record_bytes:
            found |= {
                int(row): self._too_large(int(lengths[row]))
                for row in np.flatnonzero(lengths > self.max_record_bytes)
            }
        batch = self._arrange(self._with_source(batch), lines, starts)
        if found:
            batch = without_rows(batch, found)
        bad = tuple(
            self._bad(lines, row, int(starts[row]), int(starts[row + 1]), found[row]) for row in sorted(found)
        )
        return Block(batch, lines.first_row, bad)

    def _with_source(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        position = batch.schema.get_field_index("source")
        if self.source is None or position < 0:
            return batch
        filled = pc.fill_null(batch.column(position), self.source)
        return batch.set_column(position, batch.schema.field(position), filled)

    def _arrange(self, batch: pa.RecordBatch, lines: LineBlock, starts: np.ndarray) -> pa.RecordBatch:
        """Put the columns in the asked order, ``raw`` among them as a view of the block."""
        if RAW not in self.columns:
            return batch
        raw = pa.Array.from_buffers(
            pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(lines.data)]
        )
        arrays = [raw if name == RAW else batch.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def _bad(self, lines: LineBlock, row: int, start: int, stop: int, error: LineError) -> BadRecord:
        expected = error.expected
        if error.reason == "missing_field" and "'source'" in expected:
            expected += " (or give the source once for the whole dataset: source=..., --source)"
        return BadRecord(
            url=self.url,
            row=lines.first_row + row,
            byte_offset=lines.byte_offset + start,
            reason=error.reason,
            expected=expected,
            raw=lines.data[start:stop].tobytes().rstrip(b"\n"),
        )
