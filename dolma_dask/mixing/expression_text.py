"""The text of a ``where`` expression on its way to Python's parser, and errors that mark a place in it.

Python knows no backticks, and no line breaks outside of parentheses. Both are replaced by something as long, so that
places in Python's tree are places in the text.
"""

import ast
import re
import warnings
from functools import cached_property

from dolma_dask.errors import ExpressionError

ALLOWED = (
    "allowed: column names (`like this` if they are not Python names), numbers, strings, True, False; and or not; "
    "== != < <= > >=; in (...), not in (...); is None, is not None; + - * /"
)
MAX_DEPTH = 100
"""Levels of nesting; rules are evaluated by recursion, and Python's limit is 1000 calls."""
_SHOWN = 100
_STRINGS = {
    quote: re.compile(rf"{quote}(?:\\.|(?!{quote})[^\\])*{quote}", re.DOTALL)
    for quote in ("'''", '"""', "'", '"')
}
_TICKED = re.compile(r"`(?:[^`]|``)*`")
_COMMENT = re.compile(r"#[^\r\n]*")
_LINE_END = re.compile(r"\r\n|\r|\n")


class ExpressionText:
    """One expression.

    Attributes
    ----------
    text : str
        As it was typed.
    code : str
        The same for Python: spaces for line breaks and comments, Python names for those in backticks; equally long.
    ticked : dict[int, str]
        Where a name in backticks ends -> the name.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.ticked: dict[int, str] = {}
        self.code = self._for_python()
        self._margin = len(self.code) - len(self.code.lstrip(" "))  # Python takes it for indentation

    def error(self, message: str, start: int, end: int, *, closing: str = f"\n{ALLOWED}") -> ExpressionError:
        """An error to raise, with the expression and a caret line that marks ``text[start:end]``."""
        shown = re.sub(r"\s", " ", self.text)
        first = max(0, start - _SHOWN // 2)
        before, after = "..." * (first > 0), "..." * (first + _SHOWN < len(shown))
        line = f"{before}{shown[first : first + _SHOWN]}{after}"
        size = max(1, min(end, first + _SHOWN) - start)
        carets = " " * (start - first + len(before)) + "^" * size
        return ExpressionError(
            f"{message}\n  {line}\n  {carets}{closing}", expression=self.text, position=start
        )

    def error_at(self, node: ast.expr, message: str) -> ExpressionError:
        """The same, marking the text of `node`."""
        return self.error(message, *self.span(node))

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Where the text of `node` begins and ends."""
        start = self._place(node.lineno, node.col_offset)
        return start, self._place(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset + 1)

    def tree(self) -> ast.expr:
        """Python's view of the expression."""
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
        """Where the string, backticks, comment or single character that begins at `at` ends."""
        first = self.text[at]
        if first in "'\"":
            quote = first * 3 if self.text.startswith(first * 3, at) else first
            found = _STRINGS[quote].match(self.text, at)
            return found.end() if found else len(self.text)
        if first in "`#":
            found = (_TICKED if first == "`" else _COMMENT).match(self.text, at)
            if not found:
                raise self.error("this backtick is never closed", at, at + 1)
            return found.end()
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
        if self.code[at : at + 1] == "=":
            message = "comparing is written =="
        elif error.msg == "invalid syntax":
            message += "; a name that is also a word of Python needs backticks"
        return self.error(message, at, at + 1)

    def _check_depth(self, tree: ast.expr) -> None:
        stack: list[tuple[ast.AST, int]] = [(tree, 1)]
        while stack:
            node, depth = stack.pop()
            if depth > MAX_DEPTH and isinstance(node, ast.expr):
                raise self.error_at(node, f"nested more than {MAX_DEPTH} levels deep")
            stack += [(child, depth + 1) for child in ast.iter_child_nodes(node)]

    def _place(self, line: int, byte: int) -> int:
        """Offset in the text of Python's line and column, which counts UTF-8 bytes."""
        start = self._line_starts[line - 1]
        if self.code.isascii():
            return start + byte
        return start + len(self.code[start:].encode()[:byte].decode(errors="ignore"))

    @cached_property
    def _line_starts(self) -> list[int]:
        """Lines are broken only inside of strings in three quotes."""
        code = self.code[self._margin :]
        return [self._margin + start for start in (0, *(found.end() for found in _LINE_END.finditer(code)))]
