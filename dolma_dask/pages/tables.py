"""Tables of a page: columns of one kind each; what is not known of any row has no column."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Change = Literal["change", "size_change", "seconds_change", "percent_change"]
"""Numbers with their sign."""

Kind = (
    Literal[
        "name",
        "words",
        "integer",
        "real",
        "size",
        "speed",
        "seconds",
        "share",
        "heat",
        "bar",
        "drawing",
        "mixed",
    ]
    | Change
)
"""How a cell is written: a name (of a source, a signal, a file), text, numbers; `heat` is a share with a shade, `bar` is two shares (all, dark
part) as a bar, `drawing` is HTML of our own, `mixed` cells are pairs of a value and its kind, and a change is a number with its sign."""

SHOWN_ROWS = 10
"""Rows of a table that are shown at first."""

LONGEST_NAME = 40
"""Characters of a name; what is longer is text."""

MOST_ROWS = 200
"""Rows of a table on a page; the JSON beside it has all."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    kind: Kind = "integer"
    is_quiet: bool = False  # whether it is left out where all numbers are 0

    @property
    def is_number(self) -> bool:
        """Tell whether its cells stand on the right."""
        return self.kind not in ("name", "words", "bar", "drawing")

    def tells(self, cells: Sequence[Any]) -> bool:
        """Tell whether any of its cells says something."""
        return any(cell is not None and cell != "" and not (self.is_quiet and not cell) for cell in cells)


@dataclass(frozen=True)
class Table:
    """A table as a page shows it."""

    label: str  # for those who hear the page
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    total: int = 0  # rows that there are

    @property
    def is_long(self) -> bool:
        """Tell whether the last rows are shown on demand."""
        return len(self.rows) > SHOWN_ROWS + 2


def table(label: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> Table:
    """Make a table of the columns that say something."""
    told = [number for number, column in enumerate(columns) if column.tells([row[number] for row in rows])]
    cells = [[row[number] for number in told] for row in rows[:MOST_ROWS]]
    return Table(label, [columns[number] for number in told], cells, len(rows))


def by_looks(label: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Make a table whose kinds follow from its cells."""
    kinds = [_kind(name, [row[number] for row in rows]) for number, name in enumerate(headings)]
    return table(label, [Column(name, kind) for name, kind in zip(headings, kinds, strict=True)], rows)


def _kind(heading: str, cells: Sequence[Any]) -> Kind:
    words = [cell for cell in cells if isinstance(cell, str)]
    if words:
        return "words" if max(map(len, words)) > LONGEST_NAME else "name"
    if any(isinstance(cell, float) for cell in cells):
        return "real"
    return "size" if heading.startswith("Bytes") else "integer"
