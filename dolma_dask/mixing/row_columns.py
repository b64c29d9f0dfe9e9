"""Which column holds the value at a path of a document: what filters in other languages are compiled to.

Columns are named ``attributes.<key>``, ``metadata.<field>``, ``id``, ``source``, ``added`` and ``created``. Attributes that hold spans are columns
of spans, whatever they hold in most documents. An attribute that is null counts as missing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import PREFIX as METADATA_PREFIX
from dolma_dask.mixing.rules import Compare, Missing, Rule
from dolma_dask.mixing.span_values import SpanCount, SpanItem
from dolma_dask.mixing.values import Literal, Name, Value

ATTRIBUTES = "attributes"
ATTRIBUTE_PREFIX = "attributes."
"""What the names of columns of attributes begin with."""

STRINGS = ("id", "source", "added", "created")

LISTS = ("document", "spans")
"""Kinds of attributes that are lists of spans."""

Steps = Sequence[str | int]


@dataclass(frozen=True)
class RowKinds:
    """What is known of the documents that a filter is about.

    Attributes
    ----------
    attributes : Mapping[str, AttributeKind]
        Keys of all attribute sets and of the documents' own attributes; those of objects as ``outer.inner``.
    odd : frozenset of str
        Keys whose values no column can hold.
    fields : callable
        Kind of a field of the metadata (``metadata.<field>``), None if it has none.
    always : bool
        Whether every document has attributes, if only an empty object.
    """

    attributes: Mapping[str, AttributeKind]
    odd: frozenset[str] = frozenset()
    fields: Callable[[str], AttributeKind | None] = field(default=lambda name: None)
    always: bool = True


@dataclass(frozen=True)
class Found:
    """The value at a path.

    Attributes
    ----------
    kind : str
        "number", "string", "bool", "spans" or "span".
    value : Value
        For "span" its score.
    there : Rule
        Whether a document has it.
    """

    kind: str
    value: Value
    there: Rule


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
