"""Lists of documents in tables: the columns ``id`` and ``source`` of CSV, TSV and Parquet, streaming and checked."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import BadRecordError, CorruptFileError, SchemaError
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.stored import PieceReader
from dolma_dask.io.stream import BLOCK_BYTES, StoredFile, compression_of, read_pieces

MAX_ENTRY_BYTES = 1 << 20
"""A longer line is no entry of a list."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def csv_columns(stored: StoredFile, delimiter: str) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield ids and sources (large_string) of the rows of a table in text; an empty source is null.

    Parameters
    ----------
    stored : StoredFile
        At its start; the suffix says how it is compressed.
    delimiter : str
        Between cells; these may be in double quotes.

    Raises
    ------
    SchemaError
        There is no column ``id``.
    BadRecordError
        A row has another number of cells, or is not UTF-8.
    """
    from pyarrow import csv as table

    url, pieces = stored.url, read_pieces(stored, compression_of(stored.url))
    head = b""
    while len(head) < MAX_ENTRY_BYTES and (piece := next(pieces, b"")):
        head += piece
    if not head:
        raise SchemaError(f"{url}: an empty file; expected a heading with id and perhaps source.", url=url)
    columns = _check_columns(url, _heading(head, delimiter))
    convert = table.ConvertOptions(
        column_types=dict.fromkeys(columns, pa.large_string()),
        include_columns=columns,
        strings_can_be_null=False,
    )
    try:
        reader = table.open_csv(
            pa.PythonFile(PieceReader(chain([head], pieces)), mode="r"),
            read_options=table.ReadOptions(use_threads=False, block_size=2 * MAX_ENTRY_BYTES),
            parse_options=table.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=convert,
        )
        for ids, sources in _columns(url, iter(reader), columns):
            yield ids, without_empty(sources)
    except pa.ArrowInvalid as error:
        raise BadRecordError(
            f"{url}: {' '.join(str(error).split())}; expected rows as the heading says, in UTF-8. Mend the list.",
            url=url,
        ) from error


def parquet_columns(stored: StoredFile) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield ids and sources (large_string) of the rows of a Parquet file.

    Raises
    ------
    SchemaError
        There is no column ``id``, or one of the two holds no strings.
    CorruptFileError
        The file is damaged, or a string is not UTF-8.
    """
    while stored.read():  # the checksum; a table itself is read from its footer
        pass
    with open_parquet(stored.url) as file:
        columns = _check_columns(stored.url, file.schema_arrow.names)
        yield from _columns(stored.url, read_batches(stored.url, file, columns, BLOCK_BYTES), columns)


def without_empty(sources: pa.Array) -> pa.Array:
    """Return sources with null for empty ones."""
    return pc.if_else(pc.equal(sources, ""), pa.scalar(None, pa.large_string()), sources)


def _check_columns(url: str, names: Sequence[str]) -> list[str]:
    if list(names).count("id") != 1 or list(names).count("source") > 1:
        raise SchemaError(
            f"{url} has the columns {', '.join(names)}; expected one called id, and perhaps one called source.",
            url=url,
        )
    return ["id", "source"] if "source" in names else ["id"]


def _columns(
    url: str, batches: Iterator[pa.RecordBatch], columns: Sequence[str]
) -> Iterator[tuple[pa.Array, pa.Array]]:
    for batch in batches:
        ids = _strings(url, batch, "id")
        has_source = "source" in columns
        yield ids, _strings(url, batch, "source") if has_source else pa.nulls(len(ids), pa.large_string())


def _strings(url: str, batch: pa.RecordBatch, name: str) -> pa.LargeStringArray:
    column = batch.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise SchemaError(f"{url}: column {name} is of type {kind}; expected strings.", url=url)
    column = column.cast(pa.large_string())
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptFileError(
            f"{url}: column {name} holds bytes that are not UTF-8; expected UTF-8. Mend the list.", url=url
        ) from error
    return column


def _heading(head: bytes, delimiter: str) -> list[str]:
    """Return the names in the first line of a table."""
    text = head.removeprefix(_BYTE_ORDER_MARK).decode(errors="replace")
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
