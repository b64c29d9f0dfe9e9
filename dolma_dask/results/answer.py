"""The outcome of a verb or a question: its parts are said once, and shown in a terminal, in a notebook and as JSON.

In a terminal, characters that would move or color others are spelled as Python does.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from msgspec import Struct

from dolma_dask.display import printable, shortened
from dolma_dask.results.parts import Facts, Failures, Heading, Listing, Notes, Part, Sentences
from dolma_dask.results.table import Table

MAX_NAME = 60
"""Characters of a name in a table; JSON has all of them."""

MAX_FAILURES = 20
"""Failures that a terminal shows; JSON has all of them."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which no UTF-8 can hold."""


class Answer(Struct, frozen=True):
    """Base of outcomes; one that has `parts` prints, shows itself in notebooks, and becomes JSON."""

    @property
    def exit_status(self) -> int:
        """0 unless something is wrong."""
        return 0

    def parts(self) -> Iterator[Part]:
        """Yield what a person should see, in its order."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return all that is known as JSON-able values."""
        known = {name: plain(getattr(self, name)) for name in self.__struct_fields__}
        return {**known, "exit_status": self.exit_status}

    def __str__(self) -> str:
        return terminal_text(self.parts())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from dolma_dask.results import notebook  # most outcomes are seen in a terminal

        return notebook.shown(self.parts())


# ------------------------------------------------------------------------------------------------ in a terminal


def terminal_text(parts: Iterable[Part]) -> str:
    """Return the lines of an outcome; tables that have a title, or follow another, stand below an empty line."""
    lines: list[str] = []
    before: Part | None = None
    for part in parts:
        own = _lines(part)
        if own and lines and _stands_apart(part, before):
            lines.append("")
        lines += own
        before = part if own else before
    return "\n".join(lines)


def _stands_apart(part: Part, before: Part | None) -> bool:
    has_title = isinstance(part, Table | Listing) and bool(part.title)
    return has_title or (isinstance(part, Table | Heading) and not isinstance(before, Heading))


def _lines(part: Part) -> list[str]:
    match part:
        case Heading(line):
            return [printable(line)]
        case Facts(title, facts):
            return [printable(title), *_indented(_pairs([(one.label, one.text) for one in facts]))]
        case Sentences(lines):
            return _indented(map(printable, lines))
        case Notes(lines):
            return [f"  note: {line}" for line in lines]
        case Failures(rows):
            shown = [
                f"  FAILED {name}: {': '.join(filter(None, others))}" for name, *others in rows[:MAX_FAILURES]
            ]
            left = len(rows) - len(shown)
            return [*shown, f"  and {left:,} more; --json lists all"] if left else shown
        case Listing(title, lines):
            return _indented([f"{title}:", *_indented(lines)] if title else lines)
        case Table():
            return (
                _indented([*([printable(part.title)] if part.title else []), *table_lines(part)])
                if part.rows
                else []
            )


def table_lines(table: Table) -> list[str]:
    """Return lines of aligned cells, the headings first: columns of numbers to the right, others to the left."""
    known = table.known
    rows = [known.headings, *known.cells()]
    names = [column.kind == "name" for column in known.columns]
    rows = [
        [
            shortened(printable(cell), MAX_NAME) if name else printable(cell)
            for cell, name in zip(row, names, strict=True)
        ]
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = [">" if column.is_number else "<" for column in known.columns]
    return [
        "  ".join(
            f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _pairs(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(label) for label, _ in rows), default=0)
    return [f"{printable(label):<{width}}  {printable(value)}" for label, value in rows]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


# ------------------------------------------------------------------------------------------------ as JSON


def plain(value: Any) -> Any:
    """Turn records, arrays and mappings into what JSON knows; infinite numbers are the strings ``Infinity`` and ``-Infinity``."""
    if hasattr(value, "to_json"):
        return plain(value.to_json())
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "tolist"):  # of NumPy
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def script_json(value: Any) -> str:
    """Return JSON that can stand inside a script element: no ``<``, ``>`` or ``&`` in it, and nothing that is no number."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
