"""Signatures of others, bit for bit, given the same shingles: those of datasketch 2, and those that RedPajama-V2 is published with.

Shingles are n-grams of words (those of `str.split` in datasketch, of `dolma_dask.text.normalization` in RedPajama-V2, joined by blanks) or of
code points, as UTF-8. The first four bytes of their SHA-1, as a little-endian number, are permuted: by ``affine32``, the default of datasketch
(the hash is mixed once, then multiplied and added modulo 2**32), or by its only way before 2.0, which is that of RedPajama-V2: the low 32 bits of
``((a * h + b) mod 2**64) mod (2**61 - 1)``. That the product wraps at 64 bits is part of the definition: exact arithmetic gives other values.

Sources: ``datasketch/minhash.py``; RedPajama-Data, ``app/src/core/worker.py`` and ``app/src/dedupe/minhash.py``.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.minhash.permutations import Halves, lower32
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.minhash.shingles import CHARACTERS, NORMALISED_WORDS, WORDS, Permutations, sign_strings
from dolma_dask.text.bits import ONE
from dolma_dask.text.kernels import Counts, Int, Words, kernel

PUBLISHED = MinHash("redpajama_v2", ngram=13, unit="word", num_perm=128, seed=42)
"""Parameters of the signatures of RedPajama-V2."""

PRIME = np.uint64((1 << 61) - 1)
_S61 = np.uint64(61)

_MIX1, _MIX2 = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_S13, _S16 = np.uint32(13), np.uint32(16)


def sign_datasketch(
    texts: pa.LargeStringArray, *, ngram: int, unit: Literal["word", "char"], num_perm: int, seed: int, legacy: bool
) -> tuple[Halves, npt.NDArray[np.uint8]]:  # fmt: skip
    """Return the signatures of texts without nulls, uint32 (n, num_perm), and their kinds (n,).

    A text of fewer than `ngram` tokens is one shingle, its words joined by blanks. Raises `DataError`: a text has 512 MiB or more.
    """
    if legacy:
        permutations = Permutations(lower_rows61, *mersenne_draws(seed, num_perm))
    else:
        permutations = Permutations(_lower_rows32, *affine_draws(seed, num_perm))
    kind = WORDS if unit == "word" else CHARACTERS
    return sign_strings(texts, kind, permutations, ngram=ngram, signs_short=True)


def sign_redpajama(
    texts: pa.LargeStringArray,
    *,
    ngram: int = PUBLISHED.ngram,
    num_perm: int = PUBLISHED.num_perm,
    seed: int = PUBLISHED.seed,
) -> tuple[Halves, npt.NDArray[np.uint8]]:
    """Return the signatures of texts without nulls, uint32 (n, num_perm), and their kinds (n,); a text of fewer than `ngram` words has none.

    Raises `DataError`: a text has 512 MiB or more.
    """
    permutations = Permutations(lower_rows61, *mersenne_draws(seed, num_perm))
    return sign_strings(texts, NORMALISED_WORDS, permutations, ngram=ngram, signs_short=False)


def affine_draws(seed: int, num_perm: int) -> tuple[Halves, Halves]:
    """Return odd factors and summands, each uint32 (num_perm,), as datasketch draws them for ``affine32``."""
    generator = np.random.RandomState(seed)
    half = generator.randint(0, 1 << 31, num_perm, dtype=np.uint32)
    return half * np.uint32(2) + np.uint32(1), generator.randint(0, 1 << 32, num_perm, dtype=np.uint32)


@kernel
def _lower_rows32(hashes: Halves, bounds: Counts, a: Halves, b: Halves, out: Halves, row: Int) -> None:
    """Mix the hashes, in place (the finalizer of MurmurHash3), and lower the minima of each row from `row` on by those that are its own."""
    for i in range(hashes.size):
        mixed = hashes[i] ^ (hashes[i] >> _S16)
        mixed = np.uint32(mixed * _MIX1)
        mixed = np.uint32((mixed ^ (mixed >> _S13)) * _MIX2)
        hashes[i] = mixed ^ (mixed >> _S16)
    # in place above, since each hash is mixed once for all permutations
    for i in range(bounds.size - 1):
        lower32(hashes, bounds[i], bounds[i + 1], a, b, out, row + i)


def mersenne_draws(seed: int, num_perm: int) -> tuple[Words, Words]:
    """Return `a` and `b` of all permutations, each uint64 (num_perm,), drawn in turn from ``numpy.random.RandomState(seed)``."""
    generator = np.random.RandomState(seed)
    # a of a permutation, then its b: the order of the draws is part of the definition
    pairs = [[generator.randint(least, PRIME, dtype=np.uint64) for least in (1, 0)] for _ in range(num_perm)]
    a, b = np.array(pairs, np.uint64).T
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


@kernel
def _permuted(value: np.uint64, a: np.uint64, b: np.uint64) -> np.uint32:
    """Add the three bits above 61 to those below, and take the prime off where the sum reaches it, which adds 1 to the low bits."""
    value = value * a + b
    value = (value & PRIME) + (value >> _S61)
    return np.uint32(value + ((value + ONE) >> _S61))


@kernel
def lower61(hashes: Halves, first: Int, last: Int, a: Words, b: Words, out: Halves, row: Int) -> None:
    """Lower the minima ``out[row]`` to those that also cover ``hashes[first:last]``.

    Four hashes in one sweep over the permutations: a minimum is loaded and stored once for four.
    """
    at, size = first, a.size
    while at + 4 <= last:
        h0, h1 = np.uint64(hashes[at]), np.uint64(hashes[at + 1])
        h2, h3 = np.uint64(hashes[at + 2]), np.uint64(hashes[at + 3])
        for k in range(size):
            x, y = a[k], b[k]
            low = min(_permuted(h0, x, y), _permuted(h1, x, y))
            low = min(low, min(_permuted(h2, x, y), _permuted(h3, x, y)))
            out[row, k] = min(out[row, k], low)
        at += 4
    # fewer than four are left
    while at < last:
        h0 = np.uint64(hashes[at])
        for k in range(size):
            out[row, k] = min(out[row, k], _permuted(h0, a[k], b[k]))
        at += 1


@kernel
def lower_rows61(hashes: Halves, bounds: Counts, a: Words, b: Words, out: Halves, row: Int) -> None:
    """Lower the minima of each row from `row` on to those that also cover ``hashes[bounds[i]:bounds[i + 1]]``."""
    for i in range(bounds.size - 1):
        lower61(hashes, bounds[i], bounds[i + 1], a, b, out, row + i)
