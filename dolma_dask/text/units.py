"""Units of texts: a document cut into paragraphs, lines, sentences or words, each of which is a text of its own, so that a scorer of texts serves them all.

A cut is found once for all taggers of a pass. Paragraphs and lines of a block are a column over its bytes, without a copy unless some are left out. Cost, besides
finding lines or words: a CPU-second for 550 MB of text in paragraphs or lines, 250 MB in words (`benchmarks/LOG.md`).
"""

from collections.abc import Callable, Mapping
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.extras import require
from dolma_dask.text.bits import copy_bytes
from dolma_dask.text.columns import large_strings
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Positions, kernel
from dolma_dask.text.tables import SPACE, char_class, code_points, decode, load_tables
from dolma_dask.text.view import TextView

Unit = Literal["document", "paragraph", "any_paragraph", "line", "word", "sentence"]
"""What is scored. ``paragraph``: a line with its newline, unless it is blank; ``any_paragraph``: the same with those that are blank. ``line``: as ``text.split("\\n")`` makes
it, ``word``: as ``text.split()`` does. ``sentence``: as the package sentencex finds it with the rules of English, with the white space behind it, unless it is blank."""


class Cut(Struct, frozen=True):
    """Pieces of all texts of a view, back to back: text ``i`` has those from ``bounds[i]`` to ``bounds[i + 1]``."""

    view: TextView  # each piece is one of its texts (pieces,)
    bounds: Counts  # (texts + 1,)
    starts: Counts  # (pieces,) code point in the text
    ends: Counts  # (pieces,) likewise, exclusive


def cut(view: TextView, unit: Unit) -> Cut:
    """Return the pieces of a view; a second call for the same unit costs nothing."""
    key = f"unit {unit}"
    if key not in view.kept:
        view.kept[key] = _CUTTERS[unit](view)
    return cast(Cut, view.kept[key])


def _documents(view: TextView) -> Cut:
    rows = len(view)
    return Cut(view, np.arange(rows + 1), np.zeros(rows, np.int64), view.lengths)


def _paragraphs(view: TextView) -> Cut:
    return _lines_of(view, "paragraph", 1, keeps_blank=False)


def _any_paragraphs(view: TextView) -> Cut:
    return _lines_of(view, "any_paragraph", 1, keeps_blank=True)


def _lines(view: TextView) -> Cut:
    return _lines_of(view, "line", 0, keeps_blank=True)


def _lines_of(view: TextView, name: Unit, newline: int, *, keeps_blank: bool) -> Cut:
    """Return the lines of a view, with their newline or without; what has no byte then is left out of paragraphs."""
    lines = view.lines
    count = len(lines.starts)
    begins, stops, starts, ends = (np.empty(count, np.int64) for _ in range(4))
    kept = np.empty(count, np.bool_)
    _measure_lines(
        view.data, view.offsets, lines.bounds, lines.starts, lines.sizes, newline, keeps_blank, *load_tables(),
        begins, stops, starts, ends, kept,
    )  # fmt: skip
    return _pieces(view, name, lines.bounds, begins, stops, starts, ends, kept)


def _words(view: TextView) -> Cut:
    words = view.words
    count = len(words.starts)
    begins = np.repeat(view.offsets[:-1], np.diff(words.bounds)) + words.starts
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    _measure_words(
        view.data, view.offsets, words.bounds, words.starts, words.sizes, words.chars, starts, ends
    )
    return _pieces(
        view, "word", words.bounds, begins, begins + words.sizes, starts, ends, np.ones(count, np.bool_)
    )


def _sentences(view: TextView) -> Cut:
    """Return the sentences of a view; needs the package sentencex."""
    require("sentencex", "the unit sentence")
    from sentencex import segment

    begins: list[int] = []
    sizes: list[int] = []
    starts: list[int] = []
    lengths: list[int] = []
    counts: list[int] = []
    for base, text in zip(view.offsets.tolist(), view.texts.to_pylist(), strict=False):
        place, before = 0, len(begins)
        for sentence in segment("en", text):
            # what stands between sentences is left out
            gap = text.find(sentence, place) - place
            base += len(text[place : place + gap].encode())
            place += gap
            size = len(sentence.encode())
            if not sentence.isspace():
                begins.append(base)
                sizes.append(size)
                starts.append(place)
                lengths.append(len(sentence))
            base += size
            place += len(sentence)
        counts.append(len(begins) - before)
    numbers = [np.array(column, np.int64) for column in (begins, sizes, starts, lengths)]
    bounds = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return _pieces(
        view, "sentence", bounds, numbers[0], numbers[0] + numbers[1], numbers[2], numbers[2] + numbers[3],
        np.ones(len(begins), np.bool_),
    )  # fmt: skip


def _pieces(
    view: TextView,
    name: Unit,
    bounds: Counts,
    begins: Counts,
    stops: Counts,
    starts: Counts,
    ends: Counts,
    kept: Bools,
) -> Cut:
    """Return the kept ones of pieces at these bytes of a view; without a copy where they are all of it."""
    if not kept.all():
        bounds = np.concatenate(([0], np.cumsum(kept)))[bounds]
        begins, stops, starts, ends = begins[kept], stops[kept], starts[kept], ends[kept]
    if len(begins) and (begins[1:] == stops[:-1]).all():
        texts = large_strings(np.append(begins, stops[-1]), view.data)
    else:
        offsets = np.concatenate(([0], np.cumsum(stops - begins)))
        data = np.empty(int(offsets[-1]), np.uint8)
        _copy(view.data, begins, offsets, data)
        texts = large_strings(offsets, data)
    return Cut(view.inner(texts, name), bounds, starts, ends)


@kernel
def _copy(data: Bytes, begins: Counts, offsets: Counts, out: Bytes) -> None:
    for piece in range(begins.size):
        at = offsets[piece]
        copy_bytes(out, at, data, begins[piece], offsets[piece + 1] - at)


@kernel
def is_blank(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether nothing but white space (`str.isspace`) stands from byte `at` to `end`; stops at the first other character."""
    while at < end:
        code, width = decode(data, at)
        if char_class(numbers, blocks, code) & SPACE == 0:
            return False
        at += width
    return True


@kernel
def _measure_lines(
    data: Bytes, offsets: Counts, bounds: Counts, lines: Positions, sizes: Positions, newline: Int, keeps_blank: bool,
    numbers: Bytes, blocks: Bytes, begins: Counts, stops: Counts, starts: Counts, ends: Counts, kept: Bools,
) -> None:  # fmt: skip
    """Set the bytes and the code points of every line, and which count."""
    for row in range(offsets.size - 1):
        place: Int = 0
        for line in range(bounds[row], bounds[row + 1]):
            at = offsets[row] + lines[line]
            end = at + sizes[line]
            chars = code_points(data, at, end)
            # all lines but the last end with a newline
            inner = line < bounds[row + 1] - 1
            more = newline if inner else 0
            begins[line], stops[line] = at, end + more
            starts[line], ends[line] = place, place + chars + more
            kept[line] = newline == 0 or (
                (end + more > at) & (keeps_blank or not is_blank(data, at, end, numbers, blocks))
            )
            place += chars + 1


@kernel
def _measure_words(
    data: Bytes, offsets: Counts, bounds: Counts, words: Positions, sizes: Positions, chars: Positions, starts: Counts, ends: Counts
) -> None:  # fmt: skip
    """Set the code points of every word."""
    for row in range(offsets.size - 1):
        at, place = offsets[row], np.int64(0)
        for word in range(bounds[row], bounds[row + 1]):
            begin = offsets[row] + words[word]
            place += code_points(data, at, begin)
            starts[word], ends[word] = place, place + chars[word]
            place += chars[word]
            at = begin + sizes[word]


def repeated(column: pa.Array, bounds: Counts) -> pa.Array:
    """Return the values of documents (n,) for each of their pieces (pieces,)."""
    return column.take(pa.array(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))))


_CUTTERS: Mapping[Unit, Callable[[TextView], Cut]] = {
    "document": _documents,
    "paragraph": _paragraphs,
    "any_paragraph": _any_paragraphs,
    "line": _lines,
    "word": _words,
    "sentence": _sentences,
}
