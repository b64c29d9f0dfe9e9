"""Minima of the permutations modulo a Mersenne prime are those of whole numbers in Python."""

import hashlib

import numpy as np
import pytest

from dolma_dask.minhash.published import PRIME, lower_rows61, mersenne_draws

P = int(PRIME)


def permuted(value, a, b):
    return ((value * a + b) % 2**64 % P) & 0xFFFFFFFF


@pytest.mark.parametrize("num_perm", [1, 7, 100, 128])
def test_minima_of_rows(num_perm):
    a, b = mersenne_draws(3, num_perm)
    bounds = np.cumsum([0, 0, 1, 3, 4, 5, 50])
    hashes = np.random.default_rng(5).integers(0, 1 << 32, bounds[-1], np.uint32)
    out = np.full((bounds.size, num_perm), 0xFFFFFFFF, np.uint32)
    lower_rows61(hashes, bounds, a, b, out, 1)
    for row in range(bounds.size - 1):
        own = hashes[bounds[row] : bounds[row + 1]].tolist()
        expected = [
            min([permuted(h, x, y) for h in own], default=0xFFFFFFFF)
            for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ]
        assert out[row + 1].tolist() == expected
    assert (out[0] == 0xFFFFFFFF).all()


def test_remainders_at_the_edges():
    """Sums that reach the prime are too rare to be met by chance."""
    edges = [k * P + d for k in range(9) for d in range(-2, 3) if 0 <= k * P + d < 2**64] + [
        2**64 - 1,
        2**61,
        2**63,
    ]
    for edge in edges:
        out = np.full((1, 1), 0xFFFFFFFF, np.uint32)
        one, summand = np.ones(1, np.uint64), np.array([edge], np.uint64)
        lower_rows61(np.zeros(1, np.uint32), np.array([0, 1]), one, summand, out, 0)
        assert out.item() == (edge % P) & 0xFFFFFFFF, edge


def test_permutations_of_redpajama():
    """The checksum that its pipeline logs for 128 permutations of seed 42."""
    a, b = mersenne_draws(42, 128)
    assert a[0] == 2297359619001564596
    assert b[0] == 1396682528897996046
    digest = hashlib.sha256(a.tobytes() + b.tobytes()).hexdigest()
    assert digest == "6a5665743fa1884640a8eb3543348255a90b4dbd55b093f39e3d61ac90eac9e1"
