"""The taggers ``c4_v1`` and ``c4_v2``: what the rules of C4 look at. Source of the rules: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a
Unified Text-to-Text Transformer", section 2.2; of the definitions below ``c4.py`` of the Dolma toolkit, release 1.2.1.

- Lines are ``text.split("\\n")``; a span is a line with its newline, so that behind a newline at the end of the text stands an empty one.
- ``lines_with_no_ending_punctuation``: the last character that is not white space is none of ``.?!"``. ``lines_with_too_few_words``: less than three words of
  ``str.split``.
- A flag is 1 for documents that it is true of, the others have no value. ``has_javascript`` is a word of v1, for v2 it may be part of one; letters of either case.
- ``has_naughty_word`` needs the user's list: words of it are compared with the words of the text, phrases of several are found anywhere (`dolma_dask.taggers.phrases`).

Lines are known from where words end, so that beside a tagger that needs words only the bytes are looked at for the flags.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.taggers.base import NUMBER, Kind, Open, Part, Scorer, ViewTagger, each_text, span_column
from dolma_dask.taggers.phrases import Phrases
from dolma_dask.taggers.word_lists import read_lines
from dolma_dask.text.bits import ONE, first_bit, load8, low_bits, range_bits
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Positions, kernel
from dolma_dask.text.tables import code_points
from dolma_dask.text.view import TextView
from dolma_dask.text.words import space_bytes

BAD_WORDS = "bad_words/en.txt"
MEANINGS = {
    "lines_with_no_ending_punctuation": 'lines that do not end with . ? ! or "',
    "lines_with_too_few_words": "lines of less than three words",
    "has_naughty_word": f"1 if a word or phrase of {BAD_WORDS}, in the folder of artifacts, is in the text; never without that list",
    "has_javascript": '1 if "javascript" is in the text',
    "has_lorem_ipsum": '1 if "lorem ipsum" is in the text',
    "has_curly_brace": "1 if { is in the text",
    "line_count": "lines of the text, empty ones too",
}
_KEPT = "c4"
_WORD, _PART, _LOREM, _BRACE = range(4)
"""Flags of the kernels: javascript as a word, as a part of one, lorem ipsum, a brace."""
_FEW = 3
_CASE = np.uint64(0x2020202020202020)
_JAVASCRI, _PT = (np.uint64(int.from_bytes(part, "little")) for part in (b"javascri", b"pt"))
_LOREM_IP, _SUM = (np.uint64(int.from_bytes(part, "little")) for part in (b"lorem\x20ip", b"sum"))
_TWO_BYTES, _THREE_BYTES = np.uint64(0xFFFF), np.uint64(0xFFFFFF)
_SIZE_JAVASCRIPT, _SIZE_LOREM, _PLACE_OF_P = 10, 11, 7
_UPPER_J, _LOWER_J, _UPPER_P, _LOWER_P, _OPEN = (np.uint8(ord(char)) for char in "JjPp{")
_BLANK = np.uint8(0x20)
_ENDINGS = tuple(np.uint8(ord(char)) for char in '.?!"')
_TWO, _LAST_TWO = np.uint64(2), np.uint64(62)


class _Found(Struct, frozen=True):
    """What is found in the texts of a view."""

    flags: Bools  # (4, n)
    bounds: Counts  # (2, n + 1) spans of each text: without ending punctuation, with too few words
    spans: Counts  # (4, lines) their starts and ends in code points


@kernel
def _is_word(data: Bytes, text: Int, end: Int, at: Int, stop: Int) -> bool:
    """Tell whether white space, or an end of the text, stands at both sides of the bytes from `at` to `stop`."""
    before = at - 1
    while before > text and data[before] & 0xC0 == 0x80:
        before -= 1
    return bool(
        (at == text or space_bytes(data, before) > 0) and (stop == end or space_bytes(data, stop) > 0)
    )


@kernel
def _find_flags(data: Bytes, offsets: Counts, flags: Bools) -> None:
    """Set the flags of all texts: candidates are each j, and each p with one letter between it and a blank."""
    for row in range(offsets.size - 1):
        text, end = offsets[row], offsets[row + 1]
        at, blanks_before = text, np.uint64(0)
        while at < end:
            inside = low_bits(end - at)
            flags[_BRACE, row] |= range_bits(data, at, _OPEN, _OPEN) & inside != 0
            letters = range_bits(data, at, _UPPER_J, _UPPER_J) | range_bits(data, at, _LOWER_J, _LOWER_J)
            letters &= low_bits(end - at - _SIZE_JAVASCRIPT + 1)
            while letters:
                place = at + first_bit(letters)
                letters &= letters - ONE
                if (
                    load8(data, place, 8) | _CASE == _JAVASCRI
                    and (load8(data, place + 8, 2) | _CASE) & _TWO_BYTES == _PT
                ):
                    flags[_PART, row] = True
                    flags[_WORD, row] |= _is_word(data, text, end, place, place + _SIZE_JAVASCRIPT)
            blanks = range_bits(data, at, _BLANK, _BLANK)
            letters = range_bits(data, at, _UPPER_P, _UPPER_P) | range_bits(data, at, _LOWER_P, _LOWER_P)
            letters &= (blanks << _TWO | blanks_before) & inside
            while letters:
                place = at + first_bit(letters) - _PLACE_OF_P
                letters &= letters - ONE
                if place >= text and place + _SIZE_LOREM <= end:
                    flags[_LOREM, row] |= (
                        load8(data, place, 8) | _CASE == _LOREM_IP
                        and (load8(data, place + 8, 3) | _CASE) & _THREE_BYTES == _SUM
                    )
            blanks_before = blanks >> _LAST_TWO
            at += 64


@kernel
def _find_lines(
    data: Bytes, offsets: Counts, line_bounds: Counts, lines: Positions, sizes: Positions,
    word_bounds: Counts, words: Positions, word_sizes: Positions, bounds: Counts, spans: Counts,
) -> None:  # fmt: skip
    """Set the spans of lines; a line has the words that begin in it."""
    unended: Int = 0
    short: Int = 0
    for row in range(offsets.size - 1):
        text, place, word = offsets[row], np.int64(0), word_bounds[row]
        for line in range(line_bounds[row], line_bounds[row + 1]):
            at, stop, first = text + lines[line], lines[line] + sizes[line], word
            while word < word_bounds[row + 1] and words[word] < stop:
                word += 1
            last = data[text + words[word - 1] + word_sizes[word - 1] - 1] if word > first else _BLANK
            is_last = line == line_bounds[row + 1] - 1
            after = place + code_points(data, at, at + sizes[line]) + (0 if is_last else 1)
            # what does not count is overwritten by the next one
            spans[0, unended], spans[1, unended] = place, after
            spans[2, short], spans[3, short] = place, after
            unended += last not in _ENDINGS
            short += word - first < _FEW
            place = after
        bounds[0, row + 1], bounds[1, row + 1] = unended, short


def _found_in(view: TextView) -> _Found:
    """Return what is found in a view, once for both taggers."""
    if _KEPT not in view.kept:
        lines, words, rows = view.lines, view.words, len(view)
        found = _Found(
            np.zeros((_BRACE + 1, rows), np.bool_),
            np.zeros((2, rows + 1), np.int64),
            np.empty((4, len(lines.starts)), np.int64),
        )
        _find_flags(view.data, view.offsets, found.flags)
        _find_lines(
            view.data, view.offsets, lines.bounds, lines.starts, lines.sizes,
            words.bounds, words.starts, words.sizes, found.bounds, found.spans,
        )  # fmt: skip
        view.kept[_KEPT] = found
    return cast(_Found, view.kept[_KEPT])


def _flag(phrases: Phrases, text: str) -> tuple[float | None]:
    return (1.0 if phrases.are_in(text) else None,)


def _signals(javascript: int, phrases: Phrases | None, view: TextView) -> Iterator[pa.Array]:
    found = _found_in(view)
    for bounds, (starts, ends) in zip(found.bounds, (found.spans[:2], found.spans[2:]), strict=True):
        yield span_column(bounds, starts[: bounds[-1]], ends[: bounds[-1]])
    if phrases is None:
        yield pa.nulls(len(view), NUMBER)
    else:
        yield from each_text(partial(_flag, phrases), [NUMBER], only=phrases.may_be_in)(view)
    for flag in (javascript, _LOREM, _BRACE):
        yield pa.array(np.ones(len(view)), mask=~found.flags[flag])
    yield pa.array(np.diff(view.lines.bounds).astype(float))


def _with_list(javascript: int, files: Mapping[str, Open]) -> Scorer:
    if BAD_WORDS not in files:
        return partial(_signals, javascript, None)
    with files[BAD_WORDS]() as file:
        return partial(_signals, javascript, Phrases.of(read_lines(file, BAD_WORDS)))


def _tagger(name: str, description: str, javascript: int, differs: str = "") -> ViewTagger:
    types: dict[str, Kind] = {type: "spans" if type.startswith("lines_") else "document" for type in MEANINGS}
    return ViewTagger.of(
        name,
        description,
        Part(partial(_signals, javascript, None), types),
        meanings=MEANINGS,
        differs=f"The list of naughty words is the user's.{differs}",
        files=(BAD_WORDS,),
        load=partial(_with_list, javascript),
    )


TAGGERS = (
    _tagger("c4_v1", "What the rules of C4 look at; javascript as a word.", _WORD),
    _tagger(
        "c4_v2",
        "What the rules of C4 look at; javascript anywhere.",
        _PART,
        " Spans are places in the text, not in its lower case, which may be longer.",
    ),
)
