"""The exact parser of one JSON line: lines that the kernels decline end here, and every error message begins here.

A valid record is one JSON object (RFC 8259) in UTF-8 on a line of its own. msgspec reads it: no NaN, no infinity, no control
characters in strings, surrogates only in pairs, nothing behind the object but white space. Values stay raw until somebody
asks, so a number that fits no double is no error in a field nobody reads. Of a key that is written twice the last one counts.

Cost: about 300 MB/s and one Python call per line; the kernels call it for less than one line in a thousand of normal data.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dolma_dask.formats.exact_numbers import LIMIT, split

Reason = Literal[
    "blank_line", "invalid_utf8", "nul_byte", "invalid_json", "not_an_object", "missing_field", "wrong_type",
    "wrong_encoding", "damaged_record", "function_failed", "wrong_document",
]  # fmt: skip
"""Why a line is no valid record, or why a function of the user makes no document of it."""


class LineError(Exception):
    """One line is not a valid record: a short name of the kind of error, what was expected and what was there, and the byte in the line (0
    if not known).

    Readers turn it into a `dolma_dask.errors.BadRecordError` that also names the file and the row, or into a quarantined row.
    """

    def __init__(self, reason: Reason, expected: str, offset: int = 0) -> None:
        super().__init__(reason, expected, offset)
        self.reason = reason
        self.expected = expected
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.reason.replace('_', ' ')} at byte {self.offset}; expected {self.expected}"


FieldKind = Literal[
    "string",
    "identity",
    "raw",
    "number",
    "exact",
    "bool",
    "document",
    "exact_document",
    "spans",
    "object",
    "none",
]
"""Kind of the values of a field. ``string``: decoded; ``identity``: the same, and whole numbers as their decimal text; ``raw``: the JSON text as it stands in the line, of any type; ``number``: float64; ``bool``;
``spans``: a list ``[[start, end, score], ...]``; ``document``: the score of its one span ``[[0, n, x]]``, as float64; ``exact`` and ``exact_document``: the same numbers as
`dolma_dask.formats.exact_numbers.EXACT`; ``object``: gives no
column, other fields stand in it; ``none``: gives no column and may not be there."""


NUMBERS_AS_IDS = "`--ids-as-text` reads whole numbers as text, `dolma-dask convert` makes a dataset with the numbers as text"
"""What to do about ids that are numbers, for messages."""


def id_kind(ids_as_text: bool) -> FieldKind:
    """Return the kind of the field ``id``: whether whole numbers are ids, as their decimal text."""
    return "identity" if ids_as_text else "string"


class Field(Struct, frozen=True):
    """Key of every line whose values are requested."""

    name: str  # as it reads after decoding
    kind: FieldKind = "string"  # other types are errors, but null
    required: bool = False  # whether a line without a value for it is bad
    scope: int = 0  # number of the object it stands in; 0 is the line itself
    inside: int = 0  # of an object: its number


Exact = dict[str, float]
"""One value of `dolma_dask.formats.exact_numbers.EXACT`."""

Value = str | float | bool | Exact | list[dict[str, float]] | None

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_string = msgspec.json.Decoder(str).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BYTE_OF_MESSAGE = re.compile(r"\s*\(byte (\d+)\)$")
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)")
"""Escapes in JSON, a surrogate pair as one; a group for half of one."""

INTEGER = re.compile(rb"-?[0-9]+")
"""JSON text of a whole number, as ids of some datasets are; -0 is 0."""

_NO_NUMBER = re.compile(rb"NaN|-?Infinity")
_SPACE = b" \t\r\n"
_INT64 = range(-(2**63), 2**63)
_LONGEST_INTEGER = 20
_FIELDS_NAMED = 8
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KINDS = {ord("{"): "an object", ord("["): "an array", ord('"'): "a string", ord("n"): "null"} | {
    ord("t"): "a boolean",
    ord("f"): "a boolean",
}


def parse_object(line: bytes) -> dict[str, bytes]:
    """Read one line into its top-level keys, in its order, and the JSON text of their values without surrounding white space.

    Raises `LineError`: the line is not one JSON object in UTF-8.
    """
    _check_bytes(line)
    try:
        return {key: bytes(raw) for key, raw in _decode_object(line).items()}
    except msgspec.ValidationError:
        raise _not_an_object(line) from None
    except msgspec.DecodeError as error:
        raise _invalid_json(line, str(error)) from None
    except RecursionError:
        raise LineError("invalid_json", "arrays and objects that are nested less deeply") from None


def fields_in(record: Iterable[str], place: str = "the record") -> str:
    """Say which fields a record has, cut to what a line can hold."""
    names = [repr(name if len(name) <= 40 else f"{name[:40]} ...") for name in record]
    more = f" and {len(names) - _FIELDS_NAMED} more" if len(names) > _FIELDS_NAMED else ""
    return f"{place} has {', '.join(names[:_FIELDS_NAMED])}{more}" if names else f"{place} has no fields"


def _check_bytes(line: bytes) -> None:
    if not line.strip(_SPACE):
        raise LineError("blank_line", "one JSON object per line")
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"0x{line[error.start]:02X} at byte {error.start}"
        raise LineError("invalid_utf8", f"UTF-8; {found} is no part of it", error.start) from None
    nul = line.find(b"\0")
    if nul >= 0:
        raise LineError("nul_byte", f"no NUL byte, found one at byte {nul}; JSON writes it as \\u0000", nul)


def _not_an_object(line: bytes) -> LineError:
    """Return why msgspec could read this line, at least its head, but not as an object."""
    try:
        _decode_any(line)
    except msgspec.DecodeError as error:
        return _invalid_json(line, str(error))
    except RecursionError:
        return LineError("invalid_json", "arrays and objects that are nested less deeply")
    value = line.lstrip(_SPACE)
    return LineError("not_an_object", f"a JSON object, found {kind_of(value)}", len(line) - len(value))


def _invalid_json(line: bytes, message: str) -> LineError:
    if line.startswith(_BYTE_ORDER_MARK):
        return LineError("invalid_json", "one JSON object per line; no byte order mark before it")
    match = _BYTE_OF_MESSAGE.search(message)
    offset = min(int(match[1]), len(line)) if match else len(line)
    offset -= "trailing characters" in message  # msgspec counts the first of them in
    offset -= line[offset - 1 : offset + 1] == b"-I"
    if no_number := _NO_NUMBER.match(line, offset):
        name = no_number[0].decode()
        return LineError(
            "invalid_json",
            f"one JSON object per line; {name}, which JSON has not, at byte {offset} (null stands for it)",
            offset,
        )
    lone = next((one for one in _ESCAPE.finditer(line) if one[1] and one.end() < len(line)), None)
    if lone and lone.start() < offset:  # nothing is read behind it
        found = f"{lone[0].decode()}, one half of a surrogate pair without the other, at byte {lone.start()}"
        return LineError(
            "invalid_json", f"one JSON object per line; {found} (\\ufffd stands for it)", lone.start()
        )
    what = _BYTE_OF_MESSAGE.sub("", message).removeprefix("JSON is malformed: ")
    what = "the line ends too early" if what == "Input data was truncated" else what
    return LineError("invalid_json", f"one JSON object per line; {what} at byte {offset}", offset)


def kind_of(raw: bytes) -> str:
    """Return what a JSON value is, for error messages: "a string", "an array", "null"..."""
    return _KINDS.get(raw[0], "a number")


def parse_line(line: bytes, fields: Sequence[Field]) -> list[Value]:
    """Read one line: a value for each field that gives a column, None where it is absent or null.

    Raises `LineError`: the line is no valid record.
    """
    return read_values(parse_object(line), fields)


_FIELDS = ("id", "text", "source", "added", "created", "metadata", "attributes")
"""Fields of documents and attribute rows."""


def read_values(members: dict[str, bytes], fields: Sequence[Field]) -> list[Value]:
    """Read the fields of an object; see `parse_line`."""
    objects = {0: members}
    values: list[Value] = []
    for field in fields:
        raw = objects[field.scope].get(field.name)
        is_attribute = (
            field.scope or field.name not in _FIELDS
        )  # flat rows hold attributes beside their own fields
        where = f"{'attribute' if is_attribute else 'field'} '{field.name}'"
        if raw is None or raw == b"null":
            if field.required and raw:
                raise _wrong(_expected(field.kind), where, raw)
            if field.required:
                raise LineError("missing_field", f"{_expected(field.kind)} in {where}, which is missing")
            raw = None
        elif field.kind == "none":
            raise LineError("wrong_type", f"attributes among the row's own keys, found a {where}")
        elif field.kind != "raw" and kind_of(raw) != _TYPES[field.kind] and not _is_number_as_id(field, raw):
            raise _wrong(_expected(field.kind), where, raw)
        if field.kind == "object":
            objects[field.inside] = parse_object(raw) if raw else {}
        elif field.kind != "none":
            values.append(None if raw is None else _READERS[field.kind](raw, where))
    return values


def _is_number_as_id(field: Field, raw: bytes) -> bool:
    return field.kind == "identity" and INTEGER.fullmatch(raw) is not None


_TYPES = {
    "string": "a string",
    "identity": "a string",
    "number": "a number",
    "exact": "a number",
    "bool": "a boolean",
    "document": "an array",
    "exact_document": "an array",
    "spans": "an array",
    "object": "an object",
}


def _expected(kind: FieldKind) -> str:
    found = "a string or a whole number" if kind == "identity" else _TYPES.get(kind, "a value")
    return "a list of spans" if found == "an array" else found


def _wrong(expected: str, where: str, raw: bytes) -> LineError:
    found = kind_of(raw)
    if expected == _expected("identity") and found == "a number":
        found = "a number that is not whole"
    return LineError("wrong_type", f"{expected} in {where}, found {found}")


def quoted_id(raw: bytes) -> bytes:
    """Return the JSON text of an id as a string, if it is a whole number; else as it is."""
    if INTEGER.fullmatch(raw):
        return b'"0"' if raw == b"-0" else b'"%b"' % raw
    return raw


def _number(raw: bytes, where: str) -> float:
    if kind_of(raw) != "a number":
        raise _wrong("a number", where, raw)
    value = float(raw)
    if math.isinf(value):
        found = raw[:40].decode("ascii")
        raise LineError("wrong_type", f"a number that fits a double in {where}, found {found}")
    return value


def _exact(raw: bytes, where: str) -> Exact:
    value, rest = _number(raw, where), 0
    if abs(value) >= LIMIT and raw.lstrip(b"-").isdigit():
        value, rest = split(int(raw))
    return {"value": value, "rest": rest}


def _integer(raw: bytes, where: str) -> int:
    value = _number(raw, where)
    if value.is_integer() and abs(value) <= 2.0**63:
        exact = int(raw) if raw.lstrip(b"-").isdigit() and len(raw) <= _LONGEST_INTEGER else int(value)
        if exact in _INT64:
            return exact
    found = raw[:40].decode("ascii")
    raise LineError("wrong_type", f"a whole number as end of a span in {where}, found {found}")


def read_spans(raw: bytes, where: str) -> list[dict[str, float]]:
    """Read a list of spans."""
    return [_span(bytes(item), where, _number) for item in _decode_list(raw)]


def _span(raw: bytes, where: str, read: Callable[[bytes, str], Any]) -> dict[str, Any]:
    parts = [bytes(part) for part in _decode_list(raw)] if raw.startswith(b"[") else []
    if len(parts) != 3:
        found = f"{len(parts)} elements" if raw.startswith(b"[") else kind_of(raw)
        raise LineError("wrong_type", f"spans [start, end, score] in {where}, found {found}")
    start, end, score = parts
    return {"start": _integer(start, where), "end": _integer(end, where), "score": read(score, where)}


def _document(raw: bytes, where: str, read: Callable[[bytes, str], Any] = _number) -> Any:
    spans = [_span(bytes(item), where, read) for item in _decode_list(raw)]
    if not spans:
        return None
    if len(spans) > 1 or spans[0]["start"] != 0:
        found = f"{len(spans)} spans" if len(spans) > 1 else f"a span from {spans[0]['start']}"
        raise LineError("wrong_type", f"one span [0, n, score] in {where}, found {found}")
    return spans[0]["score"]


_READERS: dict[FieldKind, Callable[[bytes, str], Value]] = {
    "string": lambda raw, _: _decode_string(raw),
    "identity": lambda raw, _: _decode_string(quoted_id(raw)),
    "raw": lambda raw, _: raw.decode("utf-8"),
    "number": _number,
    "bool": lambda raw, _: raw == b"true",
    "document": _document,
    "exact": _exact,
    "exact_document": lambda raw, where: _document(raw, where, _exact),
    "spans": read_spans,
}
