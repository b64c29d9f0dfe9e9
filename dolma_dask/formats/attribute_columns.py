"""Attribute columns of the kinds ``spans``, ``scalar`` and ``dict`` as JSON texts, one per document.

What `dolma_dask.formats.attributes` pastes behind a key. Spans are written by a kernel, the others by Arrow compute:
they are rare, and a few numbers per document.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.formats.json.write import DECIMALS, number_texts, span_texts, string_texts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts, validity
from dolma_dask.text.kernels import Counts

SPAN_FIELDS = ("start", "end", "score")


def column_texts(key: str, kind: str, values: pa.Array, decimals: int = DECIMALS) -> pa.LargeStringArray:
    """JSON of each value (n,); null where the key is left out.

    Raises `DataError` if a number is NaN or infinite, or a span lacks its start, end or score; names `key` and row. Raises `SchemaError` if
    `values` has a type that `kind` cannot have.
    """
    if kind == "spans":
        return _span_texts(key, values, decimals)
    if kind == "dict":
        return _dict_texts(key, values)
    return _scalar_texts(key, kind, values)


def float_values(key: str, kind: str, values: pa.Array) -> NDArray[np.float64]:
    """Numbers as float64 (n,), 0.0 where null; no copy if they are float64 without nulls."""
    if not (
        pa.types.is_floating(values.type) or pa.types.is_integer(values.type) or pa.types.is_null(values.type)
    ):
        raise _wrong_type(key, kind, values.type, "float64")
    is_double = values.type == pa.float64()
    return np.asarray(_filled(values if is_double else values.cast(pa.float64(), safe=False)), np.float64)


def _filled(values: pa.Array) -> NDArray[Any]:
    """Return numbers, 0 where null: Arrow would copy those without nulls too."""
    filled = pc.fill_null(values, 0) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def check_finite(
    key: str, numbers: NDArray[np.float64], valid: NDArray[np.bool_], rows: NDArray[np.int64] | None = None
) -> None:
    """Refuse NaN and infinity, which JSON cannot hold; `rows` gives the row of each number if it is not its index."""
    bad = valid & ~np.isfinite(numbers)
    if bad.any():
        at = int(bad.argmax())
        row = at if rows is None else int(rows[at])
        found = f"attribute {key!r} is {float(numbers[at])} at row {row}"
        raise DataError(
            f"{found}; JSON has no such number: leave the value out (null) or correct the tagger",
            key=key,
            row=row,
        )


def _scalar_texts(key: str, kind: str, values: pa.Array) -> pa.LargeStringArray:
    of = values.type
    if pa.types.is_floating(of):
        numbers, valid = float_values(key, kind, values), validity(values)
        check_finite(key, numbers, valid)
        return number_texts(numbers, valid)
    if pa.types.is_string(of) or pa.types.is_large_string(of):
        return string_texts(values)
    if pa.types.is_integer(of) or pa.types.is_boolean(of) or pa.types.is_null(of):
        return values.cast(pa.large_string())
    raise _wrong_type(key, kind, of, "a number, bool or string")


def _dict_texts(key: str, values: pa.Array) -> pa.LargeStringArray:
    if pa.types.is_map(values.type):
        members = _map_members(key, values)
    elif pa.types.is_struct(values.type):
        members = _struct_members(key, values)
    else:
        raise _wrong_type(key, "dict", values.type, "a struct of scalars, or a map from string to number")
    return pc.if_else(values.is_valid(), join_texts("{", members, "}"), None)


def _struct_members(key: str, values: pa.StructArray) -> pa.LargeStringArray:
    """``"en":0.9,"de":0.1`` of each row."""
    texts = [
        pc.fill_null(
            join_texts(f",{quote(field.name)}:", _scalar_texts(f"{key}.{field.name}", "dict", member)), ""
        )
        for field, member in zip(values.type, values.flatten(), strict=True)
    ]
    if not texts:
        return pa.repeat(pa.scalar("", pa.large_string()), len(values))
    # Not null_handling="skip": Arrow 26 leaves out whole rows in which every piece is null.
    return pc.utf8_slice_codeunits(join_texts(*texts), 1)


def quote(text: str) -> str:
    """Return a JSON string; a lone surrogate, which UTF-8 cannot hold, becomes ``?``."""
    return json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False)


def _map_members(key: str, values: pa.MapArray) -> pa.LargeStringArray:
    """Return the same for maps, whose members differ from row to row."""
    bounds, rows = _bounds(values)
    items = values.items.slice(bounds[0], bounds[-1] - bounds[0])
    numbers = float_values(key, "dict", items)
    inside = validity(items) & validity(values)[rows]
    check_finite(key, numbers, inside, rows)
    is_integer = pa.types.is_integer(items.type)
    texts = items.cast(pa.large_string()) if is_integer else number_texts(numbers, inside)
    names = string_texts(values.keys.slice(bounds[0], bounds[-1] - bounds[0]))
    members = join_texts(names, ":", texts).filter(pa.array(inside))
    kept = np.concatenate([np.zeros(1, np.int64), np.cumsum(inside)])
    lists = pa.LargeListArray.from_arrays(pa.array(kept[bounds - bounds[0]]), members)
    return pc.binary_join(lists, pa.scalar(",", pa.large_string()))


def _span_texts(key: str, values: pa.Array, decimals: int) -> pa.LargeStringArray:
    of = values.type
    is_list = pa.types.is_list(of) or pa.types.is_large_list(of)
    if (
        not is_list
        or not pa.types.is_struct(of.value_type)
        or {f.name for f in of.value_type} != set(SPAN_FIELDS)
    ):
        raise _wrong_type(key, "spans", of, "list<struct<start: int64, end: int64, score: float64>>")
    bounds, rows = _bounds(values)
    spans = values.values.slice(bounds[0], bounds[-1] - bounds[0])
    fields = dict(zip((f.name for f in spans.type), spans.flatten(), strict=True))
    valid = validity(values)
    for name, field in fields.items():
        if field.null_count:
            _check_complete(key, name, valid[rows] & ~validity(field), rows)
    starts, ends = (_integers(key, fields[name]) for name in ("start", "end"))
    scores = float_values(key, "spans", fields["score"])
    check_finite(key, scores, valid[rows], rows)
    return span_texts(bounds - bounds[0], valid, starts, ends, scores, decimals)


def _check_complete(key: str, name: str, missing: NDArray[np.bool_], rows: NDArray[np.int64]) -> None:
    if missing.any():
        row = int(rows[missing.argmax()])
        raise DataError(
            f"attribute {key!r} has a span without {name} at row {row}; all three are needed",
            key=key,
            row=row,
        )


def _integers(key: str, values: pa.Array) -> NDArray[np.int64]:
    if not pa.types.is_integer(values.type):
        raise _wrong_type(key, "spans", values.type, "int64 start and end")
    return np.asarray(_filled(values.cast(pa.int64())), np.int64)


def _bounds(lists: pa.Array) -> tuple[Counts, NDArray[np.int64]]:
    """Return where each list begins and ends in the flat values (n + 1,), and the row of each flat value."""
    bounds = np.zeros(1, np.int64)
    if len(lists):
        bounds = np.asarray(lists.offsets.to_numpy(), np.int64)
    return bounds, np.repeat(np.arange(len(lists)), np.diff(bounds))


def _wrong_type(key: str, kind: str, actual: pa.DataType, expected: str) -> SchemaError:
    return SchemaError(
        f"attribute {key!r} of kind {kind} is {actual}; expected {expected}", key=key, kind=kind
    )
