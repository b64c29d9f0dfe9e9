"""Numbers and tables as people read them: in a sentence, in a terminal, in a notebook, on a page.

Units are decimal (MB = 10^6 bytes); an en dash stands for the unknown.
"""

import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

UNKNOWN = "\N{EN DASH}"
"""Shown where a number is not known; never 0."""

_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\u200f\u202b\u202e\u2067\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
"""Letters and marks by which the text around them is laid out anew."""

_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Characters that are not seen and change the direction of what follows."""

_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")

_SURROUNDINGS = 100
"""Characters of an expression that a message shows."""


def near_or_all(name: object, known: Collection[str]) -> str:
    """Return what a message about an unknown name ends with: the known one that is most like it, else all of them."""
    near = get_close_matches(str(name), known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}."


def isolated(name: str) -> str:
    """Return a name for a sentence: one that is written from right to left stands between isolates, so that it moves no word of the sentence."""
    tame = _DIRECTIONS.sub("\N{REPLACEMENT CHARACTER}", quoted_if_blank(name))
    return f"\u2068{tame}\u2069" if _RIGHT_TO_LEFT.search(name) else tame


def last_name(url: str) -> str:
    """Return the last part of a URL or path: which may be shown to anybody."""
    return url.rstrip("/").rpartition("/")[2]


def shown_name(url: str) -> str:
    """Return the last part of a URL or path for a sentence."""
    return isolated(last_name(url))


def listed(names: Sequence[str]) -> str:
    """Return names as in a sentence."""
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def without_blank_lines(text: str) -> str:
    """Return a text without the empty lines at its beginning; one of white space alone as it is."""
    return text[_BLANK_LINES.match(text).end() :] if text.strip() else text  # type: ignore[union-attr]


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: 1 file, 2 files; `nouns` if an s does not make it."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"


def pointed(text: str, start: int, end: int) -> str:
    """Return two lines: the surroundings of a place in an expression, and carets below ``text[start:end]``."""
    shown = re.sub(r"\s", " ", text)
    first = max(0, start - _SURROUNDINGS // 2)
    before, after = "..." * (first > 0), "..." * (first + _SURROUNDINGS < len(shown))
    carets = "^" * max(1, min(end, first + _SURROUNDINGS) - start)
    return f"  {before}{shown[first : first + _SURROUNDINGS]}{after}\n  {' ' * (start - first + len(before))}{carets}"


def as_typed(expression: str) -> str:
    """Return an expression for a sentence in backticks; one that has backticks itself, in double quotes."""
    return f'"{expression}"' if "`" in expression else f"`{expression}`"


def quoted_if_blank(text: str) -> str:
    """Return a text, spelled as Python does if it is white space alone, of which nothing would be seen."""
    return repr(text) if text.isspace() else text


def printable(text: str) -> str:
    """Return a text of somebody else's for a terminal: without what controls it, and never blank unless it is empty."""
    text = quoted_if_blank(text)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def shortened(text: str, most: int) -> str:
    """Return a text, or its beginning and an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def integer(value: int | None) -> str:
    """Write with thousands separators: ``1,234,567``."""
    return UNKNOWN if value is None else f"{value:,}"


def byte_size(value: int | None) -> str:
    """Write with a decimal unit and three digits: ``512 B``, ``1.23 MB``; kB = 10^3, MB = 10^6, GB = 10^9 bytes."""
    if value is None:
        return UNKNOWN
    if abs(value) < 1000:
        return f"{value} B"
    power = next((power for power in range(1, 6) if abs(value) < 999.5 * 1000**power), 6)
    size, unit = value / 1000**power, ("kB", "MB", "GB", "TB", "PB", "EB")[power - 1]
    digits = 2 if abs(size) < 9.995 else 1 if abs(size) < 99.95 else 0
    return f"{size:,.{digits}f} {unit}"


def seconds(value: float | None) -> str:
    """Write as a duration: ``0.42 s``, ``12.3 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 59.95:
        return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(value / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def moment(value: float) -> str:
    """Write seconds since 1970 as a moment in UTC, to the second; nothing for 0."""
    return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if value else ""


def percent(part: float | None, whole: float | None = 1.0) -> str:
    """Write a share: ``79.5 %``; shares that would round to 0 or 100 without being it are ``< 0.1 %``, ``> 99.9 %``."""
    if part is None or not whole or not math.isfinite(part / whole):
        return UNKNOWN
    share = 100 * part / whole
    if 0 < share < 0.05:
        return "< 0.1 %"
    if 99.95 <= share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share in (0, 100) else f"{share:,.1f} %"


def real(value: float | None) -> str:
    """Write a value of a signal with some four digits: ``1,234.5``, ``0.0123``, ``1.5e-07``."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "\N{MINUS SIGN}\N{INFINITY}" if value < 0 else "\N{INFINITY}"
    if value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif abs(value) >= 1000 and abs(value) < 1e9:
        text = f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.1f}"
    else:
        text = f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}") if "e" not in text else text
