"""Read documents from Parquet tables, streaming.

Which columns a table has stands in `dolma_dask.formats.documents`. Strings are checked for UTF-8, which Parquet does not do, and pages
against their checksums. Slower than JSON lines where the line is requested (``raw``), because it must be put together.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import CorruptFileError, SchemaError
from dolma_dask.formats.documents import (
    METADATA,
    RAW,
    STRINGS,
    encode_value,
    is_ours,
    metadata_text,
    raw_lines,
    schema_of,
    with_source,
    without_rows,
)
from dolma_dask.io.files import is_local, local_path, open_read
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, too_large
from dolma_dask.io.stored import WHOLE, Member, Section

if TYPE_CHECKING:
    import pyarrow.parquet as pq


def open_parquet(url: str) -> "pq.ParquetFile":
    """Open a Parquet file; checksums of pages are verified where it has them.

    Raises `CorruptFileError`: it is truncated, no Parquet file, or not there.
    """
    import pyarrow.parquet as pq

    try:
        if is_local(url):
            file = pq.ParquetFile(local_path(url), page_checksum_verification=True)
        else:
            source = open_read(url, scattered=True)  # what is needed of a row group is requested at once
            file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
    except FileNotFoundError:
        raise CorruptFileError(f"{url}: no such file; expected the table that was listed.", url=url) from None
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: not a whole Parquet file ({_on_one_line(error)}); expected 'PAR1' at both ends, as the suffix says. Fetch or write it again.",
            url=url,
        ) from error
    if "[ns" in file.schema_arrow.to_string(show_schema_metadata=False):
        import pandas  # noqa: F401  pyarrow shows nanoseconds as its timestamps
    return file


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def row_groups(url: str) -> tuple[tuple[Member, ...], int]:
    """Return where the row groups of a Parquet file start, with offsets in bytes before compression, and the rows of the file."""
    with open_parquet(url) as file:
        members, row, size = [], 0, 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            members.append(Member(number, row, size))
            row += group.num_rows
            size += group.total_byte_size
        return tuple(members), row


def batch_rows(file: "pq.ParquetFile", block_bytes: int) -> int:
    """Return how many rows of `file` make about `block_bytes`."""
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    return max(1, int(block_bytes * file.metadata.num_rows / max(size, 1)))


def read_batches(
    url: str,
    file: "pq.ParquetFile",
    columns: Sequence[str] | None,
    block_bytes: int,
    section: Section = WHOLE,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open Parquet file, or of a section of it, in batches of about `block_bytes`.

    Raises `CorruptFileError`: a page is damaged.
    """
    rows = batch_rows(file, block_bytes)
    stop = file.num_row_groups if section.stop_offset is None else section.stop_offset
    groups = list(range(section.start.offset, stop))
    try:
        yield from file.iter_batches(batch_size=rows, row_groups=groups, columns=columns, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: damaged Parquet data ({_on_one_line(error)}); expected the pages that the footer promises. Fetch or write it again.",
            url=url,
        ) from error


@dataclass(frozen=True)
class DocumentTable:
    """The documents of one Parquet file as an iterable of blocks; see `dolma_dask.io.documents.DocumentFile`.

    ``max_record_bytes`` is held against the text: a table has no lines.
    """

    url: str
    columns: Sequence[str]
    required: Sequence[str]
    source: str | None
    max_record_bytes: int
    block_bytes: int
    section: Section = WHOLE

    def __iter__(self) -> Iterator[Block]:
        with open_parquet(self.url) as file:
            names = file.schema_arrow.names
            self._check_columns(file.schema_arrow)
            present = [name for name in self.columns if name in names]
            read = names if RAW in self.columns else present or names[:1]  # without columns there are no rows
            first_row = self.section.start.row
            for batch in read_batches(self.url, file, read, self.block_bytes, self.section):
                yield self._block(batch, first_row)
                first_row += batch.num_rows

    def _check_columns(self, schema: pa.Schema) -> None:
        """Refuse at once what would make every row a bad record."""
        for name in self.columns:
            types = [field.type for field in schema if field.name == name]
            if len(types) > 1 or (not types and name in self.required):
                raise SchemaError(
                    f"{self.url} has {len(types)} columns {name!r}; its columns are {', '.join(schema.names)}. Expected one. "
                    "Convert the file: dolma-dask convert.",
                    url=self.url,
                )
            if types and name in STRINGS and not (_is_string(types[0]) or pa.types.is_null(types[0])):
                raise SchemaError(
                    f"{self.url}: column {name!r} has type {types[0]}; expected strings. Convert the file: dolma-dask convert.",
                    url=self.url,
                )

    def _block(self, batch: pa.RecordBatch, first_row: int) -> Block:
        batch = _decoded(batch)
        bad = tuple(self._bad_records(batch, first_row))
        if bad:
            batch = without_rows(batch, [record.row - first_row for record in bad])
        hidden = {record.row - first_row for record in bad}
        arrays = [self._column(batch, name, hidden) for name in self.columns]
        result = with_source(pa.RecordBatch.from_arrays(arrays, schema=schema_of(self.columns)), self.source)
        return Block(without_rows(result, hidden) if hidden else result, first_row, bad)

    def _column(self, batch: pa.RecordBatch, name: str, hidden: Collection[int]) -> pa.Array:
        if name == RAW:
            return pa.array(raw_lines(batch, hidden), pa.large_binary())
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.large_string())
        column = batch.column(name)
        if name == METADATA and not (is_ours(batch.schema) and column.type == pa.large_string()):
            texts = [None if value is None else metadata_text(value).decode() for value in column.to_pylist()]
            return pa.array(texts, pa.large_string())
        return pc.cast(column, pa.large_string())

    def _bad_records(self, batch: pa.RecordBatch, first_row: int) -> Iterator[BadRecord]:
        errors: dict[int, tuple[str, str]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for row in _invalid_rows(column):
                errors.setdefault(row, ("invalid_utf8", f"UTF-8 in column {name!r}"))
        for name in self.required:
            for row in np.flatnonzero(batch.column(name).is_null()).tolist():
                errors.setdefault(
                    row, ("missing_field", f"a string in column {name!r}, found null{_HINTS.get(name, '')}")
                )
        for row, size in self._large_texts(batch):
            errors[row] = (TOO_LARGE, too_large(size, self.max_record_bytes))
        for row, (reason, expected) in sorted(errors.items()):
            raw = _row_as_json(batch, row)
            kept = raw[:QUARANTINE_HEAD] if reason == TOO_LARGE else raw
            yield BadRecord(self.url, first_row + row, 0, reason, expected, kept)

    def _large_texts(self, batch: pa.RecordBatch) -> list[tuple[int, int]]:
        if "text" not in self.columns or "text" not in batch.schema.names:
            return []
        sizes = np.asarray(pc.fill_null(pc.binary_length(batch.column("text")), 0))
        return [(int(row), int(sizes[row])) for row in np.flatnonzero(sizes > self.max_record_bytes)]


_HINTS = {"source": " (or give the source once for the whole dataset: source=..., --source)"}


def _is_string(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_string(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with every string column as large_string."""
    columns = [
        pc.cast(column, pa.large_string()) if _is_string(column.type) else column for column in batch.columns
    ]
    fields = [pa.field(name, column.type) for name, column in zip(batch.schema.names, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))


def _invalid_rows(column: pa.Array) -> list[int]:
    """Return the rows that hold a string which is not UTF-8: Parquet does not look."""
    if _is_valid(column):
        return []
    return [row for row in range(len(column)) if not _is_valid(column.slice(row, 1))]


def _is_valid(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _row_as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """Return the strings of a bad row for the quarantine file; what is not UTF-8 in them is replaced."""
    values = {
        name: column.slice(row, 1).cast(pa.large_binary())[0].as_py()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.type == pa.large_string()
    }
    return encode_value({name: value and value.decode(errors="replace") for name, value in values.items()})
