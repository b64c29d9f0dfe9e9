"""The signatures of datasketch 2, bit for bit, given the same shingles.

Shingles are n-grams of words (those of `str.split`, joined by blanks) or of code points, as UTF-8. The first four bytes of their SHA-1, as a
little-endian number, are permuted: by ``affine32``, its default (the hash is mixed once, then multiplied and added modulo 2**32), or by ``legacy``,
its only way before 2.0 (`dolma_dask.minhash.mersenne`). Source: ``datasketch/minhash.py``.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.minhash.mersenne import lower_rows61, mersenne_draws
from dolma_dask.minhash.parts import CHARACTERS, WORDS
from dolma_dask.minhash.permutations import Halves, lower32
from dolma_dask.minhash.shingles import Permutations, sign_strings
from dolma_dask.text.kernels import Counts, Int, kernel

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
    for i in range(bounds.size - 1):
        lower32(hashes, bounds[i], bounds[i + 1], a, b, out, row + i)
