"""Documents as Parquet tables.

A document table has string columns ``id text source added created``; ``metadata`` holds JSON text (or a struct, which becomes
JSON), and ``extra`` the JSON text of an object with all further fields, so that nothing is lost between JSON lines and Parquet.
Tables that were written here say so in their schema (`OURS`); in others every string is only a string until it proves to be JSON.
Rows are streamed. Slower than JSON lines where the whole line is asked (``raw``), because it must be put together.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dolma_dask.errors import CorruptFileError, SchemaError
from dolma_dask.formats.documents import METADATA, RAW, STRINGS, schema_of, with_source, without_rows
from dolma_dask.formats.json_exact import LineError, parse_object
from dolma_dask.io.files import filesystem, is_local, local_path
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, too_large

EXTRA = "extra"

OURS = {b"dolma_dask.documents": b"1"}
"""Schema metadata of the tables that `documents_table` makes: ``metadata`` and ``extra`` are JSON text of one line."""


def open_parquet(url: str) -> pq.ParquetFile:
    """Open a Parquet file; checksums of pages are verified where it has them.

    Raises
    ------
    CorruptFileError
        It is truncated, no Parquet file, or not there.
    """
    try:
        if is_local(url):
            return pq.ParquetFile(local_path(url), page_checksum_verification=True)
        fs, path = filesystem(url)
        return pq.ParquetFile(path, filesystem=fs, page_checksum_verification=True, pre_buffer=True)
    except FileNotFoundError:
        raise CorruptFileError(f"{url}: no such file; expected the table that was listed.", url=url) from None
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: not a whole Parquet file ({error}); expected 'PAR1' at both ends, as the suffix says. Fetch or write it again.",
            url=url,
        ) from error


def batch_rows(file: pq.ParquetFile, block_bytes: int) -> int:
    """Return how many rows of `file` make about `block_bytes`."""
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    return max(1, int(block_bytes * file.metadata.num_rows / max(size, 1)))


def read_batches(
    url: str, file: pq.ParquetFile, columns: Sequence[str] | None, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open Parquet file in batches of about `block_bytes`.

    Raises
    ------
    CorruptFileError
        A page is damaged.
    """
    rows = batch_rows(file, block_bytes)
    try:
        yield from file.iter_batches(batch_size=rows, columns=columns, use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        if getattr(error, "errno", None):
            raise
        raise CorruptFileError(
            f"{url}: damaged Parquet data ({error}); expected the pages that the footer promises. Fetch or write it again.",
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

    def __iter__(self) -> Iterator[Block]:
        with open_parquet(self.url) as file:
            names = file.schema_arrow.names
            self._check_columns(file.schema_arrow)
            wanted = names if RAW in self.columns else [name for name in self.columns if name in names]
            first_row = 0
            for batch in read_batches(self.url, file, wanted, self.block_bytes):
                yield self._block(batch, first_row)
                first_row += batch.num_rows

    def _check_columns(self, schema: pa.Schema) -> None:
        """Refuse at once what would make every row a bad record."""
        for name in self.columns:
            found = [field.type for field in schema if field.name == name]
            if len(found) > 1 or (not found and name in self.required):
                raise SchemaError(
                    f"{self.url} has {len(found)} columns {name!r}; its columns are {', '.join(schema.names)}. Expected one. "
                    "Convert the file: dolma-dask convert.",
                    url=self.url,
                )
            if found and name in STRINGS and not (_is_string(found[0]) or pa.types.is_null(found[0])):
                raise SchemaError(
                    f"{self.url}: column {name!r} has type {found[0]}; expected strings. Convert the file: dolma-dask convert.",
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
            return pa.array(_raw_lines(batch, hidden), pa.large_binary())
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, pa.large_string())
        column = batch.column(name)
        if name == METADATA and not (_is_ours(batch.schema) and column.type == pa.large_string()):
            texts = (_metadata_text(value) for value in column.to_pylist())
            return pa.array([text and text.decode() for text in texts], pa.large_string())
        return pc.cast(column, pa.large_string())

    def _bad_records(self, batch: pa.RecordBatch, first_row: int) -> Iterator[BadRecord]:
        found: dict[int, tuple[str, str]] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for row in _invalid_rows(column):
                found.setdefault(row, ("invalid_utf8", f"UTF-8 in column {name!r}"))
        for name in self.required:
            for row in np.flatnonzero(batch.column(name).is_null()).tolist():
                found.setdefault(
                    row, ("missing_field", f"a string in column {name!r}, found null{_HINTS.get(name, '')}")
                )
        for row, size in self._large_texts(batch):
            found[row] = (TOO_LARGE, too_large(size, self.max_record_bytes))
        for row, (reason, expected) in sorted(found.items()):
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
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_ours(schema: pa.Schema) -> bool:
    return OURS.items() <= (schema.metadata or {}).items()


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


def _encode_other(value: Any) -> str:
    """Return what msgspec does not know as a string: subclasses of its types, such as time stamps in nanoseconds."""
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)
_decode_text = msgspec.json.Decoder(str).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_value(value: Any) -> bytes:
    """Return compact JSON of a Python value from Arrow; dates become ISO strings, bytes base64, maps arrays of pairs."""
    return _encoder.encode(value)


def _metadata_text(value: Any) -> bytes | None:
    """Return a value of a table that is not ours as JSON of one line; a string that holds an object is one."""
    if value is None:
        return None
    if isinstance(value, str) and _object_members(value):
        text = value.strip().encode()
        return msgspec.json.format(text, indent=-1) if b"\n" in text else text
    return encode_value(value)


def _object_members(text: str) -> dict[str, bytes]:
    """Return the members of a JSON object; none if it is something else."""
    try:
        return parse_object(text.encode()) if text.lstrip().startswith("{") else {}
    except LineError:
        return {}


def _raw_lines(batch: pa.RecordBatch, hidden: Collection[int]) -> list[bytes | None]:
    is_ours = _is_ours(batch.schema)
    return [None if i in hidden else _raw_line(row, is_ours) for i, row in enumerate(batch.to_pylist())]


def _raw_line(row: dict[str, Any], is_ours: bool) -> bytes:
    """Put a document's line together; the members of ``extra`` stand among the others."""
    extra, metadata = row.pop(EXTRA, None), row.pop(METADATA, None)
    members = [
        encode_value(name) + b":" + encode_value(value) for name, value in row.items() if value is not None
    ]
    if metadata is not None:
        members.append(
            b'"metadata":' + (metadata.encode() if is_ours else _metadata_text(metadata) or b"null")
        )
    if extra is not None:
        members.append(_spliced(extra, row, is_ours))
    return b"{" + b",".join(members) + b"}\n"


def _spliced(extra: Any, row: dict[str, Any], is_ours: bool) -> bytes:
    if is_ours:
        return bytes(extra[1:-1].encode())
    inner = _object_members(extra) if isinstance(extra, str) else {}
    if not inner or inner.keys() & {*row, METADATA}:
        return b'"extra":' + encode_value(extra)
    return b",".join(encode_value(name) + b":" + value for name, value in inner.items())


def documents_table(lines: Sequence[bytes]) -> pa.Table:
    """Return the Parquet form of document lines, as `DocumentTable` reads it back."""
    rows = [_table_row(line) for line in lines]
    names = (*STRINGS, METADATA, EXTRA)
    columns = [pa.array([row.get(name) for row in rows], pa.large_string()) for name in names]
    return pa.table(columns, names=list(names)).replace_schema_metadata(OURS)


def _table_row(line: bytes) -> dict[str, str]:
    """Return the columns of one line; a known field that is no string, or null, is kept in ``extra`` as it is."""
    members = _members.decode(line)
    row: dict[str, str] = {}
    for name in STRINGS:
        if bytes(members.get(name, b"")).startswith(b'"'):
            row[name] = _decode_text(members.pop(name))
    if bytes(members.get(METADATA, b"null")) != b"null":
        row[METADATA] = bytes(members.pop(METADATA)).decode()
    if members:
        inside = b",".join(encode_value(name) + b":" + bytes(value) for name, value in members.items())
        row[EXTRA] = (b"{" + inside + b"}").decode()
    return row
