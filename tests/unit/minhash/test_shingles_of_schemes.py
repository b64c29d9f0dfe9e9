"""Shingles of each scheme: the sets whose Jaccard similarity its signatures estimate."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.minhash.schemes import MinHash, jaccard

SCHEMES = [
    MinHash("dolma_dask", 3),
    MinHash("dolma_dask", 4, "char"),
    MinHash("datasketch", 3),
    MinHash("datasketch_legacy", 4, "char"),
    MinHash("redpajama_v2", 3),
]


def texts_of(seed):
    """Return a text of 300 words and copies of it of which ever more differs."""
    draw = random.Random(seed)
    words = [f"w{draw.randrange(10**6)}" for _ in range(300)]
    copies = [[*words[:kept], *(f"v{draw.randrange(10**6)}" for _ in range(300 - kept))] for kept in (300, 250, 150, 0)]  # fmt: skip
    return pa.array([" ".join(copy) for copy in copies], pa.large_string())


@pytest.mark.slow
@pytest.mark.parametrize("minhash", SCHEMES, ids=lambda one: one.label)
def test_signatures_estimate_the_jaccard_similarity_of_the_shingles(minhash):
    texts = texts_of(5)
    bounds, shingles = minhash.shingles(texts)
    sets = [shingles[bounds[n] : bounds[n + 1]] for n in range(len(texts))]
    values = minhash.sign(texts).values
    for n in range(len(texts)):
        true = jaccard(sets[0], sets[n])
        error = 4 * np.sqrt(true * (1 - true) / minhash.num_perm) + 1e-9
        assert abs((values[0] == values[n]).mean() - true) <= error
    assert jaccard(sets[0], sets[0]) == 1


@pytest.mark.parametrize("minhash", SCHEMES, ids=lambda one: one.label)
def test_bounds_are_those_of_each_text(minhash):
    texts = pa.array(["", "a b", "a b c d e", "日本語 テキスト", "", "x" * 9], pa.large_string())
    bounds, shingles = minhash.shingles(texts)
    for n, text in enumerate(texts):
        alone = minhash.shingles(pa.array([text], pa.large_string()))[1]
        assert shingles[bounds[n] : bounds[n + 1]].tolist() == alone.tolist()
    assert bounds[1] == 0
    assert jaccard(shingles[:0], shingles[:0]) is None
