"""Runs of characters of one kind: the tokens of ``\\w+|[^\\w\\s]+`` without a regular expression.

A token is a longest run of word characters, or of characters that are neither word characters nor white space. So
tokens are counted by their first characters, sixty-four bytes at a time; only characters that are not ASCII are
looked up in a table, one by one.
"""

import numpy as np

from dolma_dask.text.bits import ONE, count_bits, first_bit, low_bits, range_bits
from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.tables import REGEX_SPACE, REGEX_WORD, char_class, decode

_TAB, _CARRIAGE_RETURN, _BLANK = np.uint8(0x09), np.uint8(0x0D), np.uint8(0x20)
_DIGIT_0, _DIGIT_9, _UNDERSCORE = np.uint8(ord("0")), np.uint8(ord("9")), np.uint8(ord("_"))
_UPPER_A, _UPPER_Z, _LOWER_A, _LOWER_Z = (np.uint8(ord(char)) for char in "AZaz")
_FIRST_LEAD, _LAST_BYTE = np.uint8(0xC0), np.uint8(0xFF)


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
        leads = range_bits(data, at, _FIRST_LEAD, _LAST_BYTE) & low_bits(count)
        while leads:
            place = first_bit(leads)
            code, width = decode(data, at + place)
            if place + width > 64:
                count = place
                break
            kind = char_class(numbers, blocks, code)
            bits = low_bits(width) << np.uint64(place)
            if kind & REGEX_WORD:
                words |= bits
            elif kind & REGEX_SPACE:
                spaces |= bits
            leads &= leads - ONE
        window = low_bits(count)
        words &= window
        others = window & ~(words | spaces)
        runs += count_bits(words & ~(words << ONE | after_word)) + count_bits(
            others & ~(others << ONE | after_other)
        )
        last = np.uint64(count - 1)
        after_word, after_other = words >> last & ONE, others >> last & ONE
        at += count
    return runs
