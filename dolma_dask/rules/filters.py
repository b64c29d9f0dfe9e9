"""Filters over documents in JSONPath or jq, as the Dolma toolkit's mixer takes them.

A filter is compiled to a rule over columns where that is possible; else it looks at every document, parsed and with its attributes
merged in, which costs some microseconds each (`Filter.is_slow`). Both give the same answer.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, cast

from msgspec import Struct

from dolma_dask.errors import DataError, UsageError
from dolma_dask.rules.filter_columns import ATTRIBUTES, RowKinds, compile_jq, compile_path
from dolma_dask.rules.jq import attributes_of_jq, defaults_of_jq, jq_program, parse_usual
from dolma_dask.rules.jsonpath import (
    Below,
    Both,
    Condition,
    Either,
    Every,
    JsonValue,
    Keys,
    No,
    Path,
    Step,
    Test,
    Where,
    find,
    parse_path,
)
from dolma_dask.rules.rules import Rule

Syntax = Literal["jsonpath", "jq"]
SYNTAXES: tuple[Syntax, ...] = ("jsonpath", "jq")

Row = Mapping[str, Any]
"""A document as Python's JSON values, its attributes merged in."""


class Filter(Struct, frozen=True):
    """One expression: a filter, or a part of a `where` rule."""

    text: str  # as it was written
    syntax: Syntax | Literal["where"]  # its language
    rule: Rule | None = None
    """The filter over columns, see `dolma_dask.rules.filter_columns`; None: each document is looked at."""
    short: str = ""  # what people are shown, if it is not the text

    @property
    def is_slow(self) -> bool:
        """True if each document has to be looked at."""
        return self.rule is None

    def matches(self, row: Row) -> bool:
        """Tell whether a document matches."""
        values = select(self.text, self.syntax, row)
        # null, false, 0 and what is empty are not true for the Dolma toolkit
        return bool(values) and (self.syntax == "jsonpath" or all(values))


def make_filter(text: str, syntax: Syntax, kinds: RowKinds) -> Filter:
    """Read and, where possible, compile a filter."""
    if syntax == "jsonpath":
        return Filter(text, syntax, compile_path(parse_path(text), kinds))
    jq_program(text)
    condition = parse_usual(text)
    return Filter(text, syntax, None if condition is None else compile_jq(condition, kinds))


def check_syntax(syntax: str) -> Syntax:
    """Return the name of a language that filters may be in."""
    if syntax not in SYNTAXES:
        raise UsageError(f"syntax={syntax!r}; expected one of {', '.join(SYNTAXES)}.")
    return syntax


def check_expression(text: str, syntax: Syntax) -> None:
    """Refuse what cannot be read."""
    if syntax == "jsonpath":
        parse_path(text)
    else:
        jq_program(text)


def select(text: str, syntax: str, row: Row) -> list[Any]:
    """Return the values of an expression in a document; raise `DataError` if jq fails, or the document is nested too deeply."""
    try:
        if syntax == "jsonpath":
            return find(_path(text), row)
        return cast(list[Any], jq_program(text).input_value(row).all())
    except RecursionError:
        raise DataError(
            f"{text!r} cannot look into document {row.get('id')!r}: its arrays and objects are nested too deeply. Leave them out of it."
        ) from None
    except ValueError as error:
        raise DataError(
            f"jq cannot evaluate {text!r} for document {row.get('id')!r}: {error}. Ask for what may be missing or of another type with "
            "`?` or `//`."
        ) from None


_path = lru_cache(maxsize=256)(parse_path)


def attributes_in(text: str, syntax: Syntax) -> frozenset[str] | None:
    """Return the keys of attributes that an expression names; None if it may look at any of them."""
    if syntax == "jq":
        return attributes_of_jq(text)
    keys: set[str] = set()
    for steps in _walk(parse_path(text), ()):
        match steps[:2]:
            case (Below() | Every(), *_):
                return None
            case (Keys(names), Keys(inner)) if ATTRIBUTES in names:
                keys.update(inner)
            case (Keys(names), _) if ATTRIBUTES in names:
                return None
    return frozenset(keys)


def guarded_in(text: str, syntax: Syntax) -> frozenset[str]:
    """Return the keys of attributes that an expression expects to be missing: ``@.k && @.k[0] ...``, ``!@.k || ...``, jq's ``.attributes.k // ...``."""
    if syntax == "jq":
        condition = parse_usual(text)
        guards = () if condition is None else _guards(condition)
        return defaults_of_jq(text) | {key for path in guards for key in _keys_of(path.steps)}
    keys: set[str] = set()
    before: tuple[Step, ...] = ()
    for step in parse_path(text).steps:
        for path in _guards(step.condition) if isinstance(step, Where) else ():
            keys.update(_keys_of(path.steps if path.from_row else (*before, *path.steps)))
        before = (*before, step)
    return frozenset(keys)


def _keys_of(steps: tuple[Step, ...]) -> tuple[str, ...]:
    match steps:
        case (Keys((outer,)), Keys(inner)) if outer == ATTRIBUTES:
            return inner
    return ()


def _guards(condition: Condition) -> Iterator[Path]:
    """Yield paths that are looked for before what stands beside them is evaluated."""
    match condition:
        case Both(parts):
            for part in parts:
                match part:
                    case (Path() as path) | Test("!=", Path() as path, JsonValue(None)):
                        yield path
                    case _:
                        yield from _guards(part)
        case Either(parts):
            for part in parts:
                match part:
                    case No(Path() as path) | Test("==", Path() as path, JsonValue(None)):
                        yield path
                    case _:
                        yield from _guards(part)
        case No(inner):
            yield from _guards(inner)


def _walk(path: Path, base: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield the steps from the row of a path and of those in its conditions; `base` leads to ``@``."""
    at = () if path.from_row else base
    for step in path.steps:
        if isinstance(step, Where):
            for inner in _paths(step.condition):
                yield from _walk(inner, at)
        else:
            at = (*at, step)
    yield at


def _paths(condition: Condition) -> Iterator[Path]:
    match condition:
        case Path():
            yield condition
        case Test(_, left, right):
            yield from (operand for operand in (left, right) if isinstance(operand, Path))
        case No(inner):
            yield from _paths(inner)
        case Both(parts) | Either(parts):
            for part in parts:
                yield from _paths(part)
