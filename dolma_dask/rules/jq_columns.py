"""Usual jq filters of documents as rules over columns; everything else is left to jq itself.

Compiled are paths with keys and indexes, comparisons of such a path or its ``length`` with a literal, ``and or not`` and parentheses. jq orders
null before everything else, so ``.attributes.k[0][2] < 1`` holds for documents without k; that is kept.
"""

import json
import re
from dataclasses import dataclass

from dolma_dask.rules.row_columns import Found, RowKinds, compare, count_of, find_column
from dolma_dask.rules.rules import Compare, Constant, Membership, Missing, Not, Rule, all_of, any_of
from dolma_dask.rules.values import Literal, Value

_TOKEN = re.compile(
    r"\s*(?:(?P<path>\.(?:[A-Za-z_]\w*|\"(?:[^\"\\]|\\.)*\"|\[)?)|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<string>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<sign>==|!=|<=|>=|<|>|\(|\)|\||\[|\]|\?)|(?P<word>[A-Za-z_]+))"
)
_SIGNS = ("==", "!=", "<=", ">=", "<", ">")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_WORDS = {"true": True, "false": False, "null": None}


class _NoColumnError(Exception):
    """Some part has no form over columns."""


@dataclass(frozen=True)
class _Number:
    """A number that is never missing."""

    value: Value


_Term = Found | _Number | Rule | Literal | None


def compile_jq(text: str, kinds: RowKinds) -> Rule | None:
    """Return a rule that keeps the rows for which a jq filter is true; None if there is no such rule."""
    try:
        reader = _Reader(text, kinds)
        result = reader.alternatives()
        reader.end()
        return _weigh(result)
    except _NoColumnError:
        return None


def _weigh(result: _Term) -> Rule:
    """Return when the Dolma toolkit takes the output of a filter for true: not for null, false, 0 and what is empty."""
    if isinstance(result, Rule):
        return result
    if isinstance(result, _Number):
        return Not(Compare("==", result.value, Literal(0)))
    if not isinstance(result, Found):
        raise _NoColumnError
    if result.kind == "spans":
        return Compare(">", _count(result).value, Literal(0))
    if result.kind == "bool":
        return Compare("==", result.value, Literal(True))
    if result.kind == "span":
        return result.there
    empty = Literal(0 if result.kind == "number" else "")
    return Membership(result.value, (empty,), negated=True)


def _true(term: _Term) -> Rule:
    """Return when jq takes a value for true: not for null and false."""
    if isinstance(term, Rule):
        return term
    if isinstance(term, _Number):
        return Constant(True)
    if isinstance(term, Found):
        return Compare("==", term.value, Literal(True)) if term.kind == "bool" else term.there
    raise _NoColumnError


def _count(found: _Term) -> _Number:
    count = count_of(found, zero_if_missing=True) if isinstance(found, Found) else None
    if count is None:
        raise _NoColumnError
    return _Number(count)


class _Reader:
    """Reads one filter; `_NoColumnError` wherever it is not of the simple kind."""

    def __init__(self, text: str, kinds: RowKinds) -> None:
        self.text = text
        self.kinds = kinds
        self.place = 0
        self.token: tuple[str, str] | None = None
        self.next()

    def next(self) -> None:
        found = _TOKEN.match(self.text, self.place)
        if found is None:
            self.token = None
            if self.text[self.place :].strip():
                raise _NoColumnError
            return
        self.place = found.end()
        self.token = next((kind, piece) for kind, piece in found.groupdict().items() if piece is not None)

    def take(self, piece: str) -> bool:
        if self.token is None or self.token[1] != piece or self.token[0] not in ("sign", "word"):
            return False
        self.next()
        return True

    def end(self) -> None:
        if self.token is not None:
            raise _NoColumnError

    def alternatives(self) -> _Term:
        """``a or b``, or a path that goes through ``| length`` or ``| not``."""
        parts = [self.both()]
        while self.take("or"):
            parts.append(self.both())
        term = any_of(*map(_true, parts)) if len(parts) > 1 else parts[0]
        while self.take("|"):
            term = self.piped(term)
        return term

    def piped(self, term: _Term) -> _Term:
        if self.take("not"):
            return Not(_true(term))
        if self.take("length"):
            return self.compared(_count(term))
        raise _NoColumnError

    def both(self) -> _Term:
        parts = [self.compared(self.term())]
        while self.take("and"):
            parts.append(self.compared(self.term()))
        return all_of(*map(_true, parts)) if len(parts) > 1 else parts[0]

    def compared(self, left: _Term) -> _Term:
        if self.token is None or self.token[1] not in _SIGNS:
            return left
        sign = self.token[1]
        self.next()
        return _compare(sign, left, self.term())

    def term(self) -> _Term:
        if self.token is None:
            raise _NoColumnError
        kind, piece = self.token
        if kind == "path":
            return self.path()
        self.next()
        if piece == "(" and kind == "sign":
            inner = self.alternatives()
            if not self.take(")"):
                raise _NoColumnError
            return inner
        if kind in ("number", "string"):
            return Literal(json.loads(piece))
        if kind == "word" and piece in _WORDS:
            value = _WORDS[piece]
            return None if value is None else Literal(value)
        raise _NoColumnError

    def path(self) -> Found:
        steps: list[str | int] = []
        while self.token is not None:
            kind, piece = self.token
            if (
                kind == "path"
                and piece != "."
                and not (steps and self.text[self.place - len(piece) - 1].isspace())
            ):
                self.key(piece, steps)
            elif kind == "sign" and piece == "[" and steps:
                self.next()
                self.index(steps)
            elif not (kind == "sign" and piece == "?" and steps):
                break
            else:
                self.next()
        found = find_column(steps, self.kinds)
        if found is None:
            raise _NoColumnError
        return found

    def key(self, piece: str, steps: list[str | int]) -> None:
        self.next()
        if piece == ".[":
            self.index(steps)
        else:
            name = piece[1:]
            steps.append(json.loads(name) if name.startswith('"') else name)

    def index(self, steps: list[str | int]) -> None:
        if self.token is None or self.token[0] not in ("number", "string"):
            raise _NoColumnError
        place = json.loads(self.token[1])
        if isinstance(place, float):
            raise _NoColumnError
        steps.append(place)
        self.next()
        if not self.take("]"):
            raise _NoColumnError


def _compare(sign: str, left: _Term, right: _Term) -> Rule:
    if isinstance(left, Literal) and isinstance(right, Found | _Number):
        return _compare(_MIRRORED[sign], right, left)
    if isinstance(left, _Number) and isinstance(right, Literal) and right.kind == "number":
        return Compare(sign, left.value, right)
    if not isinstance(left, Found):
        raise _NoColumnError
    if right is None and sign in ("==", "!="):
        return left.there if sign == "!=" else Not(left.there)
    if not isinstance(right, Literal):
        raise _NoColumnError
    rule = compare("==" if sign == "!=" else sign, left, right.value)
    if rule is None:
        raise _NoColumnError
    if sign == "!=":
        return Not(rule)
    return any_of(rule, Missing(left.value)) if sign in ("<", "<=") else rule
