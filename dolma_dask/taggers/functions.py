"""Taggers made from plain functions: of one text, or of a whole batch.

A function of one text costs a Python call per document, about 1 microsecond besides its own work. What it returns is
checked and converted here, and any error names the tagger, the row and the document's id.
"""

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dolma_dask.errors import DataError
from dolma_dask.functions.calls import is_imported
from dolma_dask.functions.digest import digest, surroundings
from dolma_dask.functions.places import what_failed
from dolma_dask.taggers.base import LABELLED_SPANS, NUMBER, NUMBERS_BY_NAME, SPANS, Kind

_BY_KIND: Mapping[Kind, pa.DataType] = {
    "document": NUMBER, "spans": SPANS, "dict": NUMBERS_BY_NAME, "labels": LABELLED_SPANS
}  # fmt: skip
SCALARS: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
}


_ADVICE = "Call its `.function` on this text to see why; let it return None where there is no value."


@dataclass(frozen=True, eq=False)
class FunctionTagger:
    """A tagger that calls a function; made by `dolma_dask.taggers.registry.tagger`."""

    # as in `dolma_dask.taggers.base.Tagger`
    name: str
    types: Mapping[str, Kind]
    reads: tuple[str, ...]
    function: Callable[..., Any]  # takes one str per column of `reads`, or a whole batch
    whole_batch: bool  # which of the two
    scalars: Mapping[str, type]  # for each type of kind ``scalar``: bool, int, float or str
    source: str
    # none: the version is a digest of the function, taken when it is first read and fixed by pickling
    fixed_version: int | str | None

    @property
    def params(self) -> str:
        """Parameters: a function has none."""
        return "{}"

    @property
    def version(self) -> int | str:
        """The version given, or the digest."""
        if self.fixed_version is not None:
            return self.fixed_version
        shape = (dict(self.types), self.reads, self.whole_batch, dict(self.scalars))
        return digest(self.source, surroundings(self.function), shape)

    def __getstate__(self) -> dict[str, Any]:
        checks = self.fixed_version is None and is_imported(self.function)
        return {**vars(self), "fixed_version": self.version, "is_imported": checks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "fixed_version": None})
        is_same = not state["is_imported"] or self.version == state["fixed_version"]
        vars(self).update(state, is_same=is_same)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Tag a batch; see `Tagger`.

        Raises `DataError` if the function fails on a document, or returns something that its types do not announce.
        """
        if not vars(self).get("is_same", True):
            raise DataError(
                f"tagger {self.name!r} would do something else in this process: values or functions of {self.function.__module__} that it uses "
                "were changed after the import, or its file was. Let it hold its values itself, or give scheduler='threads'.",
                tagger=self.name,
            )
        prepare = getattr(self.function, "prepare", None)
        if prepare is not None:
            prepare()
        return self._tag_batch(batch) if self.whole_batch else self._tag_texts(batch)

    def _tag_texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns: dict[str, list[Any]] = {name: [] for name in self.types}
        documents = zip(*(batch.column(name).to_pylist() for name in self.reads), strict=True)
        for row, document in enumerate(documents):
            try:
                values = self._values(self.function(*document), document)
            except (MemoryError, KeyboardInterrupt):
                raise
            except BaseException as error:
                raise self._row_error(batch, row, error) from error
            for name, value in values.items():
                columns[name].append(value)
        arrays = [pa.array(columns[name], self._arrow_type(name)) for name in self.types]
        return pa.RecordBatch.from_arrays(arrays, names=list(self.types))

    def _values(self, returned: Any, document: tuple[str, ...]) -> dict[str, Any]:
        """One value per type from what the function returned for a document."""
        if len(self.types) == 1:
            returned = dict.fromkeys(self.types, returned)
        elif returned is None:
            returned = {}
        elif not isinstance(returned, Mapping) or not returned.keys() <= self.types.keys():
            raise DataError(
                f"returned {returned!r:.80}; expected a dict with keys among {list(self.types)}, or None"
            )
        length = len(document[self.reads.index("text")]) if "text" in self.reads else None
        return {
            name: None if (value := returned.get(name)) is None else self._convert(name, value, length)
            for name in self.types
        }

    def _convert(self, name: str, value: Any, length: int | None) -> Any:
        kind = self.types[name]
        if kind == "document":
            return _number(value)
        if kind == "spans":
            return _spans(value, length)
        if kind == "dict":
            return _numbers_by_name(value)
        if kind == "labels":
            return _labelled_spans(value, length)
        return _scalar(value, self.scalars[name])

    def _arrow_type(self, name: str) -> pa.DataType:
        kind = self.types[name]
        if kind == "scalar":
            return SCALARS[self.scalars[name]]
        return _BY_KIND[kind]

    def _tag_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            tagged = self.function(batch)
        except Exception as error:
            raise DataError(
                f"tagger {self.name!r} failed on a batch of {batch.num_rows} documents: "
                f"{type(error).__name__}: {error}. Call its `.function` on this batch to see why.",
                tagger=self.name,
            ) from error
        check_columns(self.name, self.types, tagged, batch.num_rows)
        return tagged.select(list(self.types))

    def _row_error(self, batch: pa.RecordBatch, row: int, error: BaseException) -> DataError:
        identity = batch.column("id")[row].as_py() if "id" in batch.schema.names else None
        known = "" if identity is None else f" (id {identity!r})"
        called, advice = getattr(self.function, "calls", (self.function, _ADVICE))
        code = getattr(inspect.unwrap(called), "__code__", None)
        file = code.co_filename if code else ""
        what = str(error) if isinstance(error, DataError) else what_failed(error, file)
        return DataError(
            f"tagger {self.name!r} failed on row {row} of the batch{known}: {what}. {advice}",
            tagger=self.name,
            row=row,
            id=identity,
        )


def _number(value: Any) -> float:
    if not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise DataError(f"returned {value!r:.80}; expected a finite number")
    if isinstance(value, numbers.Integral) and int(value) != float(value):
        raise DataError(f"returned {value!r:.80}; expected a number that a float holds whole, or a str")
    return float(value)


def _scalar(value: Any, expected: type) -> Any:
    if expected is float:
        return _number(value)
    if expected is int and isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, expected):
        raise DataError(f"returned {value!r:.80}; expected {expected.__name__}")
    return _text(value) if expected is str else value


def _text(value: Any) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"returned {value!r:.80}; expected characters, found a lone surrogate") from None
    return value


def _numbers_by_name(value: Any) -> list[tuple[str, float]]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise DataError(f"returned {value!r:.80}; expected a dict of str to numbers")
    return [(_text(key), _number(number)) for key, number in value.items()]


def _spans(value: Any, length: int | None) -> list[dict[str, float]]:
    """Check (start, end, score) triples against the text's length and sort them by position."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise DataError(f"returned {value!r:.80}; expected a list of (start, end, score)")
    spans = []
    for span in value:
        if not isinstance(span, Iterable) or len(triple := tuple(span)) != 3:
            raise DataError(f"returned the span {span!r:.80}; expected (start, end, score)")
        start, end, score = triple
        integers = isinstance(start, numbers.Integral) and isinstance(end, numbers.Integral)
        if not integers or not 0 <= start <= end or (length is not None and end > length):
            inside = "" if length is None else f" inside a text of {length} characters"
            raise DataError(f"returned the span {triple!r:.80}; expected integers 0 <= start <= end{inside}")
        spans.append({"start": int(start), "end": int(end), "score": _number(score)})
    return sorted(spans, key=lambda span: (span["start"], span["end"]))


def _labelled_spans(value: Any, length: int | None) -> list[dict[str, Any]]:
    """Check (label, start, end, score) likewise; they stay in their order."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping)):
        raise DataError(f"returned {value!r:.80}; expected a list of (label, start, end, score)")
    spans = []
    for item in value:
        label, *span = item
        if not isinstance(label, str):
            raise DataError(f"returned the label {label!r:.80}; expected a str")
        spans.append({"label": _text(label), **_spans([span], length)[0]})
    return spans


def fits_kind(kind: Kind, arrow_type: pa.DataType) -> bool:
    """Tell whether a column of this Arrow type can be written as `kind`."""
    types = pa.types
    if kind == "document":
        return bool(arrow_type == pa.float64())
    if kind == "spans":
        return bool(arrow_type == SPANS)
    if kind == "labels":
        return bool(arrow_type in (NUMBERS_BY_NAME, LABELLED_SPANS))
    if kind == "scalar":
        return any(
            test(arrow_type) for test in (types.is_integer, types.is_floating, types.is_boolean, _is_text)
        )
    if types.is_map(arrow_type):
        return _is_text(arrow_type.key_type) and _is_number(arrow_type.item_type)
    return types.is_struct(arrow_type) and all(_is_number(field.type) for field in arrow_type)


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _is_number(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type))


def check_columns(name: str, types: Mapping[str, Kind], tagged: Any, rows: int) -> None:
    """Check that what a tagger returned for a batch of `rows` documents is what its `types` announce.

    Raises `DataError` with the tagger, the column, and what was expected.
    """

    def fail(what: str) -> DataError:
        return DataError(f"tagger {name!r} {what}", tagger=name)

    if not isinstance(tagged, pa.RecordBatch):
        raise fail(f"returned a {type(tagged).__name__}; expected a pyarrow RecordBatch")
    if tagged.num_rows != rows:
        raise fail(
            f"returned {tagged.num_rows} rows for {rows} documents; expected one row for each, in their order"
        )
    if sorted(tagged.schema.names) != sorted(types):
        raise fail(f"returned the columns {tagged.schema.names}; its types are {list(types)}")
    for field in tagged.schema:
        if not fits_kind(types[field.name], field.type):
            raise fail(
                f"returned column {field.name!r} as {field.type}, which is not of kind {types[field.name]!r}"
            )
