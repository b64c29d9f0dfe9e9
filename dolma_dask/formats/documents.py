"""Columns of a document row: those that a reader can give, and those that a record must have."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import UsageError

REQUIRED = ("id", "text", "source")
"""Fields that every document has, as strings; ``source`` may be given once for a dataset instead."""

OPTIONAL = ("added", "created")
"""Strings that may be absent (time stamps, kept as they are)."""

STRINGS = (*REQUIRED, *OPTIONAL)

METADATA = "metadata"
"""Read as its JSON text, byte for byte."""

RAW = "raw"
"""The whole line with its final newline: what a verb copies that keeps a document as it is."""


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return `columns` if a reader can give them; raise `UsageError` otherwise."""
    known = (*STRINGS, METADATA, RAW)
    unknown = [name for name in columns if name not in known]
    if unknown:
        raise UsageError(f"unknown document column {unknown[0]!r}; expected one of {', '.join(known)}.")
    return tuple(dict.fromkeys(columns))


def required_of(columns: Sequence[str], has_source: bool) -> tuple[str, ...]:
    """Return which of `columns` may not be null; `has_source`: the dataset gives the source."""
    return tuple(name for name in columns if name in REQUIRED and not (has_source and name == "source"))


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a batch: ``large_string``, and ``large_binary`` for ``raw``."""
    return pa.schema([(name, pa.large_binary() if name == RAW else pa.large_string()) for name in columns])


def null_batch(columns: Sequence[str], rows: int = 1) -> pa.RecordBatch:
    """Return `rows` rows that are null in every column."""
    schema = schema_of(columns)
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


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


def text_bytes(text: pa.LargeStringArray) -> int:
    """Return the UTF-8 bytes of a text column."""
    if len(text) == 0:
        return 0
    offsets = np.frombuffer(text.buffers()[1], np.int64)
    return int(offsets[text.offset + len(text)] - offsets[text.offset])
