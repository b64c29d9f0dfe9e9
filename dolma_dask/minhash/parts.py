"""Tokens of many short texts at once, or of a long text part by part, so that memory does not grow with a text.

A part is cut where no token is, and begins with the last tokens of the one before: each n-gram is in one part whole.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dolma_dask.text.columns import string_parts
from dolma_dask.text.joined import MARGIN, JoinedTokens, characters, cut_texts, joined_words
from dolma_dask.text.kernels import Bytes, Int, kernel
from dolma_dask.text.normalization import normalised_words
from dolma_dask.text.words import word_end

PIECE_BYTES = 1 << 18
"""Short texts that are cut into tokens together."""

PART_BYTES = 1 << 20
"""A longer text is taken in parts of this size."""


@dataclass(frozen=True)
class TokenKind:
    """A way to make tokens of texts."""

    find: Callable[[pa.LargeStringArray], JoinedTokens]
    stop: Callable[[Bytes, int, int], Int]  # (data, at, end): first byte from `at` on where a text may be cut


@kernel
def _character_end(data: Bytes, at: Int, end: Int) -> Int:
    """Byte of the first character that begins at byte `at` or later."""
    while at < end and data[at] & 0xC0 == 0x80:
        at += 1
    return at


WORDS = TokenKind(joined_words, word_end)
NORMALISED_WORDS = TokenKind(normalised_words, word_end)
CHARACTERS = TokenKind(characters, _character_end)


def token_parts(
    texts: pa.LargeStringArray, kind: TokenKind, ngram: int
) -> Iterator[tuple[slice, JoinedTokens]]:
    """Yield rows of texts and their tokens; a long text comes again and again.

    Each part of it has an n-gram or more, unless the text has fewer than `ngram` tokens.
    """
    row = 0
    for piece in cut_texts(texts, PIECE_BYTES):
        rows = slice(row, row + len(piece))
        row += len(piece)
        is_long = len(piece) == 1 and piece.nbytes > PART_BYTES
        for tokens in _parts(piece, kind, ngram) if is_long else [kind.find(piece)]:
            yield rows, tokens


def _parts(text: pa.LargeStringArray, kind: TokenKind, ngram: int) -> Iterator[JoinedTokens]:
    kept, found = _last(kind.find(text.slice(0, 0)), 0), False
    for part in _cut(text, kind):
        tokens = _joined(kept, kind.find(part))
        if len(tokens.starts) > ngram:
            found = True
            yield tokens
        kept = _last(tokens, ngram - 1)
    if not found:
        yield kept


def _cut(text: pa.LargeStringArray, kind: TokenKind) -> Iterator[pa.LargeStringArray]:
    """Yield the parts of one text, as views."""
    offsets, data = string_parts(text)
    at, end = offsets.tolist()
    while at < end:
        stop = int(kind.stop(data, min(at + PART_BYTES, end), end))
        bounds = pa.py_buffer(np.array([at, stop], np.int64))
        yield pa.Array.from_buffers(pa.large_string(), 1, [None, bounds, pa.py_buffer(data)])
        at = stop


def _last(tokens: JoinedTokens, count: int) -> JoinedTokens:
    """Return the last `count` tokens of one text, or all."""
    starts = tokens.starts[-count - 1 :]
    return JoinedTokens(
        tokens.data[starts[0] :], np.array([0, len(starts) - 1]), starts - starts[0], tokens.gap
    )


def _joined(one: JoinedTokens, other: JoinedTokens) -> JoinedTokens:
    """Return the tokens of one text, and behind them those of another."""
    size, stop = one.starts[-1], other.starts[-1] + MARGIN
    starts = np.concatenate([one.starts, other.starts[1:] + size])
    return JoinedTokens(
        np.concatenate([one.data[:size], other.data[:stop]]), np.array([0, len(starts) - 1]), starts, one.gap
    )
