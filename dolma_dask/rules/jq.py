"""jq filters of documents: the programs, and the usual ones as the tree that filters over columns are compiled from.

Read into the tree are paths with keys and indexes, comparisons of such a path or its ``length`` with a literal, ``and or not`` and parentheses.
"""

import importlib
import json
import re
from functools import lru_cache
from typing import Any

from dolma_dask.display import pointed
from dolma_dask.errors import ExpressionError
from dolma_dask.extras import require
from dolma_dask.rules.jsonpath import (
    LITERALS,
    Both,
    Condition,
    Cursor,
    Either,
    Items,
    JsonValue,
    Keys,
    Length,
    No,
    Path,
    Step,
    Test,
)

_STRING = r"\"(?:[^\"\\]|\\.)*\""
_STEP = re.compile(
    rf"\.(?P<name>[A-Za-z_]\w*)|\.(?P<string>{_STRING})|\.?\[\s*(?P<key>{_STRING})\s*\]|\.?\[\s*(?P<index>-?\d+)\s*\]|(?P<optional>\?)"
)
_TEXT = re.compile(_STRING)
_SIGN = re.compile(r"==|!=|<=|>=|<|>")
_WORD = re.compile(r"[A-Za-z_]+")


_NO_CODE = re.compile(rf"{_STRING}|#[^\n]*")
_ENDLESS = r"(?:def|repeat|until|while|(?:recurse|combinations)(?=\s*\()|range(?!\(\s*(?:\d{1,6}\s*;\s*)?(?:\d{1,6}|length)\s*\)))"
_OUTSIDE = r"env|inputs?|input_filename|now|halt|halt_error|debug|stderr|import|include|\$ENV|\$__prog_args"
_REFUSED = re.compile(rf"(?<![\w.@$])(?:(?P<endless>{_ENDLESS})|{_OUTSIDE})\b(?!\s*:)")


@lru_cache(maxsize=256)
def jq_program(text: str) -> Any:
    """Return the compiled program of a filter; refuse what may never end (nothing can stop it), and what looks at more than the document."""
    _check_refused(text)
    require("jq", "a jq filter")
    jq = importlib.import_module("jq")  # here, because most mixes do without
    try:
        return jq.compile(text)
    except ValueError as error:
        raise _error(str(error).strip(), text, 0, 1) from None


def _check_refused(text: str) -> None:
    has_code_in_strings = "\\(" in text
    code = text if has_code_in_strings else _NO_CODE.sub(lambda piece: " " * len(piece[0]), text)
    if refused := _REFUSED.search(code):
        why = "may go on without end" if refused["endless"] else "depends on more than the document"
        raise _error(
            f"{refused[0]} {why}; expected paths, comparisons and functions such as any, all, map, select, test, length",
            text,
            *refused.span(),
        )


def _error(message: str, text: str, start: int, end: int) -> ExpressionError:
    return ExpressionError(
        f"cannot read this jq filter: {message}\n{pointed(text, start, end)}", expression=text, position=start
    )


class _OtherError(Exception):
    """The filter is not of the usual kind."""


def parse_usual(text: str) -> Condition | None:
    """Return the tree of a filter that jq can read; None if it is not of the usual kind."""
    reader = _Reader(text)
    try:
        term = reader.pipeline()
    except (_OtherError, ValueError, RecursionError):  # of a string that JSON does not know
        return None
    return term if reader.at_end() else None


class _Reader(Cursor):
    """A cursor over one filter."""

    def at_end(self) -> bool:
        self.space()
        return self.position == len(self.text)

    def word(self, name: str) -> bool:
        before = self.position
        word = self.match(_WORD)
        if word is None or word[0] != name:
            self.position = before
            return False
        return True

    def pipeline(self) -> Condition:
        """``a or b``, or a path that goes through ``| length`` or ``| not``."""
        parts = [self.conjunction()]
        while self.word("or"):
            parts.append(self.conjunction())
        term = Either(tuple(parts)) if len(parts) > 1 else parts[0]
        while self.take("|"):
            term = self.piped(term)
        return term

    def piped(self, term: Condition) -> Condition:
        if self.word("not"):
            return No(term)
        if self.word("length") and isinstance(term, Path):
            return self.compared(Path(True, (*term.steps, Length())))
        raise _OtherError

    def conjunction(self) -> Condition:
        parts = [self.compared(self.term())]
        while self.word("and"):
            parts.append(self.compared(self.term()))
        return Both(tuple(parts)) if len(parts) > 1 else parts[0]

    def compared(self, left: Condition) -> Condition:
        sign = self.match(_SIGN)
        if sign is None:
            return left
        right = self.term()
        if not isinstance(left, Path | JsonValue) or not isinstance(right, Path | JsonValue):
            raise _OtherError
        return Test(sign[0], left, right)

    def term(self) -> Condition:
        if self.at("."):
            return self.path()
        if self.take("("):
            inner = self.pipeline()
            if not self.take(")"):
                raise _OtherError
            return inner
        if (text := self.match(_TEXT)) is not None:
            return JsonValue(json.loads(text[0]))
        if (number := self.number()) is not None:
            return JsonValue(number)
        word = self.match(_WORD)
        if word is None or word[0] not in LITERALS:
            raise _OtherError
        return JsonValue(LITERALS[word[0]])

    def path(self) -> Path:
        steps: list[Step] = []
        while (step := self.match(_STEP)) is not None:
            if step["index"]:
                steps.append(Items((int(step["index"]),)))
            elif not step["optional"]:
                steps.append(Keys((step["name"] or json.loads(step["string"] or step["key"]),)))
        if not steps:
            raise _OtherError
        return Path(True, tuple(steps))


_ATTRIBUTE = re.compile(
    r"\.\s*(?:attributes\b|\"attributes\"|\[\s*\"attributes\"\s*\])\s*\??"
    rf"(?:\.?\s*\[\s*(?P<index>{_STRING})\s*\]|\.\s*(?P<string>{_STRING})|\.\s*(?P<name>[A-Za-z_]\w*))?"
)
_ANYTHING = re.compile(r"\.\.|\.\s*\[\s*\]|to_entries|with_entries|paths|getpath|\$__loc__|env|input")


_DEFAULT = re.compile(r"\s*(?:\[\s*-?\d*\s*\]\s*|\?\s*)*//")


def defaults_of_jq(text: str) -> frozenset[str]:
    """Return the keys of attributes that have a default: ``.attributes.k // []``, ``.attributes.k[0]? // 0``."""
    return frozenset(
        match["name"] or json.loads(match["index"] or match["string"])
        for match in _ATTRIBUTE.finditer(text)
        if (match["name"] or match["index"] or match["string"]) and _DEFAULT.match(text, match.end())
    )


def attributes_of_jq(text: str) -> frozenset[str] | None:
    """Return the keys of attributes that a filter names; None if it may look at any of them."""
    keys = set()
    for match in _ATTRIBUTE.finditer(text):
        quoted = match["index"] or match["string"]
        if quoted is None and match["name"] is None:
            return None
        keys.add(match["name"] or json.loads(quoted))
    return None if _ANYTHING.search(text) else frozenset(keys)
