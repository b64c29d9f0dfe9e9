"""HTML of what notebooks show: tables, pairs, notes, trees and folded parts, in one look.

Each display is a `fragment`: its parts below one small style element. The style follows the theme of JupyterLab where there is one and the colors of
the page elsewhere; nothing depends on it. Where it is stripped (untrusted notebooks, GitHub) plain tables, lists and ``<details>`` are left, and numbers
still stand to the right by their ``align``. Functions escape every text that they are given; parts are HTML already.
"""

import html
from collections.abc import Iterable, Sequence

from dolma_dask.display import counted, quoted_if_blank
from dolma_dask.results.parts import Facts, Failures, Heading, Listing, Notes, Part, Sentences
from dolma_dask.results.table import Column, Table

_STYLE = (
    "<style>"
    # twice the class: JupyterLab's own rules for tables are that specific
    ".dolma{color:var(--jp-content-font-color1,inherit);font-size:var(--jp-content-font-size1,.9rem);line-height:1.45;overflow-x:auto}"
    ".dolma.dolma table{table-layout:auto;border-collapse:collapse;margin:.2em 0 .8em;color:inherit;font-size:.95em}"
    ".dolma.dolma :is(th,td){text-align:left;vertical-align:top;padding:.25em 1.2em .25em 0;overflow-wrap:break-word;max-width:36em;"
    "font-weight:inherit;border:0;border-bottom:1px solid rgba(128,128,128,.3)}"
    ".dolma.dolma [align=right]{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".dolma.dolma :is(thead th,caption,b){font-weight:600}"
    ".dolma thead th{white-space:nowrap}"
    ".dolma table:has(thead){width:max-content}"
    ".dolma.dolma tbody tr{background:none}"
    ".dolma.dolma p{margin:.7em 0 .3em}"
    ".dolma caption{text-align:left;padding:.2em 0;overflow-wrap:anywhere}"
    ".dolma ul{margin:.2em 0 .6em;padding-left:1.3em;overflow-wrap:anywhere}"
    ".dolma summary{cursor:pointer}"
    ".dolma pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.95em}"
    ".dolma ins{background:rgba(46,160,67,.25)}"
    ".dolma del{background:rgba(218,54,51,.25)}"
    "</style>"
)

FEW = 3
"""Lines that are shown at once; more are folded."""


def fragment(*parts: str) -> str:
    """Return a display: parts below the style that all share."""
    return f"<div class='dolma'>{_STYLE}{''.join(parts)}</div>"


def shown(parts: Iterable[Part]) -> str:
    """Return a display of the parts of an outcome."""
    return fragment(*map(_html, parts))


def _html(part: Part) -> str:
    match part:
        case Heading(line):
            return heading(line)
        case Facts(title, facts):
            return pairs(title, [(fact.label, fact.text) for fact in facts])
        case Sentences(sentences) | Notes(sentences):
            return notes(sentences)
        case Failures(rows, noun):
            return failures(rows, noun)
        case Listing(title, others) if others:
            return folded(title, lines("\n".join(others))) if title else lines("\n".join(others))
        case Table():
            return table(part)
        case _:
            return ""


def pairs(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of labels and values."""
    cells = "".join(
        f"<tr><th scope='row' align='left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{_caption(caption)}<tbody>{cells}</tbody></table>"


def table(table: Table) -> str:
    """Return a table; columns of numbers stand to the right. Nothing is left of one without rows."""
    if not table.rows:
        return ""
    known = table.known
    signs = ["right" if column.is_number else "left" for column in known.columns]
    body = "".join(_row("td", row, signs) for row in known.cells())
    return f"<table>{_caption(known.title)}<thead>{_row('th', known.headings, signs)}</thead><tbody>{body}</tbody></table>"


def _caption(text: str) -> str:
    return f"<caption align='left'>{html.escape(text)}</caption>" if text else ""


def _row(tag: str, cells: Sequence[str], signs: Sequence[str]) -> str:
    opened = {"right": f"<{tag} align='right'>", "left": "<td>" if tag == "td" else "<th align='left'>"}
    shown = (
        f"{opened[sign]}{html.escape(quoted_if_blank(cell))}</{tag}>"
        for cell, sign in zip(cells, signs, strict=True)
    )
    return f"<tr>{''.join(shown)}</tr>"


def heading(text: str) -> str:
    """Return a line above other parts."""
    return f"<p><b>{html.escape(text)}</b></p>"


def notes(lines: Iterable[str]) -> str:
    """Return a list of sentences; nothing for none."""
    return items(html.escape(line) for line in lines)


def items(parts: Iterable[str]) -> str:
    """Return a list of parts; nothing for none."""
    shown = "".join(f"<li>{part}</li>" for part in parts)
    return f"<ul>{shown}</ul>" if shown else ""


def folded(title: str, *parts: str, is_open: bool = False) -> str:
    """Return parts below a title that opens and closes them."""
    return f"<details{' open' if is_open else ''}><summary>{html.escape(title)}</summary>{''.join(parts)}</details>"


def lines(text: str) -> str:
    """Return a text with its line breaks, such as a script."""
    return f"<pre>{html.escape(text)}</pre>"


def text(part: str) -> str:
    """Return running text with its line breaks; it is HTML already, such as one with marked differences."""
    return f"<div dir='auto' style='white-space:pre-wrap;overflow-wrap:anywhere'>{part}</div>"


def failures(rows: Sequence[tuple[str, str, str]], noun: str = "shard") -> str:
    """Return what failed, with its error and message; folded where it is much."""
    if not rows:
        return ""
    columns = [Column(heading, "words") for heading in (noun, "error", "message")]
    return folded(
        f"{counted(len(rows), noun)} failed", table(Table("", columns, rows)), is_open=len(rows) <= FEW
    )
