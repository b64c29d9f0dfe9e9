"""Signatures of shingles that are hashed as strings by SHA-1, as datasketch and RedPajama-V2 hash them; the permutations are the caller's.

Texts come in parts (`dolma_dask.minhash.parts`), and their shingles are hashed in runs, so that what is made of them stays in the cache. A run may
hold the shingles of many texts, or some of a long one: minima of parts and runs together are those of the whole.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.minhash.parts import TokenKind, token_parts
from dolma_dask.minhash.permutations import NOTHING, Halves
from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED
from dolma_dask.text.joined import JoinedTokens
from dolma_dask.text.kernels import Counts, Int, Positions, Words, kernel
from dolma_dask.text.sha1 import sha1_words

RUN = 1 << 14
"""Shingles that are hashed together."""


@dataclass(frozen=True)
class Permutations:
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
