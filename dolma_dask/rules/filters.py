"""Filters over whole documents in JSONPath or jq, as the Dolma toolkit's mixer takes them.

A filter is compiled to a rule over columns where that is possible; else it looks at every document, parsed and with its attributes
merged in, which costs some microseconds each (`Filter.is_slow`). Both give the same answer.
"""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from dolma_dask.errors import DataError, ExpressionError, UsageError
from dolma_dask.rules.jq_columns import compile_jq
from dolma_dask.rules.jsonpath import find, parse_path
from dolma_dask.rules.jsonpath_nodes import (
    Below,
    Both,
    Condition,
    Either,
    Every,
    Exists,
    Field,
    No,
    Operand,
    Path,
    Step,
    Test,
    Where,
)
from dolma_dask.rules.path_columns import compile_path
from dolma_dask.rules.row_columns import ATTRIBUTES, RowKinds
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
    """The filter over columns, see `dolma_dask.rules.row_columns`; None: each document is looked at."""

    @property
    def is_slow(self) -> bool:
        """True if each document has to be looked at."""
        return self.rule is None

    def matches(self, row: Row) -> bool:
        """Tell whether a document matches."""
        values = select(self.text, self.syntax, row)
        return bool(values) and (self.syntax == "jsonpath" or all(map(_is_something, values)))


def make_filter(text: str, syntax: Syntax, kinds: RowKinds) -> Filter:
    """Read and, where possible, compile a filter."""
    check_expression(text, syntax)
    rule = compile_path(parse_path(text), kinds) if syntax == "jsonpath" else compile_jq(text, kinds)
    return Filter(text, syntax, rule)


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
        _jq_program(text)


def select(text: str, syntax: Syntax, row: Row) -> list[Any]:
    """Return the values that an expression finds in a document.

    Raises
    ------
    DataError
        jq failed.
    """
    if syntax == "jsonpath":
        return find(_path(text), row)
    try:
        return cast(list[Any], _jq_program(text).input_value(row).all())
    except ValueError as error:
        raise DataError(
            f"jq cannot evaluate {text!r} for document {row.get('id')!r}: {error}. Ask for what may be missing or of another type with "
            "`?` or `//`."
        ) from None


_path = lru_cache(maxsize=256)(parse_path)


@lru_cache(maxsize=256)
def _jq_program(text: str) -> Any:
    jq = importlib.import_module("jq")  # here, because most mixes do without
    try:
        return jq.compile(text)
    except ValueError as error:
        raise ExpressionError(
            f"cannot read this jq filter: {str(error).strip()}\n  {text}", expression=text, position=0
        ) from None


def _is_something(value: object) -> bool:
    """Tell whether an output is true for the Dolma toolkit: null, false, 0 and what is empty are not."""
    return bool(value)


_JQ_KEY = re.compile(
    r"\.\s*(?:attributes\b|\"attributes\"|\[\s*\"attributes\"\s*\])\s*\??"
    r"(?:\.?\s*\[\s*(?P<index>\"(?:[^\"\\]|\\.)*\")\s*\]|\.\s*(?P<string>\"(?:[^\"\\]|\\.)*\")|\.\s*(?P<name>[A-Za-z_]\w*))?"
)
_JQ_ANYTHING = re.compile(r"\.\.|\.\s*\[\s*\]|to_entries|with_entries|paths|getpath|\$__loc__|env|input")


class _AnythingError(Exception):
    """Any attribute may be meant."""


def attributes_in(text: str, syntax: Syntax) -> frozenset[str] | None:
    """Return the keys of attributes that an expression names; None if it may look at any of them."""
    try:
        if syntax == "jq":
            return frozenset(_in_jq(text))
        found: set[str] = set()
        _walk(parse_path(text), (), found)
        return frozenset(found)
    except _AnythingError:
        return None


def _in_jq(text: str) -> list[str]:
    keys = []
    for found in _JQ_KEY.finditer(text):
        quoted = found["index"] or found["string"]
        if quoted is None and found["name"] is None:
            raise _AnythingError
        keys.append(found["name"] or json.loads(quoted))
    if _JQ_ANYTHING.search(text):
        raise _AnythingError
    return keys


_Base = tuple[Step, ...] | None
"""Path of ``@`` from the row; None: below an attribute or elsewhere, where no keys of attributes are."""


def _walk(path: Path, base: _Base, found: set[str]) -> None:
    at: _Base = () if path.from_row else base
    for step in path.steps:
        if isinstance(step, Where):
            _in_condition(step.condition, at, found)
            continue
        at = _after(at, step, found)


def _after(at: _Base, step: Step, found: set[str]) -> _Base:
    """Return where a step leads to from `at`, noting keys of attributes."""
    if at is None:
        return None
    if not at:
        if isinstance(step, Below | Every):
            raise _AnythingError
        return (step,) if isinstance(step, Field) and ATTRIBUTES in step.names else None
    if not isinstance(step, Field):
        raise _AnythingError
    found.update(step.names)
    return None


def _in_condition(condition: Condition, at: _Base, found: set[str]) -> None:
    match condition:
        case Exists(operand):
            _in_operand(operand, at, found)
        case Test(_, left, right):
            _in_operand(left, at, found)
            _in_operand(right, at, found)
        case No(inner):
            _in_condition(inner, at, found)
        case Both(parts) | Either(parts):
            for part in parts:
                _in_condition(part, at, found)


def _in_operand(operand: Operand, at: _Base, found: set[str]) -> None:
    if isinstance(operand, Path):
        _walk(operand, at, found)
