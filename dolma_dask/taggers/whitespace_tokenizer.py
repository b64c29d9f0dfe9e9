"""Taggers of tokens between white space: the pieces between words and punctuation, of texts and of their paragraphs.

The Dolma toolkit counts ``len(regex.split(r"\\w+|[^\\w\\s]+", text))``. Splitting returns what lies *between* the
matches, so the number is the tokens plus one, and 1 for an empty text. ``\\w`` and ``\\s`` are those of the
``regex`` package, not of `re`: marks, connector punctuation and the zero-width joiners are word characters.
Source: ``length.py`` of the toolkit, release 1.2.1.

Runs are counted by their first characters, sixty-four bytes at a time; only characters that are not ASCII are looked up in a table, one by one.
"""

from collections.abc import Sequence

import numpy as np

from dolma_dask.taggers.base import Part, ViewTagger, summed
from dolma_dask.text.bits import ONE, count_bits, first_bit, low_bits, range_bits
from dolma_dask.text.kernels import Bytes, Counts, Floats, Int, kernel
from dolma_dask.text.tables import REGEX_SPACE, REGEX_WORD, char_class, decode, load_tables
from dolma_dask.text.view import TextView

_TAB, _CARRIAGE_RETURN, _BLANK = np.uint8(0x09), np.uint8(0x0D), np.uint8(0x20)
_DIGIT_0, _DIGIT_9, _UNDERSCORE = np.uint8(ord("0")), np.uint8(ord("9")), np.uint8(ord("_"))
_UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "AZaz")
_FIRST_LEAD, _LAST_BYTE = np.uint8(0xC0), np.uint8(0xFF)
_KEPT = "whitespace pieces"


@kernel
def _ascii_words(data: Bytes, at: Int) -> np.uint64:
    """Bits of the ASCII word characters of a window."""
    letters = range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
    return letters | range_bits(data, at, _DIGIT_0, _DIGIT_9) | range_bits(data, at, _UNDERSCORE, _UNDERSCORE)


@kernel
def count_runs(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> Int:
    """Count the matches of ``\\w+|[^\\w\\s]+`` in the text from byte `at` to `end`; tables as from `load_tables`."""
    runs = 0
    after_word = after_other = np.uint64(0)
    while at < end:
        count = min(64, end - at)
        words = _ascii_words(data, at)
        spaces = range_bits(data, at, _TAB, _CARRIAGE_RETURN) | range_bits(data, at, _BLANK, _BLANK)
        # characters that are not ASCII are looked up, each at its first byte
        leads = range_bits(data, at, _FIRST_LEAD, _LAST_BYTE) & low_bits(count)
        while leads:
            position = first_bit(leads)
            code, width = decode(data, at + position)
            # a character that reaches over the window begins the next one
            if position + width > 64:
                count = position
                break
            kind = char_class(numbers, blocks, code)
            bits = low_bits(width) << np.uint64(position)
            if kind & REGEX_WORD:
                words |= bits
            elif kind & REGEX_SPACE:
                spaces |= bits
            leads &= leads - ONE
        window = low_bits(count)
        words &= window
        others = window & ~(words | spaces)
        # a run begins where the bit before is not set: that of the window before for the first bit
        runs += count_bits(words & ~(words << ONE | after_word)) + count_bits(
            others & ~(others << ONE | after_other)
        )
        last = np.uint64(count - 1)
        after_word, after_other = words >> last & ONE, others >> last & ONE
        at += count
    return runs


@kernel
def _count_pieces(data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, pieces: Floats) -> None:
    """Set `pieces` of every text of a column."""
    for row in range(pieces.size):
        pieces[row] = count_runs(data, offsets[row], offsets[row + 1], numbers, blocks) + 1


def _pieces(view: TextView) -> Sequence[Floats]:
    if _KEPT not in view.kept:
        pieces = np.empty(len(view))
        _count_pieces(view.data, view.offsets, *load_tables(), pieces)
        view.kept[_KEPT] = pieces
    return [view.kept[_KEPT]]


TAGGERS = (
    ViewTagger.of(
        "whitespace_tokenizer_v1",
        "Pieces between words and punctuation: one more than there are of these.",
        Part(_pieces, {"length": "document"}),
    ),
    ViewTagger.of(
        "whitespace_tokenizer_with_paragraphs_v1",
        "Pieces between words and punctuation of each paragraph, and their sum.",
        Part(_pieces, {"paragraph": "document"}, "paragraph"),
        Part(summed(_pieces, "paragraph"), {"document": "document"}),
        meanings={
            "paragraph": "pieces of a paragraph: one more than it has words and runs of punctuation",
            "document": "sum over the paragraphs; 0 without any",
        },
    ),
)
