"""The exact parser of one attribute row, and the kinds of its values.

Rows come in two forms: nested, ``{"id", "source", "attributes": {key: value}}``, and flat, ``{"source", "id", key: value}``. A
value is a list of spans ``[[start, end, score], ...]``, a number, a boolean, a string, null, or an object of numbers. Rows of
documents that could not be read are ``{"id": null, "attributes": {}, "error": "..."}``; they keep the row and hold no value.

Cost: as the exact parser of documents, about 200 MB/s; the kernel leaves it less than one row in a thousand.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from dolma_dask.formats.json.exact import Field, LineError, field_value, kind_of, parse_object

AttributeKind = Literal["document", "spans", "number", "bool", "string", "dict"]
"""Kind of the values of a key. ``document``: the score of the one span ``[[0, n, x]]``, as float64; ``spans``: all spans;
``number``: float64; ``bool``; ``string``; ``dict``: one number of an object, the key being ``outer.inner``, split at the first
dot."""

Form = Literal["nested", "flat"]
"""Attributes stand in an object of their own ("nested"), or among the row's other keys."""

Span = tuple[int, int, float]
Value = float | bool | str | list[Span] | None

ROW_FIELDS = ("id", "source")
"""Keys of a flat row that are no attributes."""

_ID, _SOURCE = Field("id"), Field("source")
_INT64 = range(-(2**63), 2**63)
_LONGEST_INTEGER = 20
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True)
class AttributeRow:
    """One row: whose attributes they are, and the values of the requested keys (None: absent or null)."""

    id: str | None
    source: str | None
    values: dict[str, Value]


def parse_attributes(line: bytes, keys: Mapping[str, AttributeKind], form: Form) -> AttributeRow:
    """Read some attributes of one row.

    Raises `LineError`: the line is no JSON object, has no id, or a value is not of its kind.
    """
    row = parse_object(line)
    raws = _attributes(row, form)
    values = {key: _value(raws, key, kind) for key, kind in keys.items()}
    identity = field_value(_ID, row.get("id"), required=not _is_error_row(row))
    return AttributeRow(identity, field_value(_SOURCE, row.get("source"), required=False), values)


def _is_error_row(row: Mapping[str, bytes]) -> bool:
    return row.get("id") == b"null" and row.get("error", b"").startswith(b'"')


def _attributes(row: dict[str, bytes], form: Form) -> dict[str, bytes]:
    """Return the attributes of a row as JSON text."""
    raw = row.get("attributes")
    if form == "flat":
        if raw not in (None, b"null") and not _is_error_row(row):
            raise LineError("wrong_type", "attributes among the row's own keys, found a field 'attributes'")
        return {key: value for key, value in row.items() if key not in (*ROW_FIELDS, "attributes")}
    if raw is None:
        raise LineError("missing_field", "an object in field 'attributes', which is missing")
    if not raw.startswith(b"{"):
        raise LineError("wrong_type", f"an object in field 'attributes', found {kind_of(raw)}")
    return parse_object(raw)


def _value(raws: Mapping[str, bytes], key: str, kind: AttributeKind) -> Value:
    if kind == "dict":
        outer, _, inner = key.partition(".")
        raw = raws.get(outer)
        if raw is None or raw == b"null":
            return None
        if not raw.startswith(b"{"):
            raise _wrong(outer, "an object", raw)
        return _value(parse_object(raw), inner, "number")
    raw = raws.get(key)
    return None if raw is None or raw == b"null" else _READERS[kind](raw, key)


def _wrong(key: str, expected: str, raw: bytes) -> LineError:
    return LineError("wrong_type", f"{expected} in attribute '{key}', found {kind_of(raw)}")


def _number(raw: bytes, key: str) -> float:
    if kind_of(raw) != "a number":
        raise _wrong(key, "a number", raw)
    value = float(raw)
    if math.isinf(value):
        found = raw[:40].decode("ascii")
        raise LineError("wrong_type", f"a number that fits a double in attribute '{key}', found {found}")
    return value


def _integer(raw: bytes, key: str) -> int:
    value = _number(raw, key)
    if value.is_integer() and abs(value) <= 2.0**63:
        exact = int(raw) if raw.lstrip(b"-").isdigit() and len(raw) <= _LONGEST_INTEGER else int(value)
        if exact in _INT64:
            return exact
    found = raw[:40].decode("ascii")
    raise LineError("wrong_type", f"a whole number as end of a span in attribute '{key}', found {found}")


def _bool(raw: bytes, key: str) -> bool:
    if raw not in (b"true", b"false"):
        raise _wrong(key, "a boolean", raw)
    return raw == b"true"


def _string(raw: bytes, key: str) -> str:
    if not raw.startswith(b'"'):
        raise _wrong(key, "a string", raw)
    return str(msgspec.json.decode(raw))


def _spans(raw: bytes, key: str) -> list[Span]:
    if not raw.startswith(b"["):
        raise _wrong(key, "a list of spans", raw)
    return [_span(bytes(item), key) for item in _decode_list(raw)]


def _span(raw: bytes, key: str) -> Span:
    parts = [bytes(part) for part in _decode_list(raw)] if raw.startswith(b"[") else []
    if len(parts) != 3:
        found = f"{len(parts)} elements" if raw.startswith(b"[") else kind_of(raw)
        raise LineError("wrong_type", f"spans [start, end, score] in attribute '{key}', found {found}")
    return _integer(parts[0], key), _integer(parts[1], key), _number(parts[2], key)


def _document(raw: bytes, key: str) -> float | None:
    spans = _spans(raw, key)
    if not spans:
        return None
    if len(spans) > 1 or spans[0][0] != 0:
        found = f"{len(spans)} spans" if len(spans) > 1 else f"a span from {spans[0][0]}"
        raise LineError("wrong_type", f"one span [0, n, score] in attribute '{key}', found {found}")
    return spans[0][2]


_READERS: dict[str, Callable[[bytes, str], Value]] = {
    "number": _number,
    "bool": _bool,
    "string": _string,
    "spans": _spans,
    "document": _document,
}


def guess_form(line: bytes) -> Form:
    """Return the form of an example row: nested if it has an object ``attributes``.

    Raises `LineError`: the line is no JSON object.
    """
    return "nested" if parse_object(line).get("attributes", b"").startswith(b"{") else "flat"


def sample_kinds(lines: Sequence[bytes], form: Form) -> dict[str, AttributeKind]:
    """Find the attribute keys of a file, in the order of first appearance, and their kinds from example rows; unreadable ones are passed over.

    A list of spans is a "document" value if in all rows it is empty or one span from 0 to the largest end of any span of that row, and not empty
    in all of them; else it is "spans", which reads every list of spans. Left out are keys that no kind fits: null in all rows, of several types,
    other lists, objects of something else than numbers, objects under a key with a dot.
    """
    shapes: dict[str, list[str]] = {}
    for line in lines:
        try:
            row = parse_object(line)
            raws = {} if _is_error_row(row) else _attributes(row, form)
        except LineError:
            continue
        for key, shape in _row_shapes(raws):
            shapes.setdefault(key, []).append(shape)
    kinds = {key: _kind_of_shapes(set(found)) for key, found in shapes.items()}
    return {key: kind for key, kind in kinds.items() if kind is not None}


def _row_shapes(raws: Mapping[str, bytes]) -> Iterable[tuple[str, str]]:
    """Yield the keys of one row with the shape of their value; a kind, or "empty", or "other"."""
    spans = {key: _spans_or_none(raw, key) for key, raw in raws.items() if raw.startswith(b"[")}
    length = max((end for found in spans.values() for _, end, _ in found or ()), default=0)
    for key, raw in raws.items():
        if raw.startswith(b"["):
            yield key, _list_shape(spans[key], length)
        elif raw.startswith(b"{"):
            yield from _object_shapes(key, raw)
        elif raw != b"null":
            yield key, {"a string": "string", "a boolean": "bool"}.get(kind_of(raw), "number")


def _spans_or_none(raw: bytes, key: str) -> list[Span] | None:
    try:
        return _spans(raw, key)
    except LineError:
        return None


def _list_shape(spans: list[Span] | None, length: int) -> str:
    if spans is None:
        return "other"
    if not spans:
        return "empty"
    return "document" if len(spans) == 1 and spans[0][:2] == (0, length) else "spans"


def _object_shapes(outer: str, raw: bytes) -> Iterable[tuple[str, str]]:
    for inner, value in parse_object(raw).items():
        if value != b"null":
            is_number = kind_of(value) == "a number" and "." not in outer
            yield f"{outer}.{inner}", "dict" if is_number else "other"


def _kind_of_shapes(shapes: set[str]) -> AttributeKind | None:
    if shapes <= {"document", "empty"} and "document" in shapes:
        return "document"
    if shapes <= {"document", "empty", "spans"}:
        return "spans"
    for kind in ("number", "bool", "string", "dict"):
        if shapes == {kind}:
            return kind
    return None
