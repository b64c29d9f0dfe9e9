"""Words by the rules of Unicode (UAX 29, word boundaries): everything between two boundaries is one, white space and signs too.

A machine finds where a word ends. Its state is what the word so far ends with, as far as a rule looks at it; a character of a class leads to the next
state, or ends the word. Rules that look ahead (a letter behind an apostrophe, a digit behind a comma) mark the sign and go on: where the character that they wait for
does not come, the word ends before the sign. Nothing before the beginning of a word counts for where it ends, so each is found by itself, and each character is
read at most twice.

Classes are Word_Break and Extended_Pictographic of Unicode 16, recorded in `tables` from the ``uniseg`` package, release 0.10.1.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.tables import char_class, decode, read_arrays
from dolma_dask.text.words import word_start

Entries = npt.NDArray[np.uint16]

CLASSES = (
    "Other", "CR", "LF", "Newline", "Extend", "ZWJ", "Regional_Indicator", "Format", "Katakana", "Hebrew_Letter", "ALetter", "Single_Quote", "Double_Quote",
    "MidNumLet", "MidLetter", "MidNum", "Numeric", "ExtendNumLet", "WSegSpace", "Other pictographic", "ALetter pictographic", "Other white", "ExtendNumLet white",
)  # fmt: skip
"""Classes of code points by their numbers; each is a value of Word_Break, ``pictographic`` where Extended_Pictographic holds too, ``white`` where `str.isspace` does."""

_LETTERS = {"ALetter": "letter", "ALetter pictographic": "letter", "Hebrew_Letter": "hebrew"}
_NUMBERS = {"Numeric": "number"}
_TIES = {"ExtendNumLet": "tie", "ExtendNumLet white": "tie"}
_WHITE = ("CR", "LF", "Newline", "WSegSpace", "Other white", "ExtendNumLet white")
_KATAKANA = {"Katakana": "katakana"}
_SPACES = {"WSegSpace": "space"}
_BEGINS = {
    "CR": "return", "LF": "newline", "Newline": "newline", "Regional_Indicator": "flag", **_LETTERS, **_NUMBERS, **_TIES, **_KATAKANA, **_SPACES
}  # fmt: skip
"""What a word ends with behind its first character; ``other`` behind all that nothing follows but what extends it."""

_QUOTES = ("MidNumLet", "Single_Quote")
_JOINS: Mapping[str, Mapping[str, str]] = {
    "other": {},
    "return": {"LF": "newline"},
    "newline": {},
    "space": _SPACES,
    "flag": {"Regional_Indicator": "other"},
    "katakana": {**_KATAKANA, **_TIES},
    "tie": {**_LETTERS, **_NUMBERS, **_KATAKANA, **_TIES},
    "number": {**_LETTERS, **_NUMBERS, **_TIES, **dict.fromkeys(("MidNum", *_QUOTES), "number, sign")},
    "letter": {**_LETTERS, **_NUMBERS, **_TIES, **dict.fromkeys(("MidLetter", *_QUOTES), "letter, sign")},
    "hebrew": {
        **_LETTERS, **_NUMBERS, **_TIES, "MidLetter": "letter, sign", "MidNumLet": "letter, sign", "Single_Quote": "hebrew, quote",
        "Double_Quote": "hebrew, sign",
    },
    "hebrew, quote": _LETTERS,
    "number, sign": _NUMBERS,
    "letter, sign": _LETTERS,
    "hebrew, sign": {"Hebrew_Letter": "hebrew"},
}  # fmt: skip
"""State behind a character that joins a word, by what the word ends with; all other classes end it."""

_EXTENDS = ("Extend", "Format", "ZWJ")
_STATES = tuple((base, joiner) for base in _JOINS for joiner in (False, True))
"""Each with a zero-width joiner as the last character, or another."""

_START = len(_STATES)
_SHIFT, _STATE, _END = 5, 31, 31
_MARKS, _ENDS, _ENDS_BEFORE, _INKED = 32, 64, 128, 256
"""Bits of an entry beside the next state: the character is a sign whose rule looks ahead, the word ends before this character, or before the sign; the character is
not white space."""


@cache
def load_word_breaks() -> tuple[Bytes, Bytes, Entries]:
    """Return what `word_stop` takes: the classes as of `load_tables`, and the entries of the machine (states * 32,), by class."""
    numbers, blocks = read_arrays("break_numbers", "break_blocks")
    machine = np.zeros((_START + 1) << _SHIFT, np.uint16)
    for state, number, entry in _entries():
        machine[state << _SHIFT | number] = entry
    machine.flags.writeable = False
    return numbers, blocks, machine


def _entries() -> Iterator[tuple[int, int, int]]:
    for number, name in enumerate(CLASSES):
        inked = _INKED * (name not in _WHITE)
        yield _START, number, inked | _begin(name)
        for state, (base, joiner) in enumerate(_STATES):
            yield state, number, inked | _entry(base, name, joiner=joiner)
    for state, (base, _) in enumerate(_STATES):
        yield state, _END, _stop(base)


def _begin(name: str) -> int:
    return _STATES.index((_BEGINS.get(name, "other"), name == "ZWJ"))


def _entry(base: str, name: str, *, joiner: bool) -> int:
    """Return what a character of a class makes of a word that ends so."""
    if name in _JOINS[base]:
        joined = _JOINS[base][name]
        return _STATES.index((joined, False)) | _MARKS * joined.endswith("sign")
    if name in _EXTENDS and base not in ("return", "newline"):
        return _STATES.index(("other" if base == "space" else base, name == "ZWJ"))
    if joiner and name.endswith("pictographic") and not base.endswith("sign"):
        return _STATES.index((_BEGINS.get(name, "other"), False))
    return _stop(base) | _begin(name)


def _stop(base: str) -> int:
    return _ENDS_BEFORE if base.endswith("sign") else _ENDS


@kernel
def word_stop(data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes, machine: Entries) -> Int:
    """Return the byte where the word ends that begins at byte `at` (before `end`); tables as from `load_word_breaks`."""
    state: Int = _START
    sign = at
    while at < end:
        code, width = decode(data, at)
        entry = np.int64(machine[np.uint64(state << _SHIFT | char_class(numbers, blocks, code))])
        if entry & (_MARKS | _ENDS | _ENDS_BEFORE):
            if entry & _ENDS:
                return at
            if entry & _ENDS_BEFORE:
                return sign
            sign = at
        state = entry & _STATE
        at += width
    return sign if machine[np.uint64(state << _SHIFT | _END)] & _ENDS_BEFORE else end


@kernel
def count_words(
    data: Bytes, at: Int, end: Int, numbers: Bytes, blocks: Bytes, machine: Entries
) -> tuple[Int, Int]:
    """Count the words of a text without white space on either side: all of them, and those that are not white space."""
    count: Int = 0
    blank: Int = 0
    inked: Int = 0
    ink: Int = 0
    state: Int = _START
    at = sign = word_start(data, at, end)
    while at < end:
        code, width = decode(data, at)
        entry = np.int64(machine[np.uint64(state << _SHIFT | char_class(numbers, blocks, code))])
        if entry & _MARKS:
            sign = at
        at += width
        # no branches for what happens at every word: it would be mispredicted
        ends: Int = entry >> 6 & 1
        if entry & _ENDS_BEFORE or (
            at >= end and machine[np.uint64((entry & _STATE) << _SHIFT | _END)] & _ENDS_BEFORE
        ):
            # once more from the sign on, which now begins a word
            entry, ends, at = np.int64(_START), 1, sign
        count += ends
        inked += ends & ink
        blank = (blank + ends) * (1 - (ends & ink))
        ink = (ink & (ends ^ 1)) | entry >> 8
        state = entry & _STATE
    # the word at the end; words of white space behind the last other one do not count
    return (count + 1, inked + 1) if ink else (count - blank, inked)
