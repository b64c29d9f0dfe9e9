"""Tables of typed cells: each column has a kind, and all that shows a table writes its cells by that."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import byte_size, moment, percent, quoted_if_blank, real, seconds

if TYPE_CHECKING:
    from dolma_dask.figures.model import Panel

Change = Literal["change", "size_change", "seconds_change", "percent_change"]
"""Numbers with their sign."""

Number = Literal["integer", "real", "size", "speed", "seconds", "share", "heat", "moment"] | Change

Kind = Literal["name", "words", "bar", "drawing", "mixed"] | Number
"""Form of a cell. A `name` (of a source, a signal, an id) may be cut, `words` are shown whole. `size` is of bytes, `moment` of seconds since
1970; `heat` is a share with a shade, and a change is a number with its sign. Cells of `mixed` are pairs of a value and its kind. On pages alone,
`bar` is two shares (all, dark part) as a bar, and `drawing` is HTML of our own."""

MAX_ROWS = 200
"""Rows of a table that are shown; JSON has all."""

_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "integer": lambda value: f"{value:,.0f}",
    "real": real,
    "size": lambda value: byte_size(round(value)),
    "speed": lambda value: f"{byte_size(round(value))}/s",
    "seconds": seconds,
    "share": percent,
    "heat": percent,
    "moment": moment,
}
_UNSIGNED: Mapping[str, Kind] = {
    "change": "integer",
    "size_change": "size",
    "seconds_change": "seconds",
    "percent_change": "share",
}


def written(value: Any, kind: Kind) -> str:
    """Write a cell for people; nothing for None, which is unknown."""
    if value is None:
        return ""
    if kind == "mixed":
        return written(*value)
    if kind in _UNSIGNED:
        sign = "+" if value > 0 else "\N{MINUS SIGN}" if value < 0 else ""
        return sign + written(abs(value), _UNSIGNED[kind])
    return _WRITERS[kind](value) if kind in _WRITERS else quoted_if_blank(str(value))


class Column(Struct, frozen=True):
    """A column of a table."""

    heading: str
    kind: Kind = "integer"
    of: str | Callable[[Any], Any] = ""  # its cell of an item: an attribute, by default named as the heading
    is_quiet: bool = False  # whether it is left out where all numbers are 0
    is_always: bool = False  # whether it stays where no cell says anything, as in a matrix
    is_data: bool = False  # whether the heading is a name of the data, which pages leave as it is

    @property
    def is_number(self) -> bool:
        """Tell whether its cells stand on the right."""
        return self.kind not in ("name", "words", "bar", "drawing")

    def cell(self, item: Any) -> Any:
        """Return its cell for an item."""
        return (
            self.of(item) if callable(self.of) else getattr(item, self.of or self.heading.replace(" ", "_"))
        )

    def says_something(self, cells: Sequence[Any]) -> bool:
        """Tell whether any of its cells says something."""
        return self.is_always or any(
            cell is not None and cell != "" and not (self.is_quiet and not cell) for cell in cells
        )


class Table(Struct, frozen=True):
    """A table of an outcome."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]  # None is unknown
    caption: str = ""  # sentences that a reader should know
    max_rows: int = MAX_ROWS  # that a terminal or a notebook shows
    section: str = ""  # of a report, if it stands in one
    is_alarm: bool = False  # whether it speaks of something wrong
    is_detail: bool = False  # whether most readers can do without it
    plot: "Panel | None" = None  # the same as a figure

    @classmethod
    def of(cls, title: str, columns: Sequence[Column], items: Iterable[Any], caption: str = "") -> "Table":
        """Make a table with a row for each item."""
        return cls(
            title, columns, [tuple(column.cell(item) for column in columns) for item in items], caption
        )

    @property
    def known(self) -> "Table":
        """The table without columns that say nothing."""
        cells = zip(*self.rows, strict=True) if self.rows else iter([()] * len(self.columns))
        kept = [number for number, own in enumerate(cells) if self.columns[number].says_something(own)]
        if len(kept) == len(self.columns):
            return self
        rows = [[row[number] for number in kept] for row in self.rows]
        return replace(self, columns=[self.columns[number] for number in kept], rows=rows)

    @property
    def headings(self) -> list[str]:
        """Headings of the columns."""
        return [column.heading for column in self.columns]

    def cells(self) -> list[list[str]]:
        """Return the cells of the first rows as a terminal and a notebook show them, and how many more rows there are."""
        rows = [
            [written(value, column.kind) for value, column in zip(row, self.columns, strict=True)]
            for row in self.rows[: self.max_rows]
        ]
        left = len(self.rows) - len(rows)
        return rows if left <= 0 else [*rows, [f"and {left:,} more", *[""] * (len(self.columns) - 1)]]

    def to_json(self) -> dict[str, Any]:
        """Return the columns that say something, and all rows, as a report's JSON has them."""
        known = self.known
        return {
            "section": self.section,
            "title": self.title,
            "columns": known.headings,
            "rows": known.rows,
            "caption": self.caption,
            "is_alarm": self.is_alarm,
            "plot": self.plot,
            "is_detail": self.is_detail,
        }
