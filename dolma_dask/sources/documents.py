"""One raw record -> one Dolma document, by splicing.

Values are not decoded and encoded again: every value of a record is a slice of the raw JSON (`msgspec.Raw`), and the document is
joined from such slices. So ``1.10``, ``1e400``, a 30-digit integer and ``"\\u00e9"`` come out as they went in; only the keys of
``metadata`` are written anew. Of a key that stands twice in an object the last one counts, as everywhere in JSON.
Cost: 190 MB of JSON per CPU-second at 3 kB a record, measured.
"""

from functools import lru_cache
from typing import NamedTuple

import msgspec
import pyarrow as pa

from dolma_dask.formats.documents import REQUIRED
from dolma_dask.formats.json.exact import (
    INTEGER,
    Field,
    LineError,
    fields_in,
    kind_of,
    parse_object,
    quoted_id,
)
from dolma_dask.formats.json.lines import scan_fields, unquoted
from dolma_dask.io.stream import LineBlock
from dolma_dask.sources.base import SCHEMA
from dolma_dask.sources.mapping import FieldMapping, place_of
from dolma_dask.sources.naming import split_suffix
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import large_bytes

LONG_TEXT = 1 << 20
"""Bytes from which on a text is no object of Python."""

Record = dict[str, bytes]
"""Field names and the raw JSON of their values, as `parse_object` returns them."""

_FIELDS = tuple(Field(name, required=True) for name in REQUIRED)
_OR_SOURCE = (
    " (or one source for all records: --source NAME; or the field that holds it: --source-field FIELD)"
)
_OR_TEXT = ' (name the one that holds the text: --text FIELD, in Python text="FIELD")'
_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class Document(NamedTuple):
    """One Dolma document: its mandatory fields, and the complete JSON line with its newline."""

    id: str
    text: str | bytes  # a long one as UTF-8
    source: str
    raw: bytes


class RecordConverter:
    """Turns the records of one raw file into documents; ids of records without one are made from `path`, relative to the raw folder."""

    schema = SCHEMA

    def __init__(self, mapping: FieldMapping, path: str, url: str = "") -> None:
        self.mapping = mapping
        self._named = {"path": path, "place": place_of(url or path), "stem": split_suffix(path).stem}
        self.keeps_documents = mapping.is_default
        self.encoding = ""  # that the next record was in; it becomes a field where it is not UTF-8
        self._source = mapping.source_field
        self._name = None if mapping.source_name is None else _encode(mapping.source_name)
        used = (mapping.id or "id", mapping.text, self._source, mapping.added, mapping.created)
        self._moved = frozenset(name for name in used if name)

    def scan(self, lines: LineBlock) -> pa.RecordBatch | None:
        """Return the documents of lines that are documents already; None if any is not, or is unusual."""
        if not self.keeps_documents:
            return None
        batch, status = scan_fields(lines.data, lines.starts, _FIELDS)
        if status.any() or pc.min(pc.binary_length(batch.column(0))).as_py() == 0:  # an empty id is none
            return None
        raw = large_bytes(lines.starts, lines.data)
        return pa.RecordBatch.from_arrays([*batch.columns, raw], schema=SCHEMA)

    def convert_line(self, line: bytes, row: int) -> Document:
        """Return the document of one line."""
        return self.convert(parse_object(line), row, line)

    def convert(self, record: Record, row: int, line: bytes | None = None) -> Document:
        """Return the document of one record, whose raw values are used up; `row` counts from 0 in the raw file, for a generated id.

        With the default mapping, a `line` that is a document already stays as it is. Raises `LineError`: a mandatory field is missing, or a mapped
        field has a wrong type.
        """
        if self.encoding:
            record["encoding"] = _encode(self.encoding)
        elif line is not None and self.keeps_documents and (same := _as_document(record, line)):
            return same
        identity = self._id(record, row)
        text = _required(record, self.mapping.text, _OR_TEXT)
        source = self._source_of(record)
        parts = [b'{"id":', identity, b',"text":', text, b',"source":', source]
        if (added := _stamp(record, self.mapping.added, "added")) is not None:
            parts += (b',"added":', added)
        if (created := _stamp(record, self.mapping.created, "created")) is not None:
            parts += (b',"created":', created)
        if (metadata := self._metadata(record)) is not None:
            parts += (b',"metadata":', metadata)
        parts.append(b"}\n")
        raw = b"".join(parts)
        return Document(_decode_string(identity), _text_of(text), _decode_string(source), raw)

    def _id(self, record: Record, row: int) -> bytes:
        if self.mapping.id is not None:
            return _required(record, self.mapping.id)
        if (identity := _value(record, "id")) not in (None, b'""'):
            return identity
        return _encode(self.generated_id(row))

    def generated_id(self, row: int) -> str:
        """Return the id of a record without one."""
        return self.mapping.generated_id.format(**self._named, row=row)

    def _source_of(self, record: Record) -> bytes:
        source = _value(record, self._source) if self._source else None
        source = source or self._name
        if source is None:
            raise _missing(record, str(self._source), _OR_SOURCE)
        return source

    def _metadata(self, record: Record) -> bytes | None:
        """Splice what is left of `record` into its ``metadata`` object."""
        if self.mapping.text not in record:
            _cut(record, self.mapping.text)
        for name in self._moved:
            record.pop(name, None)
        keep = self.mapping.metadata_fields
        if keep == ():
            return None
        existing = _existing_object(record)
        if keep is None:
            return _append(existing, record)
        members = parse_object(existing) if existing else {}
        members |= _renamed(members, record)
        return join_members({name: value for name, value in members.items() if name in keep})


def _as_document(record: Record, line: bytes) -> Document | None:
    values = [record.get(name, b"") for name in ("id", "text", "source")]
    if not all(value.startswith(b'"') for value in values):
        return None
    identity, text, source = values
    if identity == b'""':
        return None
    raw = line if line.endswith(b"\n") else line + b"\n"
    return Document(_decode_string(identity), _text_of(text), _decode_string(source), raw)


def _text_of(value: bytes) -> str | bytes:
    """Return the text of a JSON string; of a long one its UTF-8, as Python may hold four bytes for each character."""
    if len(value) < LONG_TEXT:
        return _decode_string(value)
    utf8: bytes = unquoted([value]).view(pa.large_binary())[0].as_py()
    return utf8


def _value(record: Record, path: str) -> bytes | None:
    """Return the JSON string at `path`; None where it is missing or null."""
    value = _lookup(record, path)
    if value is None or value.startswith(b'"'):
        return value
    if value == b"null":
        return None
    if INTEGER.fullmatch(value):
        return quoted_id(value)
    found = f"{kind_of(value)} that is not whole" if kind_of(value) == "a number" else kind_of(value)
    raise LineError("wrong_type", f"a string or an integer in field '{path}', found {found}")


def _stamp(record: Record, path: str | None, usual: str) -> bytes | None:
    """Return the time stamp at `path`; if that is None, of the usual field, which stays in the record unless a stamp can be read from it."""
    if path is not None:
        return _value(record, path)
    value = record.get(usual, b"[]")
    if not value.startswith((b'"', b"null")) and not INTEGER.fullmatch(value):
        return None
    stamp = _value(record, usual)
    del record[usual]
    return stamp


def _required(record: Record, path: str, advice: str = "") -> bytes:
    value = _value(record, path)
    if value is None:
        raise _missing(record, path, advice=advice)
    return value


def _missing(record: Record, path: str, or_else: str = "", advice: str = "") -> LineError:
    if _lookup(record, path) is None:
        return LineError(
            "missing_field",
            f"a string in field '{path}'{or_else}, which is missing; {fields_in(record)}{advice}",
        )
    return LineError("wrong_type", f"a string in field '{path}'{or_else}, found null")


def _lookup(record: Record, path: str) -> bytes | None:
    """Return the value at `path`; a field whose own name has the dots comes first."""
    value = record.get(path)
    if value is not None or "." not in path:
        return value
    first, _, rest = path.partition(".")
    inner = record.get(first, b"")
    return _lookup(parse_object(inner), rest) if inner.startswith(b"{") else None


def _cut(record: Record, path: str) -> None:
    """Remove the value at `path`, and the objects that it leaves empty."""
    if path in record:
        del record[path]
        return
    first, _, rest = path.partition(".")
    inner = parse_object(record[first])
    _cut(inner, rest)
    joined = join_members(inner)
    if joined is None:
        del record[first]
    else:
        record[first] = joined


def _existing_object(record: Record) -> bytes:
    """Take the object ``metadata`` out of `record`; a value of another type stays there, to become a member."""
    value = record.get("metadata", b"null")
    is_object = value.startswith(b"{")
    if is_object or value == b"null":
        record.pop("metadata", None)
    return value if is_object else b""


def _append(existing: bytes, record: Record) -> bytes | None:
    """Splice members behind those of an object, whose bytes stay as they are."""
    if not existing:
        return join_members(record)
    members = parse_object(existing) if record else {}
    added = join_members(_renamed(members, record))
    if added is None:
        return existing
    return existing[:-1].rstrip() + b"," + added[1:] if members else added


def _renamed(members: Record, record: Record) -> Record:
    """Give fields whose names are taken in `members` a free one."""
    if members.keys().isdisjoint(record):
        return record
    renamed: Record = {}
    for name, value in record.items():
        free = name
        while free in members or (free != name and (free in record or free in renamed)):
            free += "_raw"
        renamed[free] = value
    return renamed


def join_members(members: Record) -> bytes | None:
    """Return the JSON object of `members`, their values as they are; None if there are none."""
    if not members:
        return None
    parts: list[bytes] = []
    for name, value in members.items():
        parts += (b",", _key(name), value)
    parts[0] = b"{"
    parts.append(b"}")
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    return _encode(name) + b":"
