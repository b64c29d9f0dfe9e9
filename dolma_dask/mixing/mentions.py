"""Which attributes an expression speaks of, so that those that no document has are told before anything is read."""

import json
import re

from dolma_dask.mixing.filters import Syntax
from dolma_dask.mixing.jsonpath import parse_path
from dolma_dask.mixing.jsonpath_nodes import (
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
from dolma_dask.mixing.row_columns import ATTRIBUTES

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
"""Where ``@`` stands, from the row; None: below an attribute or elsewhere, where no keys of attributes are."""


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
