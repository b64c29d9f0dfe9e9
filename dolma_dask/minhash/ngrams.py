"""Shingles of the scheme ``dolma_dask``, and signatures from them: n-grams of the tokens of `dolma_dask.minhash.tokens`.

A shingle is the polynomial of its token hashes modulo 2**64, mixed: its upper 32 bits go into the permutations, all 64 name it in a set.
A text of fewer than n tokens has one shingle, of all of them. A long text is read in pieces of `PIECE` bytes: what is between the steps stays
in cache, and signing needs the same memory for texts of any length.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.minhash.characters import Tables, load_characters
from dolma_dask.minhash.permutations import NOTHING, Halves, lower32, multiply_add
from dolma_dask.minhash.runs import SLACK, Room, room_for, whole_vectors
from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED
from dolma_dask.minhash.tokens import find_characters, find_tokens
from dolma_dask.text.bits import mix
from dolma_dask.text.columns import string_parts
from dolma_dask.text.kernels import Bytes, Counts, Int, Words, kernel

PIECE = 8192
"""Bytes of text between two steps."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_S32 = np.uint64(32)


@kernel
def _next_tokens(
    data: Bytes, at: Int, end: Int, by_char: bool, started: bool,
    tables: Tables, room: Room, tokens: Words, count: Int,
) -> tuple[Int, Int]:  # fmt: skip
    """Put the hashes of the tokens of the next piece into ``tokens[count:]``; (byte where it ends, `count` and tokens found)."""
    limit = min(end, at + PIECE)
    if by_char:
        return find_characters(data, at, end, limit, tables, started, tokens, count)
    return find_tokens(data, at, end, limit, tables, room, tokens, count)


@kernel
def _sum_ngrams(tokens: Words, first: Int, last: Int, n: Int, sums: Words) -> None:
    """Set ``sums[first:]`` to the polynomials of the n-grams of ``tokens[first:last]``, of which there is one or more.

    They grow by a token in each sweep over all of them. LLVM makes vectors of that, so that up to n = 30 it takes less time than rolling one on.
    """
    start = np.uint64(first)
    stop = start + whole_vectors(last - first - n + 1)
    for k in range(start, stop):
        sums[k] = tokens[k]
    for place in range(np.uint64(1), np.uint64(n)):
        for k in range(start, stop):
            sums[k] = sums[k] * _FACTOR + tokens[k + place]


@kernel
def _lower_minima(
    tokens: Words, count: Int, n: Int, sums: Words, shingles: Halves, a: Halves, b: Halves, values: Halves, row: Int
) -> None:  # fmt: skip
    """Take the n-grams of ``tokens[:count]`` into the minima ``values[row]``."""
    _sum_ngrams(tokens, 0, count, n, sums)
    for k in range(whole_vectors(count - n + 1)):
        shingles[k] = np.uint32(mix(sums[k]) >> _S32)
    # eight at a time: one that is there already changes no minimum
    for k in range(count - n + 1, count - n + 8):
        shingles[k] = shingles[0]
    lower32(shingles, 0, count - n + 8 & ~7, a, b, values, row)


@kernel
def _sign(
    data: Bytes, offsets: Counts, by_char: bool, n: Int,
    tables: Tables, room: Room, tokens: Words, sums: Words, shingles: Halves,
    a: Halves, b: Halves, values: Halves, kinds: Bytes,
) -> None:  # fmt: skip
    """Lower the minima and set the kind of every text."""
    for row in range(offsets.size - 1):
        at, end = offsets[row], offsets[row + 1]
        kept: Int = 0
        total: Int = 0
        while at < end:
            at, count = _next_tokens(
                data, at, end, by_char, bool(total > 0), tables, room, tokens, kept
            )  # fmt: skip
            total += count - kept
            # only n - 1 tokens are taken over, so that no n-gram counts twice
            if count >= n:
                _lower_minima(tokens, count, n, sums, shingles, a, b, values, row)
            # n-grams that begin here may end in the next piece
            kept = min(count, n - 1)
            for k in range(kept):
                tokens[k] = tokens[count - kept + k]
        kinds[row] = SIGNED
        if total == 0:
            kinds[row] = EMPTY
        # all of its tokens are still there, since up to n - 1 are taken over
        elif total < n:
            kinds[row] = SHORT
            _lower_minima(tokens, total, total, sums, shingles, a, b, values, row)


@kernel
def _hash_tokens(
    data: Bytes, offsets: Counts, by_char: bool, tables: Tables, room: Room, tokens: Words, bounds: Counts
) -> None:  # fmt: skip
    """Find the tokens of all texts."""
    count: Int = 0
    for row in range(offsets.size - 1):
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            at, count = _next_tokens(
                data, at, end, by_char, bool(count > bounds[row]), tables, room, tokens, count
            )  # fmt: skip
        bounds[row + 1] = count


@kernel
def _hash_shingles(tokens: Words, bounds: Counts, n: Int, sums: Words, shingles: Words, ends: Counts) -> None:
    """Find the shingles of all texts from their tokens."""
    found = 0
    for row in range(bounds.size - 1):
        first, last = bounds[row], bounds[row + 1]
        # a short text has one shingle, of all of its tokens
        size = min(n, last - first)
        if size > 0:
            _sum_ngrams(tokens, first, last, size, sums)
            for k in range(first, last - size + 1):
                shingles[found] = mix(sums[k])
                found += 1
        ends[row + 1] = found


def sign_tokens(
    texts: pa.LargeStringArray, *, ngram: int, unit: str, num_perm: int, seed: int
) -> tuple[Halves, npt.NDArray[np.uint8]]:
    """Return the signatures of texts without nulls, uint32 (n, num_perm), and their kinds, uint8 (n,); `NOTHING` in all values of empty ones."""
    offsets, data = string_parts(texts)
    values = np.full((len(texts), num_perm), NOTHING, np.uint32)
    kinds = np.empty(len(texts), np.uint8)
    tokens = _room(PIECE + ngram)
    _sign(
        data, offsets, unit == "char", ngram, load_characters(), room_for(PIECE),
        tokens, np.empty_like(tokens), np.empty(len(tokens), np.uint32), *multiply_add(seed, num_perm), values, kinds,
    )  # fmt: skip
    return values, kinds


def hash_tokens(texts: pa.LargeStringArray, *, unit: str) -> tuple[Counts, Words]:
    """Return the tokens of texts without nulls (n,), hashed: those of text `i` lie from ``bounds[i]`` to ``bounds[i + 1]``."""
    offsets, data = string_parts(texts)
    bounds = np.zeros(len(texts) + 1, np.int64)
    tokens = _room(int(offsets[-1] - offsets[0]))
    _hash_tokens(data, offsets, unit == "char", load_characters(), room_for(PIECE), tokens, bounds)
    return bounds, tokens[: bounds[-1]]


def hash_shingles(texts: pa.LargeStringArray, *, ngram: int, unit: str) -> tuple[Counts, Words]:
    """Return the shingles of texts without nulls (n,), hashed to 64 bits, in the order of the text and with their repetitions; bounds as from
    `hash_tokens`. Takes up to 24 bytes of memory per byte of text, for spaced scripts a fifth of that.
    """
    bounds, tokens = hash_tokens(texts, unit=unit)
    # sums are made of whole vectors, for which tokens have room behind them too
    sums, shingles = _room(len(tokens)), np.empty_like(tokens)
    ends = np.zeros_like(bounds)
    _hash_shingles(tokens, bounds, ngram, sums, shingles, ends)
    return ends, shingles[: ends[-1]]


def _room(most: int) -> Words:
    """Return scratch for `most` tokens; only what is reached becomes memory."""
    return np.empty(
        most + 4 + SLACK, np.uint64
    )  # a character may become three tokens, with a blank before them
