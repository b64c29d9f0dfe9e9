"""The permutations of datasketch before 2.0, and of RedPajama-V2: low 32 bits of ``((a * h + b) mod 2**64) mod (2**61 - 1)``.

That the product wraps at 64 bits is part of the definition: exact arithmetic gives other values.
"""

import numpy as np

from dolma_dask.minhash.permutations import Halves
from dolma_dask.text.bits import ONE
from dolma_dask.text.kernels import Counts, Int, Words, kernel

PRIME = np.uint64((1 << 61) - 1)
_S61 = np.uint64(61)


def mersenne_draws(seed: int, num_perm: int) -> tuple[Words, Words]:
    """Return `a` and `b` of all permutations, each uint64 (num_perm,), drawn in turn from ``numpy.random.RandomState(seed)``."""
    generator = np.random.RandomState(seed)
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
