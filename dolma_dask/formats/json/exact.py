"""The exact parser of one JSON line: lines that the kernels decline end here, and every error message begins here.

A valid record is one JSON object (RFC 8259) in UTF-8 on a line of its own. msgspec reads it: no NaN, no infinity, no control
characters in strings, surrogates only in pairs, nothing behind the object but white space. Values stay raw until somebody
asks, so a number that fits no double is no error in a field nobody reads. Of a key that is written twice the last one counts.

Cost: about 300 MB/s and one Python call per line; the kernels call it for less than one line in a thousand of normal data.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

Reason = Literal[
    "blank_line", "invalid_utf8", "nul_byte", "invalid_json", "not_an_object", "missing_field", "wrong_type"
]  # fmt: skip
"""Why a line is no valid record."""


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


@dataclass(frozen=True)
class Field:
    """A top-level key whose values are requested as a column."""

    name: str  # the key
    # ``string``: the decoded string, any other type but null is an error; ``raw``: the value's JSON text as it stands in the line, of any
    # type
    kind: Literal["string", "raw"] = "string"


_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any = msgspec.json.Decoder(msgspec.Raw).decode
_decode_string = msgspec.json.Decoder(str).decode
_BYTE_OF_MESSAGE = re.compile(r"\s*\(byte (\d+)\)$")
_SPACE = b" \t\r\n"
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
    what = _BYTE_OF_MESSAGE.sub("", message).removeprefix("JSON is malformed: ")
    what = "the line ends too early" if what == "Input data was truncated" else what
    return LineError("invalid_json", f"one JSON object per line; {what} at byte {offset}", offset)


def kind_of(raw: bytes) -> str:
    """Return what a JSON value is, for error messages: "a string", "an array", "null"..."""
    return _KINDS.get(raw[0], "a number")


def parse_fields(
    line: bytes, fields: Sequence[Field], required: Collection[str] = ()
) -> dict[str, str | None]:
    """Read some fields of one line; None where a key is absent or null, which the `required` may not be.

    Raises `LineError`: the line is no valid record.
    """
    raws = parse_object(line)
    return {field.name: field_value(field, raws.get(field.name), field.name in required) for field in fields}


def field_value(field: Field, raw: bytes | None, required: bool) -> str | None:
    """Return the value of `field` from its JSON text, None where that is None or null; see `parse_fields` for errors."""
    expected = "a string" if field.kind == "string" else "a value"
    if raw is None or raw == b"null":
        if required and raw is None:
            raise LineError("missing_field", f"{expected} in field '{field.name}', which is missing")
        if required:
            raise LineError("wrong_type", f"{expected} in field '{field.name}', found null")
        return None
    if field.kind == "raw":
        return raw.decode("utf-8")
    if not raw.startswith(b'"'):
        raise LineError("wrong_type", f"a string in field '{field.name}', found {kind_of(raw)}")
    return _decode_string(raw)
