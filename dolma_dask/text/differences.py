"""Differences of two texts word by word, cut to what differs and its surroundings, as marked text or as HTML."""

import html
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from msgspec import Struct

MAX_TOKENS = 3000
"""Words and marks of a text that are compared; the rest of longer texts is counted."""

CONTEXT = 8
"""Words and marks that are shown on either side of a difference."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_TOKEN = re.compile(rf"(?:[{_UNSPACED}]|[^\W_{_UNSPACED}]+|.)\s*", re.DOTALL)
"""A word, a character of a script that is written without spaces, or any other character, with the white space behind it."""

_MARKS = {"same": ("", ""), "removed": ("[-", "-]"), "added": ("{+", "+}"), "cut": ("", "")}
_TAGS = {"removed": "del", "added": "ins", "cut": "small"}


Kind = Literal["same", "removed", "added", "cut"]


class TextPiece(Struct, frozen=True):
    """Some of a text: in both texts, only in the first (removed), only in the second (added), or left out (cut: how much, in words)."""

    kind: Kind
    text: str

    def as_text(self) -> str:
        """Return it with marks: ``[-removed-]{+added+}``."""
        before, after = _MARKS[self.kind]
        return f"{before}{self.text}{after}"

    def as_html(self) -> str:
        """Return it as HTML; the text is escaped."""
        escaped = html.escape(self.text)
        tag = _TAGS.get(self.kind)
        return f"<{tag}>{escaped}</{tag}>" if tag else escaped


def differences(first: str, second: str) -> tuple[TextPiece, ...]:
    """Return the second text with what differs from the first; words are equal if they differ in case or in the amount of white space."""
    one, other = _tokens(first), _tokens(second)
    matcher = SequenceMatcher(None, list(map(_folded, one)), list(map(_folded, other)), autojunk=False)
    pieces: list[TextPiece] = []
    opcodes = matcher.get_opcodes()
    if [kind for kind, *_ in opcodes] == ["equal"] and len(other) > CONTEXT:
        same = TextPiece("cut", f" [... {len(other):,} words and marks without a difference ...] ")
        return (same, *_uncompared(first, second))
    for kind, a, b, c, d in opcodes:
        if kind == "equal":
            is_first, is_last = c == 0, d == len(other)
            pieces += _shortened("same", other[c:d], 0 if is_first else CONTEXT, 0 if is_last else CONTEXT)
            continue
        pieces += _shortened("removed", one[a:b], 2 * CONTEXT, 2 * CONTEXT) if a < b else []
        pieces += _shortened("added", other[c:d], 2 * CONTEXT, 2 * CONTEXT) if c < d else []
    return (*pieces, *_uncompared(first, second))


def beginning(text: str, max_tokens: int = 8 * CONTEXT) -> tuple[TextPiece, ...]:
    """Return the beginning of a text."""
    return tuple(_shortened("same", _TOKEN.findall(text[: 1 << 16]), max_tokens, 0))


def _tokens(text: str) -> list[str]:
    return [match[0] for _, match in zip(range(MAX_TOKENS), _TOKEN.finditer(text), strict=False)]


def _folded(token: str) -> str:
    return token.strip().casefold()


def _shortened(kind: Kind, tokens: Sequence[str], first: int, last: int) -> Iterator[TextPiece]:
    """Yield the first and the last so many tokens and how many are left out between them."""
    left_out = len(tokens) - first - last
    if left_out <= CONTEXT:
        yield TextPiece(kind, "".join(tokens))
        return
    shown = TextPiece(kind, "".join(tokens[:first])), TextPiece(kind, "".join(tokens[len(tokens) - last :]))
    yield from [shown[0]] if first else []
    yield TextPiece("cut", f" [... {left_out:,} words and marks ...] ")
    yield from [shown[1]] if last else []


def _uncompared(first: str, second: str) -> Iterator[TextPiece]:
    """Yield how much of the texts was not compared."""
    compared = [sum(map(len, _tokens(text))) for text in (first, second)]
    rest = [len(text) - known for text, known in zip((first, second), compared, strict=True)]
    if any(rest):
        yield TextPiece(
            "cut", f" [... not compared: the last {rest[0]:,} characters there, {rest[1]:,} here ...]"
        )
