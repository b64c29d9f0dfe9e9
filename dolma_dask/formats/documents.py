"""Columns of a document row, and document lines as rows of a Parquet table and back.

A table of documents has string columns ``id text source added created``; ``metadata`` holds JSON text, and ``extra`` the JSON text of
an object with all further fields, so that nothing is lost between JSON lines and Parquet. Tables that were made here say so in
their schema (`OURS`); in others every string is only a string until it proves to be JSON. Cost of rows: a few Python calls each where they
have other values than strings.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.json.lines import unquoted
from dolma_dask.formats.json.write import string_texts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts, validity
from dolma_dask.text.kernels import Bools

REQUIRED = ("id", "text", "source")
"""Fields that every document has, as strings; ``source`` may be given once for a dataset instead."""

OPTIONAL = ("added", "created")
"""Strings that may be absent (time stamps, kept as they are)."""

STRINGS = (*REQUIRED, *OPTIONAL)

METADATA = "metadata"
"""Read as its JSON text, byte for byte."""

RAW = "raw"
"""The line with its final newline, for verbs that keep a document as it is."""


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return `columns` if a reader can give them; raise `UsageError` otherwise."""
    known = (*STRINGS, METADATA, RAW)
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise UsageError(f"unknown document column {unknown[0]!r}; expected one of {', '.join(known)}.")
    return tuple(dict.fromkeys(columns))


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a batch: ``large_string``, and ``large_binary`` for ``raw``."""
    return pa.schema([(name, pa.large_binary() if name == RAW else pa.large_string()) for name in columns])


@cache
def null_row(columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return one row that is null in every column."""
    schema = schema_of(columns)
    return pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)


def without_rows(batch: pa.RecordBatch, rows: Collection[int]) -> pa.RecordBatch:
    """Return `batch` with the given rows null in every column."""
    mask = np.zeros(batch.num_rows, bool)
    mask[list(rows)] = True
    hidden = pa.array(mask)
    columns = [pc.if_else(hidden, pa.scalar(None, column.type), column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def with_source(batch: pa.RecordBatch, source: str | None) -> pa.RecordBatch:
    """Return `batch` with `source` where its column ``source`` is null; as it is if there is no such column or no `source`."""
    position = batch.schema.get_field_index("source")
    if source is None or position < 0 or not batch.column(position).null_count:
        return batch
    filled = pc.fill_null(batch.column(position), source)
    return batch.set_column(position, batch.schema.field(position), filled)


def with_text_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return `batch` with whole numbers in its column ``id`` as their decimal text."""
    position = batch.schema.get_field_index("id")
    if position < 0 or not pa.types.is_integer(batch.schema.field(position).type):
        return batch
    texts = batch.column(position).cast(pa.large_string())
    return batch.set_column(position, pa.field("id", texts.type), texts)


def text_bytes(text: pa.LargeStringArray, taken: Bools | None = None) -> int:
    """Return the UTF-8 bytes of a text column, or of the rows that are taken."""
    sizes = pc.binary_length(text)
    return int(pc.sum(sizes if taken is None else sizes.filter(pa.array(taken))).as_py() or 0)


EXTRA = "extra"

OURS = {b"dolma_dask.documents": b"1"}
"""Schema metadata of the tables that `documents_table` makes: ``metadata`` and ``extra`` are JSON text of one line."""


def is_ours(schema: pa.Schema) -> bool:
    """Tell whether a table was made by `documents_table`."""
    return bool(OURS.items() <= (schema.metadata or {}).items())


def is_string(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds text."""
    if pa.types.is_dictionary(kind):
        return is_string(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds bytes: text in tables that lack the UTF8 annotation."""
    if pa.types.is_dictionary(kind):
        return is_bytes(kind.value_type)
    kinds = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    )
    return any(is_kind(kind) for is_kind in kinds)


def _encode_other(value: Any) -> Any:
    """Return numbers and arrays of NumPy as such, missing values of pandas as none, and what else msgspec does not know as a string: time stamps in
    nanoseconds, for example.
    """
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biufUO":
        return value.tolist()
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)
_decode_text = msgspec.json.Decoder(str).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_value(value: Any) -> bytes:
    """Return compact JSON of a Python value from Arrow; dates become ISO strings, bytes base64, maps arrays of pairs."""
    return _encoder.encode(value)


def metadata_text(value: Any) -> bytes:
    """Return a value of a table that is not ours as JSON of one line; a string that holds an object is one."""
    if isinstance(value, str) and _object_members(value) is not None:
        text = value.strip().encode()
        return msgspec.json.format(text, indent=-1) if b"\n" in text else text
    return encode_value(value)


def _object_members(text: str) -> dict[str, bytes] | None:
    """Return the members of a JSON object; None if it is something else."""
    try:
        return parse_object(text.encode()) if text.lstrip().startswith("{") else None
    except LineError:
        return None


def raw_lines(table: pa.RecordBatch, hidden: Collection[int] = ()) -> pa.LargeBinaryArray:
    """Return each row as a line of JSON with its newline; null for the rows in `hidden`.

    Texts go from column to column: a text of many MB is not held as an object of Python beside them.
    """
    pieces: list[pa.Array | str] = ["{"]
    begun = np.zeros(table.num_rows, np.bool_)
    for key, texts in _members_of(table):
        given = validity(texts)
        pieces += [_leads(key, given, begun), texts if given.all() else pc.fill_null(texts, "")]
        begun |= given
    lines = join_texts(*pieces, "}\n")
    if hidden:
        lines = pc.if_else(pa.array(np.isin(np.arange(len(lines)), list(hidden))), None, lines)
    return lines.view(pa.large_binary())


def _leads(key: str, given: Bools, begun: Bools) -> pa.Array | str:
    """Return what stands before the values of a member: its key, behind a comma in the rows that have `begun`, and nothing where none is `given`."""
    if given.all() and begun.all() == begun.any():
        return f",{key}" * bool(begun.any()) or key
    leads = pa.array(["", key, f",{key}"], pa.large_string())
    return leads.take(pa.array(given * (1 + begun)))


def _members_of(table: pa.RecordBatch) -> Iterator[tuple[str, pa.LargeStringArray]]:
    """Yield the keys of the lines and their values as JSON, null where a line has no such member; the members of ``extra`` have their keys with them."""
    trusted, columns = is_ours(table.schema), dict(zip(table.schema.names, table.columns, strict=True))
    extra, metadata = columns.pop(EXTRA, None), columns.pop(METADATA, None)
    for name, column in columns.items():
        yield encode_value(name).decode() + ":", _value_texts(column)
    if metadata is not None:
        yield '"metadata":', metadata if trusted else _texts_of(metadata, metadata_text)
    if extra is not None:
        inner = (
            pc.utf8_slice_codeunits(extra, 1, -1)
            if trusted
            else _texts_of(extra, partial(_spliced, taken={*columns, METADATA}))
        )
        yield "", pc.if_else(pc.equal(pc.binary_length(inner), 0), None, inner)


def _value_texts(column: pa.Array) -> pa.LargeStringArray:
    """Return the values of a column as JSON; null stays null."""
    return string_texts(column) if is_string(column.type) else _texts_of(column, encode_value)


def _texts_of(column: pa.Array, spell: Callable[[Any], bytes]) -> pa.LargeStringArray:
    values = [None if value is None else spell(value) for value in column.to_pylist()]
    return pa.array(values, pa.large_binary()).view(pa.large_string())


def _spliced(extra: Any, taken: Collection[str]) -> bytes:
    """Return the members of a foreign ``extra`` if it is an object and none of its names is taken, else as a field."""
    inner = _object_members(extra) if isinstance(extra, str) else None
    if inner is None or inner.keys() & set(taken):
        return b'"extra":' + encode_value(extra)
    return b",".join(encode_value(name) + b":" + value for name, value in inner.items())


def documents_table(lines: Sequence[bytes]) -> pa.Table:
    """Return the Parquet form of document lines, as `raw_lines` reads it back."""
    rows = [_table_row(line) for line in lines]
    columns = [unquoted([row.get(name) for row in rows]) for name in STRINGS]
    for name in (METADATA, EXTRA):
        columns.append(pa.array([row.get(name) for row in rows], pa.large_binary()).view(pa.large_string()))
    return pa.table(columns, names=[*STRINGS, METADATA, EXTRA]).replace_schema_metadata(OURS)


def _table_row(line: bytes) -> dict[str, memoryview | bytes]:
    """Return the columns of one line, strings as JSON; a known field that is no string, or null, is kept in ``extra`` as it is."""
    members = {name: memoryview(value) for name, value in _members.decode(line).items()}
    row: dict[str, memoryview | bytes] = {}
    for name in STRINGS:
        if members.get(name, b"")[:1] == b'"':
            row[name] = members.pop(name)
    if members.get(METADATA, b"null") != b"null":
        row[METADATA] = members.pop(METADATA)
    if members:
        inside = b",".join(encode_value(name) + b":" + value for name, value in members.items())
        row[EXTRA] = b"{" + inside + b"}"
    return row
