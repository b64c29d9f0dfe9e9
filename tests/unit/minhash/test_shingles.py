"""Signatures do not depend on how texts are cut into pieces and their shingles into runs."""

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import DataError
from dolma_dask.minhash import shingles
from dolma_dask.minhash.schemes import EMPTY, SIGNED, MinHash
from dolma_dask.text import joined

TEXTS = [
    "",
    "a b c",
    "one two three four five six",
    " ",
    "é" * 50,
    "x",
    "",
    "the end " * 60,
    "",
    "Ω y z " * 9,
]

SCHEMES = [
    MinHash("redpajama_v2", ngram=3, num_perm=7),
    MinHash("datasketch", ngram=3, num_perm=7),
    MinHash("datasketch_legacy", ngram=4, unit="char", num_perm=7),
]

CUTS = [
    (1, 1 << 20, 1),
    (30, 1 << 20, 3),
    (1 << 18, 1 << 20, 2),
    (1 << 18, 1 << 20, 100),
    (1, 1, 1 << 14),
    (1, 2, 3),
    (1, 9, 1 << 14),
    (20, 64, 100),
]
"""Bytes of a piece, bytes of a part, shingles of a run."""


@pytest.mark.slow
@pytest.mark.parametrize("minhash", SCHEMES, ids=lambda minhash: minhash.label)
def test_pieces_and_runs(minhash, monkeypatch):
    texts = pa.array(TEXTS, pa.large_string())
    whole = minhash.sign(texts)
    bounds, shingles_of_texts = minhash.shingles(texts)
    signed = minhash.has_signature(whole.kinds)
    assert len({tuple(row) for row in whole.values[signed].tolist()}) == signed.sum()
    for piece_bytes, part_bytes, run in CUTS:
        monkeypatch.setattr(shingles, "PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(shingles, "PART_BYTES", part_bytes)
        monkeypatch.setattr(shingles, "RUN", run)
        again = minhash.sign(texts)
        np.testing.assert_array_equal(again.kinds, whole.kinds)
        np.testing.assert_array_equal(again.values[signed], whole.values[signed])
        for found, expected in zip(minhash.shingles(texts), (bounds, shingles_of_texts), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_tokens_of_a_long_text_are_made_part_by_part(monkeypatch):
    """Not of a whole batch, or of a whole text."""
    monkeypatch.setattr(shingles, "PIECE_BYTES", 1000)
    monkeypatch.setattr(shingles, "PART_BYTES", 1000)
    sizes, find = [], shingles.token_parts

    def watched(*args):
        for rows, tokens in find(*args):
            sizes.append(len(tokens.starts))
            yield rows, tokens

    monkeypatch.setattr(shingles, "token_parts", watched)
    texts = pa.array(["one two three " * 2_000, *(["four five six "] * 500)], pa.large_string())
    for minhash in SCHEMES:
        bounds, found = minhash.shingles(texts)
        assert len(found) == bounds[-1] > 6_000
    assert max(sizes) < 1100


def test_no_text():
    signed = SCHEMES[0].sign(pa.array([], pa.large_string()))
    assert signed.values.shape == (0, 7)
    assert signed.kinds.shape == (0,)


def test_a_text_that_is_too_long(monkeypatch):
    monkeypatch.setattr(joined, "LONGEST_TEXT", 10)
    texts = pa.array(["short", "eleven char"], pa.large_string())
    for minhash in SCHEMES:
        with pytest.raises(DataError, match=r"row 1 of the batch is a text of 11 bytes; .* up to 10 bytes"):
            minhash.sign(texts)
        with pytest.raises(DataError, match=r"row 1 of the batch is a text of 11 bytes; .* up to 10 bytes"):
            minhash.shingles(texts)
    assert SCHEMES[0].sign(texts.slice(0, 1)).kinds.tolist() != [EMPTY]


def test_repeated_shingles_count_once():
    once, often = "a b c d", "a b c d a b c d a b c d a b c d"
    signed = SCHEMES[1].sign(pa.array([once, often, "a b c d a b"], pa.large_string()))
    assert signed.kinds.tolist() == [SIGNED] * 3
    np.testing.assert_array_equal(signed.values[1], signed.values[2])
    assert (signed.values[1] <= signed.values[0]).all()
