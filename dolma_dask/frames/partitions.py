"""Partitions of a Dask dataframe or bag as rows of Arrow.

Columns of a dataframe go to Arrow as they are, without a Python object per document where pandas holds Arrow strings or numbers; dicts of a
bag are Python objects anyway. Memory: one partition, and its columns in Arrow where pandas held others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input
from dolma_dask.errors import BadRecordError, SchemaError, UsageError
from dolma_dask.formats.documents import METADATA, RAW, STRINGS, encode_value, is_string, text_bytes
from dolma_dask.formats.layout import FileFormat
from dolma_dask.formats.pandas_later import know_pandas
from dolma_dask.frames.lines import document_lines
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import QUARANTINE_HEAD, TOO_LARGE, BadRecord, Block, too_large
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import large_bytes, string_parts

if TYPE_CHECKING:
    from dask.delayed import Delayed

TEXTS = (*STRINGS, METADATA)
"""Columns of documents, all strings; the metadata as JSON."""

JSON = pa.json_(pa.large_string())
"""Type of a column of JSON texts."""

BLOCK_BYTES = 2 << 20
"""Bytes of a block of rows, as readers of files have them."""


class Collection(Struct, frozen=True):
    """A dataframe or bag that is to be written."""

    frame: Any  # dask.dataframe.DataFrame or dask.bag.Bag
    columns: tuple[str, ...] | None  # None: a bag, whose rows tell

    @property
    def npartitions(self) -> int:
        """Number of partitions."""
        return int(self.frame.npartitions)

    def select(self, names: Sequence[str]) -> "Collection":
        """Return the collection with these columns alone, so that others are not even read."""
        return self if self.columns is None else Collection(self.frame[list(names)], tuple(names))

    def texts(self) -> "Collection":
        """Return the collection with what identifies documents, and their texts."""
        return self.select([name for name in ("id", "source", "text") if name in (self.columns or ())])

    def delayed(self) -> "list[Delayed]":
        """Return each partition as a task."""
        parts: list[Delayed] = (
            self.frame.map_partitions(list) if self.columns is None else self.frame
        ).to_delayed()
        return parts

    def check(self, required: Sequence[str], function: str) -> None:
        """Refuse a dataframe without a column that is needed."""
        missing = [name for name in required if self.columns is not None and name not in self.columns]
        if missing:
            hint = " (or give the source of all documents: source='web')" if missing == ["source"] else ""
            raise UsageError(
                f"{function}: the dataframe has no column {missing[0]!r}; it has {', '.join(self.columns or ())}. Expected {', '.join(required)}{hint}.",
                columns=missing,
            )


def collection_of(frame: object, function: str) -> Collection:
    """Return what is to be written; raise `UsageError` for anything else than a Dask dataframe or bag."""
    kind = f"{type(frame).__module__}.{type(frame).__qualname__}"
    if kind.startswith("pandas."):
        raise UsageError(
            f"{function}: the frame is of pandas; expected a dataframe or bag of Dask: dask.dataframe.from_pandas(frame, npartitions=8)."
        )
    if hasattr(frame, "to_delayed") and hasattr(frame, "map_partitions") and hasattr(frame, "npartitions"):
        names = getattr(frame, "columns", None)
        if names is None and not hasattr(frame, "dtype"):
            return Collection(frame, None)
        if names is not None and not hasattr(frame, "dtype"):
            columns = tuple(names)
            odd = [name for name in columns if not isinstance(name, str) or columns.count(name) > 1]
            if odd:
                raise UsageError(
                    f"{function}: column {odd[0]!r} is no string or stands twice; expected names that differ."
                )
            return Collection(frame, columns)
    raise UsageError(
        f"{function}: the frame is of type {kind}; expected a dask.dataframe.DataFrame or a dask.bag.Bag."
    )


def table_of(part: Any, where: str) -> pa.Table:
    """Return a partition as a table; strings are ``large_string``, missing values and NaN null.

    Raises `SchemaError`: values of one column are of several types, or a column of documents holds no strings.
    """
    if not isinstance(part, list):
        know_pandas()
    columns = _values_of(part, where) if isinstance(part, list) else part.items()
    arrays = {name: _as_usual(_array(name, values, where), name, where) for name, values in columns}
    return pa.table(arrays)


def _values_of(rows: list[Any], where: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the values of dicts by name; there is an id even if no row has one, since a table without columns has no rows."""
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise SchemaError(
                f"{where}: row {number} of the bag is of type {type(row).__name__}; expected dicts such as {{'id': ..., 'text': ...}}.",
                partition=where,
            )
    names = dict.fromkeys(("id", *(name for row in rows for name in row)))
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(
                f"{where}: a row of the bag has the key {name!r}; expected strings.", partition=where
            )
        yield name, [row.get(name) for row in rows]


def _array(name: str, values: Any, where: str) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column, a list or of pandas; objects become JSON, since Arrow would give all of them the same members."""
    try:
        if isinstance(values, list) or values.dtype == object:
            if name == METADATA:
                values = [value if isinstance(value, str) else _object_text(value) for value in values]
            elif any(isinstance(value, dict) for value in values):
                texts = pa.array([_object_text(value) for value in values], pa.large_string())
                return pa.ExtensionArray.from_storage(JSON, texts)
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"{where}: column {name!r}: {error}; expected one type of values in each column. Convert it first, such as with astype in a "
            "dataframe, or str in a bag.",
            partition=where,
            column=name,
        ) from error


def _object_text(value: Any) -> str | None:
    is_missing = value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if is_missing else encode_value(value).decode()


def _as_usual(column: pa.Array | pa.ChunkedArray, name: str, where: str) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = _decoded(column)
    kind = column.type
    if is_string(kind) or (pa.types.is_null(kind) and name in TEXTS):
        return column.cast(pa.large_string())
    if name in TEXTS:
        raise SchemaError(
            f"{where}: column {name!r} holds {kind}; expected strings. Convert it first: frame[{name!r}].astype(str).",
            partition=where,
            column=name,
        )
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    return column


def _decoded(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of a categorical, also those that Arrow cannot cast to, such as intervals."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.chunked_array(
        [chunk.dictionary.take(chunk.indices) for chunk in chunks], column.type.value_type
    )


def blocks_of(table: pa.Table) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows in batches of about `BLOCK_BYTES`, each with the number of its first row."""
    rows = max(1, table.num_rows * BLOCK_BYTES // max(table.nbytes, 1))
    first = 0
    for batch in table.to_batches(max_chunksize=rows):
        yield first, batch
        first += batch.num_rows


class PartitionDocuments(Struct, frozen=True):
    """The documents of one partition; see `dolma_dask.engine.documents.DocumentSource`."""

    name: str  # the shard that it becomes
    part: Any = None  # a pandas dataframe, or a list of dicts; the task that has computed it puts it in
    source: str | None = None  # of rows that have none
    inputs: tuple[Input, ...] = ()

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents; those that are none go to the quarantine, or raise `BadRecordError`."""
        table = _with_required(table_of(self.part, self.name), self.source)
        counts = facts.counts = dict.fromkeys(
            ("documents_in", "documents_out", "text_bytes_in", "text_bytes_out", "bad_records"), 0.0
        )
        for first, batch in blocks_of(table):
            found = _unfit(batch, policy.max_record_bytes)
            kept = batch.filter(pa.array(~_mask(found, len(batch)))) if found else batch
            numbers = first + np.flatnonzero(~_mask(found, len(batch)))
            lines = None
            if RAW in columns:
                lines, errors = document_lines(kept, policy.max_record_bytes)
                found |= {int(numbers[row] - first): error for row, error in errors.items()}
                if errors:
                    good = pa.array(~_mask(errors, len(kept)))
                    kept, lines, numbers = (
                        kept.filter(good),
                        lines.filter(good),
                        numbers[good.to_numpy(zero_copy_only=False)],
                    )
                lines = large_bytes(*string_parts(lines))
            self._admit(quarantine, policy, batch, first, found)
            counts["documents_in"] += len(batch)
            counts["documents_out"] += len(kept)
            counts["text_bytes_in"] += text_bytes(batch.column("text"))
            counts["text_bytes_out"] += text_bytes(kept.column("text"))
            yield DocumentRows(kept.select(["id", "source", "text"]), numbers, lines)
        counts["bad_records"] = quarantine.count

    def _admit(
        self,
        quarantine: Quarantine,
        policy: RecordPolicy,
        batch: pa.RecordBatch,
        first: int,
        found: Mapping[int, tuple[str, str]],
    ) -> None:
        bad = tuple(
            BadRecord(self.name, first + row, 0, reason, expected, _shown(batch, row))
            for row, (reason, expected) in sorted(found.items())
        )
        if bad and policy.on_bad_record == "fail":
            record = bad[0]
            raise BadRecordError(
                f"row {record.row} of the partition of {self.name}: {record.reason.replace('_', ' ')}; expected {record.expected}. Fill or drop "
                "such rows first, or set them aside: on_bad_record='quarantine'.",
                shard=self.name,
                row=record.row,
                reason=record.reason,
            )
        quarantine.admit(Block(batch, first, bad))


def _with_required(table: pa.Table, source: str | None) -> pa.Table:
    """Return the table with all columns that documents have; a row that lacks one is found later."""
    for name in ("id", "text", "source"):
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), pa.large_string()))
    if source is None:
        return table
    at = table.column_names.index("source")
    return table.set_column(at, "source", pc.fill_null(table.column(at), source))


def _mask(rows: Mapping[int, object], size: int) -> np.ndarray:
    mask = np.zeros(size, np.bool_)
    mask[list(rows)] = True
    return mask


def _unfit(batch: pa.RecordBatch, max_bytes: int) -> dict[int, tuple[str, str]]:
    """Return the rows that are no documents, with reason and what was expected."""
    found: dict[int, tuple[str, str]] = {}
    for name in ("id", "text", "source"):
        for row in np.flatnonzero(batch.column(name).is_null().to_numpy(zero_copy_only=False)).tolist():
            found.setdefault(row, ("missing_field", f"a string in {name!r}, found null"))
    sizes = pc.fill_null(pc.binary_length(batch.column("text")), 0).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(sizes > max_bytes).tolist():
        found.setdefault(row, (TOO_LARGE, too_large(int(sizes[row]), max_bytes)))
    return found


def _shown(batch: pa.RecordBatch, row: int) -> bytes:
    """Return the row as JSON for the quarantine, or its head."""
    return encode_value(batch.slice(row, 1).to_pylist()[0])[:QUARANTINE_HEAD]


def required(source: str | None) -> tuple[str, ...]:
    """Return the columns that documents need; `source` may be given once for all."""
    return ("id", "text") if source is not None else ("id", "text", "source")


def shard_names(count: int, file_format: FileFormat = "jsonl.gz") -> list[str]:
    """Return the shards that partitions become; the names sort as the partitions stand."""
    digits = max(5, len(str(count - 1)))
    return [f"part-{number:0{digits}d}.{file_format}" for number in range(count)]
