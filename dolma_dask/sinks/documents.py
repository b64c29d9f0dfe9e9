"""Files of documents: JSON lines, or Parquet with row groups of about 64 MB of JSON; the suffix decides."""

from typing import ClassVar

import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Shard
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW, documents_table
from dolma_dask.formats.layout import FileFormat, format_of
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record, Unit
from dolma_dask.sinks.base import TableFile
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.text.kernels import Bools

ROW_GROUP_BYTES = 64_000_000
"""Bytes of JSON per row group, about; cut at a record, so that it does not depend on batches."""

CHUNK_BYTES = 4_000_000
"""Bytes of JSON that are turned into columns at a time; likewise cut at a record."""


def open_writer(root: str, path: str) -> "RowWriter":
    """Return the writer for the document file `path` below `root`."""
    return ParquetWriter(root, path) if format_of(path) == "parquet" else JsonlWriter(root, path)


class ParquetWriter(TableFile):
    """Writes one Parquet file of documents; memory is about twice a row group."""

    def __init__(self, root: str, path: str) -> None:
        super().__init__(root, path, use_dictionary=False)
        self._lines: list[bytes] = []
        self._chunks: list[pa.Table] = []
        self._line_bytes = self._chunk_bytes = 0

    def _finish(self) -> None:
        self._open(documents_table([]).schema)
        self._end_chunk()
        self._end_group()

    def write(self, rows: pa.LargeBinaryArray, taken: Bools | None = None) -> None:
        """Append rows, each a complete JSON line, or those of them that are taken; no nulls."""
        for line in (rows if taken is None else rows.filter(pa.array(taken))).to_pylist():
            self._lines.append(line)
            self._line_bytes += len(line)
            if self._line_bytes >= CHUNK_BYTES:
                self._end_chunk()

    def _end_chunk(self) -> None:
        if self._lines:
            self._chunks.append(documents_table(self._lines))
            self._chunk_bytes += self._line_bytes
            self._lines, self._line_bytes = [], 0
        if self._chunk_bytes >= ROW_GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._chunks:
            self._write_group(pa.concat_tables(self._chunks))
            self._chunks, self._chunk_bytes = [], 0


RowWriter = JsonlWriter | ParquetWriter
"""Takes rows as complete JSON lines."""


class DocumentOutput(Struct, frozen=True):
    """A file of documents for each shard."""

    root: str
    file_format: FileFormat | None  # None: that of the input file
    prefix: str = ""  # of output paths
    # and the folder of bad records below that of the verb, if several outputs share the root
    verb: str = "mix"
    columns: ClassVar[tuple[str, ...]] = (RAW,)

    def path(self, shard: Shard) -> str:
        """Return the output path of a shard, relative to the root."""
        return self.prefix + layout.document_path(layout.with_format(shard.path, self.file_format))

    def open(self, unit: Unit, shard: str) -> "DocumentSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return DocumentSink(open_writer(self.root, unit.name))


class DocumentSink(WriterSink[RowWriter]):
    """Writes the lines of documents."""

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        assert rows.block_lines is not None
        self.writer.write(rows.block_lines, rows.taken)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        written = self.writer.record
        return facts.record(
            unit,
            (written, *quarantined),
            int(facts.counts["documents_out"]),
            counts={"bytes_out": written.bytes, "unproved_attribute_files": len(facts.unproved)},
            info={"unproved": list(facts.unproved)},
        )
