"""The class of every Unicode code point, as bits, from a file shipped with the package.

What counts as white space, a letter or a word character is part of a published rule. Python's answer changes with
its Unicode version, so the answers were recorded once (``tools/make_unicode_tables.py``) and are the same everywhere.
Letters, white space and folds are those of Unicode 14, the version of Python 3.11; ``\\w``, ``\\s``, scripts and line breaking are those of the
``regex`` package; `table_versions` names both.

The 1.1 million classes are stored as 256-code-point blocks of which 161 differ: 46 KB, which stays in cache; folds likewise, in 45 blocks.
Reading the file takes 1 ms, once.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dolma_dask.text.bits import ONE, count_bits, low_bits, range_bits
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bytes, Int, Words, kernel

SPACE = 1
"""`str.isspace`: what `str.split` splits at."""
REGEX_SPACE = 2
"""Matched by ``\\s`` of the ``regex`` package (U+001C to U+001F are not)."""
REGEX_WORD = 4
"""Matched by ``\\w`` of the ``regex`` package: alphabetic, marks, decimal digits, connectors, ZWJ and ZWNJ."""
LETTER = 8
"""`str.isalpha`: general category L."""
ASSIGNED = 16
"""Had a character in Unicode 14; only tests on a newer Python need it."""
TOKEN = 32
"""Part of a token: letters, marks and numbers (general categories L, M, N), and what is invisible by default (soft hyphens, joiners)."""
ALONE = 64
"""Character of a script that is written without spaces: a token of its own."""
FOLDS = 128
"""Has an entry in the table of `load_folds`; every other character of tokens stands for itself."""

STR_WORD = 2
"""Matched by ``\\w`` of `re`: `str.isalnum` or the underscore. This and what follows are bits of `load_str_classes`, which has SPACE too."""
STR_UPPER = 4
"""`str.isupper` of the character alone."""
STR_LOWER = 8
"""Keeps a text from being `str.isupper`: a small letter, or one of title case."""
STR_NUMERIC = 16
"""`str.isnumeric`."""

FOLDED = 21
"""Bits of each code point in an entry of `load_folds`."""

_TWO, _THREE, _EIGHT = np.uint64(2), np.uint64(3), np.uint64(8)
_FIRST_CONTINUATION, _LAST_CONTINUATION = np.uint8(0x80), np.uint8(0xBF)
_FILE = Path(__file__).with_name("tables.npz")


@cache
def load_tables() -> tuple[Bytes, Bytes]:
    """Return (block number by ``code >> 8``: uint8 (4352,), class bits of all blocks: uint8 (blocks * 256,))."""
    with np.load(_FILE) as stored:
        numbers, blocks = stored["numbers"], stored["blocks"]
    numbers.flags.writeable = blocks.flags.writeable = False
    return numbers, blocks


@cache
def load_str_classes() -> tuple[Bytes, Bytes]:
    """Return the same for what Python's `str` and `re` say of a character: bits SPACE, STR_WORD, STR_UPPER, STR_LOWER, STR_NUMERIC."""
    numbers, blocks = read_arrays("str_numbers", "str_blocks")
    return numbers, blocks


@cache
def load_punctuation() -> tuple[Bytes, Bytes]:
    """Return the same with 1 for what a paragraph without words is made of: ``[[:punct:]]`` and ``\\s`` of the ``regex`` package, dingbats and emoji."""
    numbers, blocks = read_arrays("punctuation_numbers", "punctuation_blocks")
    return numbers, blocks


@cache
def load_folds() -> tuple[Bytes, Words]:
    """Return what characters with the class FOLDS become: block number by ``code >> 8``, uint8 (4352,), and the entries of all blocks, uint64.

    An entry holds up to three code points, the first in its lowest `FOLDED` bits; 0 where nothing is left.
    """
    numbers, folds = read_arrays("fold_numbers", "folds")
    return numbers, folds


def table_versions() -> tuple[str, str]:
    """Return the Unicode version of the letters and the version of the ``regex`` package the tables were made with."""
    with np.load(_FILE) as stored:
        unicode_version, regex_version = stored["versions"].tolist()
    return unicode_version, regex_version


def read_arrays(*names: str) -> list[npt.NDArray[Any]]:
    """Return other arrays of the file, read-only."""
    with np.load(_FILE) as stored:
        return [for_kernel(stored[name]) for name in names]


@kernel
def decode(data: Bytes, at: Int) -> tuple[Int, Int]:
    """Return (code point, bytes) of the valid UTF-8 character that begins at byte `at`."""
    place = np.uint64(at)  # unsigned, so that numba does not look whether it counts from the end
    first = np.int64(data[place])
    if first < 0x80:
        return first, 1
    # valid UTF-8: nothing below C2 can come here
    if first < 0xE0:
        return (first & 0x1F) << 6 | np.int64(data[place + ONE]) & 0x3F, 2
    middle = np.int64(data[place + ONE]) & 0x3F
    if first < 0xF0:
        return (first & 0x0F) << 12 | middle << 6 | np.int64(data[place + _TWO]) & 0x3F, 3
    tail = (np.int64(data[place + _TWO]) & 0x3F) << 6 | np.int64(data[place + _THREE]) & 0x3F
    return (first & 0x07) << 18 | middle << 12 | tail, 4


@kernel
def entry_of(code: Int, numbers: Bytes) -> np.uint64:
    """Return where the entry of a code point stands in the blocks of a table with these block numbers."""
    return np.uint64(numbers[np.uint64(code >> 8)]) << _EIGHT | np.uint64(code & 0xFF)


@kernel
def char_class(numbers: Bytes, blocks: Bytes, code: Int) -> Int:
    """Class bits of one code point, from the two arrays of `load_tables`."""
    return np.int64(blocks[entry_of(code, numbers)])


@kernel
def holds_letter(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes) -> bool:
    """Tell whether a letter is among the characters from byte `at` to `end`; stops at the first one."""
    while at < end:
        code, width = decode(data, at)
        if char_class(numbers, blocks, code) & LETTER:
            return True
        at += width
    return False


@kernel
def code_points(data: Bytes, at: Int, end: Int) -> Int:
    """Code points in the text from byte `at` to `end`."""
    count = end - at
    while at < end:
        # bytes that continue a character do not count
        count -= count_bits(
            range_bits(data, at, _FIRST_CONTINUATION, _LAST_CONTINUATION) & low_bits(end - at)
        )
        at += 64
    return count
