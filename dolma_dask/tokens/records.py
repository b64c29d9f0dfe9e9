"""Texts in the fields of JSON records, for modes whose documents are more than one text: pairs, dialogues, preferences.

Each record is read by itself, so that no text ever meets one of a neighbour. A record that cannot be used is a finding with its reason and
gives no tokens. Cost: a Python call per record (some 10 us), beside 300 us for the tokens of 1 KB of text.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from dolma_dask.errors import DataError, EngineDiffersError
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.findings import LOST, SPELLED, UNUSABLE
from dolma_dask.formats.hdf5 import TextCounts
from dolma_dask.formats.json.exact import LineError, fields_in, kind_of, parse_object
from dolma_dask.text import compute as pc
from dolma_dask.tokens.encoding import Finding, Tokens

BLANK_LINE = "\n\n"
"""Joint of the texts of a list."""

Given = TypeVar("Given")
Made = TypeVar("Made")

_read_string = msgspec.json.Decoder(str).decode
_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Unusable(Exception):  # noqa: N818  a finding, no error
    """No tokens can be made of a record; the message says what was found instead, in words that fit behind "found"."""


class Readings(Struct, Generic[Made], frozen=True):
    """What was read of the usable records of a batch."""

    made: list[Made]  # one per usable record
    rows: list[int]  # their numbers in the batch
    findings: list[Finding]  # the other records


def read_each(given: Iterable[tuple[int, Given]], read: Callable[[Given], Made]) -> Readings[Made]:
    """Make something of each record or what was made of it, which is given with the record's number; `read` may raise `Unusable`."""
    readings: Readings[Made] = Readings([], [], [])
    for row, one in given:
        try:
            readings.made.append(read(one))
        except Unusable as error:
            readings.findings.append(Finding(row, UNUSABLE, str(error)))
        else:
            readings.rows.append(row)
    return readings


def read_records(records: pa.Array, read: Callable[[dict[str, bytes]], Made]) -> Readings[Made]:
    """Read JSON records (n_records,), strings or bytes, one by one; `read` gets the JSON text of each field."""
    lines = records.cast(pa.large_binary()).to_pylist()
    return read_each(enumerate(lines), lambda line: read(_fields(line)))


def _fields(record: bytes | None) -> dict[str, bytes]:
    try:
        return parse_object(record or b"null")
    except LineError as error:
        raise Unusable(f"no record ({error})") from None


def find_value(record: dict[str, bytes], path: str, inside: str = "") -> bytes:
    """Return the JSON text of a field: the key of this very name, else the value at a dotted path; `inside` is where the record is, for messages.

    Raises `Unusable`: there is none, or it is null.
    """
    value = record.get(path)
    value = _follow(record, path, inside) if value is None else value
    if value == b"null":
        raise Unusable(f"null in {_joined(inside, path)!r}")
    return value


def _follow(record: dict[str, bytes], path: str, inside: str) -> bytes:
    """Return the value at a dotted path; raises `Unusable` with the fields of the innermost object on the way."""
    *outer, last = path.split(".")
    fields, place = record, inside
    for key in outer:
        inner = fields.get(key)
        if inner is None or kind_of(inner) != "an object":
            break
        fields, place = _members(inner), _joined(place, key)
    else:
        if (value := fields.get(last)) is not None:
            return value
    known = fields_in(fields, repr(place) if place else "the record")
    raise Unusable(f"no field {_joined(inside, path)!r}; {known}")


@lru_cache(maxsize=2)
def _members(inner: bytes) -> dict[str, bytes]:
    """Return the fields of an object within a record: often several texts stand in one."""
    return parse_object(inner)


def _joined(place: str, path: str) -> str:
    return f"{place}.{path}" if place else path


def text_of(value: bytes, where: str) -> str:
    """Return a value as text: a string, strings joined by blank lines, or a number as it is written.

    Raises `Unusable`: it is of another type, or without text.
    """
    kind = kind_of(value)
    if kind == "a string":
        text = _read_string(value)
    elif kind == "an array":
        text = BLANK_LINE.join(_strings(value, where))
    elif kind == "a number":
        text = value.decode()
    else:
        raise Unusable(f"{kind} in {where!r}")
    if not text:
        raise Unusable(f"no text in {where!r}")
    return text


def _strings(value: bytes, where: str) -> Iterable[str]:
    for item in list_of(value, where):
        if kind_of(item) != "a string":
            raise Unusable(f"an array in {where!r} with {kind_of(item)} among its texts")
        yield _read_string(item)


def list_of(value: bytes, where: str) -> list[bytes]:
    """Return the JSON texts of the items of a list; raises `Unusable` for another type."""
    if kind_of(value) != "an array":
        raise Unusable(f"{kind_of(value)} in {where!r}")
    return [bytes(item) for item in _read_list(value)]


def find_text(record: dict[str, bytes], path: str, inside: str = "") -> str:
    """Return the text of a field; raises `Unusable`."""
    return text_of(find_value(record, path, inside), _joined(inside, path))


def column(texts: Sequence[str]) -> pa.LargeStringArray:
    """Return texts as an array."""
    return pa.array(texts, pa.large_string())


def count_texts(raw: Iterable[pa.LargeStringArray], clean: Iterable[pa.LargeStringArray]) -> TextCounts:
    """Count the code points and bytes of texts, before and after cleaning."""
    parts = []
    for before, after in zip(raw, clean, strict=True):
        chars = _chars(before)
        parts.append(
            TextCounts(
                raw_chars=chars,
                raw_bytes=text_bytes(before),
                normalized_chars=chars if after is before else _chars(after),
                normalized_bytes=text_bytes(after),
            )
        )
    return sum(parts, TextCounts())


def _chars(texts: pa.LargeStringArray) -> int:
    return pc.sum(pc.utf8_length(texts)).as_py() or 0


def encode_texts(encode: Callable[[pa.LargeStringArray], Tokens], texts: pa.LargeStringArray) -> Tokens:
    """Encode the texts of records; one that the tokenizer cannot encode has no tokens, so that its record alone is unusable."""
    try:
        return encode(texts)
    except DataError as error:
        if isinstance(error, EngineDiffersError) or "row" not in error.details:
            raise
    each = [_encode_alone(encode, texts.slice(row, 1)) for row in range(len(texts))]
    return Tokens(
        np.concatenate([one.ids for one in each]),
        np.concatenate([one.lengths for one in each]),
        tuple(replace(finding, row=row) for row, one in enumerate(each) for finding in one.findings),
    )


def _encode_alone(encode: Callable[[pa.LargeStringArray], Tokens], text: pa.LargeStringArray) -> Tokens:
    try:
        return encode(text)
    except EngineDiffersError:
        raise
    except DataError:
        return encode(column([""]))


def findings_of(parts: Iterable[Tokens], rows: Sequence[int]) -> list[Finding]:
    """Return what was found in several texts of each record, which are row by row in each part; `rows` are the records' numbers."""
    found = chain.from_iterable(part.findings for part in parts)
    return [replace(one, row=rows[one.row]) for one in found]


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the first finding of each kind of a record, sorted by record; of one that cannot be used, that alone."""
    first: dict[tuple[int, str], Finding] = {}
    for one in findings:
        first.setdefault((one.row, one.kind), one)
    unusable = {row for row, kind in first if kind == UNUSABLE}
    return tuple(first[row, kind] for row, kind in sorted(first) if kind == UNUSABLE or row not in unusable)


def with_findings(counts: TextCounts, findings: Iterable[Finding]) -> TextCounts:
    """Return the counts with those of what encoding found in texts."""
    kinds = [one.kind for one in findings]
    return replace(counts, spelled=kinds.count(SPELLED), lossy=kinds.count(LOST))


def pieces(tokens: Tokens) -> list[NDArray[np.int32]]:
    """Return the ids of each text as int32."""
    ends = np.cumsum(tokens.lengths, dtype=np.int64)[:-1]
    return np.split(tokens.ids.astype(np.int32), ends) if tokens.lengths.size else []


def joined(sequences: Sequence[Sequence[NDArray[np.int32]]], findings: Iterable[Finding]) -> Tokens:
    """Return sequences, each made of several pieces, as staged words."""
    parts = list(chain.from_iterable(sequences))
    lengths = [sum(part.size for part in sequence) for sequence in sequences]
    ids = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return Tokens(ids, np.array(lengths, np.int32), _unique(findings))
