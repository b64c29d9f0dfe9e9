"""Kernels of the signals of RedPajama-V2 over normalised words: their number, lengths and entropy, phrases of a list, repeated n-grams, and words of lines."""

import numpy as np

from dolma_dask.taggers.word_lists import chain, holds
from dolma_dask.text.bits import address_of, count_bits, first_bit, load8, low_bits, range64
from dolma_dask.text.kernels import Bools, Bytes, Counts, Floats, Int, Positions, Words, kernel
from dolma_dask.text.ngrams import (
    count_longer,
    find_or_add,
    keep_neighbours,
    keep_repeated,
    table_slots,
)
from dolma_dask.text.tables import STR_NUMERIC, char_class, decode

LONGEST_NGRAM, FIRST_COVERED = 10, 5
"""n of the longest n-gram, and of the first whose copies are covered; of shorter ones the most common counts."""
WORDS, CHARS, DISTINCT, ENTROPY, LISTED, LOREM_IPSUM, TOP = range(7)
"""Values of a text: words, their code points, different words, entropy of the words, phrases of the list, "lorem ipsum", and from `TOP` on the shares of
the n-grams from n = 2."""
MEASURED = TOP + LONGEST_NGRAM - 1

LINE_WORDS, JAVASCRIPT, NUMERIC = range(3)
"""Values of a line: words, those that are "javascript", share of numeric characters."""
LINE_MEASURED = 3

_LOREM, _IPSUM, _FIVE = np.uint64(0x6D65726F6C), np.uint64(0x6D75737069), 5
"""The two words as little-endian numbers, and their length."""
_JAVASCRIPT_SIZE = 10
_GENERATIONS = LONGEST_NGRAM


@kernel
def _count_words(
    words: Int, hashes: Words, at: Int, table: Words, slots: Int, generation: Int, first: Positions, count: Positions, repeated: Bools
) -> None:  # fmt: skip
    """Count equal words: sets ``first`` (where this word is seen first), ``repeated`` (it occurs more than once) and, at first positions, ``count``."""
    for position in range(words):
        seen = find_or_add(table, slots, generation, hashes[at + position], position)
        first[position] = seen
        # the first of equal words learns that it is repeated when the second one comes
        repeated[position] = seen != position
        repeated[seen] = seen != position
        count[position] = 0
        count[seen] += 1


@kernel
def _entropy(words: Int, first: Positions, count: Positions) -> tuple[Int, float]:
    """Return the number of different words, and the entropy of all, summed in the order in which they are first seen; natural logarithm."""
    distinct, entropy = 0, 0.0
    # most words occur once: one logarithm for all of them
    single = -(1 / words) * np.log(1 / words)
    for position in range(words):
        # each different word once, in an order that depends on the text alone: sums of floats are the same
        # anywhere
        if first[position] == position:
            distinct += 1
            share = count[position] / words
            entropy += single if count[position] == 1 else -share * np.log(share)
    return distinct, entropy


@kernel
def _measure_ngrams(
    words: Int, ends: Counts, table: Words, slots: Int, generation: Int,
    first: Positions, count: Positions, positions: Positions, repeated: Bools, out: Floats, row: Int,
) -> None:  # fmt: skip
    """Write the shares of n-grams of a text: code points of all copies of the most common one, or of the words in repeated ones. Words are counted already."""
    for position in range(words):
        positions[position] = position
    kept = keep_repeated(positions, words, repeated)
    for n in range(2, min(words, LONGEST_NGRAM) + 1):
        # a repeated n-gram consists of two repeated ones of n - 1 words
        kept = keep_neighbours(positions, kept)
        most, place = count_longer(positions, kept, table, slots, generation + n - 2, first, count, repeated)
        kept = keep_repeated(positions, kept, repeated)
        # nothing longer repeats either: these shares stay 0
        if kept == 0:
            break
        chars = (ends[place + n] - ends[place]) * most
        if n >= FIRST_COVERED:
            chars, covered = np.int64(0), np.int64(0)
            for k in range(kept):
                # copies may overlap: words that are covered already count once
                begin, end = max(np.int64(positions[k]), covered), np.int64(positions[k]) + n
                chars += ends[end] - ends[begin]
                covered = end
        out[TOP + n - 2, row] = chars / ends[words]


@kernel
def _count_listed(
    words: Int, hashes: Words, at: Int, sizes: Counts, language: Int, salt: np.uint64, listed: Words
) -> Int:
    """Count the phrases of the list, overlapping ones too."""
    found: Int = 0
    for k in range(sizes.shape[1]):
        n = sizes[language, k]
        # the sizes end with zeros, which stand for no phrases
        for position in range(at, at + words - n + 1 if n else at):
            key = hashes[position]
            for more in range(1, n):
                key = chain(key, hashes[position + more])
            # one table holds the lists of all languages, which salts keep apart
            found += holds(listed, key ^ salt)
    return found


@kernel
def _count_lorem_ipsum(data: Bytes, starts: Positions, first: Int, last: Int) -> Int:
    """Count "lorem ipsum" in the words from `first` to `last`: one that ends with the one before one that begins with the other."""
    found: Int = 0
    for word in range(first + 1, last):
        at = np.int64(starts[word])
        # an i, and an m before the blank: two bytes decide for nearly all words
        if data[at] == 0x69 and data[at - 2] == 0x6D and at - 1 - starts[word - 1] >= _FIVE:
            is_last = load8(data, at - 1 - _FIVE, _FIVE) == _LOREM
            found += is_last and load8(data, at, _FIVE) == _IPSUM
    return found


@kernel
def _count_numeric(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> Int:
    """Count the numeric characters from byte `at` to `end`."""
    found: Int = 0
    while at < end:
        here, inside = address_of(data) + at, low_bits(end - at)
        found += count_bits(np.int64(np.uint64(range64(here, 0x30, 0x39)) & inside))
        # digits of other scripts, at their first bytes
        leads = np.uint64(range64(here, 0xC0, 0xFF)) & inside
        while leads:
            code, _ = decode(data, at + first_bit(np.int64(leads)))
            found += char_class(numbers, blocks, code) & STR_NUMERIC != 0
            leads &= leads - np.uint64(1)
        at += 64
    return found


@kernel
def measure_lines(
    data: Bytes, starts: Positions, line_words: Counts, chars: Positions, hashes: Words, cuts: Counts,
    numbers: Bytes, blocks: Bytes, javascript: np.uint64, out: Floats,
) -> None:  # fmt: skip
    """Measure the words of all lines that are not empty (`LINE_MEASURED`, lines); `line_words` has the bounds of their words, `cuts` those of their bytes."""
    done: Int = 0
    for line in range(cuts.size - 1):
        if cuts[line] == cuts[line + 1]:
            continue
        first, last = line_words[line], line_words[line + 1]
        # the blanks between the words count as characters
        size, scripts = last - first - 1, 0
        for word in range(first, last):
            size += chars[word]
            scripts += hashes[word] == javascript and chars[word] == _JAVASCRIPT_SIZE
        out[LINE_WORDS, done] = last - first
        out[JAVASCRIPT, done] = scripts
        out[NUMERIC, done] = 0.0
        if last > first:
            out[NUMERIC, done] = _count_numeric(data, starts[first], starts[last] - 1, numbers, blocks) / size
        done += 1


@kernel
def measure_words(
    data: Bytes, starts: Positions, bounds: Counts, chars: Positions, hashes: Words,
    languages: Counts, salts: Words, sizes: Counts, listed: Words,
    ends: Counts, table: Words, first: Positions, count: Positions, positions: Positions, repeated: Bools, out: Floats,
) -> None:  # fmt: skip
    """Measure the words of all texts (`MEASURED`, n), of which text i has those from ``bounds[i]`` to ``bounds[i + 1]``; 0 where a text has too few words.

    `languages` are rows of `salts` and `sizes`, see `dolma_dask.taggers.word_lists.WordLists`.
    """
    generation: Int = 1
    for row in range(bounds.size - 1):
        at = bounds[row]
        words = bounds[row + 1] - at
        # code points from any word to any other are then one difference
        ends[0] = 0
        for k in range(words):
            ends[k + 1] = ends[k] + chars[at + k]
        out[WORDS, row], out[CHARS, row] = words, ends[words]
        if words == 0:
            continue
        slots = table_slots(words)
        _count_words(words, hashes, at, table, slots, generation, first, count, repeated)
        out[DISTINCT, row], out[ENTROPY, row] = _entropy(words, first, count)
        _measure_ngrams(
            words, ends, table, slots, generation + 1, first, count, positions, repeated, out, row
        )
        # a new generation empties the table of words and of each n without touching it
        generation += _GENERATIONS
        language = languages[row]
        out[LISTED, row] = _count_listed(words, hashes, at, sizes, language, salts[language], listed)
        out[LOREM_IPSUM, row] = _count_lorem_ipsum(data, starts, at, at + words)
