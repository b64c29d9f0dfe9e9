"""How counts and tables are shown: in a sentence, in a terminal, in a notebook."""

import html
from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 file, 2 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of aligned cells: columns of numbers to the right, others to the left.

    Parameters
    ----------
    rows : sequence of sequence of str
        All of one length; the first is the heading.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    signs = [">" if all(map(_is_number, column[1:])) else "<" for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def _is_number(cell: str) -> bool:
    """Tell whether a cell is empty or begins as numbers do, a unit or not behind it."""
    return not cell or cell[0].isdigit() or cell[0] in "-\N{EN DASH}\N{MINUS SIGN}"


def html_pairs(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of labels and values as HTML; everything is escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(caption)}</caption>{cells}</table>"


def html_table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML, its first row the heading; everything is escaped."""
    heading, *others = rows
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heading)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in others
    )
    return f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
