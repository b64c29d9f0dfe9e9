"""What a user's function does to a block of documents: new texts spliced into the lines, documents dropped, records on which it raised.

The function takes a text, a document (dict), or all texts of a block (`pyarrow.Array`): `shape_of` tells by its first parameter. Only what changed is
written anew; every other byte of a line stays. Cost: a Python object per text; none with the block form.
"""

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_origin

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import DataError
from dolma_dask.formats.documents import METADATA
from dolma_dask.formats.json.exact import LineError, parse_object
from dolma_dask.formats.json.lines import Lines
from dolma_dask.formats.json.write import string_texts
from dolma_dask.functions.calls import CallError, FunctionLike, UserFunction, user_function
from dolma_dask.io.attributes import member_texts
from dolma_dask.io.records import BadRecord
from dolma_dask.rules.splicing import Edit, splice
from dolma_dask.sources.documents import join_members
from dolma_dask.sources.functions import json_problem, kind_in_words, problem_in_words
from dolma_dask.verbs.sinks import DocumentRows

Shape = Literal["text", "document", "texts"]
"""What a function takes."""

TRANSFORMED = "transformed"
"""Member of the metadata that names the function."""

_BY_NAME: dict[str, Shape] = {
    "document": "document",
    "doc": "document",
    "record": "document",
    "texts": "texts",
}
_KEPT = ("id", "source")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Rewriting:
    """A function, and what it takes."""

    function: UserFunction
    shape: Shape
    names_function: bool  # in the metadata of what it changed

    @classmethod
    def of(cls, given: FunctionLike, names_function: bool) -> "Rewriting":
        """Return a function of the user, checked.

        Raises `UsageError`: it cannot be used.
        """
        function = user_function(given, ("text",))
        return cls(function, shape_of(function.function), names_function)

    def params(self) -> dict[str, Any]:
        """Return what decides the output."""
        return {
            "function": self.function.version,
            "takes": self.shape,
            "named": self.names_function and self.label,
        }

    @property
    def label(self) -> str:
        """The function as the metadata names it."""
        return f"{self.function.name}@{self.function.version}"


def shape_of(function: Callable[..., Any]) -> Shape:
    """Return what a function takes: by the type of its first parameter, else by its name."""
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
    except (ValueError, TypeError, StopIteration):
        return "text"
    given = first.annotation
    if given is first.empty:
        return _BY_NAME.get(first.name, "text")
    word = given if isinstance(given, str) else getattr(get_origin(given) or given, "__name__", "")
    word = word.partition("[")[0].rpartition(".")[2]
    return (
        "texts"
        if word.endswith("Array")
        else "document"
        if word in ("dict", "Dict", "Mapping", "MutableMapping")
        else "text"
    )


class Rewriter:
    """Applies a function to the documents of one shard, block by block, and counts."""

    def __init__(self, rewriting: Rewriting, url: str) -> None:
        self._rewriting, self._function, self._url = rewriting, rewriting.function, url
        names = ("changed", "unchanged", "dropped")
        self.counts: Counter[str] = Counter({f"documents_{name}": 0 for name in names})
        self.counts |= Counter({"characters_in": 0, "characters_out": 0})

    def __call__(self, rows: DocumentRows) -> tuple[DocumentRows, list[BadRecord]]:
        """Return the documents that go on, and those on which the function raised."""
        assert rows.lines is not None
        old = rows.batch.column("text")
        self.counts["characters_in"] += pc.sum(pc.utf8_length(old)).as_py() or 0
        if self._rewriting.shape == "document":
            texts, lines, bad = self._of_documents(rows)
        else:
            texts, bad = (
                self._of_block(rows, old) if self._rewriting.shape == "texts" else self._of_texts(rows, old)
            )
            changed = pc.if_else(pc.not_equal(texts, old), texts, _NO_TEXT)
            lines = (
                splice(rows.lines, [Edit("text", string_texts(changed))])
                if changed.null_count < len(old)
                else rows.lines
            )
        return self._kept(rows, texts, lines, bad), bad

    def _kept(
        self, rows: DocumentRows, texts: pa.Array, lines: pa.Array, bad: list[BadRecord]
    ) -> DocumentRows:
        """Return the rows that have a text, counted, and with the name of the function where they changed."""
        assert rows.lines is not None
        changed = _differ(lines, rows.lines)
        if self._rewriting.names_function and changed.any():
            lines = _named(lines, changed, self._rewriting.label)
        kept = texts.is_valid()
        self.counts["documents_dropped"] += texts.null_count - len(bad)
        valid = kept.to_numpy(zero_copy_only=False)
        self.counts["documents_changed"] += int((changed & valid).sum())
        self.counts["documents_unchanged"] += int((~changed & valid).sum())
        if texts.null_count:
            texts, lines = texts.filter(kept), lines.filter(kept)
            rows = DocumentRows(rows.batch.filter(kept), rows.numbers[valid], lines)
        self.counts["characters_out"] += pc.sum(pc.utf8_length(texts)).as_py() or 0
        batch = rows.batch.set_column(rows.batch.schema.get_field_index("text"), "text", texts)
        return DocumentRows(batch, rows.numbers, lines)

    def _of_texts(self, rows: DocumentRows, old: pa.Array) -> tuple[pa.Array, list[BadRecord]]:
        new, bad = [], []
        for row, text in enumerate(old.to_pylist()):
            try:
                new.append(self._text(self._function(text)))
            except (CallError, LineError) as error:
                new.append(None)
                bad.append(self._bad(rows, row, error))
        return pa.array(new, pa.large_string()), bad

    def _text(self, made: Any) -> str | None:
        if made is None:
            return None
        if type(made) is not str:
            raise self._wrong("a text (str), or None to drop the document", kind_in_words(made))
        problem = json_problem(made, "text")
        if problem:
            raise self._wrong("characters", problem[1])
        return made

    def _of_block(self, rows: DocumentRows, old: pa.Array) -> tuple[pa.Array, list[BadRecord]]:
        """Call a function of all texts; what it raises fails the shard, since nobody knows which text it was."""
        first, last = (int(rows.numbers[at]) for at in (0, -1)) if len(old) else (0, 0)
        place = f"{self._url}, rows {first} to {last}"
        if not len(old):
            return old, []
        try:
            made = self._function(old)
        except CallError as error:
            raise DataError(
                f"{place}: {self._function.name} raised {error}. It got all texts of a block; a function of one text would name the record.",
                function=self._function.name,
            ) from error
        made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
        if not isinstance(made, pa.Array) or len(made) != len(old) or not _is_text(made.type):
            found = (
                f"{len(made):,} values of {made.type}" if isinstance(made, pa.Array) else kind_in_words(made)
            )
            raise DataError(
                f"{place}: {self._function.name} returned {found}; expected an array of {len(old):,} strings, null for each document to drop.",
                function=self._function.name,
            )
        return made.cast(pa.large_string()), []

    def _of_documents(self, rows: DocumentRows) -> tuple[pa.Array, pa.Array, list[BadRecord]]:
        assert rows.lines is not None
        texts: list[str | None] = []
        lines: list[bytes] = []
        bad: list[BadRecord] = []
        for row, line in enumerate(rows.lines.to_pylist()):
            try:
                text, line = self._document(line)
            except (CallError, LineError) as error:
                text = None
                bad.append(self._bad(rows, row, error))
            texts.append(text)
            lines.append(line)
        return pa.array(texts, pa.large_string()), pa.array(lines, pa.large_binary()), bad

    def _document(self, line: bytes) -> tuple[str | None, bytes]:
        """Return the text of what the function makes of a line, and the line with what it changed."""
        try:
            before, given = _decode(line), _decode(line)  # the function may change its own
        except (msgspec.DecodeError, RecursionError) as error:
            raise LineError("wrong_type", f"numbers and depths that Python's values have: {error}") from error
        made = self._function(given)
        if made is None:
            return None, line
        if not isinstance(made, dict):
            raise self._wrong("a document (dict), or None to drop it", kind_in_words(made))
        for name in _KEPT:
            if name in before and made.get(name) != before[name]:
                raise self._wrong(f"the same {name!r}", kind_in_words(made.get(name)))
        text = self._text(made.get("text"))
        if text is None:
            raise self._wrong("a string in field 'text'", "none")
        return text, self._spliced(line, before, made)

    def _spliced(self, line: bytes, before: dict[str, Any], made: dict[str, Any]) -> bytes:
        """Return a line with the members that differ written anew."""
        new = {
            name: value
            for name, value in made.items()
            if name not in before or not _same(value, before[name])
        }
        gone = before.keys() - made.keys()
        if not new and not gone:
            return line
        try:
            problem = json_problem(new, "")
        except RecursionError:
            problem = "", "objects that are nested too deeply, or in themselves"
        if problem is not None:
            raise self._wrong("values that JSON has", problem_in_words(problem))
        if type(made.get(METADATA, {})) is not dict and METADATA in new:
            raise self._wrong(f"an object (dict) in field {METADATA!r}", kind_in_words(made[METADATA]))
        members = {name: value for name, value in parse_object(line).items() if name not in gone}
        if gone:
            members |= {name: _encode(value) for name, value in new.items()}
            return (join_members(members) or b"{}") + b"\n"
        edits = [Edit(name, pa.array([_encode(value)], pa.large_binary())) for name, value in new.items()]
        return bytes(splice(pa.array([line], pa.large_binary()), edits)[0].as_py())

    def _bad(self, rows: DocumentRows, row: int, error: CallError | LineError) -> BadRecord:
        """Return the record of a document on which the function failed."""
        assert rows.lines is not None
        identity = rows.batch.column("id")[row].as_py()
        found = error if isinstance(error, LineError) else self._raised(error)
        expected = f"{found.expected} for the document {identity!r}"
        raw = rows.lines[row].as_py().removesuffix(b"\n")
        return BadRecord(self._url, int(rows.numbers[row]), -1, found.reason, expected, raw)

    def _raised(self, error: CallError) -> LineError:
        return LineError("function_failed", f"a return value of {self._function.name}, which raised {error}")

    def _wrong(self, expected: str, found: str) -> LineError:
        return LineError("wrong_document", f"{expected} from {self._function.name}, found {found}")


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def _same(new: Any, old: Any) -> bool:
    """Tell whether a value is written as before; 1 and True are equal in Python alone."""
    if type(new) is not type(old):
        return False
    if isinstance(new, str):
        return bool(new == old)
    try:
        return bool(new == old) and _encode(new) == _encode(old)
    except (TypeError, UnicodeEncodeError, RecursionError):
        return False


def _differ(new: pa.Array, old: pa.Array) -> npt.NDArray[np.bool_]:
    if new is old:
        return np.zeros(len(old), np.bool_)
    return np.asarray(pc.not_equal(new, old).to_numpy(zero_copy_only=False))


def _named(lines: pa.Array, changed: npt.NDArray[np.bool_], label: str) -> pa.LargeBinaryArray:
    """Return lines of which those that changed name the function in their metadata."""
    metadata = member_texts(Lines.of(lines), METADATA)
    is_object = pc.fill_null(pc.starts_with(metadata, "{"), False)
    whole = pc.binary_join_element_wise(
        pc.if_else(is_object, metadata, "{}"),
        pa.scalar("\n", pa.large_string()),
        pa.scalar("", pa.large_string()),
    )
    names = string_texts(pa.array([label] * len(lines), pa.large_string()))
    spliced = pc.utf8_rtrim(
        splice(whole, [Edit(TRANSFORMED, names)]).cast(pa.large_string()), characters="\n"
    )
    return splice(lines, [Edit(METADATA, pc.if_else(pa.array(changed), spliced, _NO_TEXT))])


_NO_TEXT = pa.scalar(None, pa.large_string())
