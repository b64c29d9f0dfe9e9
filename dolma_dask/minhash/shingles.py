"""Shingles that are hashed as strings by SHA-1, as datasketch and RedPajama-V2 hash them, and their signatures; the permutations are the caller's.

Many short texts are taken at once, and a long one part by part, so that memory does not grow with a text. A part is cut where no token is, and begins with the last tokens of
the one before: each n-gram is in one part whole. Shingles are hashed in runs, so that what is made of them stays in the cache. A run may hold the shingles of many texts, or some
of a long one: minima of parts and runs together are those of the whole.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.minhash.permutations import NOTHING, Halves
from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED
from dolma_dask.text.columns import string_parts
from dolma_dask.text.joined import MARGIN, JoinedTokens, characters, cut_texts, joined_words
from dolma_dask.text.kernels import Bytes, Counts, Int, Positions, Words, kernel
from dolma_dask.text.normalization import normalised_words
from dolma_dask.text.sha1 import sha1_words
from dolma_dask.text.words import word_end

PIECE_BYTES = 1 << 18
"""Short texts that are cut into tokens together."""

PART_BYTES = 1 << 20
"""A longer text is taken in parts of this size."""

RUN = 1 << 14
"""Shingles that are hashed together."""


class TokenKind(Struct, frozen=True):
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


class Permutations(Struct, frozen=True):
    """Permutations of 32-bit hashes; ``lower(hashes, bounds, a, b, values, row)`` lowers the minima ``values[row]``, ``values[row + 1]`` and so on
    to those that also cover ``hashes[bounds[0]:bounds[1]]`` and so on. It may change the hashes.
    """

    lower: Callable[..., None]
    a: npt.NDArray[Any]  # (num_perm,)
    b: npt.NDArray[Any]  # (num_perm,)


def sign_strings(
    texts: pa.LargeStringArray, kind: TokenKind, permutations: Permutations,
    *, ngram: int, signs_short: bool,
) -> tuple[Halves, npt.NDArray[np.uint8]]:  # fmt: skip
    """Return the signatures of texts without nulls, uint32 (n, num_perm), and their kinds (n,).

    A text of fewer than `ngram` tokens is a shingle as a whole where `signs_short`, and has none otherwise; what is returned for a text without
    shingles means nothing.
    """
    values = np.full((len(texts), len(permutations.a)), NOTHING, np.uint32)
    counts = np.zeros(len(texts), np.int64)
    for rows, tokens in token_parts(texts, kind, ngram):
        counts[rows] = np.maximum(counts[rows], np.diff(tokens.bounds))
        _sign_part(tokens, values[rows], permutations, ngram, signs_short)
    return values, np.where(counts >= ngram, SIGNED, np.where(counts > 0, SHORT, EMPTY)).astype(np.uint8)


def hash_strings(
    texts: pa.LargeStringArray, kind: TokenKind, *, ngram: int, signs_short: bool
) -> tuple[Counts, Words]:  # fmt: skip
    """Return the shingles of texts without nulls (n,), hashed to 64 bits, with their repetitions: those of text `i` lie from ``bounds[i]`` to
    ``bounds[i + 1]``. Takes 8 bytes of memory per shingle, and a part of a text more.
    """
    counts = np.zeros(len(texts), np.int64)
    runs = [np.empty(0, np.uint64)]
    for rows, tokens in token_parts(texts, kind, ngram):
        ends = _shingle_ends(tokens, ngram, signs_short)
        counts[rows] += np.diff(ends)
        runs += [hashes for _, _, hashes in _hashed_runs(tokens, ends, ngram)]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), np.concatenate(runs)


def _shingle_ends(tokens: JoinedTokens, ngram: int, signs_short: bool) -> Counts:
    """Number the shingles of all texts: those of text `i` end before number ``ends[i + 1]``."""
    counts = np.diff(tokens.bounds)
    shingles = np.maximum(counts - ngram + 1, np.minimum(counts, 1) if signs_short else 0)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(shingles)])


def _sign_part(
    tokens: JoinedTokens, values: Halves, permutations: Permutations, ngram: int, signs_short: bool
) -> None:
    """Take the shingles of all texts run by run."""
    ends = _shingle_ends(tokens, ngram, signs_short)
    for row, bounds, hashes in _hashed_runs(tokens, ends, ngram):
        low = hashes.astype(np.uint32)
        permutations.lower(low, bounds, permutations.a, permutations.b, values, row)


def _hashed_runs(tokens: JoinedTokens, ends: Counts, ngram: int) -> Iterator[tuple[int, Counts, Words]]:
    """Yield runs of shingles: the row of the first text, the bounds of each text in the run, and the hashes."""
    for first in range(0, int(ends[-1]), RUN):
        last = min(first + RUN, int(ends[-1]))
        row, stop = np.searchsorted(ends, [first, last - 1], "right") - 1
        spans = np.empty((2, last - first), np.int64)
        bounds = np.clip(ends[row : stop + 2], first, last)
        _find_shingles(
            tokens.bounds, tokens.starts, bounds, int(ends[row]), int(row), ngram, tokens.gap, *spans
        )
        yield int(row), bounds - first, sha1_words(tokens.data, *spans)


@kernel
def _find_shingles(
    tokens: Counts, starts: Positions, bounds: Counts, before: Int, row: Int, ngram: Int, gap: Int,
    begins: Counts, ends: Counts,
) -> None:  # fmt: skip
    """Find where shingles begin and end: those numbered ``bounds[i]`` to ``bounds[i + 1]`` of text ``row + i``, the first of whose shingles is
    number `before`.
    """
    found = 0
    for i in range(bounds.size - 1):
        token = tokens[row + i] + bounds[i] - before
        last = tokens[row + i + 1]
        for shingle in range(bounds[i + 1] - bounds[i]):
            begins[found] = starts[token + shingle]
            # the one shingle of a short text ends with its last token
            ends[found] = starts[min(token + shingle + ngram, last)] - gap
            found += 1
        before = bounds[i + 1]
