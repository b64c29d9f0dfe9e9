"""Application of a user's function to a block of documents: new texts spliced into the lines, documents dropped, records on which it raised.

The function takes a text, a document (dict), or all texts of a block (`pyarrow.Array`): `shape_of` tells by its first parameter. Only what changed is
written anew; every other byte of a line stays. Cost: a Python object per text; none with the block form.
"""

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, get_origin

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.formats.documents import METADATA
from dolma_dask.formats.json.exact import LineError
from dolma_dask.formats.json.lines import Lines
from dolma_dask.formats.json.write import string_texts
from dolma_dask.functions.calls import CallError, FunctionLike, UserFunction, user_function
from dolma_dask.io.attributes import member_texts
from dolma_dask.io.records import BadRecord
from dolma_dask.reading.kept.block import with_member, with_places
from dolma_dask.rules.splicing import Edit, splice
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.sources.functions import json_problem, kind_in_words
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import not_utf8
from dolma_dask.verbs.transform.documents import Change, WrongResultError, applied, change_of, decoded

Shape = Literal["text", "document", "texts"]
"""Argument of a function."""

TRANSFORMED = "transformed"
"""Member of the metadata that names the function."""

_BY_NAME: dict[str, Shape] = {
    "document": "document",
    "doc": "document",
    "record": "document",
    "texts": "texts",
}


class Rewriting(Struct, frozen=True):
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
    if word.endswith("Array"):
        return "texts"
    return "document" if word in ("dict", "Dict", "Mapping", "MutableMapping") else "text"


class Rewriter:
    """Applies a function to the documents of one shard, block by block, and counts."""

    def __init__(self, rewriting: Rewriting, url: str) -> None:
        self._rewriting, self._function, self._url = rewriting, rewriting.function, url
        names = (
            "documents_changed",
            "documents_unchanged",
            "documents_dropped",
            "characters_in",
            "characters_out",
        )
        self.counts: Counter[str] = Counter(dict.fromkeys(names, 0))

    def __call__(self, rows: DocumentRows) -> tuple[DocumentRows, list[BadRecord]]:
        """Return the documents that go on, and those on which the function raised."""
        assert rows.lines is not None
        old = rows.batch.column("text")
        self.counts["characters_in"] += pc.sum(pc.utf8_length(old)).as_py() or 0
        if self._rewriting.shape == "document":
            texts, lines, bad = self._of_documents(rows)
            return self._kept(rows, texts, lines, bad), bad
        call = self._of_block if self._rewriting.shape == "texts" else self._of_texts
        (texts, bad), lines = call(rows, old), rows.lines
        changed = pc.if_else(pc.not_equal(texts, old), texts, _NO_TEXT)
        if changed.null_count < len(changed):
            lines = splice(lines, [Edit("text", string_texts(changed))])
        return self._kept(rows, texts, lines, bad), bad

    def _kept(
        self, rows: DocumentRows, texts: pa.Array, lines: pa.Array, bad: list[BadRecord]
    ) -> DocumentRows:
        """Return the rows that have a text, counted, and with where they come from if that was asked for."""
        assert rows.lines is not None
        changed = _differ(lines, rows.lines)
        if self._rewriting.names_function and len(lines):
            lines = _with_origin(lines, changed, rows, self._url, self._rewriting.label)
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
            except (CallError, WrongResultError) as error:
                new.append(None)
                bad.append(self._bad(rows, row, error))
        return pa.array(new, pa.large_string()), bad

    def _text(self, made: Any) -> str | None:
        if made is None:
            return None
        if type(made) is not str:
            raise WrongResultError("a text (str), or None to drop the document", kind_in_words(made))
        problem = json_problem(made, "text")
        if problem:
            raise WrongResultError("characters", problem[1])
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
        new = made.cast(pa.large_string())
        if wrong := not_utf8(new):
            raise DataError(
                f"{self._url}, row {int(rows.numbers[wrong[0]])}: {self._function.name} returned a text that is no UTF-8; expected strings.",
                function=self._function.name,
            )
        return new, []

    def _of_documents(self, rows: DocumentRows) -> tuple[pa.Array, pa.Array, list[BadRecord]]:
        assert rows.lines is not None
        lines, changes, bad = rows.lines.to_pylist(), [], []
        for row, line in enumerate(lines):
            try:
                changes.append(change_of(line, self._function(decoded(line))))
            except (CallError, LineError, WrongResultError) as error:
                changes.append(Change())
                bad.append(self._bad(rows, row, error))
        return pa.array([change.text for change in changes], pa.large_string()), applied(lines, changes), bad

    def _bad(
        self, rows: DocumentRows, row: int, error: CallError | LineError | WrongResultError
    ) -> BadRecord:
        """Return the record of a document on which the function failed."""
        assert rows.lines is not None
        name = self._function.name
        if isinstance(error, LineError):
            reason, expected = str(error.reason), error.expected
        elif isinstance(error, CallError):
            reason, expected = "function_failed", f"a return value of {name}, which raised {error}"
        else:
            reason, expected = "wrong_document", f"{error.args[0]} from {name}, found {error.args[1]}"
        expected += f" for the document {rows.batch.column('id')[row].as_py()!r}"
        return BadRecord(
            self._url,
            int(rows.numbers[row]),
            -1,
            reason,
            expected,
            rows.lines[row].as_py().removesuffix(b"\n"),
        )


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def _differ(new: pa.Array, old: pa.Array) -> npt.NDArray[np.bool_]:
    if new is old:
        return np.zeros(len(old), np.bool_)
    return np.asarray(pc.not_equal(new, old).to_numpy(zero_copy_only=False))


def _with_origin(
    lines: pa.Array, changed: npt.NDArray[np.bool_], rows: DocumentRows, url: str, label: str
) -> pa.LargeBinaryArray:
    """Return lines that name file and line in their metadata, and the function if it changed them."""
    metadata = with_places(member_texts(Lines.of(lines), METADATA), url, rows.numbers)
    names = string_texts(pa.array([label] * len(lines), pa.large_string()))
    named = pc.if_else(pa.array(changed), with_member(metadata, TRANSFORMED, names), metadata)
    return splice(lines, [Edit(METADATA, named)])


_NO_TEXT = pa.scalar(None, pa.large_string())
