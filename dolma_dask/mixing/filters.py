"""Filters over whole documents in JSONPath or jq, as the Dolma toolkit's mixer takes them.

A filter is compiled to a rule over columns where that is possible; else it is asked for every document, parsed and with its attributes
merged in, which costs some microseconds each (`Filter.is_slow`). Both give the same answer.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from dolma_dask.errors import DataError, ExpressionError, UsageError
from dolma_dask.mixing.jq_columns import compile_jq
from dolma_dask.mixing.jsonpath import find, parse_path
from dolma_dask.mixing.path_columns import compile_path
from dolma_dask.mixing.row_columns import RowKinds
from dolma_dask.mixing.rules import Rule

Syntax = Literal["jsonpath", "jq"]
SYNTAXES: tuple[Syntax, ...] = ("jsonpath", "jq")

Row = Mapping[str, Any]
"""A document as Python's JSON values, its attributes merged in."""


@dataclass(frozen=True)
class Filter:
    """One expression.

    Attributes
    ----------
    text : str
        As it was written.
    syntax : {"jsonpath", "jq"}
        Its language.
    rule : Rule or None
        The same over columns, see `dolma_dask.mixing.row_columns`; None: each document is asked.
    """

    text: str
    syntax: Syntax
    rule: Rule | None = None

    @property
    def is_slow(self) -> bool:
        """Whether each document has to be asked."""
        return self.rule is None

    def matches(self, row: Row) -> bool:
        """Tell whether a document matches.

        Raises
        ------
        DataError
            jq cannot do with this document what the filter says.
        """
        values = select(self.text, self.syntax, row)
        return bool(values) and (self.syntax == "jsonpath" or all(map(_is_something, values)))


def make_filter(text: str, syntax: Syntax, kinds: RowKinds) -> Filter:
    """Read and, where possible, compile a filter.

    Raises
    ------
    ExpressionError
        It cannot be read.
    """
    check_expression(text, syntax)
    rule = compile_path(parse_path(text), kinds) if syntax == "jsonpath" else compile_jq(text, kinds)
    return Filter(text, syntax, rule)


def check_syntax(syntax: str) -> Syntax:
    """Return the name of a language that filters may be in.

    Raises
    ------
    UsageError
        There is no such language here.
    """
    if syntax not in SYNTAXES:
        raise UsageError(f"syntax={syntax!r}; expected one of {', '.join(SYNTAXES)}.")
    return syntax


def check_expression(text: str, syntax: Syntax) -> None:
    """Refuse what cannot be read.

    Raises
    ------
    ExpressionError
        With the place, or with what jq says.
    """
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


def attributes_of(filters: Sequence[Filter]) -> frozenset[str]:
    """Return the columns that the rules of filters need."""
    return frozenset().union(*(item.rule.names for item in filters if item.rule is not None))
