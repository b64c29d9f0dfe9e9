"""JSONPath as the Dolma toolkit writes it: the grammar, from text to steps and conditions.

Steps are ``.key``, ``['key']``, ``[0]``, ``[0,2]``, ``[1:3]``, ``.*``, ``[*]``, ``..key``, ``..*``, ``.length()`` and ``[?(condition)]``; conditions
are paths from ``@`` or ``$`` (which hold if there is such a value) and comparisons, joined by ``&& || !``. What they mean stands in
`dolma_dask.rules.jsonpath`. Wider than the toolkit's grammar: strings in double quotes, escapes in strings, lists of literals, negative
indexes.
"""

import json
import re
from typing import Any

from dolma_dask.errors import ExpressionError
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

_SPACE = re.compile(r"[ \t\r\n]*")
_KEY = re.compile(r"[^\W\d][\w\-/#\\]*|[\w\-/#\\]+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_INTEGER = re.compile(r"-?\d+")
_WORD = re.compile(r"[A-Za-z]+")
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_SIGN = re.compile(r"==|!=|~=|<=|>=|<|>|(?:in|nin|size|noneOf|anyOf|subsetOf)\b")
_SLICE = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?\s*(?::\s*(\d+)?)?")
_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.", re.DOTALL)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS = {"true": True, "false": False, "null": None}
MAX_DEPTH = 50
"""Conditions inside each other."""


def parse_path(text: str) -> Path:
    """Read a JSONPath that begins with ``$``."""
    reader = _Reader(text)
    reader.space()
    if not reader.at("$"):
        raise reader.error("a JSONPath begins with $, such as $.attributes[?(@.key && @.key[0][2] > 0.5)]")
    path = reader.path(0)
    reader.space()
    if reader.place < len(text):
        raise reader.error("nothing can follow here")
    return path


def _unescaped(found: re.Match[str]) -> str:
    """Return what an escape in a string stands for; a letter that JSON does not know stands for itself."""
    escape = found[0]
    if escape.startswith("\\u"):
        text: str = json.loads(f'"{escape}"')
        return text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no character
    return _SHORT.get(escape[1], escape[1])


class _Reader:
    """A cursor over one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def error(self, message: str) -> ExpressionError:
        """Return an error that marks the cursor."""
        line = re.sub(r"\s", " ", self.text)
        return ExpressionError(
            f"cannot read this JSONPath: {message}\n  {line}\n  {' ' * self.place}^",
            expression=self.text,
            position=self.place,
        )

    def at(self, piece: str) -> bool:
        return self.text.startswith(piece, self.place)

    def take(self, piece: str) -> bool:
        """Pass over white space and `piece` if it comes next."""
        self.space()
        found = self.at(piece)
        self.place += len(piece) * found
        return found

    def need(self, piece: str) -> None:
        if not self.take(piece):
            raise self.error(f"expected {piece}")

    def space(self) -> None:
        found = _SPACE.match(self.text, self.place)
        self.place = found.end() if found else self.place

    def match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self.text, self.place)
        if found is None or not found[0]:
            return None
        self.place = found.end()
        return found[0]

    def path(self, depth: int) -> Path:
        """Read ``$...`` or ``@...``."""
        from_row = self.at("$")
        self.place += 1
        steps: list[Step] = []
        while (step := self.step(depth)) is not None:
            steps.append(step)
        return Path(from_row, tuple(steps))

    def step(self, depth: int) -> Step | None:
        before = self.place
        self.space()
        if self.take(".."):
            return Every(deep=True) if self.take("*") else Below(self.key())
        if self.take("."):
            if self.take("*"):
                return Every()
            self.space()
            return self.bracket(depth) if self.take("[") else self.named()
        if self.take("["):
            return self.bracket(depth)
        self.place = before
        return None

    def named(self) -> Step:
        if self.take("length()"):
            return Length()
        return Field((self.key(),))

    def key(self) -> str:
        self.space()
        if self.at("'") or self.at('"'):
            return self.string()
        found = self.match(_KEY)
        if found is None:
            raise self.error("expected the name of a key")
        return found

    def bracket(self, depth: int) -> Step:
        self.space()
        if self.take("?"):
            self.need("(")
            condition = self.condition(depth + 1)
            self.need(")")
            self.need("]")
            return Where(condition)
        step: Step
        if self.take("*"):
            step = Every()
        elif self.at("'") or self.at('"'):
            step = Field(tuple(self.several(self.string)))
        else:
            step = self.places()
        self.need("]")
        return step

    def several(self, one: Any) -> list[Any]:
        found = [one()]
        while self.take(","):
            self.space()
            found.append(one())
        return found

    def places(self) -> Step:
        found = _SLICE.match(self.text, self.place)
        if found is None:
            if _INTEGER.match(self.text, self.place) is None:
                raise self.error("expected an index, a slice, *, a key in quotes, or ?(condition)")
            return Index(tuple(self.several(self.integer)))
        self.place = found.end()
        if found[3] is not None and int(found[3]) < 1:
            raise self.error("a slice goes forward: expected a step of 1 or more")
        return Slice(*(None if item is None else int(item) for item in found.groups()))

    def integer(self) -> int:
        found = self.match(_INTEGER)
        if found is None:
            raise self.error("expected an index")
        return int(found)

    def string(self) -> str:
        found = self.match(_STRING)
        if found is None:
            raise self.error("this string is never closed")
        return _ESCAPE.sub(_unescaped, found[1:-1])

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
        self.space()
        if self.at("!") and not self.at("!="):
            self.place += 1
            return No(self.negation(depth + 1))
        if self.take("("):
            inner = self.condition(depth + 1)
            self.need(")")
            return inner
        return self.comparison(depth)

    def comparison(self, depth: int) -> Condition:
        left = self.operand(depth)
        self.space()
        sign = self.match(_SIGN)
        if sign is None:
            return Exists(left)
        return Test(sign, left, self.operand(depth))

    def operand(self, depth: int) -> Operand:
        self.space()
        if self.at("$") or self.at("@"):
            return self.path(depth)
        return Constant(self.literal())

    def literal(self) -> Any:
        self.space()
        if self.at("'") or self.at('"'):
            return self.string()
        if self.take("["):
            items = [] if self.take("]") else self.several(self.literal)
            if items:
                self.need("]")
            return items
        number = self.match(_NUMBER)
        if number is not None:
            return float(number) if set(number) & set(".eE") else int(number)
        word = self.match(_WORD)
        if word in _LITERALS:
            return _LITERALS[word]
        self.place -= len(word or "")
        raise self.error("expected a path from @ or $, a number, a string in quotes, true, false or null")
