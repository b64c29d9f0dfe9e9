"""The normalised words of RedPajama-V2: without ASCII punctuation, in lower case, in canonical decomposition (NFD), in this order.

A text is what ``unicodedata.normalize("NFD", re.sub(r"\\s+", " ", text.translate(no_punctuation).lower().strip()))`` makes of it, and its words are
those of `str.split`. Python's answer follows its Unicode version; here it is Unicode 14 (Python 3.11) on every machine, from a table
(``tools/make_unicode_tables.py``) of what each code point becomes. What was published under an older version differs in characters that were
new in between.

Runs of ASCII are lowered sixty-four bytes at a time; other characters are looked up one by one. Two things need their neighbours: a capital
sigma, of which `str.lower` makes another letter at the end of a word, and combining marks, whose order is canonical.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.text.bits import (
    address_of,
    copy64,
    first_bit,
    low_bits,
    lower64,
    memcpy,
    put_half,
    put_word,
    range64,
    word_at,
)  # fmt: skip
from dolma_dask.text.joined import MARGIN, JoinedTokens, begin_word, end_word, parts_with_margin
from dolma_dask.text.kernels import Bytes, Counts, Int, Positions, kernel
from dolma_dask.text.tables import decode, read_arrays

FORM, CASED, IGNORED, SPACE = 0xFFF, 1 << 12, 1 << 13, 1 << 14
"""Bits of a code point: the number of its form, 0 for one that stays as it is; cased; passed over by the search for the end of a word, as ASCII
punctuation is; white space."""

GROWTH = 3
"""Bytes that a byte of text becomes, at most."""

_SIGMA, _FINAL_SIGMA = 0x3A3, 0x82CF
_HANGUL, _SYLLABLES, _VOWELS, _TAILS = 0xAC00, 11172, 21, 28
_LEAD_UTF8, _VOWEL_UTF8, _TAIL_UTF8 = 0x1100, 0x1161, 0x11A7
_NOT_ASCII = np.uint64(0x8080808080808080)


class Forms(NamedTuple):
    """Forms of code points: their lower case in canonical decomposition."""

    numbers: Bytes  # (4352,) block by ``code >> 8``
    blocks: npt.NDArray[np.uint16]  # (blocks * 256,) FORM, CASED, IGNORED, SPACE
    starts: Counts  # (forms + 1,) in `texts`; a form without bytes is the code point itself
    first: Bytes  # (forms,) combining class of the first code point
    last: Bytes  # (forms,) and of the last
    texts: Bytes


@cache
def load_forms() -> Forms:
    """Return the tables; 1 ms, once."""
    names = ("numbers", "blocks", "sizes", "classes", "texts")
    numbers, blocks, sizes, classes, texts = read_arrays(*(f"lower_{name}" for name in names))
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    return Forms(numbers, blocks, starts, classes[0], classes[1], np.append(texts, np.zeros(64, np.uint8)))


@kernel
def _form(forms: Forms, code: Int) -> Int:
    return np.int64(forms.blocks[np.int64(forms.numbers[code >> 8]) << 8 | code & 0xFF])


@kernel
def _ends_word(data: Bytes, at: Int, begin: Int, end: Int, forms: Forms) -> bool:
    """Tell whether the capital sigma at byte `at` follows a cased letter and no cased letter follows it, as `str.lower` asks."""
    before: Int = at
    form: Int = IGNORED
    while form & IGNORED:
        if before == begin:
            return False
        before -= 1
        # back over the bytes that continue a character
        while data[before] & 0xC0 == 0x80:
            before -= 1
        form = _form(forms, decode(data, before)[0])
    if form & CASED == 0:
        return False
    after: Int = at + 2
    form = IGNORED
    while form & IGNORED:
        if after >= end:
            return True
        code, width = decode(data, after)
        form = _form(forms, code)
        after += width
    return form & CASED == 0


@kernel
def _order_marks(out: Bytes, begin: Int, end: Int, forms: Forms) -> None:
    """Sort the code points from byte `begin` to `end` by combining class; those of one class stay as they are. As many bytes behind `end` are
    overwritten. One pass for each class: linear, however many marks there are.
    """
    # the sorted copy is written behind the marks, and moved back at the end
    written: Int = end
    level: Int = 0
    while level < 256:
        at: Int = begin
        next_level: Int = 256
        while at < end:
            code, width = decode(out, at)
            combining = np.int64(forms.first[_form(forms, code) & FORM])
            if combining == level:
                for k in range(width):
                    out[written + k] = out[at + k]
                written += width
            # the next class that occurs, so that classes without marks cost no pass
            elif combining > level:
                next_level = min(next_level, combining)
            at += width
        level = next_level
    memcpy(address_of(out) + begin, address_of(out) + end, end - begin)


@kernel
def _put_three(target: Int, code: Int) -> None:
    """Write a code point of three bytes, and a zero."""
    put_half(target, 0xE0 | code >> 12 | (0x80 | code >> 6 & 0x3F) << 8 | (0x80 | code & 0x3F) << 16)


@kernel
def _put_syllable(target: Int, syllable: Int) -> Int:
    """Write the letters of a Hangul syllable, and return their bytes."""
    tail = syllable % _TAILS
    # all of these letters lie from U+1100 on: three bytes each
    _put_three(target, _LEAD_UTF8 + syllable // (_VOWELS * _TAILS))
    _put_three(target + 3, _VOWEL_UTF8 + syllable // _TAILS % _VOWELS)
    _put_three(target + 6, _TAIL_UTF8 + tail)
    return 9 if tail else 6


@kernel
def _normalise(
    data: Bytes, offsets: Counts, forms: Forms, out: Bytes, bounds: Counts, starts: Positions
) -> None:
    """Normalise texts; see `normalised_words`.

    Runs of kept ASCII are copied from windows of 64 bytes, which end before the first other character; that one and those near it are looked up.
    """
    source, target, texts = address_of(data), address_of(out), address_of(forms.texts)
    put: Int = 0
    words: Int = 0
    for row in range(offsets.size - 1):
        begin, end = offsets[row], offsets[row + 1]
        at, text_words = begin, words
        is_apart, is_unordered, marks = True, False, put
        last: Int = 0
        while at < end:
            window = source + at
            spaces = np.uint64(range64(window, 0x09, 0x0D) | range64(window, 0x1C, 0x20))
            # letters and digits of ASCII; its punctuation vanishes without parting words
            kept = ~(spaces | np.uint64(range64(window, 0x21, 0x2F) | range64(window, 0x3A, 0x40)))
            kept &= ~np.uint64(range64(window, 0x5B, 0x60) | range64(window, 0x7B, 0x7E))
            # up to the first character that is not ASCII
            size = min(first_bit(range64(window, 0x80, 0xFF)), end - at)
            spaces, kept = spaces & low_bits(size), kept & low_bits(size)
            while kept:
                first = first_bit(np.int64(kept))
                length = first_bit(np.int64(~(kept >> np.uint64(first))))
                # a letter ends the run of marks before it
                if is_unordered:
                    _order_marks(out, marks, put, forms)
                    is_unordered = False
                last = 0
                if is_apart or spaces & low_bits(first):
                    put = begin_word(target, put, starts, words, text_words)
                    words, is_apart = words + 1, False
                # 64 bytes, whatever the length: the next write covers what is too much
                lower64(target + put, window + first)
                put += length
                kept, spaces = kept & ~low_bits(first + length), spaces & ~low_bits(first + length)
            is_apart = is_apart or spaces != 0
            at += size
            # one at a time as long as such a character is near: windows would be cut short again and again
            while at < end and np.uint64(word_at(source + at)) & _NOT_ASCII:
                code, width = decode(data, at)
                form = _form(forms, code)
                if form & SPACE or (code < 0x80 and form & IGNORED):
                    is_apart |= form & SPACE != 0
                    at += width
                    continue
                number = form & FORM
                combining = np.int64(forms.first[number])
                if is_unordered and (combining == 0 or is_apart):
                    _order_marks(out, marks, put, forms)
                    is_unordered = False
                if is_apart:
                    put = begin_word(target, put, starts, words, text_words)
                    words, is_apart, last = words + 1, False, 0
                # marks are sorted from here on, behind the letter that they belong to
                if last == 0 or combining == 0:
                    marks = put
                # a lower class behind a higher one is not canonical
                is_unordered = is_unordered or bool(0 < combining < last)
                last = np.int64(forms.last[number])
                size = forms.starts[number + 1] - forms.starts[number]
                if size:
                    copy64(target + put, texts + forms.starts[number])
                    if code == _SIGMA and _ends_word(data, at, begin, end, forms):
                        put_half(target + put, _FINAL_SIGMA)
                    put += size
                elif 0 <= code - _HANGUL < _SYLLABLES:
                    put += _put_syllable(target + put, code - _HANGUL)
                else:
                    # itself; eight bytes, of which the next write covers what is too much
                    put_word(target + put, word_at(source + at))
                    put += width
                at += width
        if is_unordered:
            _order_marks(out, marks, put, forms)
        put = end_word(target, put, words, text_words)
        bounds[row + 1] = words
    starts[words] = put


def normalised_words(texts: pa.LargeStringArray) -> JoinedTokens:
    """Return the normalised words of texts without nulls (n,), joined by blanks.

    ``data[starts[bounds[i]]:starts[bounds[i + 1]] - 1]`` is the normalised text ``i``, if it has words.
    """
    return normalise(*parts_with_margin(texts))


def normalise(offsets: Counts, data: Bytes) -> JoinedTokens:
    """Return the normalised words of the pieces that `offsets` (n + 1,) cut; `MARGIN` bytes behind the last one may be read.

    Lines of a text, each with its newline, give the words of the text.
    """
    pieces = len(offsets) - 1
    size = int(offsets[-1] - offsets[0])
    out = np.empty(2 * (GROWTH * size + pieces) + MARGIN, np.uint8)
    bounds, starts = np.zeros(pieces + 1, np.int64), np.empty(size // 2 + pieces + 1, np.int32)
    _normalise(data, offsets, load_forms(), out, bounds, starts)
    return JoinedTokens(out, bounds, starts[: bounds[-1] + 1], gap=1)
