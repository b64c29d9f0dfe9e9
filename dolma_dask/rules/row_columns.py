"""Columns that hold the values at paths of a document: filters in other languages are compiled to them.

Columns are named ``attributes.<key>``, ``metadata.<field>``, ``id``, ``source``, ``added`` and ``created``. Attributes that hold spans are columns
of spans, whatever they hold in most documents. An attribute that is null counts as missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import PREFIX as METADATA_PREFIX
from dolma_dask.rules.rules import Compare, Missing, Rule
from dolma_dask.rules.values import Columns, Literal, Name, Operand, Value

PARTS = ("start", "end", "score")
"""Parts of a span, by their position in the JSON array."""


@dataclass(frozen=True)
class SpanItem(Value):
    """``column[place][part]``: start (0), end (1) or score (2) of a span; missing where there are not so many."""

    column: Name
    place: int
    part: int

    def evaluate(self, columns: Columns) -> Operand:
        spans = self.column.evaluate(columns).data
        at, there = _places(spans, self.place)
        numbers = spans.values.field(PARTS[self.part])
        taken = numbers.take(pa.array(np.where(there, at, 0), mask=~there))
        return Operand(taken, "number", f"column {self}")

    def __str__(self) -> str:
        return f"{self.column}[{self.place}][{self.part}]"


@dataclass(frozen=True)
class SpanCount(Value):
    """The number of spans; where the attribute is missing, missing or 0."""

    column: Name
    zero_if_missing: bool

    def evaluate(self, columns: Columns) -> Operand:
        spans = self.column.evaluate(columns).data
        counts: Any = pc.list_value_length(spans).cast(pa.int64())
        return Operand(
            pc.fill_null(counts, 0) if self.zero_if_missing else counts, "number", f"column {self}"
        )

    def __str__(self) -> str:
        return f"{self.column}.length"


def _places(spans: pa.ListArray, place: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the span `place` of each list is among the values (n,), and whether there is one (n,)."""
    offsets = np.asarray(spans.offsets)
    at = (offsets[:-1] if place >= 0 else offsets[1:]).astype(np.int64) + place
    there = (at >= offsets[:-1]) & (at < offsets[1:])
    if spans.null_count:
        there &= spans.is_valid().to_numpy(zero_copy_only=False)
    return at, there


ATTRIBUTES = "attributes"
ATTRIBUTE_PREFIX = "attributes."
"""Prefix of the names of columns of attributes."""

STRINGS = ("id", "source", "added", "created")

LISTS = ("document", "spans")
"""Kinds of attributes that are lists of spans."""

Steps = Sequence[str | int]


@dataclass(frozen=True)
class RowKinds:
    """Kinds of the values in the documents that a filter is about."""

    attributes: Mapping[str, AttributeKind]
    """Keys of all attribute sets and of the documents' own attributes; those of objects as
    ``outer.inner``."""
    odd: frozenset[str] = frozenset()  # keys whose values no column can hold
    fields: Callable[[str], AttributeKind | None] = field(default=lambda name: None)
    """Kind of a field of the metadata (``metadata.<field>``), None if it has none."""
    always: bool = True  # whether every document has attributes, if only an empty object


@dataclass(frozen=True)
class Found:
    """The value at a path."""

    kind: str  # "number", "string", "bool", "spans" or "span"
    value: Value  # for "span" its score
    there: Rule  # whether a document has it


def find_column(steps: Steps, kinds: RowKinds) -> Found | None:
    """Return the value at a path of keys and indexes, None if no column holds it."""
    match tuple(steps):
        case (str(name),) if name in STRINGS:
            return _scalar(name, "string")
        case ("metadata", str(name)):
            kind = kinds.fields(METADATA_PREFIX + name)
            return _scalar(METADATA_PREFIX + name, kind) if kind in ("number", "bool", "string") else None
        case ("metadata", str(outer), str(inner)):
            name = f"{METADATA_PREFIX}{outer}.{inner}"
            return _scalar(name, "number") if kinds.fields(name) == "dict" else None
        case ("attributes", str(key), *others):
            return _attribute(key, others, kinds)
    return None


def _scalar(name: str, kind: str) -> Found:
    return Found(kind, Name(name), Missing(Name(name), negated=True))


def _attribute(key: str, steps: Sequence[str | int], kinds: RowKinds) -> Found | None:
    if key in kinds.odd or any(known.startswith(f"{key}.") for known in kinds.attributes):
        return _member(key, steps, kinds)
    kind = kinds.attributes.get(key, "spans")
    column = Name(ATTRIBUTE_PREFIX + key)
    if kind in LISTS:
        return _spans(column, steps)
    return _scalar(column.name, kind) if not steps and kind in ("number", "bool", "string") else None


def _member(key: str, steps: Sequence[str | int], kinds: RowKinds) -> Found | None:
    """Return a number of an object."""
    if len(steps) != 1 or key in kinds.odd:
        return None
    name = f"{key}.{steps[0]}"
    return _scalar(ATTRIBUTE_PREFIX + name, "number") if kinds.attributes.get(name) == "dict" else None


def _spans(column: Name, steps: Sequence[str | int]) -> Found | None:
    match tuple(steps):
        case ():
            return Found("spans", column, Missing(column, negated=True))
        case (int(place),):
            score = SpanItem(column, place, 2)
            return Found("span", score, Missing(score, negated=True))
        case (int(place), int(part)) if -3 <= part < 3:
            number = SpanItem(column, place, part % 3)
            return Found("number", number, Missing(number, negated=True))
    return None


def compare(sign: str, found: Found, literal: object) -> Rule | None:
    """Return the rule ``found sign literal`` if both are of one kind, else None; false where the value is missing."""
    kinds: dict[type, str] = {bool: "bool", int: "number", float: "number", str: "string"}
    if kinds.get(type(literal)) != found.kind or (sign not in ("==", "!=") and found.kind != "number"):
        return None
    return Compare(sign, found.value, Literal(literal))  # type: ignore[arg-type]


def count_of(found: Found, zero_if_missing: bool) -> SpanCount | None:
    """Return the number of spans at a path, None if there is no list of spans."""
    if found.kind != "spans" or not isinstance(found.value, Name):
        return None
    return SpanCount(found.value, zero_if_missing)
