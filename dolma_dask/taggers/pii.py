"""Taggers of personal data: addresses of electronic mail, telephone numbers and IP addresses by patterns. Source: ``pii.py`` of the Dolma toolkit, release 1.2.1."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from dolma_dask.taggers.base import Kind, Part, ViewTagger, span_column
from dolma_dask.taggers.pii_patterns import FIRST_DIGITS, count_code_points, find_ips, find_mail, find_phones
from dolma_dask.taggers.pii_pieces import find_pieces
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Counts, Floats
from dolma_dask.text.tables import load_tables
from dolma_dask.text.view import TextView

CONTEXT = 100
"""Characters on both sides of a number that tell what it is."""
OTHER_NUMBERS = ("isbn", "doi", "#")
"""What stands there if it is neither a telephone number nor an IP address."""

MAIL = "EMAIL_ADDRESS"
_KINDS: dict[str, Kind] = dict.fromkeys((MAIL, "PHONE_NUMBER", "IP_ADDRESS"), "spans")


def _find_all(view: TextView, *, in_lines: bool) -> Iterator[tuple[Counts, Counts, Counts]]:
    """Yield the spans of each type: which are of each text (n + 1,), where they start and where they end; in texts, or in each line by itself."""
    size, rows = int(view.offsets[-1] - view.offsets[0]), len(view)
    pieces = np.zeros(rows + 1, np.int64)
    # of every piece and every match two bytes are its own
    begins, stops, starts, ends = view.room("personal data", size // 2 + rows, *(np.int64,) * 4)
    find_pieces(view.data, view.offsets, in_lines, FIRST_DIGITS, pieces, begins, stops)
    begins, stops = for_kernel(begins[: pieces[-1]]), for_kernel(stops[: pieces[-1]])
    tables = load_tables()
    finders: tuple[tuple[Any, tuple[Any, ...]], ...] = (
        (find_mail, (*tables, in_lines)),
        (find_phones, (*tables, FIRST_DIGITS)),
        (find_ips, ()),
    )
    for find, more in finders:
        bounds = np.zeros(len(begins) + 1, np.int64)
        find(view.data, begins, stops, *more, bounds, starts, ends)
        bounds = bounds[pieces]
        count_code_points(view.data, view.offsets, bounds, starts, ends)
        yield bounds, starts[: bounds[-1]].copy(), ends[: bounds[-1]].copy()


def _are_others(view: TextView, bounds: Counts, starts: Counts, ends: Counts) -> Bools:
    """Tell of which spans the context says that they are other numbers."""
    found = np.zeros(len(starts), np.bool_)
    for row in np.flatnonzero(np.diff(bounds)).tolist():
        text = view.texts[row].as_py()
        for span in range(bounds[row], bounds[row + 1]):
            context = text[max(0, starts[span] - CONTEXT) : ends[span] + CONTEXT]
            found[span] = any(word in context for word in OTHER_NUMBERS)
    return found


def _in_documents(view: TextView) -> Iterator[pa.Array]:
    """Yield the spans of each type, where the context does not speak against them."""
    for name, (bounds, starts, ends) in zip(_KINDS, _find_all(view, in_lines=False), strict=True):
        if name == MAIL:
            yield span_column(bounds, starts, ends)
            continue
        kept = ~_are_others(view, bounds, starts, ends)
        bounds = np.concatenate(([0], np.cumsum(kept)))[bounds]
        yield span_column(bounds, starts[kept], ends[kept])


def _by_context(view: TextView) -> Iterator[pa.Array | np.ndarray]:
    """Yield spans, their number by the words of the text, and their number."""
    columns = list(_in_documents(view))
    yield from columns
    count, words = sum(map(_count, columns)), view.word_counts
    yield np.where(words == 0, -1.0, count / np.maximum(words, 1))
    yield count


def _without_count(view: TextView) -> list[pa.Array | np.ndarray]:
    return list(_by_context(view))[:-1]


def _by_paragraph(view: TextView) -> Iterator[pa.Array | np.ndarray]:
    """Yield spans, their number, and their characters by those of the text."""
    columns = [span_column(*found) for found in _find_all(view, in_lines=True)]
    yield from columns
    yield sum(map(_count, columns))
    yield np.where(view.lengths == 0, -1.0, sum(map(_characters, columns)) / np.maximum(view.lengths, 1))


def _count(column: pa.Array) -> Floats:
    """Count the spans of each text."""
    return np.diff(np.asarray(column.offsets)).astype(float)


def _characters(column: pa.Array) -> Floats:
    """Count the characters in the spans of each text."""
    spans = column.flatten()
    sizes = np.asarray(spans.field("end")) - np.asarray(spans.field("start"))
    parents = np.asarray(pc.list_parent_indices(column))
    return np.bincount(parents, sizes, minlength=len(column)).astype(float)


_MEANINGS = {
    MAIL: "Addresses of electronic mail, with what stands around them: white space before, and a mark and one white space behind, be it the end of the line.",
    "PHONE_NUMBER": "Telephone numbers of ten digits, with the white space before.",
    "IP_ADDRESS": "IP addresses of four numbers.",
    "doc": "Spans by the words of the text, -1 without words.",
    "doc_count": "Number of spans.",
    "doc_frac": "Characters in spans by those of the text, -1 for an empty text.",
}
_AT_THE_END = "An address at the end of the text is found (as there, the span of one holds the white space around it, so that replacing it may join lines)"
_DIFFERS = (
    f"{_AT_THE_END}; a text without words has -1, where version 1 and the one with counts fail; a backspace character before a web address does "
    "not take the telephone numbers away."
)


def _row(name: str, description: str, part: Part, differs: str) -> ViewTagger:
    meanings = {type: _MEANINGS[type] for type in part.types}
    return ViewTagger.of(name, description, part, meanings=meanings, differs=differs)


_COUNTED = "Addresses and numbers of persons, unless the context speaks against them"
TAGGERS = (
    _row(
        "pii_regex_v1",
        f"{_COUNTED}, and their number by the words.",
        Part(_without_count, {**_KINDS, "doc": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_v2",
        f"{_COUNTED}, and their number by the words.",
        Part(_without_count, {**_KINDS, "doc": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_with_counts_v2",
        f"{_COUNTED}, their number, and that by the words.",
        Part(_by_context, {**_KINDS, "doc": "document", "doc_count": "document"}),
        _DIFFERS,
    ),
    _row(
        "pii_regex_with_counts_fast_v2",
        "Addresses and numbers of persons in each paragraph, their number, and their share of the characters.",
        Part(_by_paragraph, {**_KINDS, "doc_count": "document", "doc_frac": "document"}),
        f"{_AT_THE_END}; doc_frac does not count the span that stands for the whole text, which adds 1 to each; texts of more than 10,000 question "
        "marks are not left out.",
    ),
)
