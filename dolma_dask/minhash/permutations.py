"""The permutations of MinHash: 32-bit multiply-add, and the minimum of each over the shingles of a text.

A permutation is ``h -> a * h + b`` modulo 2**32 with an odd `a`: a bijection of 32-bit hashes, so that a minimum names one hash. Shingles must
be mixed beforehand: of two hashes that differ in their upper bits alone, no permutation changes the lower ones.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Int, kernel

Halves = npt.NDArray[np.uint32]

NOTHING = np.uint32(0xFFFFFFFF)
"""Minimum over no shingle."""


@cache
def multiply_add(seed: int, num_perm: int) -> tuple[Halves, Halves]:
    """Return `a` (odd) and `b` of all permutations, each uint32 (num_perm,): the first draws of ``numpy.random.RandomState(seed)``,
    all of `a` and then all of `b`.
    """
    draws = np.random.RandomState(seed).randint(0, 1 << 32, (2, num_perm), np.uint32)
    return for_kernel(draws[0] | np.uint32(1)), for_kernel(draws[1])


@kernel
def lower32(hashes: Halves, first: Int, last: Int, a: Halves, b: Halves, out: Halves, row: Int) -> None:
    """Lower the minima ``out[row]`` to those that also cover ``hashes[first:last]``.

    Eight hashes in one sweep over the permutations: so a minimum is loaded and stored once for eight, and LLVM makes vectors of the loop.
    """
    at, size = first, a.size
    while at + 8 <= last:
        h0, h1, h2, h3 = hashes[at], hashes[at + 1], hashes[at + 2], hashes[at + 3]
        h4, h5, h6, h7 = hashes[at + 4], hashes[at + 5], hashes[at + 6], hashes[at + 7]
        for k in range(size):
            x, y = a[k], b[k]
            low = min(np.uint32(x * h0 + y), np.uint32(x * h1 + y))
            low = min(low, min(np.uint32(x * h2 + y), np.uint32(x * h3 + y)))
            low = min(low, min(np.uint32(x * h4 + y), np.uint32(x * h5 + y)))
            low = min(low, min(np.uint32(x * h6 + y), np.uint32(x * h7 + y)))
            out[row, k] = min(out[row, k], low)
        at += 8
    # fewer than eight are left
    while at < last:
        h0 = hashes[at]
        for k in range(size):
            out[row, k] = min(out[row, k], np.uint32(a[k] * h0 + b[k]))
        at += 1
