"""Values that a JSONPath finds in one row, by the rules of the Dolma toolkit, with its defects mended.

A filter ``[?(...)]`` on an array tests its elements, on anything else the value itself: ``$.attributes[?(@.k[0][2] > 0.5)]`` tests the
attributes of the document. A row matches if anything is found. Order (``< <= > >=``) is that of two numbers, one on each side; everything
else is unordered, and several values or none compare as false; ``!=`` is the opposite of ``==``, so that it holds where there is no value.

Mended: 1 equals 1.0 (the toolkit's ``>= 1.0`` leaves out the integer 1); ``length()`` can be compared; strings may have escapes; ``size``,
``in``, ``anyOf``, ``noneOf``, ``subsetOf`` need a value on both sides. Cost: some microseconds per row; `dolma_dask.rules.path_columns`
turns what people usually write into column operations.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from dolma_dask.rules.jsonpath_nodes import (
    Below,
    Both,
    Condition,
    Constant,
    Either,
    Every,
    Exists,
    Field,
    Index,
    Length,
    No,
    Operand,
    Path,
    Slice,
    Step,
    Test,
    Where,
)
from dolma_dask.rules.jsonpath_text import parse_path

__all__ = ["Path", "find", "parse_path"]


def find(path: Path, row: Any) -> list[Any]:
    """Return the values that a path leads to."""
    return _follow(path.steps, [row], row)


def _follow(steps: Sequence[Step], values: list[Any], row: Any) -> list[Any]:
    for step in steps:
        values = [found for value in values for found in _take(step, value, row)]
    return values


def _take(step: Step, value: Any, row: Any) -> Iterator[Any]:
    match step:
        case Field(names):
            yield from (value[name] for name in names if isinstance(value, dict) and name in value)
        case Index(places):
            yield from (
                value[at] for at in places if isinstance(value, list) and -len(value) <= at < len(value)
            )
        case Slice(start, stop, jump):
            yield from value[start:stop:jump] if isinstance(value, list) else ()
        case Every(deep):
            yield from _inside(value, deep)
        case Below(name):
            yield from (
                item[name]
                for item in (value, *_inside(value, True))
                if isinstance(item, dict) and name in item
            )
        case Length():
            if isinstance(value, list):
                yield len(value)
        case Where(condition):
            items = value if isinstance(value, list) else [value]
            yield from (item for item in items if holds(condition, item, row))


def _inside(value: Any, deep: bool) -> Iterator[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        yield item
        if deep:
            yield from _inside(item, True)


def holds(condition: Condition, value: Any, row: Any) -> bool:
    """Tell whether a condition holds for `value`, which ``@`` stands for, in `row`."""
    match condition:
        case Exists(operand):
            return bool(_values(operand, value, row))
        case Test(sign, left, right):
            return _SIGNS[sign](_values(left, value, row), _values(right, value, row))
        case No(inner):
            return not holds(inner, value, row)
        case Both(parts):
            return all(holds(part, value, row) for part in parts)
        case Either(parts):
            return any(holds(part, value, row) for part in parts)


def _values(operand: Operand, value: Any, row: Any) -> list[Any]:
    if isinstance(operand, Constant):
        return [operand.value]
    return _follow(operand.steps, [row if operand.from_row else value], row)


def same(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; numbers are compared as numbers, and are never equal to booleans."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


Values = Sequence[Any]


def _equal(left: Values, right: Values) -> bool:
    return len(left) == len(right) and all(map(same, left, right))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Values, Values], bool]:
    def test(left: Values, right: Values) -> bool:
        one_each = len(left) == len(right) == 1
        return one_each and is_number(left[0]) and is_number(right[0]) and compare(left[0], right[0])

    return test


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _like(left: Values, right: Values) -> bool:
    one_each = len(left) == len(right) == 1 and isinstance(left[0], str) and isinstance(right[0], str)
    return one_each and _pattern(right[0]).search(left[0]) is not None


def _items(values: Values) -> list[Any]:
    """Return the elements of a list on the right or left of a sign for sets: of the one array, or the values themselves."""
    return values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)


def _contained(left: Values, right: Values) -> bool:
    return len(left) == 1 and any(same(left[0], item) for item in _items(right))


def _sized(left: Values, right: Values) -> bool:
    one_each = len(left) == len(right) == 1 and isinstance(left[0], list | dict | str)
    return one_each and same(len(left[0]), right[0])


def _any_of(left: Values, right: Values) -> bool:
    return any(same(item, other) for item in _items(left) for other in _items(right))


def _subset(left: Values, right: Values) -> bool:
    return bool(left) and all(any(same(item, other) for other in _items(right)) for item in _items(left))


_SIGNS: dict[str, Callable[[Values, Values], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda a, b: a < b),
    ">": _ordered(lambda a, b: a > b),
    "<=": lambda left, right: _ordered(lambda a, b: a < b)(left, right) or _equal(left, right),
    ">=": lambda left, right: _ordered(lambda a, b: a > b)(left, right) or _equal(left, right),
    "~=": _like,
    "in": _contained,
    "nin": lambda left, right: len(left) == 1 and not _contained(left, right),
    "size": _sized,
    "anyOf": _any_of,
    "noneOf": lambda left, right: bool(left) and bool(right) and not _any_of(left, right),
    "subsetOf": _subset,
}
