"""Raw records -> documents by a function of the user: a record in, a document, several or none out.

The record is the parsed JSON object, or a row of a table as the same object; of a text file ``{"id": path, "text": ..., "path": path}``. What comes
back is checked strictly, and an error names file, row and field. One row of a block holds all documents of a record, so that rows stay records.
Cost: Python objects for every value; 50 MB of JSON per CPU-second besides the function's own work.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dolma_dask.formats.json import NOT_JSON
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.functions.calls import CallError, UserFunction
from dolma_dask.io.stream import LineBlock
from dolma_dask.sources.base import SCHEMA
from dolma_dask.sources.documents import Record, RecordConverter
from dolma_dask.sources.mapping import FieldMapping

FUNCTION_VERSION = 1
"""Raised whenever what a function returns becomes another document than before; part of the key of finished work."""

DOCUMENTS = pa.schema([(field.name, pa.list_(field.type)) for field in SCHEMA])
"""Columns of a block: the documents of each record."""

_ORDER = ("id", "text", "source", "added", "created", "metadata")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class RecordDocuments(NamedTuple):
    """The documents of one record, as `dolma_dask.sources.documents.Document` has each."""

    ids: list[str]
    texts: list[str]
    sources: list[str]
    lines: list[bytes]

    @property
    def raw(self) -> bytes:
        """The longest line."""
        return max(self.lines, key=len, default=b"")


class FunctionConverter:
    """Turns the records of one raw file into documents by a function.

    A document without an id gets that of `mapping.generated_id`, and behind it ``-1``, ``-2`` and so on from the second document of a record on; one
    without a source gets `mapping.source_name`.
    """

    schema = DOCUMENTS

    def __init__(self, function: UserFunction, mapping: FieldMapping, path: str, url: str = "") -> None:
        self._function = function
        self._name = function.name
        self._source = mapping.source_name
        self._generated = RecordConverter(mapping, path, url).generated_id

    def scan(self, lines: LineBlock) -> None:
        """Leave all lines to `convert_line`."""

    def convert_line(self, line: bytes, row: int) -> RecordDocuments:
        """Return the documents of one line."""
        parse_object(line)
        return self._convert(_values(line), row)

    def convert(
        self, record: Record, row: int, line: bytes | None = None, identity: str | None = None
    ) -> RecordDocuments:
        """Return the documents of a record with raw values; `identity` is the id of one without any.

        Raises `LineError`: the function raised, or returned something that is no document.
        """
        return self._convert({name: _values(value) for name, value in record.items()}, row, identity)

    def _convert(self, record: dict[str, Any], row: int, identity: str | None = None) -> RecordDocuments:
        try:
            made = self._function.finished(_several, record)
        except CallError as error:
            raise LineError(
                "function_failed", f"documents from {self._name}, which raised {error}"
            ) from error
        documents = RecordDocuments([], [], [], [])
        for number, document in enumerate(made):
            self._add(
                documents, document, (identity or self._generated(row)) + (f"-{number}" if number else "")
            )
        twice = [identity for identity, count in Counter(documents.ids).items() if count > 1]
        if twice:
            raise self._wrong("documents with ids of their own", f"the id {twice[0]!r} more than once")
        return documents

    def _add(self, documents: RecordDocuments, document: Any, identity: str) -> None:
        """Check one document and append it."""
        if not isinstance(document, dict):
            expected = "a document (a dict with text), several in a list, or None"
            raise self._wrong(expected, kind_in_words(document))
        given = {name: value for name, value in document.items() if value is not None or name not in _ORDER}
        fields: dict[str, Any] = {"id": identity, "source": self._source} | given
        for name in ("text", "source", "id"):
            if fields.get(name) is None:
                hint = " (or one for all: --source NAME)" if name == "source" else ""
                raise self._wrong(f"a string in field {name!r}{hint}", "none")
        for name in ("id", "text", "source", "added", "created"):
            if name in fields and type(fields[name]) is not str:
                raise self._wrong(f"a string in field {name!r}", kind_in_words(fields[name]))
        if type(fields.get("metadata", {})) is not dict:
            raise self._wrong("an object (dict) in field 'metadata'", kind_in_words(fields["metadata"]))
        ordered = {name: fields[name] for name in _ORDER if name in fields}
        line = self._line({**ordered, **fields})
        documents.ids.append(fields["id"])
        documents.texts.append(fields["text"])
        documents.sources.append(fields["source"])
        documents.lines.append(line)

    def _line(self, document: dict[str, Any]) -> bytes:
        try:
            problem = json_problem(document, "")
        except RecursionError:
            raise self._wrong(
                "values that JSON has", "objects that are nested too deeply, or in themselves"
            ) from None
        if problem is not None:
            raise self._wrong("values that JSON has", problem_in_words(problem))
        return _encode(document) + b"\n"

    def _wrong(self, expected: str, found: str) -> LineError:
        return LineError("wrong_document", f"{expected} from {self._name}, found {found}")


def _values(data: bytes) -> Any:
    """Return Python's values of JSON that is known to be right."""
    try:
        return _decode(data)
    except (*NOT_JSON, RecursionError) as error:
        raise LineError("wrong_type", f"numbers and depths that Python's values have: {error}") from error


def _several(made: Any) -> list[Any]:
    """Return what a function returned as a list; one that raises does so here."""
    if made is None:
        return []
    is_one = isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable)
    return [dict(one) if isinstance(one, Mapping) else one for one in ([made] if is_one else made)]


def kind_in_words(value: Any) -> str:
    """Return the type of a value, and its beginning."""
    return f"{type(value).__name__} {value!r:.60}"


def json_problem(value: Any, path: str) -> tuple[str, str] | None:
    """Return the path of the first value that JSON has not, and what it is."""
    kind = type(value)
    if kind is str:
        return (
            None
            if value.isascii() or not _has_surrogate(value)
            else (path, "a lone surrogate, which is no character")
        )
    if kind is float:
        return None if math.isfinite(value) else (path, repr(value))
    if value is None or kind is bool or kind is int:
        return None
    if kind is dict:
        for name, inner in value.items():
            if type(name) is not str:
                return path, f"the key {kind_in_words(name)}, which is no string"
            inside = f"{path}.{name}" if path else name
            found = json_problem(name, inside) or json_problem(inner, inside)
            if found is not None:
                return found
        return None
    if kind is list or kind is tuple:
        found_in = (json_problem(inner, f"{path}[{index}]") for index, inner in enumerate(value))
        return next((found for found in found_in if found is not None), None)
    return path, f"{kind_in_words(value)}; expected str, int, float, bool, None, dict or list"


def problem_in_words(problem: tuple[str, str]) -> str:
    """Return what `json_problem` found."""
    path, found = problem
    return f"{found} in field {path!r}" if path else found


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def documents_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the documents of rows that hold several each."""
    return pa.RecordBatch.from_arrays([column.flatten() for column in batch.columns], schema=SCHEMA)


def converter_of(
    function: UserFunction | None, mapping: FieldMapping, path: str, url: str = ""
) -> RecordConverter | FunctionConverter:
    """Return what makes documents of the records of a raw file: a function if there is one, else the mapping."""
    if function is None:
        return RecordConverter(mapping, path, url)
    return FunctionConverter(function, mapping, path, url)
