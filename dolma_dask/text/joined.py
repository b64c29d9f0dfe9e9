"""Tokens of texts one behind the other, so that an n-gram is a substring: words joined by single blanks, or characters as they are."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import DataError
from dolma_dask.text.bits import address_of, copy64, first_bit, low_bits, put_byte
from dolma_dask.text.columns import for_kernel, string_parts
from dolma_dask.text.kernels import Bytes, Counts, Int, Positions, kernel
from dolma_dask.text.words import space_bits, word_start

MARGIN = 128
"""Bytes behind the last text that kernels may read."""

LONGEST_TEXT = (1 << 29) - 1
"""Bytes of the longest text: positions in what it becomes, up to three times as long, are held in 32 bits."""

_BLANK = ord(" ")


class JoinedTokens(Struct, frozen=True):
    """Tokens of some texts: token ``j`` is ``data[starts[j]:starts[j + 1] - gap]``, and n tokens from it are ``data[starts[j]:starts[j + n] - gap]``."""

    data: Bytes  # UTF-8, with `MARGIN` bytes behind the last token
    bounds: Counts  # (texts + 1,) text i has the tokens from bounds[i] to bounds[i + 1]
    starts: Positions  # (tokens + 1,)
    gap: int  # bytes between two tokens: 1 for words, 0 for characters


def cut_texts(texts: pa.LargeStringArray, max_bytes: int) -> Iterator[pa.LargeStringArray]:
    """Yield the texts in slices of at most `max_bytes`, or of one text.

    Raises `DataError`: a text is longer than `LONGEST_TEXT`.
    """
    offsets, _ = string_parts(texts)
    sizes = np.diff(offsets)
    if sizes.max(initial=0) > LONGEST_TEXT:
        row = int(sizes.argmax())
        raise DataError(
            f"row {row} of the batch is a text of {sizes[row]:,} bytes; n-grams are made of texts of up to {LONGEST_TEXT:,} bytes. "
            "Split the document, or leave it out beforehand.",
            row=row,
        )
    row = 0
    while row < len(texts):
        stop = int(np.searchsorted(offsets, offsets[row] + max_bytes, "right")) - 1
        stop = max(stop, row + 1)
        yield texts.slice(row, stop - row)
        row = stop


def parts_with_margin(texts: pa.LargeStringArray) -> tuple[Counts, Bytes]:
    """Return `string_parts` with `MARGIN` readable bytes behind the last text, for which the texts may be copied."""
    offsets, data = string_parts(texts)
    if data.size - offsets[-1] >= MARGIN:
        return offsets, data
    copy = np.zeros(offsets[-1] - offsets[0] + MARGIN, np.uint8)
    copy[:-MARGIN] = data[offsets[0] : offsets[-1]]
    return for_kernel(offsets - offsets[0]), for_kernel(copy)


def joined_words(texts: pa.LargeStringArray) -> JoinedTokens:
    """Return the words of texts without nulls (n,) as `str.split` makes them."""
    offsets, data = parts_with_margin(texts)
    size = int(offsets[-1] - offsets[0])
    out = np.empty(size + len(texts) + MARGIN, np.uint8)
    bounds, starts = np.zeros(len(texts) + 1, np.int64), np.empty(size // 2 + len(texts) + 1, np.int32)
    _join_words(data, offsets, out, bounds, starts)
    return JoinedTokens(out, bounds, starts[: bounds[-1] + 1], gap=1)


def characters(texts: pa.LargeStringArray) -> JoinedTokens:
    """Return the code points of texts without nulls (n,)."""
    offsets, data = parts_with_margin(texts)
    bounds, starts = np.zeros(len(texts) + 1, np.int64), np.empty(offsets[-1] - offsets[0] + 1, np.int32)
    data = data[offsets[0] :]
    _find_characters(data, for_kernel(offsets - offsets[0]), bounds, starts)
    return JoinedTokens(data, bounds, starts[: bounds[-1] + 1], gap=0)


@kernel
def end_word(target: Int, put: Int, words: Int, text_words: Int) -> Int:
    """Write a blank at byte `put`, if there is a word before it, of those of its text from `text_words` on; return where to go on."""
    if words > text_words:
        put_byte(target + put, _BLANK)
        put += 1
    return put


@kernel
def begin_word(target: Int, put: Int, starts: Positions, words: Int, text_words: Int) -> Int:
    """End the word before, let word number `words` begin, and return where."""
    put = end_word(target, put, words, text_words)
    starts[words] = put
    return put


@kernel
def _join_words(data: Bytes, offsets: Counts, out: Bytes, bounds: Counts, starts: Positions) -> None:
    """Write each word and a blank; each piece of a word in a window of 64 bytes is copied at once. White space at the end of a window may reach
    over it, and is passed over first.
    """
    source, target = address_of(data), address_of(out)
    put: Int = 0
    words: Int = 0
    for row in range(offsets.size - 1):
        end = offsets[row + 1]
        text_words = words
        at = word_start(data, offsets[row], end)
        # the first word of a text begins as one behind white space does
        is_apart = at < end
        while at < end:
            spaces = space_bits(data, at, end)
            kept = ~spaces
            done: Int = 0
            while kept:
                first = first_bit(np.int64(kept))
                length = first_bit(np.int64(~(kept >> np.uint64(first))))
                # else this is the rest of a word that the window before has cut
                if is_apart or first > done:
                    put = begin_word(target, put, starts, words, text_words)
                    words += 1
                is_apart = False
                # 64 bytes, whatever the length: the next write covers what is too much
                copy64(target + put, source + at + first)
                put += length
                done = first + length
                kept &= ~low_bits(done)
            # a word up to the end of the window may go on in the next
            is_apart = done < 64
            at = word_start(data, at + done, end) if is_apart else at + 64
        put = end_word(target, put, words, text_words)
        bounds[row + 1] = words
    starts[words] = put


@kernel
def _find_characters(data: Bytes, offsets: Counts, bounds: Counts, starts: Positions) -> None:
    """Find the first byte of each code point."""
    found = 0
    for row in range(offsets.size - 1):
        for at in range(offsets[row], offsets[row + 1]):
            # without a branch: a byte that continues a character leaves its place to the next one
            starts[found] = at
            found += data[at] & 0xC0 != 0x80
        bounds[row + 1] = found
    starts[found] = offsets[offsets.size - 1]
