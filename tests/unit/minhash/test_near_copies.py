"""Near copies have the similarity they are made for, and are found in scripts without spaces."""

import random

import numpy as np
import pyarrow as pa
import pytest
from thorough import examples

from dolma_dask.minhash.bands import Bands, band_keys
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.testing.near_copies import SCRIPTS, char_ngrams, jaccard, near_copy, unspaced_text


def test_a_copy_is_as_similar_as_it_shall_be():
    draws = random.Random(1)
    for script in SCRIPTS:
        text = unspaced_text(script, 500, draws)
        for least, most in [(0.3, 0.5), (0.8, 0.9), (0.9, 0.98)]:
            copy = near_copy(text, least, most, draws)
            assert least <= jaccard(char_ngrams(text), char_ngrams(copy)) <= most
    with pytest.raises(ValueError, match="no copy of 5 characters"):
        near_copy("あいうえお", 0.8, 0.9, draws)


@pytest.mark.slow
def test_nine_of_ten_near_copies_share_a_band_in_scripts_without_spaces():
    """Pairs at a Jaccard similarity of their character 5-grams from 0.8 to 0.9."""
    draws = random.Random(2)
    pairs = range(examples(60))
    originals = [unspaced_text(script, draws.randint(300, 900), draws) for script in SCRIPTS for _ in pairs]
    copies = [near_copy(text, 0.8, 0.9, draws) for text in originals]
    for unit in ("word", "char"):
        keys = [
            band_keys(MinHash(unit=unit).sign(pa.array(texts, pa.large_string())).values, Bands(14, 8), 0, 14)
            for texts in (originals, copies)
        ]
        shared = (keys[0] == keys[1]).any(axis=1).reshape(len(SCRIPTS), -1).mean(axis=1)
        assert np.all(shared >= 0.9), dict(zip(SCRIPTS, shared, strict=True))
