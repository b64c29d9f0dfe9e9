"""Filters over documents in JSONPath or jq, as the Dolma toolkit's mixer takes them.

A filter is compiled to a rule over columns where that is possible; else it looks at every document, parsed and with its attributes
merged in, which costs some microseconds each (`Filter.is_slow`). Both give the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from dolma_dask.errors import DataError, UsageError
from dolma_dask.rules.filter_columns import ATTRIBUTES, RowKinds, compile_jq, compile_path
from dolma_dask.rules.jq import attributes_of_jq, jq_program, parse_usual
from dolma_dask.rules.jsonpath import (
    Below,
    Both,
    Condition,
    Either,
    Every,
    Exists,
    Keys,
    No,
    Operand,
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


@dataclass(frozen=True)
class Filter:
    """One expression."""

    text: str  # as it was written
    syntax: Syntax  # its language
    rule: Rule | None = None
    """The filter over columns, see `dolma_dask.rules.filter_columns`; None: each document is looked at."""

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


def select(text: str, syntax: Syntax, row: Row) -> list[Any]:
    """Return the values of an expression in a document; raise `DataError` if jq fails."""
    if syntax == "jsonpath":
        return find(_path(text), row)
    try:
        return cast(list[Any], jq_program(text).input_value(row).all())
    except ValueError as error:
        raise DataError(
            f"jq cannot evaluate {text!r} for document {row.get('id')!r}: {error}. Ask for what may be missing or of another type with "
            "`?` or `//`."
        ) from None


_path = lru_cache(maxsize=256)(parse_path)


class _AnythingError(Exception):
    """Any attribute may be meant."""


def attributes_in(text: str, syntax: Syntax) -> frozenset[str] | None:
    """Return the keys of attributes that an expression names; None if it may look at any of them."""
    if syntax == "jq":
        return attributes_of_jq(text)
    keys: set[str] = set()
    try:
        _walk(parse_path(text), (), keys)
    except _AnythingError:
        return None
    return frozenset(keys)


_Base = tuple[Step, ...] | None
"""Path of ``@`` from the row; None: below an attribute or elsewhere, where no keys of attributes are."""


def _walk(path: Path, base: _Base, keys: set[str]) -> None:
    at: _Base = () if path.from_row else base
    for step in path.steps:
        if isinstance(step, Where):
            _in_condition(step.condition, at, keys)
            continue
        at = _after(at, step, keys)


def _after(at: _Base, step: Step, keys: set[str]) -> _Base:
    """Return where a step leads to from `at`, and collect keys of attributes."""
    if at is None:
        return None
    if not at:
        if isinstance(step, Below | Every):
            raise _AnythingError
        return (step,) if isinstance(step, Keys) and ATTRIBUTES in step.names else None
    if not isinstance(step, Keys):
        raise _AnythingError
    keys.update(step.names)
    return None


def _in_condition(condition: Condition, at: _Base, keys: set[str]) -> None:
    match condition:
        case Exists(operand):
            _in_operand(operand, at, keys)
        case Test(_, left, right):
            _in_operand(left, at, keys)
            _in_operand(right, at, keys)
        case No(inner):
            _in_condition(inner, at, keys)
        case Both(parts) | Either(parts):
            for part in parts:
                _in_condition(part, at, keys)


def _in_operand(operand: Operand, at: _Base, keys: set[str]) -> None:
    if isinstance(operand, Path):
        _walk(operand, at, keys)
