"""Columns of a dataframe or bag as attributes: which form a column has in JSON follows from its type.

Numbers become scores of the whole document, ``[[0, length, x]]``, as taggers write them; truth values and strings stand bare; lists of
``[start, end, score]`` are spans, objects of numbers stay objects. A missing value (null, NaN) leaves the key out.
"""

import re
from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.formats.attributes import AttributeColumn, attribute_key
from dolma_dask.formats.exact_numbers import as_exact, inexact
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.json.lines import SPAN
from dolma_dask.formats.metadata import is_field
from dolma_dask.frames.partitions import JSON, TEXTS
from dolma_dask.text import compute as pc

_FULL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*?__[A-Za-z_][A-Za-z0-9_]*?__[A-Za-z0-9_]+")


def key_of(name: str, column: str) -> str:
    """Return the key of a column in the set `name`; one that is named as a key, ``a__b__c``, keeps its name."""
    return column if _FULL.fullmatch(column) else attribute_key(name, name, column)


def is_of_documents(column: str) -> bool:
    """Tell whether a column is of the documents, and so no attribute."""
    return column in TEXTS or is_field(column)


def value_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that become attributes."""
    return [name for name in names if not is_of_documents(name)]


def attribute_columns(name: str, batch: pa.RecordBatch) -> list[AttributeColumn]:
    """Return the attributes of some documents in the set `name`, in the order of the columns.

    Raises `SchemaError`: a column has a type that no attribute has, or an integer that no double holds.
    """
    return [
        _column(key_of(name, column), column, batch.column(column))
        for column in value_columns(batch.schema.names)
    ]


def kinds_of(columns: Iterable[AttributeColumn]) -> dict[str, AttributeKind]:
    """Return under which kind readers find each key."""
    kinds: dict[str, AttributeKind] = {}
    for column in columns:
        if column.kind == "dict":
            kinds.update((f"{column.key}.{name}", "dict") for name in column.values.keys.unique().to_pylist())
        else:
            kinds[column.key] = _read_kind(column)
    return kinds


def _read_kind(column: AttributeColumn) -> AttributeKind:
    if column.kind != "scalar":
        return "spans" if column.kind == "spans" else "document"
    return "bool" if pa.types.is_boolean(column.values.type) else "string"


def _column(key: str, name: str, values: pa.Array) -> AttributeColumn:
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_large_string(kind):
        return AttributeColumn(key, "scalar", values)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        _check_exact(name, values)
        return AttributeColumn(key, "document", values)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return AttributeColumn(key, "spans", _spans(name, values))
    if kind == JSON:
        return AttributeColumn(key, "dict", _objects(name, values))
    raise SchemaError(
        f"column {name!r} holds {kind}; expected numbers, truth values, strings, objects of numbers or lists of [start, end, score]. Convert it first, such as with "
        "astype, or leave it out.",
        column=name,
    )


def _check_exact(name: str, values: pa.Array) -> None:
    rows = (
        np.flatnonzero(inexact(as_exact(values)))
        if pa.types.is_integer(values.type)
        else np.empty(0, np.int64)
    )
    if len(rows):
        raise SchemaError(
            f"column {name!r} holds {values[int(rows[0])].as_py()}; expected integers that float64 holds, as scores are. Convert it to strings: "
            "astype(str).",
            column=name,
        )


def _objects(name: str, values: pa.ExtensionArray) -> pa.MapArray:
    """Return objects of numbers, which are texts of JSON here, as maps."""
    texts = values.storage.to_pylist()
    objects = [None if text is None else msgspec.json.decode(text) for text in texts]
    for item in objects:
        if item is not None and not (isinstance(item, dict) and all(map(_is_score, item.values()))):
            raise SchemaError(
                f"column {name!r} holds {str(item)[:80]}; expected objects whose values are numbers that float64 holds, such as {{'en': 0.9}}. Make a "
                "column of each value that is none, or leave it out.",
                column=name,
            )
    return pa.array(
        [None if item is None else list(item.items()) for item in objects],
        pa.map_(pa.large_string(), pa.float64()),
    )


def _is_score(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (is_number and float(value) == value)  # type: ignore[arg-type]


def _spans(name: str, values: pa.Array) -> pa.Array:
    """Return lists of structs or of three numbers as lists of spans."""
    inner = values.type.value_type
    if pa.types.is_struct(inner) and {field.name for field in inner} == {"start", "end", "score"}:
        return values
    flat = values.flatten()
    if pa.types.is_list(inner) or pa.types.is_large_list(inner):
        sizes, numbers = pc.list_value_length(flat), flat.flatten()
        is_number = pa.types.is_floating(numbers.type) or pa.types.is_integer(numbers.type)
        if is_number and not flat.null_count and pc.all(pc.equal(sizes, 3)).as_py() is not False:
            return _list_of(values, _triples(numbers))
    elif pa.types.is_null(inner) and not len(flat):
        return _list_of(values, _triples(pa.array([], pa.float64())))
    raise SchemaError(
        f"column {name!r} holds {values.type}; expected lists of spans: [[start, end, score], ...], of code points.",
        column=name,
    )


def check_spans(columns: Iterable[AttributeColumn], lengths: NDArray[np.int64]) -> None:
    """Refuse spans that do not lie in their texts, which have `lengths` code points; `DataError`."""
    for column in columns:
        if column.kind != "spans":
            continue
        sizes = pc.fill_null(pc.list_value_length(column.values), 0).to_numpy(zero_copy_only=False)
        rows, spans = np.repeat(np.arange(len(sizes)), sizes), column.values.flatten()
        start, end = (pc.fill_null(spans.field(name), 0).to_numpy() for name in ("start", "end"))
        for at in np.flatnonzero((start < 0) | (end < start) | (end > lengths[rows]))[:1].tolist():
            raise DataError(
                f"attribute {column.key!r} has the span {start[at]} to {end[at]} at row {rows[at]}, whose text has {lengths[rows[at]]} code points; "
                "expected 0 <= start <= end <= length."
            )


def _triples(numbers: pa.Array) -> pa.StructArray:
    types = (pa.int64(), pa.int64(), pa.float64())
    try:
        columns = [
            numbers.take(pa.array(np.arange(at, len(numbers), 3))).cast(kind) for at, kind in enumerate(types)
        ]
    except pa.ArrowInvalid as error:
        raise SchemaError(f"{error}; expected spans of integers: [start, end, score].") from error
    return pa.StructArray.from_arrays(columns, fields=list(SPAN))


def _list_of(values: pa.Array, items: pa.Array) -> pa.ListArray:
    """Return `items` in lists of the sizes of `values`, null where these are."""
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=values.is_null())
