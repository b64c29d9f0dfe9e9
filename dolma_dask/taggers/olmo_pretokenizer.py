"""Taggers ``olmo_pretokenizer_*``: the pieces that the pre-tokenizer of OLMo makes of a text, before any vocabulary.

The definition is that of ``length.py`` of the Dolma toolkit, release 1.2.1, in terms of the ``tokenizers`` library that it pins (0.19): ``Split(" ?[[:punct:]]")``, ``Split(" ?\\\\d")``, then
``ByteLevel`` with the pattern of GPT-2. So each punctuation mark (general category P; later releases take symbols too) and each decimal digit is a piece, with the blank before it; between them stand
runs of letters, of other numbers and of anything else, with the blank before them; of other white space, all but the last character is a piece, and this
one too unless it is a blank that the next piece takes, or nothing follows: then both are one. Classes are those of Unicode 14, as in that library.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from dolma_dask.taggers.base import Part, ViewTagger, summed
from dolma_dask.text.kernels import Bytes, Counts, Floats, kernel
from dolma_dask.text.tables import char_class, decode, read_arrays
from dolma_dask.text.view import TextView

LETTER, NUMBER, OTHER, DIGIT, PUNCTUATION, BLANK, SPACE = range(7)
"""Classes of code points: letters, numbers that are no decimal digits, what is in none of the others, digits, punctuation, U+0020, other white space."""

_END = 7  # of the text, as a class; as a state, what a text begins with
_BLANKS, _SPACES = (
    8,
    9,
)  # states behind several characters of white space, of which the last is a blank or not
_SHIFT, _STATE, _COUNT = 3, 15, 4


@cache
def _load() -> tuple[Bytes, Bytes, Bytes]:
    """Return the classes as of `load_tables`, and for each state and class the next state, with the pieces that are now known to have begun or ended above it."""
    numbers, blocks = read_arrays("piece_numbers", "piece_blocks")
    machine = np.zeros(10 << _SHIFT, np.uint8)
    for state in range(10):
        for kind in range(8):
            machine[state << _SHIFT | kind] = _entry(state, kind)
    machine.flags.writeable = False
    return numbers, blocks, machine


def _entry(state: int, kind: int) -> int:
    is_white = state in (BLANK, SPACE, _BLANKS, _SPACES)
    if kind in (BLANK, SPACE):
        return {BLANK: _BLANKS, SPACE: _SPACES}[kind] if is_white else kind
    begins = kind in (DIGIT, PUNCTUATION) or (kind != _END and kind != state)
    return kind | (begins + _white_pieces(state, kind)) << _COUNT


def _white_pieces(state: int, kind: int) -> int:
    """Return the pieces that are white space alone, where it ends before a character of a class."""
    if kind == _END:
        return state in (BLANK, SPACE, _BLANKS, _SPACES)
    if state == _SPACES:
        return 1 if kind in (DIGIT, PUNCTUATION) else 2
    return state in (SPACE, _BLANKS)


@kernel
def _count(data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, machine: Bytes, out: Floats) -> None:
    """Count the pieces of every text."""
    for row in range(out.size):
        at, end = offsets[row], offsets[row + 1]
        state, pieces = np.int64(_END), np.int64(0)
        while at < end:
            code, width = decode(data, at)
            entry = np.int64(machine[np.uint64(state << _SHIFT | char_class(numbers, blocks, code))])
            pieces += entry >> _COUNT
            state = entry & _STATE
            at += width
        out[row] = pieces + (np.int64(machine[np.uint64(state << _SHIFT | _END)]) >> _COUNT)


def _pieces(view: TextView) -> Sequence[Floats]:
    """Pieces of each text."""
    if "olmo_pretokenizer" not in view.kept:
        out = np.empty(len(view))
        _count(view.data, view.offsets, *_load(), out)
        view.kept["olmo_pretokenizer"] = out
    return [view.kept["olmo_pretokenizer"]]


TAGGERS = (
    ViewTagger.of(
        "olmo_pretokenizer_v1",
        "Pieces that the pre-tokenizer of OLMo makes of the text.",
        Part(_pieces, {"length": "document"}),
    ),
    ViewTagger.of(
        "olmo_pretokenizer_with_paragraphs_v1",
        "Pieces that the pre-tokenizer of OLMo makes of each paragraph, and of the text.",
        Part(_pieces, {"paragraph": "document"}, "paragraph"),
        Part(summed(_pieces, "paragraph"), {"document": "document"}),
        meanings={"paragraph": "pieces of each paragraph", "document": "pieces of all paragraphs together"},
    ),
)
