"""Attribute rows to Arrow columns: strict, and fast where nothing is wrong.

Rows come in two forms: nested, ``{"id", "source", "attributes": {key: value}}``, and flat, ``{"source", "id", key: value}``. A
value is a list of spans ``[[start, end, score], ...]``, a number, a boolean, a string, null, or an object of numbers. Rows of
documents that could not be read are ``{"id": null, "attributes": {}, "error": "..."}``; they keep the row and hold no value.

The same kernel that reads documents walks the rows and reads the requested values on the way; what it declines goes through the
exact parser, with the same law: the kernel accepts no row that the exact parser refuses, and gives the same values.

Declined though valid: what is declined in documents (at every level that holds requested keys), rows of unreadable documents,
ends of spans with a fraction, an exponent or more than 18 digits, numbers of more than 19 digits or close to the limits of a
double, and where all digits are kept (`exact`) numbers from 2**53 on, at 5 us per row.

Cost: about 2.3 GB/s of JSON per core on rows of 19 spans of the whole text, whether one of them is requested or all are; 1.4 GB/s
when all are requested as span lists.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.exact import (
    Field,
    FieldKind,
    LineError,
    Value,
    id_kind,
    kind_of,
    parse_object,
    read_spans,
    read_values,
)
from dolma_dask.formats.json.lines import Lines, scan
from dolma_dask.text.columns import join_texts

AttributeKind = Literal[
    "document",
    "spans",
    "number",
    "bool",
    "string",
    "dict",
    "path_number",
    "path_bool",
    "path_string",
    "level",
    "any",
]
"""Kind of the values of a key, as in `dolma_dask.formats.json.exact.FieldKind`; ``dict``: one number of an object, the key being
``outer.inner``, split at the first dot; ``path_...``: one value of objects in objects, the key being the names on the way to it, with dots between; ``level``: some bits of a number, see `dolma_dask.formats.levels`; ``any``: the JSON text of a
value of any type, at any depth, as a string."""

ValueKind = Literal["document", "spans", "number", "bool", "string"]
"""Kind of the values themselves."""

_INSIDE: Mapping[AttributeKind, ValueKind] = {
    "dict": "number",
    "path_number": "number",
    "path_bool": "bool",
    "path_string": "string",
    "level": "number",
    "any": "string",
}
_SCALARS: Mapping[str, ValueKind] = {"a string": "string", "a boolean": "bool", "a number": "number"}

_SINGLE: Sequence[AttributeKind] = (*_SCALARS.values(), *_INSIDE)
"""Kinds of keys that have it in all rows."""

MAX_DEPTH = 32
"""Objects in objects that are looked into for scalars."""


def value_kind(kind: AttributeKind) -> ValueKind:
    """Return the kind of the values themselves, whether or not they stand in objects."""
    return _INSIDE.get(kind) or cast(ValueKind, kind)


def path_of(key: str, kind: AttributeKind) -> list[str]:
    """Return the names of the objects that a value stands in, and its own."""
    return key.split(".", 1 if kind == "dict" else -1) if kind in _INSIDE else [key]


Form = Literal["nested", "flat"]
"""Attributes stand in an object of their own ("nested"), or among the row's other keys."""

_ROW_FIELDS = ("id", "source", "attributes")
"""Keys of a flat row that are no attributes."""


class AttributeBatch(Struct, frozen=True):
    """Attributes of consecutive rows of one file."""

    # whose attributes they are; null for bad rows and for documents that could not be read, sources also where absent
    ids: pa.LargeStringArray
    sources: pa.LargeStringArray
    # a column per requested key, null where the key is absent or null: float64 (or `EXACT`) for "document", "number" and "dict", bool, large_string, or
    # ``list<struct<start: int64, end: int64, score: float64>>``
    columns: dict[str, pa.Array]
    # (int, LineError) Rows that are no valid attribute rows, in order; they are null in every column
    errors: list[tuple[int, LineError]]


def scan_attributes(
    block: np.ndarray,
    starts: np.ndarray,
    keys: Mapping[str, AttributeKind],
    form: Form = "nested",
    *,
    exact: bool = False,
    ids_as_text: bool = False,
) -> AttributeBatch:
    """Read some attributes of all rows of a block, uint8[n], whose lines begin at `starts`; see `dolma_dask.formats.json.strings.line_starts`.

    With `exact`, numbers are `dolma_dask.formats.exact_numbers.EXACT`; with `ids_as_text`, whole numbers are ids too.
    Raises `SchemaError`: `keys` contradict each other or the form.
    """
    (ids, sources, *columns), errors = scan(
        Lines(block, starts), row_fields(keys, form, exact=exact, ids_as_text=ids_as_text), parse_row
    )
    return AttributeBatch(ids, sources, dict(zip(keys, columns, strict=True)), errors)


def scan_objects(
    objects: pa.LargeStringArray, keys: Mapping[str, AttributeKind], *, exact: bool = False
) -> tuple[dict[str, pa.Array], list[tuple[int, LineError]]]:
    """Read some members of JSON objects (n,) without nulls as if they were the attributes of rows; errors as in `AttributeBatch`."""
    _check_keys(keys, "nested")
    columns, errors = scan(Lines.of(join_texts(objects, "\n")), _key_fields(keys, 0, exact))
    return dict(zip(keys, columns, strict=True)), errors


def row_fields(
    keys: Mapping[str, AttributeKind], form: Form, *, exact: bool = False, ids_as_text: bool = False
) -> list[Field]:
    """Return the fields of a row: id and source, then a column for each of `keys`.

    Raises `SchemaError`: `keys` contradict each other or the form.
    """
    _check_keys(keys, form)
    scope = 1 if form == "nested" else 0
    holder = Field("attributes", "object", required=True, inside=scope)
    identity = Field("id", id_kind(ids_as_text), required=True), Field("source")
    return [*identity, holder if scope else Field("attributes", "none"), *_key_fields(keys, scope, exact)]


_EXACT: Mapping[str, FieldKind] = {"number": "exact", "document": "exact_document"}


def _key_fields(keys: Mapping[str, AttributeKind], scope: int, exact: bool) -> list[Field]:
    """Return the fields of the object with number `scope`."""
    fields: list[Field] = []
    exactly = _EXACT if exact else {}
    scopes: dict[tuple[str, ...], int] = {(): scope}
    for key, kind in keys.items():
        *outer, name = path_of(key, kind)
        for depth in range(1, len(outer) + 1):
            around, path = tuple(outer[: depth - 1]), tuple(outer[:depth])
            if path not in scopes:
                scopes[path] = scope + len(scopes)
                fields.append(Field(path[-1], "object", scope=scopes[around], inside=scopes[path]))
        of_value: FieldKind = "raw" if kind == "any" else value_kind(kind)
        fields.append(Field(name, exactly.get(of_value, of_value), scope=scopes[tuple(outer)]))
    return fields


def _check_keys(keys: Mapping[str, AttributeKind], form: Form) -> None:
    """Refuse keys that cannot all be read."""
    paths = {key: path_of(key, kind) for key, kind in keys.items()}
    objects = {tuple(path[:depth]) for path in paths.values() for depth in range(1, len(path))}
    for key, kind in keys.items():
        if kind in _INSIDE and kind != "any" and "." not in key:
            raise SchemaError(f"attribute '{key}' is to be one value of an object: write it as object.name")
        if tuple(paths[key]) in objects:
            raise SchemaError(f"attribute '{key}' cannot be read both as an object and as {value_kind(kind)}")
        if form == "flat" and paths[key][0] in _ROW_FIELDS:
            raise SchemaError(f"'{key}' is a field of the row in the flat form, no attribute")


def parse_row(line: bytes, fields: Sequence[Field]) -> list[Value]:
    """Read one row by the exact parser; that of a document which could not be read has no id.

    Raises `LineError`: the line is no JSON object, has no id, or a value is not of its kind.
    """
    row = parse_object(line)
    if _is_error_row(row):
        identity, *others = fields
        fields = [replace(identity, required=False), *(field for field in others if field.kind != "none")]
    return read_values(row, fields)


def _is_error_row(row: Mapping[str, bytes]) -> bool:
    return row.get("id") == b"null" and row.get("error", b"").startswith(b'"')


def guess_form(lines: Iterable[bytes]) -> Form:
    """Return the form of the first row that can be read and says more than its id and source: nested if it has an object ``attributes``."""
    form: Form = "nested"
    for line in lines:
        with suppress(LineError):
            row = parse_object(line)
            if row.get("attributes", b"").startswith(b"{"):
                return "nested"
            form = "flat"
            if row.keys() - _ROW_FIELDS:
                break
    return form


def sample_kinds(lines: Sequence[bytes], form: Form, *, deep: bool = False) -> dict[str, AttributeKind]:
    """Find the attribute keys of a file, in the order of first appearance, and their kinds from example rows; unreadable ones are passed over.

    A list of spans is a "document" value if in all rows it is empty or one span from 0 to the largest end of any span of that row, and not empty
    in all of them; else it is "spans", which reads every list of spans. Left out are keys that no kind fits: null in all rows, of several types,
    other lists, objects of something else than numbers (with `deep` scalars in any objects are found), objects under a key with a dot.
    """
    return kinds_of_shapes(sample_shapes(lines, form, deep=deep))


def kinds_of_shapes(shapes: Mapping[str, Mapping[str, int]]) -> dict[str, AttributeKind]:
    """Return the kinds of the keys in what `sample_shapes` found, see `sample_kinds`."""
    kinds = {key: kind_of_shapes(found.keys()) for key, found in shapes.items()}
    return {key: kind for key, kind in kinds.items() if kind is not None}


def sample_shapes(lines: Sequence[bytes], form: Form, *, deep: bool = False) -> dict[str, dict[str, int]]:
    """Return the shapes of the values of each key in example rows, kinds, "empty" or "other", each with the first row that has it."""
    shapes: dict[str, dict[str, int]] = {}
    for number, line in enumerate(lines):
        try:
            row = parse_object(line)
            values = {key: value for key, value in row.items() if key not in _ROW_FIELDS}
            values = values if form == "flat" else parse_object(row.get("attributes", b""))
        except LineError:
            continue
        for key, shape in () if _is_error_row(row) else _row_shapes(values, deep):
            shapes.setdefault(key, {}).setdefault(shape, number)
    return shapes


def mixed_values(shapes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Describe the values of keys that are of several kinds, so that no column can hold them, with the first row of each."""
    return {
        key: " and ".join(f"{called(shape)} in row {row:,}" for shape, row in found.items())
        for key, found in shapes.items()
        if len(found) > 1 and kind_of_shapes(found.keys()) is None
    }


def called(shape: str) -> str:
    """Return what people call values of a shape."""
    return _CALLED.get(shape) or f"a {shape.replace('path_', 'nested ').replace('dict', 'nested number')}"


_CALLED = dict.fromkeys(("document", "spans", "empty", "other"), "a list or an object")


def _row_shapes(raws: Mapping[str, bytes], deep: bool) -> Iterable[tuple[str, str]]:
    """Yield the keys of one row with the shape of their value; a kind, or "empty", or "other"."""
    spans = {key: _spans_or_none(raw) for key, raw in raws.items() if raw.startswith(b"[")}
    length = max((span["end"] for found in spans.values() for span in found or ()), default=0)
    for key, raw in raws.items():
        if raw.startswith(b"["):
            yield key, _list_shape(spans[key], length)
        elif raw.startswith(b"{"):
            yield from _object_shapes((key,), raw, deep)
        elif raw != b"null":
            yield key, _SCALARS[kind_of(raw)]


def _spans_or_none(raw: bytes) -> list[dict[str, float]] | None:
    try:
        return read_spans(raw, "an example")
    except LineError:
        return None


def _list_shape(spans: list[dict[str, float]] | None, length: float) -> str:
    if spans is None:
        return "other"
    if not spans:
        return "empty"
    is_whole_text = len(spans) == 1 and (spans[0]["start"], spans[0]["end"]) == (0, length)
    return "document" if is_whole_text else "spans"


def _object_shapes(outer: tuple[str, ...], raw: bytes, deep: bool) -> Iterable[tuple[str, str]]:
    for inner, value in parse_object(raw).items():
        path, kind = (*outer, inner), kind_of(value)
        if kind == "null":
            continue
        yield ".".join(path), _inner_shape(path, kind, deep)
        if deep and kind == "an object" and len(path) < MAX_DEPTH:
            yield from _object_shapes(path, value, deep)


def _inner_shape(path: tuple[str, ...], kind: str, deep: bool) -> str:
    if len(path) == 2 and kind == "a number" and "." not in path[0]:
        return "dict"
    is_named = deep and kind in _SCALARS and not any("." in name for name in path)
    return f"path_{_SCALARS[kind]}" if is_named else "other"


def kind_of_shapes(shapes: Set[str]) -> AttributeKind | None:
    """Return the kind that fits values of all of these shapes, see `sample_kinds`; None if there is none."""
    if shapes <= {"document", "empty"} and "document" in shapes:
        return "document"
    if shapes <= {"document", "empty", "spans"}:
        return "spans"
    return next((kind for kind in _SINGLE if shapes == {kind}), None)
