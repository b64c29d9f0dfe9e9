"""Text of documents, made safe for HTML."""

import re
from typing import Any

from markupsafe import Markup

from dolma_dask.display import quoted_if_blank
from dolma_dask.results.answer import SURROGATE

_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r"} | {0x7F: 0x2421}
_JOINT = re.compile("(?<=[_/])(?![_/])")
MAX_NAME, BEGINNING = 300, 200
"""Characters of a name that is shown as it is, and of what is shown of a longer one."""


def visible(value: Any) -> Any:
    """Replace characters that HTML cannot hold: control characters by their pictures, lone surrogates by U+FFFD."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value.translate(_CONTROL))


def breakable(value: str) -> Markup:
    """Escape `value`, a name or a sentence, and let lines break after the joints of keys and paths."""
    return Markup("<wbr>").join(_JOINT.split(visible(quoted_if_blank(value))))


def beginning(value: str) -> str:
    """Return a name without its end if it is very long."""
    value = quoted_if_blank(value)
    return value if len(value) <= MAX_NAME else f"{value[:BEGINNING]} ..."


_PLAIN = Markup("{}")


def folded(value: str, shape: Markup = _PLAIN) -> Markup:
    """Escape `value`, which stands in `shape`; what is very long is folded behind its beginning."""
    if len(value) <= MAX_NAME:
        return shape.format(breakable(value))
    parts = (shape.format(breakable(part)) for part in (beginning(value), value))
    return Markup('<details class="long"><summary>{}</summary>{}</details>').format(*parts)
