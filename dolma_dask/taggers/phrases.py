"""Whether a text holds a word or a phrase of a list, in lower case: a look at the bytes finds the few texts that are worth reading as strings.

A word of the list is one of ``text.lower().split()``, a phrase of several any part of ``text.lower()``: the definition of the Dolma toolkit. Kernels compare ASCII by bytes
whose case is folded roughly (``@`` is taken for a grave accent too); two letters of other scripts become ASCII in lower case. What they find is compared again, exactly.
"""

import re
from collections.abc import Iterable
from functools import cache

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.taggers.word_lists import holds, table_of
from dolma_dask.text import compute as pc
from dolma_dask.text.bits import absorb, load8, mix
from dolma_dask.text.columns import for_kernel, string_parts
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Positions, Words, kernel
from dolma_dask.text.view import TextView

_BLANK = np.uint8(0x20)
_CASED, _ONE = np.uint64(0x4040404040404040), np.uint64(1)
_PAIRS = 1 << 16
_LAST_CASED = 0x20000
"""Behind all characters that have a lower case of their own."""
_PLAIN = re.compile("[ -~]+")
_BECOME_ASCII = ("\u0130", "\u212a")
"""What is not ASCII and becomes so in lower case, at least in part."""


@kernel
def _fold(byte: np.uint8) -> np.uint8:
    return np.uint8(byte | (byte & 0x40) >> 1)


@kernel
def _hash_folded(data: Bytes, at: Int, end: Int) -> np.uint64:
    """Hash of the bytes from `at` to `end`, with their case folded."""
    state = np.uint64(end - at)
    while at < end:
        word = load8(data, at, min(8, end - at))
        state = absorb(state, word | (word & _CASED) >> _ONE)
        at += 8
    return mix(state)


@kernel
def _hash_all(data: Bytes, offsets: Counts, hashes: Words) -> None:
    for row in range(hashes.size):
        hashes[row] = _hash_folded(data, offsets[row], offsets[row + 1])


@kernel
def _begins_with(data: Bytes, at: Int, end: Int, phrase: Bytes, begin: Int, stop: Int) -> bool:
    """Tell whether a phrase, which is folded, stands at byte `at` of a text that ends at `end`."""
    if end - at < stop - begin:
        return False
    place = begin
    while place < stop and _fold(data[at + place - begin]) == phrase[place]:
        place += 1
    return bool(place == stop)


@kernel
def _find(
    data: Bytes, offsets: Counts, bounds: Counts, starts: Positions, sizes: Positions, words: Words,
    first: Counts, before: Counts, phrases: Bytes, cuts: Counts, found: Bools,
) -> None:  # fmt: skip
    """Set `found` for texts with a word or phrase of the list; phrases by the bytes at either side of their first blank."""
    for row in range(found.size):
        text, end = offsets[row], offsets[row + 1]
        for word in range(bounds[row], bounds[row + 1]):
            at = text + starts[word]
            if holds(words, _hash_folded(data, at, at + sizes[word])):
                found[row] = True
                break
            gap = at + sizes[word]
            if gap + 1 >= end or data[gap] != _BLANK:
                continue
            pair = np.int64(_fold(data[gap - 1])) << 8 | np.int64(_fold(data[gap + 1]))
            for phrase in range(first[pair], first[pair + 1]):
                begin = gap - before[phrase]
                if begin >= text and _begins_with(data, begin, end, phrases, cuts[phrase], cuts[phrase + 1]):
                    found[row] = True
                    break
            if found[row]:
                break


class Phrases(Struct, frozen=True, eq=False):
    """Words and phrases in lower case, and what kernels compare of those that are plain: of printable ASCII."""

    words: frozenset[str]
    phrases: tuple[str, ...]
    signs: tuple[str, ...]  # one of them is in every text in which a comparison of ASCII is not enough
    hashes: Words  # table of the plain words
    first: Counts  # (65,537,) plain phrases by their pair of bytes
    before: Counts  # (phrases,) bytes in front of the first blank
    folded: Bytes  # the plain phrases, back to back
    cuts: Counts  # (phrases + 1,)

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Phrases":
        """Return the words, and the phrases of several, in these lines."""
        every = sorted({line.lower() for line in lines} - {""})
        words, phrases = ([line for line in every if (" " in line) is several] for several in (False, True))
        signs = {sign for line in every if (sign := _PLAIN.sub("", line)[:1])}
        folded = sorted((_pair(phrase), phrase) for phrase in map(_folded, phrases) if _is_plain(phrase))
        pairs, plain = [pair for pair, _ in folded], [phrase for _, phrase in folded]
        cuts, data = string_parts(pa.array(plain, pa.large_binary()))
        offsets, bytes_of_words = string_parts(
            pa.array(filter(_is_plain, map(_folded, words)), pa.large_binary())
        )
        hashes = np.empty(len(offsets) - 1, np.uint64)
        _hash_all(bytes_of_words, offsets, hashes)
        return cls(
            frozenset(words), tuple(phrases), (*_BECOME_ASCII, *_before_lower(signs)), table_of(hashes),
            for_kernel(np.searchsorted(pairs, np.arange(_PAIRS + 1))),
            for_kernel(np.array([phrase.index(b" ") for phrase in plain], np.int64)), data, cuts,
        )  # fmt: skip

    def may_be_in(self, view: TextView) -> Bools:
        """Tell which texts can hold one (n,): all that do, and few others."""
        found, words = np.zeros(len(view), np.bool_), view.words
        _find(
            view.data, view.offsets, words.bounds, words.starts, words.sizes, self.hashes,
            self.first, self.before, self.folded, self.cuts, found,
        )  # fmt: skip
        for sign in self.signs:
            found |= np.asarray(pc.match_substring(view.texts, sign).to_numpy(zero_copy_only=False), np.bool_)
        return found

    def are_in(self, text: str) -> bool:
        """Tell whether a text holds one."""
        lowered = text.lower()
        return not self.words.isdisjoint(lowered.split()) or any(map(lowered.__contains__, self.phrases))


def _folded(line: str) -> bytes:
    return bytes(byte | (byte & 0x40) >> 1 for byte in line.encode())


def _is_plain(line: bytes) -> bool:
    return line.isascii() and not _PLAIN.sub("", line.decode())


def _pair(phrase: bytes) -> int:
    """Return the bytes at either side of the first blank as one number."""
    blank = phrase.index(b" ")
    return phrase[blank - 1] << 8 | phrase[blank + 1]


def _before_lower(signs: set[str]) -> set[str]:
    """Return these characters and all that become one of them in lower case."""
    return signs.union(*(_capitals().get(sign, ()) for sign in signs))


@cache
def _capitals() -> dict[str, set[str]]:
    """Return what becomes each character in lower case; a sigma at the end of a word becomes another."""
    found: dict[str, set[str]] = {}
    for letter in map(chr, range(_LAST_CASED)):
        if letter.lower() != letter:
            for lowered in letter.lower() + ("a" + letter).lower():
                found.setdefault(lowered, set()).add(letter)
    return found
