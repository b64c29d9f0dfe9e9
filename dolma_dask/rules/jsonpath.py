"""JSONPath as the Dolma toolkit has it, with its defects mended: a tree of steps and conditions, the grammar, and the values in one row.

Steps are ``.key``, ``['key']``, ``[0]``, ``[0,2]``, ``[1:3]``, ``.*``, ``[*]``, ``..key``, ``..*``, ``.length()`` and ``[?(condition)]``; conditions
are paths from ``@`` or ``$`` (which hold if there is such a value) and comparisons, joined by ``&& || !``. Wider than the toolkit's grammar:
strings in double quotes, escapes in strings, lists of literals, negative indexes.

A filter ``[?(...)]`` on an array tests its elements, on anything else the value itself: ``$.attributes[?(@.k[0][2] > 0.5)]`` tests the
attributes of the document. A row matches if there is any value. Order (``< <= > >=``) is that of two numbers, one on each side; everything
else is unordered, and several values or none compare as false; ``!=`` is the opposite of ``==``, so that it holds where there is no value.

Mended: 1 equals 1.0 (the toolkit's ``>= 1.0`` leaves out the integer 1); ``length()`` can be compared; strings may have escapes; ``size``,
``in``, ``anyOf``, ``noneOf``, ``subsetOf`` need a value on both sides. Cost: some microseconds per row; `dolma_dask.rules.filter_columns`
turns what people usually write into column operations. ``$@`` is ``$``, as the toolkit takes it in what it publishes.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from dolma_dask.display import pointed
from dolma_dask.errors import ExpressionError


class Keys(Struct, frozen=True):
    """The value of a key; several keys: of each."""

    names: tuple[str, ...]


class Items(Struct, frozen=True):
    """Elements of an array by their index, from its end if negative."""

    indexes: tuple[int, ...]


class ArraySlice(Struct, frozen=True):
    """Elements of an array, as in Python."""

    start: int | None
    stop: int | None
    step: int | None


class Every(Struct, frozen=True):
    """All elements of an array or values of an object; ``deep``: also all below them."""

    deep: bool = False


class Below(Struct, frozen=True):
    """The values of a key at any depth."""

    name: str


class Length(Struct, frozen=True):
    """Number of elements of an array."""


class Where(Struct, frozen=True):
    """Values that a condition holds for: elements of an array, or anything else itself."""

    condition: "Condition"


Step = Keys | Items | ArraySlice | Every | Below | Length | Where


class Path(Struct, frozen=True):
    """Steps from the row (``$``) or from the value that is tested (``@``)."""

    from_row: bool
    steps: tuple[Step, ...]


class JsonValue(Struct, frozen=True):
    """A literal."""

    value: Any


Operand = Path | JsonValue


class Test(Struct, frozen=True):
    """``left sign right``."""

    sign: str
    left: Operand
    right: Operand


class No(Struct, frozen=True):
    """``!condition``."""

    condition: "Condition"


class Both(Struct, frozen=True):
    """``a && b && ...``."""

    parts: tuple["Condition", ...]


class Either(Struct, frozen=True):
    """``a || b || ...``."""

    parts: tuple["Condition", ...]


Condition = Operand | Test | No | Both | Either
"""An operand holds if there is such a value."""


_SPACE = re.compile(r"[ \t\r\n]*")
_KEY = re.compile(r"[^\W\d][\w\-/#\\]*|[\w\-/#\\]+")
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INTEGER = re.compile(r"-?\d+")
_WORD = re.compile(r"[A-Za-z]+")
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_SIGN = re.compile(r"==|!=|~=|<=|>=|<|>|(?:in|nin|size|noneOf|anyOf|subsetOf)\b")
_SLICE = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*(\d+)?)?")
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.", re.DOTALL)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
LITERALS = {"true": True, "false": False, "null": None}
MAX_DEPTH = 50
"""Conditions inside each other."""


T = TypeVar("T")


def parse_path(text: str) -> Path:
    """Read a JSONPath that begins with ``$``."""
    reader = _Reader(text)
    if not reader.at("$"):
        raise reader.error("a JSONPath begins with $, such as $.attributes[?(@.key && @.key[0][2] > 0.5)]")
    try:
        path = reader.path(0)
    except RecursionError:
        raise reader.error("nested too deeply") from None
    except ValueError:  # Python reads no integer of thousands of digits
        raise reader.error("this number is too large") from None
    reader.space()
    if reader.position < len(text):
        raise reader.error("nothing can follow here")
    return path


def _unescaped(match: re.Match[str]) -> str:
    """Return what an escape in a string stands for; a letter that JSON does not know stands for itself."""
    escape = match[0]
    if escape.startswith("\\u"):
        text: str = json.loads(f'"{escape}"')
        return text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no character
    return _SHORT.get(escape[1], escape[1])


class Cursor:
    """Position in an expression; white space before what is read is passed over."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def space(self) -> None:
        """Pass over white space."""
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position

    def at(self, piece: str) -> bool:
        """Tell whether `piece` comes next."""
        self.space()
        return self.text.startswith(piece, self.position)

    def take(self, piece: str) -> bool:
        """Pass over `piece` if it comes next."""
        is_next = self.at(piece)
        self.position += len(piece) * is_next
        return is_next

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass over what `pattern` matches, if it matches anything."""
        self.space()
        matched = pattern.match(self.text, self.position)
        if matched is None or not matched[0]:
            return None
        self.position = matched.end()
        return matched

    def number(self) -> int | float | None:
        """Read a number."""
        number = self.match(NUMBER)
        return None if number is None else float(number[0]) if number[1] or number[2] else int(number[0])


class _Reader(Cursor):
    """A cursor over one JSONPath."""

    def error(self, message: str) -> ExpressionError:
        """Return an error that points at the cursor."""
        at = pointed(self.text, self.position, self.position + 1)
        return ExpressionError(
            f"cannot read this JSONPath: {message}\n{at}",
            expression=self.text,
            position=self.position,
        )

    def need(self, piece: str) -> None:
        if not self.take(piece):
            raise self.error(f"expected {piece}")

    def path(self, depth: int) -> Path:
        """Read ``$...`` or ``@...``."""
        from_row = self.at("$")
        self.position += 1
        if from_row:
            self.take("@")
        steps: list[Step] = []
        while (step := self.step(depth)) is not None:
            steps.append(step)
        return Path(from_row, tuple(steps))

    def step(self, depth: int) -> Step | None:
        if self.take(".."):
            return Every(deep=True) if self.take("*") else Below(self.key())
        if self.take("."):
            if self.take("*"):
                return Every()
            if not self.at("["):
                return Length() if self.take("length()") else Keys((self.key(),))
        return self.bracket(depth) if self.take("[") else None

    def key(self) -> str:
        if self.at("'") or self.at('"'):
            return self.quoted()
        key = self.match(_KEY)
        if key is None:
            raise self.error("expected the name of a key")
        return key[0]

    def bracket(self, depth: int) -> Step:
        step: Step
        if self.take("?"):
            self.need("(")
            step = Where(self.condition(depth + 1))
            self.need(")")
        elif self.take("*"):
            step = Every()
        elif self.at("'") or self.at('"'):
            step = Keys(tuple(self.several(self.quoted)))
        elif (bounds := self.match(_SLICE)) is not None:
            if bounds[3] is not None and int(bounds[3]) < 1:
                raise self.error("a slice goes forward: expected a step of 1 or more")
            step = ArraySlice(*(None if item is None else int(item) for item in bounds.groups()))
        else:
            step = Items(tuple(self.several(self.integer)))
        self.need("]")
        return step

    def several(self, one: Callable[[], T]) -> list[T]:
        items = [one()]
        while self.take(","):
            items.append(one())
        return items

    def integer(self) -> int:
        integer = self.match(_INTEGER)
        if integer is None:
            raise self.error("expected an index, a slice, *, a key in quotes, or ?(condition)")
        return int(integer[0])

    def quoted(self) -> str:
        string = self.match(_STRING)
        if string is None:
            raise self.error("this string is never closed")
        return _ESCAPE.sub(_unescaped, string[0][1:-1])

    def condition(self, depth: int) -> Condition:
        if depth > MAX_DEPTH:
            raise self.error(f"conditions are nested more than {MAX_DEPTH} levels deep")
        parts = [self.conjunction(depth)]
        while self.take("||"):
            parts.append(self.conjunction(depth))
        return Either(tuple(parts)) if len(parts) > 1 else parts[0]

    def conjunction(self, depth: int) -> Condition:
        parts = [self.negation(depth)]
        while self.take("&&"):
            parts.append(self.negation(depth))
        return Both(tuple(parts)) if len(parts) > 1 else parts[0]

    def negation(self, depth: int) -> Condition:
        if self.at("!") and not self.at("!="):
            self.position += 1
            return No(self.negation(depth + 1))
        if self.take("("):
            inner = self.condition(depth + 1)
            self.need(")")
            return inner
        return self.comparison(depth)

    def comparison(self, depth: int) -> Condition:
        left = self.operand(depth)
        sign = self.match(_SIGN)
        if sign is None:
            return left
        right = self.operand(depth)
        if sign[0] == "~=" and isinstance(right, JsonValue) and isinstance(right.value, str):
            try:
                _pattern(right.value)
            except re.error as error:
                raise self.error(f"this is no regular expression ({error})") from None
        return Test(sign[0], left, right)

    def operand(self, depth: int) -> Operand:
        return self.path(depth) if self.at("$") or self.at("@") else JsonValue(self.literal())

    def literal(self) -> Any:
        if self.at("'") or self.at('"'):
            return self.quoted()
        if self.take("["):
            if self.take("]"):
                return []
            items = self.several(self.literal)
            self.need("]")
            return items
        if (number := self.number()) is not None:
            return number
        word = self.match(_WORD)
        if word is not None and word[0] in LITERALS:
            return LITERALS[word[0]]
        self.position -= len(word[0]) if word else 0
        raise self.error("expected a path from @ or $, a number, a string in quotes, true, false or null")


def find(path: Path, row: Any) -> list[Any]:
    """Return the values that a path leads to."""
    return _follow(path.steps, [row], row)


def _follow(steps: Sequence[Step], values: list[Any], row: Any) -> list[Any]:
    for step in steps:
        values = [taken for value in values for taken in _take(step, value, row)]
    return values


def _take(step: Step, value: Any, row: Any) -> Iterator[Any]:
    match step:
        case Keys(names):
            yield from (value[name] for name in names if isinstance(value, dict) and name in value)
        case Items(indexes):
            yield from (
                value[at] for at in indexes if isinstance(value, list) and -len(value) <= at < len(value)
            )
        case ArraySlice(start, stop, jump):
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
        case Path() | JsonValue():
            return bool(_values(condition, value, row))
        case Test(sign, left, right):
            return _SIGNS[sign](_values(left, value, row), _values(right, value, row))
        case No(inner):
            return not holds(inner, value, row)
        case Both(parts):
            return all(holds(part, value, row) for part in parts)
        case Either(parts):
            return any(holds(part, value, row) for part in parts)


def _values(operand: Operand, value: Any, row: Any) -> list[Any]:
    if isinstance(operand, JsonValue):
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
