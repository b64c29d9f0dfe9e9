"""``where`` expressions: a Python expression that says which rows to keep.

::

    lang.en > 0.8 and word_count >= 50 and not (source in ("test", "dev") or `my-flag 1` is None)

Allowed are column names (a dotted name is one column; backticks around anything that is not a Python name, doubled to
mean themselves), numbers, strings, True, False; ``and or not``; ``== != < <= > >=``, also chained; ``in`` and ``not in`` with a
list of literals; ``is None`` and ``is not None``; ``+ - * /``. Lines may be broken anywhere, comments are skipped. Anything
else is an `ExpressionError` that points at the mistake. The meaning of rules is described in `dolma_dask.rules.rules`.

The text goes through Python's own parser; nothing is ever run by Python. A rule of five comparisons costs 0.1 ms to parse and 12 ns per row.
"""

import ast
import math
import re
import warnings
from collections.abc import Collection
from functools import cached_property

from dolma_dask.display import as_typed, pointed
from dolma_dask.errors import ExpressionError
from dolma_dask.rules.rules import Compare, Constant, Flag, Membership, Missing, Not, Rule, all_of, any_of
from dolma_dask.rules.values import (
    MAX_DEPTH,
    Arithmetic,
    Literal,
    Name,
    Negative,
    Node,
    Value,
    ambiguous_name,
    endings,
    unknown_name,
)

ALLOWED = (
    "allowed: column names (`like this` if they are not Python names), numbers, strings, True, False; and or not; "
    "== != < <= > >=; in (...), not in (...); is None, is not None; + - * /"
)
MAX_CHARACTERS = 1_000_000
MAX_LITERALS = 100_000
"""Literals of a list to the right of ``in``; longer ones belong into a file of ids (`block`)."""
NO_COLUMNS = {
    "text": "rules do not look at texts; compare what a tagger makes of them, such as the length of char_length_v1",
    "metadata": "rules look at fields of the metadata, such as metadata.lang",
}
"""Parts of documents that are no columns, and what to name instead."""
_USE_A_FILE = "\nTo choose documents by a long list of ids, write it to a file: --allow FILE or --block FILE"
_STRINGS = {
    quote: re.compile(rf"{quote}(?:\\.|(?!{quote})[^\\])*{quote}", re.DOTALL)
    for quote in ("'''", '"""', "'", '"')
}
_TICKED = re.compile(r"`(?:[^`]|``)*`")
_COMMENT = re.compile(r"#[^\r\n]*")
_CAPITALS = re.compile(r"\b(?:AND|OR|NOT|IN|IS|And|Or|Not|In|Is)\b\s*")
_LINE_END = re.compile(r"\r\n|\r|\n")


class ExpressionText:
    """One expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MAX_CHARACTERS:
            found = f"{len(text):,} characters; expected a rule of at most {MAX_CHARACTERS:,}"
            raise self.error(found, 0, 1, closing=_USE_A_FILE)
        self.ticked: dict[int, str] = {}
        self.code = self._for_python()
        self._margin = len(self.code) - len(self.code.lstrip(" "))  # Python takes it for indentation

    def error(self, message: str, start: int, end: int, *, closing: str = f"\n{ALLOWED}") -> ExpressionError:
        """Return an error to raise, with the expression and a line of carets below ``text[start:end]``."""
        return ExpressionError(
            f"{message}\n{pointed(self.text, start, end)}{closing}", expression=self.text, position=start
        )

    def error_at(self, node: ast.expr, message: str) -> ExpressionError:
        """Return an error to raise that points at the text of `node`."""
        return self.error(message, *self.span(node))

    def of(self, node: ast.expr) -> str:
        """Return what was typed for `node`."""
        return self.text[slice(*self.span(node))]

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return where the text of `node` begins and ends."""
        start = self._offset(node.lineno, node.col_offset)
        return start, self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset + 1)

    def tree(self) -> ast.expr:
        """Return Python's tree of the expression."""
        if not self.code.strip():
            raise self.error("the expression is empty", 0, 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as an unknown escape in a string
                tree = ast.parse(self.code[self._margin :], mode="eval").body
        except SyntaxError as error:
            raise self._syntax_error(error) from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise self.error(f"cannot read this: {error or 'nested too deeply'}", 0, len(self.text)) from None
        self._check_depth(tree)
        return tree

    def _for_python(self) -> str:
        at, parts = 0, list[str]()
        while at < len(self.text):
            end = self._piece_end(at)
            piece = self.text[at:end]
            if piece[0] == "`":
                self.ticked[end] = self._ticked_name(at, end)
                piece = "x".ljust(len(piece), "_")
            elif piece[0] == "#" or piece.isspace():
                piece = " " * len(piece)
            parts.append(piece)
            at = end
        return "".join(parts)

    def _piece_end(self, at: int) -> int:
        """Return where the string, backticks, comment or single character that begins at `at` ends."""
        first = self.text[at]
        if first in "'\"":
            quote = first * 3 if self.text.startswith(first * 3, at) else first
            match = _STRINGS[quote].match(self.text, at)
            return match.end() if match else len(self.text)
        if first in "`#":
            match = (_TICKED if first == "`" else _COMMENT).match(self.text, at)
            if not match:
                raise self.error("this backtick is never closed", at, at + 1)
            return match.end()
        return at + 1

    def _ticked_name(self, start: int, end: int) -> str:
        if end - start == 2:
            raise self.error("there is no name between these backticks", start, end)
        if re.search(r"[\w'\"]", self.text[max(0, start - 1) : start] + self.text[end : end + 1]):
            raise self.error("backticks hold a whole name, or a whole part of it after a dot", start, end)
        return self.text[start + 1 : end - 1].replace("``", "`")

    def _syntax_error(self, error: SyntaxError) -> ExpressionError:
        # Only here are columns counted in characters.
        at = self._line_starts[(error.lineno or 1) - 1] + error.offset - 1 if error.offset else len(self.text)
        message = f"cannot read this: {error.msg}"
        if self.code[at : at + 2] in ("=>", "=<"):
            message = "comparing is written >= or <="
        elif self.code[at : at + 1] == "=":
            message = "comparing is written =="
        elif self.code[at : at + 1] in ("&", "|", "!"):
            message = _WORDS
        elif self.code[at : at + 2] == "<>":
            message = "not equal is written !="
        elif any(at in (word.start(), word.end()) for word in _CAPITALS.finditer(self.code)):
            message = "write and, or, not, in, is in small letters"
        elif error.msg == "invalid syntax":
            message += "; a name that is also a word of Python needs backticks"
        elif error.msg == "invalid decimal literal":
            message += "; a name that is no Python name needs backticks, such as `my-set/word_count`"
        return self.error(message, at, at + 1)

    def _check_depth(self, tree: ast.expr) -> None:
        stack: list[tuple[ast.AST, int]] = [(tree, 1)]
        while stack:
            node, depth = stack.pop()
            if depth > MAX_DEPTH and isinstance(node, ast.expr):
                raise self.error_at(node, f"nested more than {MAX_DEPTH} levels deep")
            stack += [(child, depth + 1) for child in ast.iter_child_nodes(node)]

    def _offset(self, line: int, byte: int) -> int:
        """Return the offset in the text of Python's line and column, which counts UTF-8 bytes."""
        start = self._line_starts[line - 1]
        if self.code.isascii():
            return start + byte
        return start + len(self.code[start:].encode()[:byte].decode(errors="ignore"))

    @cached_property
    def _line_starts(self) -> list[int]:
        """Starts of lines, which are broken only inside of strings in three quotes."""
        code = self.code[self._margin :]
        return [self._margin + start for start in (0, *(end.end() for end in _LINE_END.finditer(code)))]


__all__ = ["Rule", "parse", "resolve"]

_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_WORDS = "write and, or, not instead of & | ~ && || !"
_REFUSED: dict[type[ast.AST], str] = {
    ast.Call: "functions cannot be called",
    ast.Attribute: "only column names may have a dot",
    ast.Subscript: "values cannot be indexed",
    ast.Lambda: "functions cannot be defined",
    ast.JoinedStr: "f-strings are not allowed",
    ast.NamedExpr: "names cannot be assigned",
    ast.IfExp: "if ... else is not allowed; use and, or, not",
    ast.Tuple: "a list stands only to the right of in",
    ast.List: "a list stands only to the right of in",
    ast.Set: "a list stands only to the right of in",
}


def parse(expression: str) -> Rule:
    """Return the rule that an expression states; raise `ExpressionError` with the position of a mistake."""
    return _Reader(expression).rule


def resolve(rule: Rule, known: Collection[str]) -> Rule:
    """Write short names in full (`endings`): ``word_count`` for the only column that ends in ``__word_count``."""
    full: dict[str, str] = {}
    known = frozenset(known)
    for name in sorted(rule.names - known):
        ends = endings(name, known)
        if not ends:
            raise _error_at(rule, name, NO_COLUMNS.get(name) or _unknown(rule, name, known))
        if len(ends) > 1:
            raise _error_at(rule, name, ambiguous_name(name, ends))
        full[name] = ends[0]
    return rule.renamed(full)


def _unknown(rule: Rule, name: str, known: Collection[str]) -> str:
    """Describe a column that does not exist, and what may have been meant: a field of the metadata, or a string."""
    meant = f"if it is a field of the metadata, write {Name(f'metadata.{name}')}"
    if _is_compared_with(rule, Name(name)):
        meant += f"; if it is a string, write {name!r}"
    return f"{unknown_name(name, known)}; {meant}"


def _is_compared_with(node: Node, name: Name) -> bool:
    if isinstance(node, Compare):
        return node.right == name
    return any(_is_compared_with(child, name) for child in node.children())


def _error_at(rule: Rule, name: str, message: str) -> ExpressionError:
    """Return an error that points at the first `name` in the spelling of `rule`."""
    reader = _Reader(str(rule))
    error = reader.text.error(message, *reader.spans[name], closing="")
    error.details["name"] = name
    return error


class _Reader:
    """Python's tree of one expression on its way to a rule."""

    def __init__(self, expression: str) -> None:
        self.text = ExpressionText(expression)
        self.spans: dict[str, tuple[int, int]] = {}  # column -> its first span in the text
        self.rule = self._rule(self.text.tree())

    def _rule(self, node: ast.expr) -> Rule:
        match node:
            case ast.BoolOp(op=ast.And()):
                return all_of(*map(self._rule, node.values))
            case ast.BoolOp():
                return any_of(*map(self._rule, node.values))
            case ast.UnaryOp(op=ast.Not()):
                return Not(self._rule(node.operand))
            case ast.Compare():
                return self._comparisons(node)
            case ast.Constant(value=bool()):
                return Constant(node.value is True)
            case ast.Name() | ast.Attribute():
                return Flag(self._name(node))
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()) | ast.UnaryOp(op=ast.Invert()):
                raise self.text.error_at(node, _WORDS)
            case ast.Constant() | ast.BinOp() | ast.UnaryOp():
                raise self.text.error_at(node, "this is a value, not a rule; compare it with something")
        raise self.text.error_at(node, _REFUSED.get(type(node), "this is not allowed in a rule"))

    def _comparisons(self, node: ast.Compare) -> Rule:
        """``a < b < c`` as ``a < b and b < c``."""
        operands = [node.left, *node.comparators]
        links = zip(operands[:-1], node.ops, operands[1:], strict=True)
        return all_of(*(self._comparison(left, sign, right) for left, sign, right in links))

    def _comparison(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Rule:
        if isinstance(sign, ast.In | ast.NotIn):
            return Membership(self._value(left), self._literals(right), isinstance(sign, ast.NotIn))
        if isinstance(sign, ast.Is | ast.IsNot):
            if not _is_none(right):
                raise self._not_none(left, sign, right)
            return Missing(self._value(left), isinstance(sign, ast.IsNot))
        if isinstance(sign, ast.Eq | ast.NotEq) and (_is_none(left) or _is_none(right)):
            value = left if _is_none(right) else right
            raise self._write_missing(value, is_missing=isinstance(sign, ast.Eq))
        return Compare(_COMPARE[type(sign)], self._value(left), self._value(right))

    def _write_missing(self, value: ast.expr, *, is_missing: bool) -> ExpressionError:
        meant = f"{self.text.of(value)} {'is' if is_missing else 'is not'} None"
        return self.text.error_at(value, f"None stands only after is and is not: write {as_typed(meant)}")

    def _not_none(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> ExpressionError:
        """Return an error for something else behind ``is`` and ``is not``: a name of None elsewhere, or a value."""
        word = self.text.of(right)
        if word.lower() in ("none", "null", "nil", "missing"):
            return self._write_missing(left, is_missing=isinstance(sign, ast.Is))
        word = word.capitalize() if word.lower() in ("true", "false") else word
        meant = f"{self.text.of(left)} {'==' if isinstance(sign, ast.Is) else '!='} {word}"
        return self.text.error_at(right, f"after is and is not stands only None: write {as_typed(meant)}")

    def _literals(self, node: ast.expr) -> tuple[Literal, ...]:
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            such = f"({self.text.of(node)},)" if isinstance(node, ast.Constant) else "(1, 2) or ('a',)"
            raise self.text.error_at(node, f"to the right of in stands a list, such as {such}")
        if len(node.elts) > MAX_LITERALS:
            found = f"a list of {len(node.elts):,} values; expected at most {MAX_LITERALS:,}"
            raise self.text.error(found, *self.text.span(node), closing=_USE_A_FILE)
        literals: list[Literal] = []
        for item in node.elts:
            value = self._value(item)
            if not isinstance(value, Literal):
                raise self.text.error_at(item, "this list holds only numbers, strings, True and False")
            if literals and value.kind != literals[0].kind:
                kinds = f"a {literals[0].kind} and a {value.kind}"
                raise self.text.error_at(item, f"this list holds {kinds}; expected values of one kind")
            literals.append(value)
        return tuple(literals)

    def _value(self, node: ast.expr) -> Value:
        match node:
            case ast.Name() | ast.Attribute():
                return self._name(node)
            case ast.Constant():
                return self._literal(node)
            case ast.UnaryOp(op=ast.USub()):
                operand = self._number(node.operand)
                if isinstance(operand, Literal) and not isinstance(operand.value, str):
                    return Literal(-operand.value)
                return Negative(operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                left, right = self._number(node.left), self._number(node.right)
                return Arithmetic(_ARITHMETIC[type(node.op)], left, right)
            case ast.BinOp(op=ast.BitAnd() | ast.BitOr()) | ast.UnaryOp(op=ast.Invert()):
                raise self.text.error_at(node, _WORDS)
            case ast.BinOp() | ast.UnaryOp(op=ast.UAdd()):
                raise self.text.error_at(node, "numbers are combined only by + - * / and -")
            case ast.BoolOp() | ast.Compare() | ast.UnaryOp():
                raise self.text.error_at(
                    node, "this is a rule, but here stands a value: a column or a literal"
                )
            case ast.Subscript(value=ast.Name() | ast.Attribute(), slice=ast.Constant(value=str(key))):
                meant = as_typed(str(Name(f"{self._name(node.value)}.{key}")))
                raise self.text.error_at(node, f"values cannot be indexed; a field is written {meant}")
        raise self.text.error_at(node, _REFUSED.get(type(node), "this is not allowed in a rule"))

    def _number(self, node: ast.expr) -> Value:
        value = self._value(node)
        if isinstance(value, Literal) and value.kind != "number":
            raise self.text.error_at(node, f"cannot calculate with a {value.kind}")
        return value

    def _literal(self, node: ast.Constant) -> Literal:
        value = node.value
        if value is None:
            raise self.text.error_at(node, "None stands only after is and is not: write x is None")
        if not isinstance(value, bool | int | float | str):
            raise self.text.error_at(node, f"a {type(value).__name__} is not allowed in a rule")
        if not isinstance(value, str) and not abs(value) < (10**38 if isinstance(value, int) else math.inf):
            raise self.text.error_at(node, "this number is too large: integers have up to 38 digits")
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            raise self.text.error_at(node, "half of a surrogate pair cannot stand in text")
        return Literal(value)

    def _name(self, node: ast.expr) -> Name:
        name = ".".join(self._name_parts(node))
        self.spans.setdefault(name, self.text.span(node))
        return Name(name)

    def _name_parts(self, node: ast.expr) -> list[str]:
        """Return parts as they were typed: Python's tree holds them in another Unicode normalisation."""
        start, end = self.text.span(node)
        before: list[str] = []
        if isinstance(node, ast.Attribute):
            before = self._name_parts(node.value)
            start = self.text.span(node.value)[1]
        elif not isinstance(node, ast.Name):
            raise self.text.error_at(node, "only column names may have a dot")
        if end in self.text.ticked:
            return [*before, self.text.ticked[end]]
        part = self.text.code[start:end].strip(" .")
        if ")" in part:
            raise self.text.error_at(node, "a column name stands without parentheses")
        return [*before, part]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
