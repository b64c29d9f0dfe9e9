"""Documents and attributes in Parquet.

A document file has string columns ``id text source added created``; ``metadata`` holds its JSON text (or a struct, which becomes
JSON), and ``extra`` the JSON text of an object with all further fields, so that nothing is lost between JSON lines and Parquet.
Rows are streamed by row group. Slower than JSON lines where the whole line is asked (``raw``), because it must be put together.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dolma_dask.errors import CorruptFileError, SchemaError
from dolma_dask.formats.documents import METADATA, RAW, STRINGS, schema_of, without_rows
from dolma_dask.io.files import filesystem, is_local, local_path
from dolma_dask.io.records import BadRecord, Block

EXTRA = "extra"


def open_parquet(url: str) -> pq.ParquetFile:
    """Open a Parquet file.

    Raises
    ------
    CorruptFileError
        It is truncated, or no Parquet file.
    """
    try:
        if is_local(url):
            return pq.ParquetFile(local_path(url))
        fs, path = filesystem(url)
        return pq.ParquetFile(fs.open(path, "rb"))
    except pa.ArrowInvalid as error:
        raise CorruptFileError(
            f"{url}: not a whole Parquet file ({error}); expected 'PAR1' at both ends, as the suffix says. Fetch or write it again.",
            url=url,
        ) from error


def batch_rows(file: pq.ParquetFile, block_bytes: int) -> int:
    """Return how many rows of `file` make about `block_bytes`."""
    size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    return max(1, int(block_bytes * file.metadata.num_rows / max(size, 1)))


def read_parquet_documents(
    url: str, columns: Sequence[str], required: Sequence[str], block_bytes: int
) -> Iterator[Block]:
    """Yield blocks of a Parquet document file; see `dolma_dask.io.documents.DocumentFile`."""
    file = open_parquet(url)
    names = set(file.schema_arrow.names)
    wanted = list(file.schema_arrow.names) if RAW in columns else [name for name in columns if name in names]
    first_row = 0
    for batch in file.iter_batches(
        batch_size=batch_rows(file, block_bytes), columns=wanted, use_threads=False
    ):
        arrays = [_column(url, batch, name) for name in columns]
        result = pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))
        bad = tuple(_bad_rows(url, result, required, first_row))
        if bad:
            result = without_rows(result, {record.row - first_row for record in bad})
        yield Block(result, first_row, bad)
        first_row += batch.num_rows


def _column(url: str, batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == RAW:
        return pa.array(_raw_lines(batch), pa.large_binary())
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.large_string())
    column = batch.column(name)
    if name == METADATA and pa.types.is_nested(column.type):
        texts = [None if value is None else encode_value(value).decode() for value in column.to_pylist()]
        return pa.array(texts, pa.large_string())
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_null(column.type)
    ):
        raise SchemaError(
            f"{url}: column {name!r} has type {column.type}; expected strings. Convert the file: dolma-dask convert.",
            url=url,
        )
    return pc.cast(column, pa.large_string())


def _bad_rows(
    url: str, batch: pa.RecordBatch, required: Sequence[str], first_row: int
) -> Iterator[BadRecord]:
    missing = [name for name in required if name in batch.schema.names and batch.column(name).null_count]
    rows = {
        row: name
        for name in missing
        for row in pc.indices_nonzero(pc.is_null(batch.column(name))).to_pylist()
    }
    for row in sorted(rows):
        expected = f"a string in column {rows[row]!r}, found null"
        yield BadRecord(url, first_row + row, 0, "missing_field", expected, b"")


def encode_value(value: Any) -> bytes:
    """Return compact JSON of a Python value from Arrow; dates become ISO strings, bytes base64."""
    return msgspec.json.encode(value)


def _raw_lines(batch: pa.RecordBatch) -> list[bytes]:
    return [_raw_line(row) for row in batch.to_pylist()]


def _raw_line(row: dict[str, Any]) -> bytes:
    """Put a document's line together; ``metadata`` and ``extra`` go in as the JSON text they are."""
    extra = row.pop(EXTRA, None)
    metadata = row.pop(METADATA, None)
    members = [
        encode_value(name) + b":" + encode_value(value) for name, value in row.items() if value is not None
    ]
    if metadata is not None:
        text = metadata.encode() if isinstance(metadata, str) else encode_value(metadata)
        members.append(b'"metadata":' + text)
    if isinstance(extra, str) and extra.strip("{} \n"):
        members.append(extra.strip().removeprefix("{").removesuffix("}").encode())
    return b"{" + b",".join(members) + b"}\n"


def documents_table(lines: Sequence[bytes]) -> pa.Table:
    """Return the Parquet form of document lines, as `read_parquet_documents` reads it back."""
    rows = [_parquet_row(line) for line in lines]
    schema = pa.schema([(name, pa.large_string()) for name in (*STRINGS, METADATA, EXTRA)])
    return pa.Table.from_pylist(rows, schema=schema)


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _parquet_row(line: bytes) -> dict[str, str | None]:
    members = _members.decode(line)
    row: dict[str, str | None] = {
        name: msgspec.json.decode(members.pop(name), type=str | None) for name in STRINGS if name in members
    }
    if METADATA in members:
        row[METADATA] = bytes(members.pop(METADATA)).decode()
    if members:
        inside = b",".join(encode_value(name) + b":" + bytes(value) for name, value in members.items())
        row[EXTRA] = (b"{" + inside + b"}").decode()
    return row
