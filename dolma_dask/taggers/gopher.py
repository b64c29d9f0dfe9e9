"""The published tagger ``gopher_v2``: the quality and repetition signals of the Gopher paper, as Dolma computes them.

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
- Lines are ``re.split("\\n+", text)``, so a newline at either end makes an empty line; the shares of lines are by their
  number. ``fraction_of_characters_in_duplicate_lines``: code points of all copies of lines that occur more than
  once, by C. Where W is 0, so are all values but the character count and the share of duplicate lines.

One pass finds lines, one finds words, and n-grams come from a table of the words' hashes: about 4 ns per byte in all.
Words and lines are compared by 64-bit hashes: two different ones are taken for equal once in 2**64 pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dolma_dask.errors import DataError
from dolma_dask.taggers.base import Kind
from dolma_dask.text.bits import count_bits, first_bit, hash_bytes, load8, low_bits, range_bits
from dolma_dask.text.columns import text_buffers
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, Places, Words, kernel
from dolma_dask.text.lines import count_duplicates, line_end, newlines_end
from dolma_dask.text.ngrams import (
    SMALLEST_TABLE,
    count_longer,
    count_pairs,
    keep_neighbours,
    keep_repeated,
    slots_for,
)
from dolma_dask.text.tables import code_points, holds_letter, load_tables
from dolma_dask.text.words import length_at, space_bits, word_end, word_start

REQUIRED_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
TYPES = (
    *(f"fraction_of_characters_in_most_common_{n}grams" for n in (2, 3, 4)),
    *(f"fraction_of_characters_in_duplicate_{n}grams" for n in range(5, 11)),
    "character_count",
    "word_count",
    "median_word_length",
    "symbol_to_word_ratio",
    "fraction_of_words_with_alpha_character",
    "required_word_count",
    "fraction_of_lines_starting_with_bullet_point",
    "fraction_of_lines_ending_with_ellipsis",
    "fraction_of_duplicate_lines",
    "fraction_of_characters_in_duplicate_lines",
)
LONGEST_TEXT = 2**31
"""Bytes of the longest text: places of words are held in 32 bits."""

_SHORTEST, _FIRST_DUPLICATE, _LONGEST = 2, 5, 10
"""n of the first n-gram column, of the first about duplicates, and of the last; column n stands at place n - 2."""
_CHARACTERS, _WORDS, _MEDIAN, _SYMBOLS, _LETTERS, _REQUIRED, _BULLETS, _ELLIPSES, _SAME, _SAME_CHARS = range(
    9, 19
)
_TABLES_PER_TEXT = _LONGEST + 1
_COMMON_LENGTHS = 256
"""Words of up to this many code points are counted by length to find the median; longer ones are rare."""

_NUMBER_SIGN, _ASTERISK, _HYPHEN = (np.uint8(ord(char)) for char in "#*-")
_UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "AZaz")
_E2, _NOT_ASCII, _LAST_CONTINUATION, _LAST_BYTE = (np.uint8(byte) for byte in (0xE2, 0x80, 0xBF, 0xFF))
_LONGEST_REQUIRED = max(map(len, REQUIRED_WORDS))


def _give_slots() -> tuple[np.uint64, Words]:
    """Find a factor whose top six bits tell the required words apart, and put each word, with its size, in its slot."""
    codes = [int.from_bytes(word.encode(), "little") ^ len(word) << 56 for word in REQUIRED_WORDS]
    factor = 0x9E3779B97F4A7C15
    while len({_slot(code, factor) for code in codes}) < len(codes):
        factor += 2
    table = np.zeros(64, np.uint64)
    table[[_slot(code, factor) for code in codes]] = codes
    return np.uint64(factor), table


def _slot(code: int, factor: int) -> int:
    return (code * factor) % 2**64 >> 58


_SLOT_FACTOR, _SLOTS = _give_slots()


@kernel
def _ends_with_ellipsis(data: Bytes, at: Int, end: Int) -> bool:
    """Whether the bytes from `at` to `end` end with U+2026."""
    return bool(end - at >= 3 and data[end - 3] == 0xE2 and data[end - 2] == 0x80 and data[end - 1] == 0xA6)


@kernel
def _holds_ellipsis(data: Bytes, at: Int, end: Int) -> bool:
    """Whether U+2026 is among the characters from byte `at` to `end`."""
    while not _ends_with_ellipsis(data, at, min(at + 3, end)):
        if at >= end:
            return False
        at += 1
    return True


@kernel
def _holds_ascii(data: Bytes, at: Int, end: Int) -> tuple[bool, bool]:
    """Whether (an ASCII letter, ``#``) is among the characters from byte `at` to `end`."""
    letters = signs = np.uint64(0)
    while at < end:
        inside = low_bits(end - at)
        letters |= inside & (
            range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
        )
        signs |= inside & range_bits(data, at, _NUMBER_SIGN, _NUMBER_SIGN)
        at += 64
    return letters != 0, signs != 0


@kernel
def _is_required(data: Bytes, at: Int, size: Int) -> bool:
    """Whether the word of `size` bytes at byte `at` is one of `REQUIRED_WORDS`."""
    code = load8(data, at, min(8, size)) ^ (np.uint64(size) << np.uint64(56))
    slot = np.int64((code * _SLOT_FACTOR) >> np.uint64(58))
    return bool((_SLOTS[slot] == code) & (size <= _LONGEST_REQUIRED))


@kernel
def _add_word(
    data: Bytes, at: Int, stop: Int, chars: Int, words: Int, hashes: Words, ends: Counts, common: Counts
) -> bool:
    """Enter a word as number `words`; whether it is required."""
    hashes[words] = hash_bytes(data, at, stop)
    ends[words + 1] = ends[words] + chars
    common[min(chars, common.size - 1)] += 1
    return _is_required(data, at, stop - at)


@kernel
def _scan_words(
    data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes, hashes: Words, ends: Counts, common: Counts
) -> tuple[Int, Int, Int, Int]:
    """Hash the words of a text: (words, words with a symbol, words with a letter, required words).

    Sets ``hashes``; ``ends``: code points up to the end of each word, after a 0; ``common``: words by code points, the
    last place for all that are longer. Each window begins with a word; one that reaches over its end begins the next.
    """
    words, with_symbol, with_letter, required = 0, 0, 0, 0
    for k in range(common.size):
        common[k] = 0
    ends[0] = 0
    at = word_start(data, at, end)
    while at < end:
        spaces = space_bits(data, at, end)
        letters = range_bits(data, at, _UPPER_A, _UPPER_Z) | range_bits(data, at, _LOWER_A, _LOWER_Z)
        signs = range_bits(data, at, _NUMBER_SIGN, _NUMBER_SIGN)
        e2 = range_bits(data, at, _E2, _E2)
        others = range_bits(data, at, _NOT_ASCII, _LAST_BYTE)
        continued = range_bits(data, at, _NOT_ASCII, _LAST_CONTINUATION)
        start = stop = at
        size = first_bit(spaces)
        while start - at + size < 64:
            stop = start + size
            inside = low_bits(size) << np.uint64(start - at)
            letter, symbol = letters & inside != 0, signs & inside != 0
            chars = size - count_bits(continued & inside)
            if others & inside:
                letter = letter or holds_letter(data, start, stop, numbers, blocks)
                symbol = symbol or (e2 & inside != 0 and _holds_ellipsis(data, start, stop))
            required += _add_word(data, start, stop, chars, words, hashes, ends, common)
            words, with_symbol, with_letter = words + 1, with_symbol + symbol, with_letter + letter
            start = stop + first_bit(~spaces >> np.uint64(stop - at))
            size = 64
            if start - at < 64:
                size = first_bit(spaces >> np.uint64(start - at))
        if stop == at:
            stop = word_end(data, at, end)
            letter, symbol = _holds_ascii(data, at, stop)
            letter = letter or holds_letter(data, at, stop, numbers, blocks)
            symbol = symbol or _holds_ellipsis(data, at, stop)
            required += _add_word(data, at, stop, code_points(data, at, stop), words, hashes, ends, common)
            words, with_symbol, with_letter = words + 1, with_symbol + symbol, with_letter + letter
        at = word_start(data, stop, end)
    return words, with_symbol, with_letter, required


@kernel
def _scan_lines(data: Bytes, at: Int, end: Int, hashes: Words, starts: Counts) -> tuple[Int, Int, Int]:
    """Hash the lines of a text: (lines, lines that begin with a bullet point, lines that end with U+2026)."""
    lines, bullets, ellipses = 0, 0, 0
    while True:
        stop = line_end(data, at, end)
        if stop > at:
            bullets += data[at] == _ASTERISK or data[at] == _HYPHEN
            ellipses += _ends_with_ellipsis(data, at, stop)
        hashes[lines] = hash_bytes(data, at, stop)
        starts[lines] = at
        lines += 1
        if stop >= end:
            return lines, bullets, ellipses
        at = newlines_end(data, stop, end)


@kernel
def _all_ngram_chars(ends: Counts, words: Int, n: Int) -> Int:
    """Code points of all n-grams together: those of the words, each as often as an n-gram holds it."""
    total = 0
    for k in range(n):
        total += ends[words - k] - ends[k]
    return total


@kernel
def _measure_ngrams(
    words: Int, hashes: Words, ends: Counts, table: Words, generation: Int,
    first: Places, count: Places, places: Places, repeated: Bools, out: Floats, row: Int,
) -> None:  # fmt: skip
    """Write the n-gram columns of `row` for a text of two words or more."""
    slots = slots_for(words)
    most, at = count_pairs(hashes, words, table, slots, generation, first, count, repeated)
    out[0, row] = most * (ends[at + 2] - ends[at]) / ends[words]
    for place in range(words - 1):
        places[place] = place
    kept = keep_repeated(places, words - 1, repeated)
    for n in range(_SHORTEST + 1, min(words, _LONGEST) + 1):
        kept = keep_neighbours(places, kept)
        most, at = count_longer(places, kept, table, slots, generation + n, first, count, repeated)
        kept = keep_repeated(places, kept, repeated)
        if n < _FIRST_DUPLICATE:
            out[n - 2, row] = most * (ends[at + n] - ends[at]) / ends[words]
            continue
        chars = 0
        for k in range(kept):
            chars += ends[places[k] + n] - ends[places[k]]
        out[n - 2, row] = chars / _all_ngram_chars(ends, words, n)


@kernel
def _measure_from(
    row: Int, data: Bytes, offsets: Counts, numbers: Bytes, blocks: Bytes, hashes: Words, ends: Counts, common: Counts,
    table: Words, first: Places, count: Places, places: Places, repeated: Bools, out: Floats,
) -> tuple[Int, Int]:  # fmt: skip
    """Measure texts from `row` on: (row reached, slots that the table must have to go on, or 0 at the end)."""
    generation = 1
    while row < offsets.size - 1:
        begin, end = offsets[row], offsets[row + 1]
        lines, bullets, ellipses = _scan_lines(data, begin, end, hashes, ends)
        if 2 * slots_for(lines) > table.size:
            return row, slots_for(lines)
        same, same_chars = count_duplicates(data, end, lines, hashes, ends, table, generation, repeated)
        words, symbols, letters, required = _scan_words(
            data, begin, end, numbers, blocks, hashes, ends, common
        )
        if 2 * slots_for(words) > table.size:
            return row, slots_for(words)
        if words > 1:
            _measure_ngrams(
                words, hashes, ends, table, generation + 1, first, count, places, repeated, out, row
            )
        generation += _TABLES_PER_TEXT + 1
        out[_CHARACTERS, row] = code_points(data, begin, end)
        out[_WORDS, row] = words
        out[_REQUIRED, row] = required
        out[_BULLETS, row] = bullets / lines
        out[_ELLIPSES, row] = ellipses / lines
        out[_SAME, row] = same / lines
        if words > 0:
            middle = length_at((words - 1) // 2, ends, words, common) + length_at(
                words // 2, ends, words, common
            )
            out[_MEDIAN, row] = middle / 2
            out[_SYMBOLS, row] = symbols / words
            out[_LETTERS, row] = letters / words
            out[_SAME_CHARS, row] = same_chars / ends[words]
        row += 1
    return row, 0


def measure(data: Bytes, offsets: Counts) -> Floats:
    """Compute all columns for the texts of two buffers, as `text_buffers` returns them.

    Scratch memory is 15 bytes per byte of the longest text, of which only as much is touched as it has words and
    lines, and a table of 32 to 64 bytes per word or line of the text that has most.

    Returns
    -------
    ndarray of float64, shape (19, n)
        In the order of `TYPES`; 0 where a text has too few words for an n-gram.
    """
    capacity = int(np.diff(offsets).max(initial=0)) // 2 + 2
    hashes, ends = np.empty(capacity, np.uint64), np.empty(capacity + 1, np.int64)
    first, count, places = (np.empty(capacity, np.int32) for _ in range(3))
    repeated, common = np.empty(capacity, np.bool_), np.empty(_COMMON_LENGTHS + 1, np.int64)
    out = np.zeros((len(TYPES), offsets.size - 1))
    tables = load_tables()
    row: Int = 0
    slots: Int = SMALLEST_TABLE
    while slots:
        table = np.zeros(2 * slots, np.uint64)
        row, slots = _measure_from(
            row, data, offsets, *tables, hashes, ends, common, table, first, count, places, repeated, out
        )
    return out


def _check_lengths(offsets: Counts) -> None:
    sizes = np.diff(offsets)
    if sizes.max(initial=0) > LONGEST_TEXT:
        row = int(sizes.argmax())
        raise DataError(
            f"row {row} of the batch is a text of {sizes[row]:,} bytes; gopher_v2 measures texts of up to "
            f"{LONGEST_TEXT:,} bytes. Split the document, or leave it out before tagging.",
            tagger="gopher_v2",
            row=row,
        )


@dataclass(frozen=True)
class Gopher:
    """Quality and repetition signals of the Gopher paper, as `gopher_v2` of the Dolma toolkit."""

    name: ClassVar[str] = "gopher_v2"
    version: ClassVar[int] = 1
    params: ClassVar[str] = "{}"
    types: ClassVar[Mapping[str, Kind]] = dict.fromkeys(TYPES, "document")
    reads: ClassVar[tuple[str, ...]] = ("text",)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return nineteen float64 columns; those about n-grams are null where a text has fewer than n words.

        Raises
        ------
        DataError
            If a text is longer than `LONGEST_TEXT` bytes.
        """
        data, offsets = text_buffers(batch.column("text"))
        _check_lengths(offsets)
        values = measure(data, offsets)
        words = values[_WORDS]
        columns = [
            pa.array(column, mask=words < place + _SHORTEST) if place < _CHARACTERS else pa.array(column)
            for place, column in enumerate(values)
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(TYPES))


gopher_v2 = Gopher()
