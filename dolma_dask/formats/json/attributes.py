"""Attribute rows to Arrow columns: strict, and fast where nothing is wrong.

The same kernel that reads documents walks the rows and reads the requested values on the way; what it declines goes through the
exact parser (`dolma_dask.formats.json.exact_attributes`), with the same law: the kernel accepts no row that the exact parser
refuses, and gives the same values.

Declined though valid: what is declined in documents (at every level that holds requested keys), rows of unreadable documents,
ends of spans with a fraction, an exponent or more than 18 digits, and numbers of more than 19 digits or close to the limits of a
double.

Cost: about 2.3 GB/s of JSON per core on rows of 19 spans of the whole text, whether one of them is requested or all are; 1.4 GB/s
when all are requested as span lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.block import Lines, RequestedKey, Walk, fill_strings
from dolma_dask.formats.json.exact import LineError
from dolma_dask.formats.json.exact_attributes import (
    ROW_FIELDS,
    AttributeKind,
    AttributeRow,
    Form,
    Span,
    Value,
    guess_form,
    parse_attributes,
    sample_kinds,
)
from dolma_dask.formats.json.scan import BOOLEAN, DECLINE, DOCUMENT, ENTER, NUMBER, SPANS, STRING

__all__ = [
    "AttributeBatch",
    "AttributeKind",
    "Form",
    "guess_form",
    "parse_attributes",
    "sample_kinds",
    "scan_attributes",
]

_ACTIONS = {
    "document": DOCUMENT,
    "spans": SPANS,
    "number": NUMBER,
    "bool": BOOLEAN,
    "string": STRING,
    "dict": NUMBER,
}
_ID_COLUMN, _SOURCE_COLUMN, _FIRST_STRING = 0, 1, 2


@dataclass(frozen=True)
class AttributeBatch:
    """Attributes of consecutive rows of one file."""

    # whose attributes they are; null for bad rows and for documents that could not be read, sources also where absent
    ids: pa.LargeStringArray
    sources: pa.LargeStringArray
    # a column per requested key, null where the key is absent or null: float64 for "document", "number" and "dict", bool, large_string, or
    # ``list<struct<start: int64, end: int64, score: float64>>``
    columns: dict[str, pa.Array]
    # (int, LineError) Rows that are no valid attribute rows, in order; they are null in every column
    errors: list[tuple[int, LineError]]


def scan_attributes(
    block: np.ndarray, starts: np.ndarray, keys: Mapping[str, AttributeKind], form: Form = "nested"
) -> AttributeBatch:
    """Read some attributes of all rows of a block, uint8[n], whose lines begin at `starts`; see `dolma_dask.formats.json.strings.line_starts`.

    Raises `SchemaError`: `keys` contradict each other or the form.
    """
    targets = _targets(keys)
    lines = Lines(block, starts)
    status = lines.utf8_status()
    walk = lines.walk(_requested_keys(keys, targets, form), status)
    errors: list[tuple[int, LineError]] = []
    rows: dict[int, AttributeRow] = {}
    for row in np.flatnonzero(status).tolist():
        try:
            rows[row] = parse_attributes(lines.line(row), keys, form)
        except LineError as error:
            errors.append((row, error))
    if rows:
        walk = _with_spans(walk, keys, targets, rows)
        _put_numbers(walk, keys, targets, rows)
    columns = {key: _column(walk, kind, targets[key]) for key, kind in keys.items()}
    for key, kind in keys.items():
        if kind == "string":
            columns[key] = fill_strings(
                columns[key], {row: _text(read.values[key]) for row, read in rows.items()}
            )
    ids = fill_strings(walk.strings(_ID_COLUMN, unescape=True), {row: read.id for row, read in rows.items()})
    sources = walk.strings(_SOURCE_COLUMN, unescape=True)
    return AttributeBatch(
        ids, fill_strings(sources, {row: read.source for row, read in rows.items()}), columns, errors
    )


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _targets(keys: Mapping[str, AttributeKind]) -> dict[str, int]:
    """Number the output columns: strings, span lists and numbers (with booleans) each on their own."""
    counts = {"strings": _FIRST_STRING, "spans": 0, "numbers": 0}
    targets = {}
    for key, kind in keys.items():
        group = {"string": "strings", "spans": "spans"}.get(kind, "numbers")
        targets[key] = counts[group]
        counts[group] += 1
    return targets


def _requested_keys(
    keys: Mapping[str, AttributeKind], targets: Mapping[str, int], form: Form
) -> list[RequestedKey]:
    """Return the table of keys for the kernel: the row's own, the attributes, and keys inside of objects."""
    scope = 1 if form == "nested" else 0
    _check_keys(keys, form)
    requested = [
        RequestedKey("id", 0, STRING, _ID_COLUMN, required=True),
        RequestedKey("source", 0, STRING, _SOURCE_COLUMN),
        RequestedKey("attributes", 0, ENTER, scope, required=True)
        if form == "nested"
        else RequestedKey("attributes", 0, DECLINE, 0),
    ]
    outers: dict[str, int] = {}
    for key, kind in keys.items():
        outer, _, inner = key.partition(".")
        if kind != "dict":
            requested.append(RequestedKey(key, scope, _ACTIONS[kind], targets[key]))
            continue
        if outer not in outers:
            outers[outer] = scope + 1 + len(outers)
            requested.append(RequestedKey(outer, scope, ENTER, outers[outer]))
        requested.append(RequestedKey(inner, outers[outer], NUMBER, targets[key]))
    return requested


def _check_keys(keys: Mapping[str, AttributeKind], form: Form) -> None:
    """Refuse keys that cannot all be read."""
    outers = {key.partition(".")[0] for key, kind in keys.items() if kind == "dict"}
    for key, kind in keys.items():
        if kind == "dict" and "." not in key:
            raise SchemaError(f"attribute '{key}' is to be one number of an object: write it as object.name")
        if kind != "dict" and key in outers:
            raise SchemaError(f"attribute '{key}' cannot be read both as an object and as {kind}")
        name = key.partition(".")[0] if kind == "dict" else key
        if form == "flat" and name in (*ROW_FIELDS, "attributes"):
            raise SchemaError(f"'{key}' is a field of the row in the flat form, no attribute")


def _put_numbers(
    walk: Walk,
    keys: Mapping[str, AttributeKind],
    targets: Mapping[str, int],
    rows: Mapping[int, AttributeRow],
) -> None:
    """Write the numbers and booleans of rows that the exact parser read into the arrays of the kernel."""
    for key, kind in keys.items():
        if kind in ("string", "spans"):
            continue
        for row, read in rows.items():
            value = read.values[key]
            if isinstance(value, float | bool):
                walk.numbers[targets[key], row] = value
                walk.present[targets[key], row] = 1


def _with_spans(
    walk: Walk,
    keys: Mapping[str, AttributeKind],
    targets: Mapping[str, int],
    rows: Mapping[int, AttributeRow],
) -> Walk:
    """Return `walk` with the spans of rows that the exact parser read."""
    spans: list[Span] = []
    for key in (key for key, kind in keys.items() if kind == "spans"):
        for row, read in rows.items():
            value = read.values[key]
            if isinstance(value, list):
                walk.lists[targets[key], :, row] = len(walk.scores) + len(spans), len(value)
                spans.extend(value)
    bounds = np.array([span[:2] for span in spans], np.int64).reshape(-1, 2)
    scores = np.array([span[2] for span in spans], np.float64)
    return replace(
        walk, bounds=np.concatenate([walk.bounds, bounds]), scores=np.concatenate([walk.scores, scores])
    )


def _column(walk: Walk, kind: AttributeKind, target: int) -> pa.Array:
    if kind == "string":
        return walk.strings(target, unescape=True)
    if kind == "spans":
        return walk.spans(target)
    return walk.booleans(target) if kind == "bool" else walk.doubles(target)
