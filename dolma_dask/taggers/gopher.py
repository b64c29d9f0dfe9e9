"""The published taggers ``gopher_v1`` and ``gopher_v2``: the quality and repetition signals of the Gopher paper, as Dolma computes them.

Source of the signals: Rae et al. 2021, "Scaling Language Models: Methods, Analysis & Insights from Training Gopher",
tables A1 and A2; of the definitions below, which differ from the paper's in places: ``gopher.py`` of the Dolma
toolkit, release 1.2.1.

- Words are ``text.split()``; W is their number, C the code points in them (white space is not counted).
- ``most_common_{2,3,4}grams``: occurrences of the most common n-gram (of several, the first seen) times its
  code points, by C; overlapping occurrences make values above 1 possible. ``duplicate_{5..10}grams``: code points of
  all n-grams that occur more than once, by the code points of all n-grams. No value (null) where W < n.
- ``median_word_length``: the mean of the two middle lengths where W is even. ``symbol_to_word_ratio``: words holding
  ``#`` or U+2026, by W. ``fraction_of_words_with_alpha_character``: words holding a letter, by W.
  ``required_word_count``: occurrences of the eight English words, in lower case; not how many of the eight occur.
- Lines are ``re.split("\\n+", text)``, so a newline at either end makes an empty line (of v1 ``text.split("\\n")``, so that all empty lines count); the shares of lines are by their
  number. ``fraction_of_characters_in_duplicate_lines``: code points of all copies of lines that occur more than
  once, by C, or by 1 where W is 0: two lines of one space each give 2.0. Where W is 0, so are all other values but the
  character count and the share of duplicate lines.

One pass finds lines, one finds words, and n-grams come from a table of the words' hashes: about 4 ns per byte in all.
Words and lines are compared by 64-bit hashes: two different ones are taken for equal once in 2**64 pairs.
Memory: some 70 bytes per word of the longest text, 600 MB for a text of 50 MB.
"""

from collections.abc import Iterator
from functools import cache, partial
from typing import cast

import numpy as np
import pyarrow as pa

from dolma_dask.taggers.base import Part, ViewTagger
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, Positions, Words, kernel
from dolma_dask.text.ngrams import (
    count_duplicates,
    count_longer,
    count_pairs,
    keep_neighbours,
    keep_repeated,
    table_slots,
)
from dolma_dask.text.view import TextView
from dolma_dask.text.words import ELLIPSIS, LETTER, NUMBER_SIGN, ends_with_ellipsis, length_at

REQUIRED_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
MEANINGS = {
    **{
        f"fraction_of_characters_in_most_common_{n}grams": f"code points of all copies of the most common {n}-gram, by those of all words"
        for n in (2, 3, 4)
    },
    **{
        f"fraction_of_characters_in_duplicate_{n}grams": f"code points of {n}-grams that occur more than once, by those of all {n}-grams"
        for n in range(5, 11)
    },
    "character_count": "code points of the text",
    "word_count": "words between white space",
    "median_word_length": "median of the words' lengths in code points",
    "symbol_to_word_ratio": "words with # or an ellipsis sign, by all words",
    "fraction_of_words_with_alpha_character": "words with a letter, by all words",
    "required_word_count": f"occurrences of {', '.join(REQUIRED_WORDS)}",
    "fraction_of_lines_starting_with_bullet_point": "lines that begin with * or -, by all lines",
    "fraction_of_lines_ending_with_ellipsis": "lines that end in an ellipsis sign, by all lines",
    "fraction_of_duplicate_lines": "lines that occur more than once, by all lines",
    "fraction_of_characters_in_duplicate_lines": "code points of lines that occur more than once, by those of all words",
}
TYPES = tuple(MEANINGS)
_SHORTEST, _FIRST_DUPLICATE, _LONGEST = 2, 5, 10
"""n of the first n-gram column, of the first about duplicates, and of the last; column n stands at position n - 2."""
_CHARACTERS, _WORDS, _MEDIAN, _SYMBOLS, _LETTERS, _REQUIRED = range(9, 15)
_CHARS = 15
"""Code points in words, a column that is not written."""
_BULLETS, _ELLIPSES, _SAME, _SAME_CHARS = range(4)
"""Columns about lines, which follow on those about words."""
_KEPT = "gopher words"
_TABLES_PER_TEXT = _LONGEST + 1
_COMMON_LENGTHS = 256
"""Words of up to this many code points are counted by length to find the median; longer ones are rare."""

_LONGEST_REQUIRED = max(map(len, REQUIRED_WORDS))
_S58 = np.uint64(58)
_ASTERISK, _HYPHEN = (np.uint8(ord(char)) for char in "*-")


@kernel
def _all_ngram_chars(ends: Counts, words: Int, n: Int) -> Int:
    """Code points of all n-grams together: those of the words, each as often as an n-gram holds it."""
    # sums of ``ends[p + n] - ends[p]``: all but n ends at either side cancel out
    total = 0
    for k in range(n):
        total += ends[words - k] - ends[k]
    return total


@kernel
def _measure_ngrams(
    words: Int, hashes: Words, at_word: Int, ends: Counts, table: Words, generation: Int,
    first: Positions, count: Positions, positions: Positions, repeated: Bools, out: Floats, row: Int,
) -> None:  # fmt: skip
    """Write the n-gram columns of `row` for a text of two words or more."""
    slots = table_slots(words)
    most, at = count_pairs(hashes, at_word, words, table, slots, generation, first, count, repeated)
    out[0, row] = most * (ends[at + 2] - ends[at]) / ends[words]
    # from here on only positions that still repeat are looked at, few in normal text
    for position in range(words - 1):
        positions[position] = position
    kept = keep_repeated(positions, words - 1, repeated)
    for n in range(_SHORTEST + 1, min(words, _LONGEST) + 1):
        kept = keep_neighbours(positions, kept)
        most, at = count_longer(positions, kept, table, slots, generation + n, first, count, repeated)
        kept = keep_repeated(positions, kept, repeated)
        # short n-grams: the most common one; long ones: all that are repeated
        if n < _FIRST_DUPLICATE:
            out[n - 2, row] = most * (ends[at + n] - ends[at]) / ends[words]
            continue
        chars = 0
        for k in range(kept):
            chars += ends[positions[k] + n] - ends[positions[k]]
        out[n - 2, row] = chars / _all_ngram_chars(ends, words, n)


@kernel
def _measure_lines(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Positions, sizes: Positions, hashes: Words, chars: Floats, keeps_empty: bool,
    kept: Positions, table: Words, repeated: Bools, out: Floats,
) -> None:  # fmt: skip
    """Measure the lines of all texts, which have `chars` code points in words.

    An empty line that is neither the first nor the last stands between two newlines, which count as one unless `keeps_empty`.
    """
    for row in range(offsets.size - 1):
        lines, bullets, ellipses = 0, 0, 0
        for line in range(bounds[row], bounds[row + 1]):
            if sizes[line] > 0:
                at = offsets[row] + starts[line]
                bullets += data[at] == _ASTERISK or data[at] == _HYPHEN
                ellipses += ends_with_ellipsis(data, at, at + sizes[line])
            elif not keeps_empty and line != bounds[row] and line != bounds[row + 1] - 1:
                continue
            # scratch: numbers of the lines that count
            kept[lines] = line
            lines += 1
        same, same_chars = count_duplicates(
            data, offsets[row], starts, sizes, hashes, kept, lines, table, row + 1, repeated
        )
        out[_BULLETS, row] = bullets / lines
        out[_ELLIPSES, row] = ellipses / lines
        out[_SAME, row] = same / lines
        out[_SAME_CHARS, row] = same_chars / max(chars[row], 1.0)


@kernel
def _count_words(
    first: Int, words: Int, sizes: Positions, chars: Positions, hashes: Words, kinds: Bytes,
    factor: np.uint64, slots: Words, ends: Counts, common: Counts,
) -> tuple[Int, Int, Int]:  # fmt: skip
    """Count words (with a symbol, with a letter, required) from word `first` on.

    Sets ``ends``: code points up to the end of each word, after a 0; ``common``: words by code points, the last position for all that are longer.
    """
    symbols, letters, required = 0, 0, 0
    for k in range(common.size):
        common[k] = 0
    ends[0] = 0
    for k in range(words):
        word = first + k
        ends[k + 1] = ends[k] + chars[word]
        # long words share the last place
        common[min(chars[word], common.size - 1)] += 1
        symbols += kinds[word] & (NUMBER_SIGN | ELLIPSIS) != 0
        letters += kinds[word] & LETTER
        # a perfect hash: six bits tell the required words apart, so that one compare decides
        slot = np.int64((hashes[word] * factor) >> _S58)
        # both compares always: a branch would be mispredicted as often as words vary
        required += (slots[slot] == hashes[word]) & (sizes[word] <= _LONGEST_REQUIRED)
    return symbols, letters, required


@kernel
def _measure_words(
    lengths: Counts, word_bounds: Counts, sizes: Positions, chars: Positions, hashes: Words, kinds: Bytes,
    factor: np.uint64, slots: Words,
    ends: Counts, common: Counts, table: Words, first: Positions, count: Positions, positions: Positions, repeated: Bools, out: Floats,
) -> None:  # fmt: skip
    """Measure the words and n-grams of all texts."""
    generation = 1
    for row in range(lengths.size):
        at = word_bounds[row]
        words = word_bounds[row + 1] - at
        symbols, letters, required = _count_words(
            at, words, sizes, chars, hashes, kinds, factor, slots, ends, common
        )
        if words > 1:
            _measure_ngrams(
                words, hashes, at, ends, table, generation, first, count, positions, repeated, out, row
            )
        # one table for each n
        generation += _TABLES_PER_TEXT
        out[_CHARACTERS, row] = lengths[row]
        out[_WORDS, row] = words
        out[_REQUIRED, row] = required
        out[_CHARS, row] = ends[words]
        if words > 0:
            # of an even number of words the mean of the two in the middle
            middle = length_at((words - 1) // 2, ends, words, common) + length_at(
                words // 2, ends, words, common
            )
            out[_MEDIAN, row] = middle / 2
            out[_SYMBOLS, row] = symbols / words
            out[_LETTERS, row] = letters / words


@cache
def _required_slots() -> tuple[np.uint64, Words]:
    """Find a factor whose top six bits tell the hashes of the required words apart, and put each hash in its slot."""
    hashes = TextView(pa.array([" ".join(REQUIRED_WORDS)], pa.large_string())).words.hashes[
        : len(REQUIRED_WORDS)
    ]
    factor = np.uint64(0x9E3779B97F4A7C15)
    while len(set((hashes * factor >> _S58).tolist())) < len(hashes):
        factor += np.uint64(2)
    slots = np.full(64, hashes[0])  # in a slot that is not its own a hash matches nothing
    slots[hashes * factor >> _S58] = hashes
    return factor, slots


def _words_of(view: TextView) -> Floats:
    """Return the columns about words, (16, n), which all taggers of a pass share; 0 where a text has too few words for an n-gram."""
    if _KEPT not in view.kept:
        words = view.words
        most = int(np.diff(words.bounds).max(initial=0))
        first, count, positions = (np.empty(most, np.int32) for _ in range(3))
        out = np.zeros((_CHARS + 1, len(view)))
        _measure_words(
            view.lengths, words.bounds, words.sizes, words.chars, words.hashes, words.kinds, *_required_slots(),
            np.empty(most + 1, np.int64), np.empty(_COMMON_LENGTHS + 1, np.int64), np.zeros(2 * table_slots(most), np.uint64),
            first, count, positions, np.empty(most, np.bool_), out,
        )  # fmt: skip
        view.kept[_KEPT] = out
    return cast(Floats, view.kept[_KEPT])


def measure(view: TextView, *, keeps_empty: bool = False) -> list[Floats]:
    """Compute all columns of a block of texts, (n,) each, in the order of `TYPES`; 0 where a text has too few words for an n-gram.

    Scratch memory is some 60 bytes per word of the text that has most, and 40 per line.
    """
    of_words, lines = _words_of(view), view.lines
    most = int(np.diff(lines.bounds).max(initial=0))
    of_lines = np.empty((_SAME_CHARS + 1, len(view)))
    _measure_lines(
        view.data, view.offsets, lines.bounds, lines.starts, lines.sizes, lines.hashes, of_words[_CHARS], keeps_empty,
        np.empty(most, np.int32), np.zeros(2 * table_slots(most), np.uint64), np.empty(most, np.bool_), of_lines,
    )  # fmt: skip
    return [*of_words[:_CHARS], *of_lines]


def _signals(view: TextView, *, keeps_empty: bool) -> Iterator[pa.Array]:
    values = measure(view, keeps_empty=keeps_empty)
    for position, column in enumerate(values):
        lacks_ngrams = values[_WORDS] < position + _SHORTEST if position < _CHARACTERS else None
        yield pa.array(column, mask=lacks_ngrams)


def _tagger(name: str, lines: str, *, keeps_empty: bool, version: int) -> ViewTagger:
    part = Part(partial(_signals, keeps_empty=keeps_empty), dict.fromkeys(TYPES, "document"))
    description = (
        f"Quality and repetition signals of the Gopher paper, as the Dolma toolkit computes them; {lines}."
    )
    return ViewTagger.of(name, description, part, version=version, meanings=MEANINGS)


gopher_v2 = _tagger("gopher_v2", "several newlines count as one", keeps_empty=False, version=2)
TAGGERS = (gopher_v2, _tagger("gopher_v1", "empty lines count", keeps_empty=True, version=1))
