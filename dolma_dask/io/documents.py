"""Read a document file into blocks of columns, strict and streaming.

The newline scan defines rows. Only the requested columns are made; ``raw`` is a view of the block. Lines are checked in full (strict
JSON, valid UTF-8, required strings); an invalid line comes as `BadRecord` beside its null row. Memory: a few blocks of 2 MB, whatever
the file.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.formats.documents import (
    METADATA,
    RAW,
    check_columns,
    null_batch,
    required_of,
    with_source,
    without_rows,
)
from dolma_dask.formats.json.exact import Field, LineError
from dolma_dask.formats.json.lines import scan_documents
from dolma_dask.formats.layout import format_of
from dolma_dask.io.parquet import DocumentTable
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, too_large
from dolma_dask.io.stored import WHOLE
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
    """One document file, or a section of it, as an iterable of blocks; each iteration reads it anew.

    `columns` are any of ``id text source added created`` (large_string), ``metadata`` (its JSON text) and ``raw`` (the line,
    large_binary); `source` is that of documents which lack the field. Lines longer than `max_record_bytes`, newline included, are bad
    records (``too_large``) and never held in memory. `checksum` decides whether all stored bytes of a table are read for its checksum,
    which a section never has; lines are hashed on the way. ``stored`` says which file was read: its ``info``, and after the last block
    its ``checksum``.

    Raises `UsageError`: a column is unknown; `CorruptFileError`: there is no such file. While iterating, also `SchemaError` and
    `SourceChangedError`.
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
        checksum: bool = True,
    ) -> None:
        self.url = url
        self.columns = check_columns(columns)
        self.source = source
        self.max_record_bytes = max_record_bytes
        self.block_bytes = block_bytes
        self.section = section or WHOLE
        self._is_table = format_of(url) == "parquet"
        self._is_hashed = checksum and self.section == WHOLE
        self.stored = StoredFile(url, None if self._is_table else section)
        self._fields = [
            Field(name, "raw" if name == METADATA else "string") for name in self.columns if name != RAW
        ]
        self._required = required_of(self.columns, has_source=source is not None)

    def __iter__(self) -> Iterator[Block]:
        if self.stored.position != self.stored.section.start.offset:
            self.stored.rewind()
        try:
            yield from self._rows_of_table() if self._is_table else self._lines()
            self.stored.check_unchanged()
        finally:
            self.stored.close()

    def _rows_of_table(self) -> Iterator[Block]:
        while self._is_hashed and self.stored.read():  # a table itself is read from its footer
            pass
        yield from DocumentTable(
            self.url,
            self.columns,
            self._required,
            self.source,
            self.max_record_bytes,
            self.block_bytes,
            self.section,
        )

    def _lines(self) -> Iterator[Block]:
        lines = read_lines(
            self.stored,
            compression_of(self.url),
            block_bytes=self.block_bytes,
            max_record_bytes=self.max_record_bytes,
        )
        for block in lines:
            yield self._oversize(block) if block.oversize_bytes else self._parse(block)

    def _oversize(self, lines: LineBlock) -> Block:
        reason = too_large(lines.oversize_bytes, self.max_record_bytes)
        bad = BadRecord(self.url, lines.first_row, lines.byte_offset, TOO_LARGE, reason, lines.data.tobytes())
        return Block(null_batch(self.columns), lines.first_row, (bad,))

    def _parse(self, lines: LineBlock) -> Block:
        batch, errors = scan_documents(lines.data, lines.starts, self._fields, self._required)
        batch = with_source(self._arrange(batch, lines), self.source)
        bad = self._bad_records(lines, dict(errors))
        if bad:
            batch = without_rows(batch, [record.row - lines.first_row for record in bad])
        return Block(batch, lines.first_row, bad)

    def _arrange(self, batch: pa.RecordBatch, lines: LineBlock) -> pa.RecordBatch:
        """Put the columns in the requested order, ``raw`` among them as a view of the block."""
        if RAW not in self.columns:
            return batch
        buffers = [None, pa.py_buffer(lines.starts), pa.py_buffer(lines.data)]
        raw = pa.Array.from_buffers(pa.large_binary(), len(lines.starts) - 1, buffers)
        arrays = [raw if name == RAW else batch.column(name) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.columns))

    def _bad_records(self, lines: LineBlock, errors: Mapping[int, LineError]) -> tuple[BadRecord, ...]:
        lengths: npt.NDArray[np.int64] = np.diff(lines.starts)
        large = np.flatnonzero(lengths > self.max_record_bytes).tolist()
        rows = sorted({*large, *errors})
        return tuple(self._bad_record(lines, row, int(lengths[row]), errors.get(row)) for row in rows)

    def _bad_record(self, lines: LineBlock, row: int, length: int, error: LineError | None) -> BadRecord:
        start = int(lines.starts[row])
        raw = lines.data[start : start + length - 1].tobytes()
        position = (self.url, lines.first_row + row, lines.byte_offset + start)
        if length > self.max_record_bytes or error is None:
            return BadRecord(
                *position, TOO_LARGE, too_large(length, self.max_record_bytes), raw[:QUARANTINE_HEAD]
            )
        return BadRecord(*position, error.reason, _with_hint(error), raw)


def _with_hint(error: LineError) -> str:
    if error.reason == "missing_field" and "'source'" in error.expected:
        return f"{error.expected} (or give the source once for the whole dataset: source=..., --source)"
    return error.expected
