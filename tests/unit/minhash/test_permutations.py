"""Minima over permutations are those of NumPy, for any number of hashes and of permutations."""

import re
from itertools import pairwise

import numba
import numpy as np
import pytest

from dolma_dask.minhash.permutations import NOTHING, lower32, multiply_add


def plain_minima(hashes, a, b):
    return (a * hashes[:, None] + b).min(axis=0, initial=NOTHING)


@pytest.mark.parametrize("num_perm", [1, 7, 16, 100, 128, 256])
def test_minima_are_those_of_numpy(num_perm):
    a, b = multiply_add(3, num_perm)
    bounds = np.cumsum([0, 0, 1, 7, 8, 9, 16, 100])
    hashes = np.random.default_rng(5).integers(0, 1 << 32, bounds[-1], np.uint32)
    out = np.full((bounds.size - 1, num_perm), NOTHING, np.uint32)
    for row, (first, last) in enumerate(pairwise(bounds)):
        lower32(hashes, first, last, a, b, out, row)
        np.testing.assert_array_equal(out[row], plain_minima(hashes[first:last], a, b))


def test_minima_of_pieces_are_those_of_the_whole():
    a, b = multiply_add(0, 20)
    hashes = np.arange(50, dtype=np.uint32) * np.uint32(0x9E3779B1)
    out = np.full((2, 20), NOTHING, np.uint32)
    for first, last in [(0, 3), (3, 3), (3, 29), (29, 50)]:
        lower32(hashes, first, last, a, b, out, 1)
    np.testing.assert_array_equal(out[1], plain_minima(hashes, a, b))
    assert (out[0] == NOTHING).all()


def test_permutations_are_bijections_drawn_from_the_seed():
    a, b = multiply_add(42, 128)
    assert a.dtype == b.dtype == np.uint32
    assert (a % 2 == 1).all()
    draws = np.random.RandomState(42)
    np.testing.assert_array_equal(a, draws.randint(0, 1 << 32, 128, np.uint32) | 1)
    np.testing.assert_array_equal(b, draws.randint(0, 1 << 32, 128, np.uint32))
    assert (multiply_add(43, 128)[0] != a).any()


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_a_sweep_is_made_of_vectors(first):
    """Eight products and eight minima of several permutations at once; scalar code would take ten times as long."""
    compiled = numba.njit(_nrt=False)(lower32.py_func)
    a, b = multiply_add(0, 128)
    compiled(np.arange(20, dtype=np.uint32), first, 20, a, b, np.full((1, 128), NOTHING, np.uint32), 0)
    (code,) = compiled.inspect_asm().values()
    for name in ("pmulld|mul\tv", "pminud|umin"):
        assert len(re.findall(name, code)) >= 8, name
